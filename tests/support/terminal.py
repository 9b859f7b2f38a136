"""A command of `iris` on a terminal of its own, typed to and read by a test; and a client of a
worker's terminals.
"""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar
from uuid import uuid4

from iris_bus.contract import Connection
from iris_core import codec, subjects
from iris_core.messages.gateway_worker import (
    CloseExecution,
    ExecutionOutput,
    ExecutionTaken,
    ReadExecution,
    StartExecution,
    WriteExecution,
)
from iris_core.messages.message import AttemptRef
from tests.support.cluster import IRIS

_PATIENCE_S = 100.0
M = TypeVar("M")


class TerminalCommand:
    """One command line, whose standard input, output and error are a terminal that it controls."""

    def __init__(
        self, environ: Mapping[str, str], *words: str, size: tuple[int, int] = (24, 80)
    ) -> None:
        self._here, there = pty.openpty()
        termios.tcsetwinsize(there, size)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *IRIS, *words],  # which forks only where it leads a group already
            env={**environ, "TERM": "vt100", "SHELL": "/bin/sh"},
            stdin=there,
            stdout=there,
            stderr=there,
        )
        os.close(there)
        self.seen = b""

    def __enter__(self) -> TerminalCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.process.kill()
        self.process.wait()

    def type(self, text: str) -> None:
        os.write(self._here, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._here, (rows, columns))

    def expect(self, text: str, *, keep: bool = False) -> None:
        """Read until ``text`` was shown since the last call; what follows is for the next one, or
        all with ``keep``.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        while text.encode() not in self.seen:
            left_s = deadline_s - time.monotonic()
            assert self._read(max(0.0, left_s)), f"{text!r} was not shown in {self.seen.decode()!r}"
        if not keep:
            self.seen = self.seen.partition(text.encode())[2]

    def end(self) -> int:
        """Read until the command has ended; returns its exit code."""
        while self._read(_PATIENCE_S):
            pass
        return self.process.wait(_PATIENCE_S)

    def hang_up(self) -> None:
        """Close the terminal."""
        if self._here >= 0:
            os.close(self._here)
            self._here = -1

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _read(self, within_s: float) -> bool:
        data = b""
        if select.select([self._here], [], [], within_s)[0]:
            with suppress(OSError):  # nobody has the other end open
                data = os.read(self._here, 65536)
        self.seen += data
        return bool(data)


class Attached:
    """A client of the terminal of a task on worker ``w0``, or of a port of it, without a
    gateway.
    """

    def __init__(self, connection: Connection, ref: AttemptRef, port: int = 0) -> None:
        self._port = port
        self._connection = connection
        self._ref = ref
        self._name = uuid4().hex
        self._seen, self._last, self._position = b"", 0, 0

    async def open(self) -> str:
        """Connect; returns why that is refused."""
        request = StartExecution(
            self._name, self._ref, "ann", (), terminal=not self._port, port=self._port
        )
        return (await self._ask(request, ExecutionTaken)).error

    async def write(self, text: str) -> None:
        request = WriteExecution(self._name, "ann", self._position, text.encode())
        self._position = (await self._ask(request, ExecutionTaken)).position

    async def expect(self, text: str) -> None:
        async with asyncio.timeout(60):
            while text.encode() not in self._seen:
                output = await self._ask(ReadExecution(self._name, self._last), ExecutionOutput)
                assert not output.ended, output
                self._seen += output.stdout if output.number > self._last else b""
                self._last = output.number

    def close(self) -> None:
        self._connection.bus.publish(
            subjects.execution("w0"), codec.pack(CloseExecution(self._name))
        )

    async def _ask(self, request: object, kind: type[M]) -> M:
        answer = await self._connection.bus.request(
            subjects.execution("w0"), codec.pack(request), timeout=30
        )
        return codec.unpack(answer.data, kind)
