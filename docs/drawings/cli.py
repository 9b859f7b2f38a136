"""docs/cli.md: every command with its options, from the tree of commands."""

from __future__ import annotations

from collections.abc import Iterator

import click

from drawings.docstrings import code, prose
from drawings.markdown import document, grid
from iris.cli.exit_codes import ExitCode
from iris.cli.root import root

EXPLAINED = """\
`iris COMMAND --help` (`-h`) prints the same. Results go to stdout, everything meant for people to stderr. `-o json` is
the object of the [HTTP API](http.md). `--url` and `--context` before a command and after it mean the same. `iris up`,
`iris down`, `iris server` and `iris admin` run on the machines of the cluster; every other command talks HTTP only.
A JOB is a name, one's own first; `train@ann` is that of ann, `j7` is an id."""

EXITS = "For scripts; a code never gets a second meaning."


def walk(context: click.Context) -> Iterator[click.Context]:
    """The context of a command and of everything below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from walk(
                click.Context(command, parent=context, info_name=name, **command.context_settings)
            )


def option_rows(context: click.Context) -> list[str]:
    """One bullet for each option, as its help shows it."""
    records = [
        parameter.get_help_record(context)
        for parameter in context.command.get_params(context)
        if not isinstance(parameter, click.Argument) and "--help" not in parameter.opts
    ]
    return [
        f"* `{names}`" + (f": {code(words)}" if words else "")
        for names, words in filter(None, records)
    ]


def section(context: click.Context) -> Iterator[str]:
    """What one command does, its arguments, and its options or its commands."""
    depth = 2 + min(context.command_path.count(" ") - 1, 1) if context.parent else 2
    yield f"{'#' * depth} {context.command_path}"
    yield from prose(context.command.help)
    arguments = " ".join(context.command.collect_usage_pieces(context)[1:])
    if arguments and not isinstance(context.command, click.Group):
        yield f"Arguments: `{arguments}`"
    if options := option_rows(context):
        yield "\n".join(options)
    if isinstance(context.command, click.Group):
        below = [
            f"{context.command_path} {name}" for name in context.command.list_commands(context)
        ]
        yield (
            "Commands: "
            + ", ".join(f"[`{path}`](#{path.replace(' ', '-')})" for path in below)
            + "."
        )


def cli_document() -> str:
    """Every command in the order of `iris --help`."""
    parts = [
        text
        for context in walk(click.Context(root, info_name="iris", **root.context_settings))
        for text in section(context)
    ]
    exits = grid(
        ("code", "meaning"),
        ((str(code.value), code.name.lower().replace("_", " ")) for code in ExitCode),
    )
    return document(
        "Command line", "the commands of iris.cli", EXPLAINED, *parts, "## Exit codes", EXITS, exits
    )
