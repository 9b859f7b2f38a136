"""A connection to a port of a task, read and written as a command is: each half may end before the
other.
"""

from __future__ import annotations

import contextlib
import os
import socket

from iris_core.messages.gateway_worker import ExecutionOutput
from iris_worker.attempt.executions.execution import Execution
from iris_worker.launcher.records.records import Exit


class PortConnection(Execution):
    """The worker's end of a connection."""

    def __init__(self, user: str, line: socket.socket) -> None:
        self._line = line
        self._reported = False
        super().__init__(user, os.dup(line.fileno()), {os.dup(line.fileno()): "stdout"})

    def take(self, after: int) -> ExecutionOutput:
        output = super().take(after)
        if output.number != after or self._streams or self._reported or self._exit is not None:
            return output
        self._reported = True
        self._last = ExecutionOutput(after + 1, closed=True)
        return self._last

    def _close_stream(self, fd: int) -> None:
        super()._close_stream(fd)
        self._end()

    def _close_stdin(self) -> None:
        was_open = self._stdin >= 0
        if was_open and self._exit is None:
            with contextlib.suppress(OSError):  # the other end has gone, which reading tells
                self._line.shutdown(socket.SHUT_WR)
        super()._close_stdin()
        if was_open:
            self._end()

    def _end(self) -> None:
        """Both halves have ended."""
        if not self._streams and self._stdin < 0 and self._exit is None:
            self._exit = Exit(0)
            self._touch()

    def close(self) -> None:
        self._exit = self._exit or Exit(0)
        super().close()
        self._line.close()
