"""`iris cancel`: kill jobs and everything below them, or single calls of maps."""

from __future__ import annotations

import click

from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.indexes import for_each
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris.client.http.api import is_task


@click.command(cls=CliCommand)
@click.argument("names", nargs=-1, required=True, type=NAME, metavar="JOB|TASK...")
@click.option("--reason", default="", help="Reason stored with the job or the task.")
@click.option(
    "--now",
    is_flag=True,
    help="Without stop signal and grace period, also what is being stopped already.",
)
@connected
def cancel(client: Client, names: tuple[str, ...], reason: str, now: bool) -> int:
    """Kill jobs and everything below them; killing what has ended changes nothing.

    Of a map, TASK kills one call, and the others go on; sweep/0-2,7 names several tasks.

    Where some of several cannot be killed, the others are; the exit code is that of the first.
    """

    def kill(name: str) -> None:
        found = client.cancel(name, reason, now=now)
        click.echo(f"{name} killed" if is_task(name) else f"{found.name} {found.state}", err=True)

    return for_each(client, names, kill)
