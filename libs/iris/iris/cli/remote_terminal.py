"""This machine's terminal at a remote stream: what is typed, its size and its signals go there, in
their order.
"""

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

from iris.client.executions import RemoteStream, TerminalSize
from iris.client.problems import ClientError

_PIECE = 64 * 1024
_WAITING = 4
"""Pieces of input that are read ahead."""


class TypedInput:
    """Sends what is typed, signals and sizes in their order, from a thread.

    Attributes:
        remote: where to; may be changed. What cannot be sent is dropped: its output tells that it
            has ended.
    """

    def __init__(self, remote: RemoteStream) -> None:
        self.remote = remote
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._room = threading.Semaphore(_WAITING)
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> TypedInput:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)

    def start(self) -> None:
        self._thread.start()

    def put(self, send: Callable[[], None]) -> None:
        self._queue.put(send)

    def interrupt(self) -> None:
        """Have the command interrupted."""
        self.put(lambda: self.remote.signal("INT"))

    def alive(self) -> None:
        """Say that this client is there."""
        self.remote.alive()

    def resize(self) -> None:
        """Tell the size of this terminal."""
        size = terminal_size()
        self.remote.resize(size.rows, size.columns)

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
        try:
            self.remote.write(data, end=not data)
        finally:
            self._room.release()

    def _send(self) -> None:
        while (send := self._queue.get()) is not None:
            with contextlib.suppress(ClientError):
                send()


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Pass on every key as it is typed; nothing where standard input is not a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what is typed already is kept
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextlib.contextmanager
def interrupts(given: TypedInput) -> Iterator[None]:
    """The first Ctrl-C is the command's; the next one raises KeyboardInterrupt."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        given.interrupt()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def resizes(given: TypedInput) -> Iterator[None]:
    """Pass on changes of this terminal's size: the newest one, however many there are."""
    waiting = threading.Event()

    def send() -> None:
        waiting.clear()
        given.resize()

    def resize(*_: object) -> None:
        if not waiting.is_set():
            waiting.set()
            given.put(send)

    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def terminal_size() -> TerminalSize:
    """Of the first standard descriptor that is a terminal, else 24 rows of 80 columns."""
    columns = 80
    rows = 24
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(fd)
            break
    return TerminalSize(max(1, rows), max(1, columns), os.environ.get("TERM", ""))


def write_all(fd: int, data: bytes) -> None:
    """Write bytes as they are. Raises OSError."""
    while data:
        data = data[os.write(fd, data) :]
