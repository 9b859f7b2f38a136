"""`iris port-forward`: ports of this machine at which those of a task answer."""

from __future__ import annotations

import contextlib
import re
import time

import click

from iris.cli.commands.control.exec import task_of
from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris.client.executions import RemoteCommand
from iris.client.problems import ClientError, ExecutionLost
from iris.client.tunnels import PortForward
from iris_core.views.jobs import TaskView

_LOOK_S = 1.0
_PORT = re.compile(
    r"((?P<local>\d{1,5}):)?((?P<number>\d{1,5})|(?P<name>[A-Za-z][A-Za-z0-9_-]{0,31}))\Z"
)
_LARGEST = 65_535
_BEFORE = ("pending", "assigned", "building")


@click.command("port-forward", cls=CliCommand)
@click.argument("task", type=NAME, metavar="TASK|JOB")
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]REMOTE...")
@connected
def port_forward(client: Client, task: str, ports: tuple[str, ...]) -> int:
    """Answer at ports of this machine as a running task does at its own, until the task ends or
    Ctrl-C.

    REMOTE is a number, or the name of a --port of the job; a process of the task must listen on it.
    LOCAL is the same number where that is free. Only programs of this machine reach it, and no port
    of the task's host is opened.
    """
    wanted = [read_port(text) for text in ports]
    task = task_of(client, task)
    attempt = until_it_runs(client, task)
    named = dict[str, PortForward]()
    with contextlib.ExitStack() as held:
        for local, remote in wanted:
            number = remote if isinstance(remote, int) else named_port(client, task, remote)
            forward = held.enter_context(open_port(client, task, number, local))
            say(forward)
            if isinstance(remote, str):
                named[remote] = forward
        try:
            while (view := until_it_ends(client, task, attempt)).state in (*_BEFORE, "running"):
                with contextlib.suppress(ClientError):
                    if view.state == "running":
                        for name, forward in named.items():
                            forward.port = named_port(client, task, name)
                            say(forward)
                        attempt = view.attempts[-1].number
        except KeyboardInterrupt:
            return ExitCode.DETACHED
    note(f"{task} is not running any more")
    return ExitCode.SUCCEEDED


def say(forward: PortForward) -> None:
    click.echo(
        f"{forward.address[0]}:{forward.address[1]} is port {forward.port} of {forward.task}"
    )


def read_port(text: str) -> tuple[int | None, int | str]:
    """``8080:80`` or ``80`` or ``web``. Raises UsageError."""
    found = _PORT.match(text)
    local = int(found["local"]) if found and found["local"] else None
    remote = (int(found["number"]) if found["number"] else found["name"]) if found else 0
    if not remote or (isinstance(remote, int) and remote > _LARGEST) or (local or 0) > _LARGEST:
        raise click.UsageError(
            f"{text!r} is not [LOCAL:]REMOTE, for example 8080:80, or 8080:web for --port web"
        )
    return local, remote


def named_port(client: Client, task: str, name: str) -> int:
    """The number of a port of a task's job. Raises UsageError, ExecutionLost."""
    variable = f"IRIS_PORT_{re.sub('[^A-Z0-9]', '_', name.upper())}"
    with RemoteCommand(client, task, ("/bin/sh", "-c", f'echo "${variable}"')) as remote:
        text = b"".join(line.stdout for line in remote).decode().strip()
    if remote.exit_code:
        raise ExecutionLost(
            f"the command that reads the ports of {task} was ended, as when the task ends"
        )
    if not text.isdigit():
        raise click.UsageError(f"{task} has no port {name}; --port {name} of its job reserves one")
    return int(text)


def open_port(client: Client, task: str, number: int, local: int | None) -> PortForward:
    """A local port for a task's: the one that is wanted, otherwise of the same number, or a free
    one.

    Raises UsageError.
    """
    reported: set[str] = set()
    mistake = ""

    def trouble(why: str) -> None:
        if why not in reported:
            reported.add(why)
            note(why)

    for at in (number, 0) if local is None else (local,):
        try:
            return PortForward(client, task, number, local_port=at, on_trouble=trouble)
        except (OSError, OverflowError) as error:
            mistake = str(error)
    raise click.UsageError(f"cannot listen on port {local}: {mistake}")


def until_it_runs(client: Client, task: str) -> int:
    """Wait while a task has not started; returns the attempt that runs. Raises UsageError when the
    task has ended.
    """
    said = False
    while (view := client.task(task)).state in _BEFORE:
        if not said:
            note(f"{task} is {view.state}; waits until it runs (iris why {task})")
            said = True
        time.sleep(_LOOK_S)
    if view.state != "running":
        raise click.UsageError(
            f"{task} has ended ({view.state}); ports of a running task only are forwarded"
        )
    return view.attempts[-1].number


def until_it_ends(client: Client, task: str, attempt: int) -> TaskView:
    """Wait while this attempt of a task runs; returns the task. A gateway may be silent for a
    while.
    """
    while True:
        time.sleep(_LOOK_S)
        with contextlib.suppress(ClientError):
            view = client.task(task)
            if view.state != "running" or view.attempts[-1].number != attempt:
                return view
