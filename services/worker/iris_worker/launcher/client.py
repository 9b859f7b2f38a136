"""The worker's end of the connection to its launcher, which it starts when there is none.

The other end is `launcher`. Out of scope: what is requested, and what an answer means (the
attempts' `executor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iris_core import codec
from iris_core.messages.message import AttemptRef
from iris_worker.launcher import rescue
from iris_worker.launcher.cgroups.files import CgroupSupport
from iris_worker.launcher.records.frames import frame, take_frames
from iris_worker.launcher.records.process_table import ProcessTable, StoredProcess
from iris_worker.launcher.records.records import (
    NEEDED,
    SOCKET,
    Gone,
    LauncherAnswer,
    LauncherRequest,
    Over,
    Read,
    Ready,
)
from iris_worker.launcher.starts.spawn import spawn

_READ_BYTES = 1 << 18
_TRIES = 5
_RESCUE_STEPS = ((5.0, rescue.resume), (30.0, rescue.end), (30.0, None))
"""How long a launcher may take to answer a worker that has started, and what is done about it
then.
"""
_RECORDS_BYTES = 1 << 16
_INHERITED = ("PYTHON", "LD_", "LANG", "LC_", "PATH", "TZ")
"""Beginnings of the names of variables that the launcher gets; the others may hold secrets of the
worker.
"""


class LauncherGone(Exception):
    """The launcher has ended, or does not answer. The next worker process starts another, which
    adopts what runs.
    """


class LauncherClient:
    """Sends requests in order, without waiting.

    Attributes:
        cgroups: what the launcher has said of its control groups. version: what it understands.
            outlived: it has served an earlier worker.

    Args:
        on_answers: called with the answers that have arrived together, in order.
        on_gone: called once when the connection is lost.
    """

    def __init__(
        self,
        root: Path,
        on_answers: Callable[[list[LauncherAnswer]], None],
        on_gone: Callable[[LauncherGone], None],
    ) -> None:
        self._root = root
        self._on_answers = on_answers
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._inbox, self._outbox = bytearray(), bytearray()
        self._urgent = self._waits = False
        self.cgroups = CgroupSupport()
        self.version = 0
        self.outlived = False

    async def connect(self) -> dict[AttemptRef, StoredProcess]:
        """Connect, and return the attempts of the previous worker process. Raises LauncherGone,
        OSError.
        """
        for wait_s, rescue_step in _RESCUE_STEPS:
            try:
                async with asyncio.timeout(wait_s):
                    return await self._connect()
            except TimeoutError:
                self._forget()
                if rescue_step is not None:
                    rescue_step(self._root)
        raise LauncherGone("the launcher does not answer")

    async def _connect(self) -> dict[AttemptRef, StoredProcess]:
        for _ in range(_TRIES):
            if (found := await self._recover(self._open())) is not None:
                return found
        raise LauncherGone("the launcher does not start")

    def _open(self) -> socket.socket:
        """A connection to the launcher that runs, or else to a new one."""
        directory = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            address = f"/proc/self/fd/{directory}/{SOCKET}"  # a path of any length
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(address)
                self.outlived = True
            except (FileNotFoundError, ConnectionRefusedError):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(address)
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(address)
                    os.chmod(address, 0o600)
                    listener.listen()
                    self._socket.connect(address)
                    _start(self._root, listener)
                self.outlived = False
        finally:
            os.close(directory)
        self._socket.setblocking(False)
        return self._socket

    async def _recover(self, connection: socket.socket) -> dict[AttemptRef, StoredProcess] | None:
        """The records of all attempts; None when the launcher is about to end, because nothing
        runs.
        """
        table = ProcessTable()
        self._inbox.clear()
        with contextlib.suppress(ConnectionResetError):
            while data := await self._loop.sock_recv(connection, _READ_BYTES):
                self._inbox += data
                answers = self._answers()
                for number, answer in enumerate(answers, 1):
                    if isinstance(answer, Ready):
                        if answer.version < NEEDED:
                            raise LauncherGone(
                                "the launcher is of an older version; end its tasks, and it ends too"
                            )
                        self.cgroups = answer.cgroups
                        self.version = answer.version
                        self._loop.call_soon(self._on_answers, answers[number:])
                        self._loop.add_reader(connection, self._read)
                        return table.entries
                    table.apply(answer)
        connection.close()
        return None

    def send(self, request: LauncherRequest) -> None:
        """Have a request sent by the next `flush`."""
        self._outbox += frame(request)
        self._urgent = True

    def send_now(self, request: LauncherRequest) -> None:
        self.send(request)
        self.flush()

    def record(self, *records: Over | Read | Gone) -> None:
        """Have records sent with the next request, or by the next `flush_records`."""
        for record in records:
            self._outbox += frame(record)
        self._urgent |= len(self._outbox) > _RECORDS_BYTES

    def send_with(self, request: LauncherRequest, fds: Sequence[int]) -> None:
        """Send a request at once, with descriptors. Raises OSError."""
        self.flush_records()
        if self._outbox or self._socket is None:
            raise OSError(errno.EAGAIN, "the launcher is busy")
        data = frame(request)
        self._outbox += data[socket.send_fds(self._socket, [data], fds) :]
        self.flush_records()

    def flush_records(self) -> bool:
        """Send the requests and records; whether all of them are sent."""
        self._urgent = True
        self.flush()
        return not self._outbox

    def flush(self) -> None:
        """Send the requests, and the records before them."""
        if self._socket is None or not self._outbox or not self._urgent:
            return
        with contextlib.suppress(
            BlockingIOError, BrokenPipeError, ConnectionResetError
        ):  # `_read` finds out
            del self._outbox[: self._socket.send(self._outbox)]
        self._urgent = bool(self._outbox)
        if self._urgent != self._waits:
            self._waits = self._urgent
            if self._waits:
                self._loop.add_writer(self._socket, self.flush)
            else:
                self._loop.remove_writer(self._socket)

    def close(self) -> None:
        """Disconnect. A launcher without processes ends; another waits for the next worker."""
        self.flush_records()
        self._forget()

    def _forget(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        self._inbox += data
        self._on_answers(self._answers())
        if not data:
            self._forget()
            self._on_gone(LauncherGone("the launcher has ended"))

    def _answers(self) -> list[Any]:
        return [codec.unpack(data, LauncherAnswer) for data in take_frames(self._inbox)]  # type: ignore[arg-type]


def _start(root: Path, listener: socket.socket) -> None:
    """Start a launcher that serves ``listener``."""
    env = {name: value for name, value in os.environ.items() if name.startswith(_INHERITED)}
    command = (sys.executable, "-P", "-m", rescue.MODULE, str(root))
    spawn(command, env, str(root), (listener.fileno(), 2, 2))
