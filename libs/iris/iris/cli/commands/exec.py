"""`iris exec`: a command beside a running task, with this terminal's input, output, size and signals."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from functools import partial

import click

from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.cli.options import NAME, connected
from iris.cli.parsing import CliCommand
from iris.client.api import is_task
from iris.client.client import Client
from iris.client.executions import RemoteCommand, TerminalSize
from iris.client.problems import ClientError
from iris.client.transport import in_path
from iris_core.views import TaskView

_PIECE = 64 * 1024
_WAITING = 4
"""Pieces of input that are read ahead."""


@click.command(cls=CliCommand, context_settings={"allow_interspersed_args": False})
@click.argument("task", type=NAME, metavar="TASK|JOB")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Allocate a terminal.")
@click.option("-n", "--no-stdin", is_flag=True, help="Do not forward standard input.")
@connected
def exec_(client: Client, task: str, command: tuple[str, ...], terminal: bool, no_stdin: bool) -> int:
    """Execute a command beside a running task: on its host, in its directory and environment.

    Of a job with one task it is that task. The exit code is the command's; 255 when it was ended before, or the
    connection to it broke. It ends with its task, and with this command. Ctrl-C interrupts it; a second one ends it.
    """
    command = command[1:] if command[0] == "--" else command
    size = _size() if terminal else None
    task = task_of(client, task)
    with RemoteCommand(client, task, command, terminal=size) as remote, _Input(remote) as given:
        interactive = terminal and sys.stdin.isatty()
        with _raw_terminal() if interactive else _interrupts(given), _resizes(given, terminal):
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
        raise click.UsageError(f"{first.job} has several tasks; say which, for example {first.task}")
    return first.task


class _Input:
    """Sends what is typed, signals and sizes in their order, from a thread."""

    def __init__(self, remote: RemoteCommand) -> None:
        self.remote = remote
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._room = threading.Semaphore(_WAITING)
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> _Input:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)

    def put(self, send: Callable[[], None]) -> None:
        self._queue.put(send)

    def read_stdin(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            self._room.acquire()
            try:
                data = os.read(0, _PIECE)
            except OSError:
                data = b""
            self.put(partial(self._write, data))
            if not data:
                return

    def _write(self, data: bytes) -> None:
        self.remote.write(data, end=not data)
        self._room.release()

    def _send(self) -> None:
        with contextlib.suppress(ClientError):  # the command has ended, which its output tells
            while (send := self._queue.get()) is not None:
                send()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass on every key as it is typed."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what is typed already is kept
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _interrupts(given: _Input) -> Iterator[None]:
    """The first Ctrl-C is the command's; the next one raises KeyboardInterrupt."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        given.put(partial(given.remote.signal, "INT"))

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _resizes(given: _Input, terminal: bool) -> Iterator[None]:
    """Pass on changes of this terminal's size."""

    def resize(*_: object) -> None:
        size = _size()
        given.put(partial(given.remote.resize, size.rows, size.columns))

    before = signal.signal(signal.SIGWINCH, resize) if terminal else None
    try:
        yield
    finally:
        if terminal:
            signal.signal(signal.SIGWINCH, before)


def _size() -> TerminalSize:
    columns, rows = 80, 24
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(fd)
            break
    return TerminalSize(max(1, rows), max(1, columns), os.environ.get("TERM", ""))


def write_all(fd: int, data: bytes) -> None:
    """Write bytes as they are. Raises BrokenPipeError."""
    while data:
        data = data[os.write(fd, data) :]
