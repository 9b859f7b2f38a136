"""One command that is executed beside a task: its pipes or its terminal, and bounded buffers. Or a
task's own terminal, or a connection to one of its ports.

Output is read from the command only while there is room, so a command that prints faster than its
client reads waits, as it would at a pipe. Out of scope: its process (executor), and when it must
    end (server).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios

from iris_core.messages.gateway_worker import ExecutionOutput
from iris_worker.launcher.records.records import Exit

BUFFER_BYTES = 256 * 1024
"""Of output that is not read, and of input that the command has not read; far below the largest
message.
"""
_PIECE = 64 * 1024
_TIOCSIG = 0x4004_5436
_LINGER_S = 1.0
"""Seconds after its end for what descendants outside its process group print."""
_END_OF_INPUT = b"\x04"
"""What a person types for it on a terminal."""


class Execution:
    """The worker's ends of a command's pipes, or of a terminal.

    Args:
        user: the only one who may write. stdin: what is written to; -1: nothing.
        streams: what is read, and the name of each. stdio: the other ends.

    Attributes:
        stdio: the command's ends; `begin` closes them when it has its own.
        began_s, active_s: when it was started, and when it last read or printed something, by the
            loop's clock.
        error: why it was ended.
    """

    def __init__(
        self,
        user: str,
        stdin: int,
        streams: dict[int, str],
        stdio: tuple[int, ...] = (),
        *,
        tty: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.user = user
        self.tty = tty
        self.stdio = stdio
        self.began_s = self.active_s = self._loop.time()
        self.error = ""
        self.news = asyncio.Event()
        self._exit: Exit | None = None
        self._output = {"stdout": bytearray(), "stderr": bytearray()}
        self._input = bytearray()
        self._position = 0
        self._input_ended = False
        self._last = ExecutionOutput(0)
        self._stdin = stdin
        self._streams = streams
        self._paused = False
        for fd in (self._stdin, *self._streams):
            if fd >= 0:
                os.set_blocking(fd, False)

    @classmethod
    def of_command(cls, user: str, tty: bool) -> Execution:
        """The ends for a command that is to be started. Raises OSError when the host has no
        more.
        """
        if tty:
            here, there = os.openpty()
            return cls(user, os.dup(here), {here: "stdout"}, (there,), tty=True)
        read_end, stdin = os.pipe()
        out = os.pipe()
        err = os.pipe()
        return cls(user, stdin, {out[0]: "stdout", err[0]: "stderr"}, (read_end, out[1], err[1]))

    @classmethod
    def of_terminal(cls, fd: int) -> Execution:
        """A task's own terminal, whose user is whoever reads it. Raises OSError."""
        return cls("", os.dup(fd), {fd: "stdout"}, tty=True)

    def begin(self) -> None:
        """Read what the command prints; it has its own descriptors now."""
        self._close_stdio()
        self._resume()

    def _close_stdio(self) -> None:
        for fd in self.stdio:
            os.close(fd)
        self.stdio = ()

    # ── output ────────────────────────────────────────────────────────────────────────────────────

    def take(self, after: int) -> ExecutionOutput:
        """The next piece of output; the last one again, or an empty one of its number, if there is
        no other.
        """
        if after < self._last.number:
            return self._last
        if not self._last.ended:  # it has arrived
            self._last = ExecutionOutput(self._last.number)
        out = bytes(self._output["stdout"])
        err = bytes(self._output["stderr"])
        exit_ = self._exit
        if out or err:
            self._last = ExecutionOutput(self._last.number + 1, out, err)
            for buffer in self._output.values():
                buffer.clear()
            self._resume()
        elif exit_ is not None and not self._streams and not self._last.ended:
            error = self.error or exit_.error
            self._last = ExecutionOutput(
                self._last.number + 1,
                b"",
                b"",
                True,
                exit_code=exit_.code,
                signal=exit_.signal,
                error=error,
            )
        else:
            self.news.clear()
            return ExecutionOutput(self._last.number)
        return self._last

    def pass_to(self, user: str) -> None:
        """Another client reads from here on: first what has not arrived at the last one. Its input
        begins at 0.
        """
        self._output["stdout"][:0] = self._last.stdout
        self._last = ExecutionOutput(0)
        self.user = user
        self._position = 0
        self._input_ended = False
        self._touch()

    @property
    def over(self) -> bool:
        """Whether its process has ended."""
        return self._exit is not None

    def _resume(self) -> None:
        self._paused = False
        for fd, name in self._streams.items():
            self._loop.add_reader(fd, self._read, fd, name)

    def _read(self, fd: int, name: str) -> None:
        try:
            data = os.read(fd, _PIECE)
        except BlockingIOError:
            return
        except OSError:  # nobody has the other end of the terminal open
            data = b""
        self._output[name] += data
        self._touch()
        if not data:
            self._close_stream(fd)
        elif sum(map(len, self._output.values())) > BUFFER_BYTES - _PIECE:
            self._paused = True
            for stream in self._streams:
                self._loop.remove_reader(stream)

    def _close_stream(self, fd: int) -> None:
        del self._streams[fd]
        self._loop.remove_reader(fd)
        os.close(fd)

    def _touch(self) -> None:
        self.active_s = self._loop.time()
        self.news.set()

    # ── input ─────────────────────────────────────────────────────────────────────────────────────

    def write(self, offset: int, data: bytes, end: bool) -> int:
        """Take input at its position; returns the position up to which it is taken, once or
        again.
        """
        new = data[max(0, self._position - offset) :] if offset <= self._position else b""
        taken = new if self._stdin < 0 else new[: BUFFER_BYTES - len(self._input)]
        self._position += len(taken)
        self._touch()
        if self._stdin >= 0:
            self._input += taken
            if end and self._position >= offset + len(data) and not self._input_ended:
                self._input_ended = True
                self._input += _END_OF_INPUT if self.tty else b""
            self._flush()
        return self._position

    def _flush(self) -> None:
        try:
            while self._input:
                del self._input[: os.write(self._stdin, self._input[:_PIECE])]
        except BlockingIOError:
            self._loop.add_writer(self._stdin, self._flush)
            return
        except OSError:  # it reads no more
            self._input.clear()
            self._input_ended = True
        self._loop.remove_writer(self._stdin)
        self._touch()
        if self._input_ended and not self.tty:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
            self._input.clear()

    def interrupt(self, number: int) -> None:
        """Signal what has the terminal in the foreground; it takes INT and QUIT."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._stdin, _TIOCSIG, number)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal, which signals it."""
        if self.tty and self._stdin >= 0:
            size = struct.pack("HHHH", min(rows, 0xFFFF), min(columns, 0xFFFF), 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._stdin, termios.TIOCSWINSZ, size)

    # ── end ───────────────────────────────────────────────────────────────────────────────────────

    def on_exit(self, exit_: Exit) -> None:
        """Its process has ended, or could not be started."""
        self._exit = exit_
        self._close_stdin()
        self._loop.call_later(_LINGER_S, self._linger)
        self._touch()

    def _linger(self) -> None:
        if self._paused and self._streams:
            self._loop.call_later(_LINGER_S, self._linger)
        else:
            self.close()

    def close(self) -> None:
        """Close its descriptors."""
        self._close_stdio()
        self._close_stdin()
        for fd in list(self._streams):
            self._close_stream(fd)
        self._touch()
