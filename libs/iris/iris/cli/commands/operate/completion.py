"""`iris completion`: the script a shell needs to complete commands, options and job names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from iris.cli.parsing.command import CliCommand


@click.command(cls=CliCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print completion for a shell, for example: eval "$(iris completion bash)"."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"unsupported shell: {shell}")
    click.echo(kind(ctx.find_root().command, {}, "iris", "_IRIS_COMPLETE").source())
