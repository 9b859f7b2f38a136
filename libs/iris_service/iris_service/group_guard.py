"""Ends groups of processes when this process is gone, however it ended.

The kernel's parent-death signal (child) reaches one process, and not what that has started. A guard
is a small process that is told of each group; when its input ends, so has this process, also by
kill -9, and it kills the groups that are not over. What has left its group goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

_END_S = 5.0
"""How long a guard may take to end."""


class GroupGuard:
    """One guard, started when it is first needed. What runs while somebody ends it is not guarded;
    the next group has another one.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._tokens = itertools.count()

    @contextlib.contextmanager
    def group(self) -> Iterator[Callable[[], None]]:
        """A new group, which is over at the end of the block.

        Its first process calls what this yields before exec (``preexec_fn``), so no program runs that
        the guard does not know; that fails as ``SubprocessError`` when the guard does not read. Raises
        OSError when no guard can be started.
        """
        pipe, token = self._input(), next(self._tokens)

        def begin() -> None:
            os.write(pipe, b"%d %d\n" % (token, os.getpid()))

        try:
            yield begin
        finally:
            if self._runs:
                with contextlib.suppress(OSError):  # it was ended just now
                    os.write(self._input(), b"%d 0\n" % token)

    def close(self) -> None:
        """End the guard, and with it the groups that are not over."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:  # somebody has stopped it
            process.kill()
            process.wait()

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _input(self) -> int:
        """The descriptor that a guard reads. Raises OSError."""
        if not self._runs:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
                preexec_fn=_ignore_ends,  # noqa: PLW1509 - system calls, no lock
            )
        assert self._process is not None
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)  # a guard that is stopped fails a call; nobody waits for it
        return pipe


def _ignore_ends() -> None:
    """A guard ends after what it guards for, whoever ends both."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def kill_group(group: int) -> None:
    """Kill a group of processes, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def guard(lines: Iterable[bytes]) -> None:
    """Read of groups, ``TOKEN GROUP`` each and 0 for one that is over; at the end kill what is left."""
    groups: dict[int, int] = {}
    for line in lines:
        token, group = map(int, line.split())
        groups[token] = group
        if not group:
            del groups[token]
    for group in groups.values():
        kill_group(group)


if __name__ == "__main__":
    guard(sys.stdin.buffer)
