"""`iris exec`: a command beside a running task, with this terminal's input, output, size and
signals.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial

import click

from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.cli.remote_terminal import (
    TypedInput,
    interrupts,
    raw_terminal,
    resizes,
    terminal_size,
    write_all,
)
from iris.client.client import Client
from iris.client.executions import RemoteCommand
from iris.client.http.api import is_task
from iris.client.http.transport import in_path
from iris_core.views.jobs import TaskView


@click.command(cls=CliCommand, context_settings={"allow_interspersed_args": False})
@click.argument("task", type=NAME, metavar="TASK|JOB")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Allocate a terminal.")
@click.option("-n", "--no-stdin", is_flag=True, help="Do not forward standard input.")
@connected
def exec_(
    client: Client, task: str, command: tuple[str, ...], terminal: bool, no_stdin: bool
) -> int:
    """Execute a command beside a running task: on its host, in its directory and environment.

    Of a job with one task it is that task. The exit code is the command's; 255 when it was ended
    before, or the connection to it broke. It ends with its task, and with this command. Ctrl-C
    interrupts it; a second one ends it.
    """
    command = command[1:] if command[0] == "--" else command
    size = terminal_size() if terminal else None
    task = task_of(client, task)
    with RemoteCommand(client, task, command, terminal=size) as remote, TypedInput(remote) as given:
        interactive = terminal and sys.stdin.isatty()
        changes = resizes(given) if terminal else contextlib.nullcontext()
        with raw_terminal() if interactive else interrupts(given), changes:
            if no_stdin:
                given.put(partial(remote.write, b"", end=True))
            else:
                given.read_stdin()
            for line in remote:
                write_all(1, line.stdout)
                write_all(2, line.stderr)
    if remote.error:
        note(remote.error)
    return ExitCode.UNEXPECTED if remote.exit_code is None else remote.exit_code


def task_of(client: Client, name: str) -> str:
    """A task by its name, or the only task of a job. Raises UsageError for a job of several."""
    if is_task(name):
        return name
    first, *others = client.pages(f"/v1/jobs/{in_path(name)}/tasks", TaskView, limit=2)
    if others:
        raise click.UsageError(
            f"{first.job} has several tasks; specify one, for example {first.task}"
        )
    return first.task
