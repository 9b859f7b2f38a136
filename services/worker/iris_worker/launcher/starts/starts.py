"""Processes that were forked and have not become their programs yet. Nobody waits for one: each
reports by a pipe.

Between taking its task's user and its exec such a process can be stopped by others of that user. It
is continued, and ended when that does not help for long. Out of scope: what follows from either
    (runner).
Source: docs/design/isolation.md#starting-without-being-signalled.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from iris_worker.launcher.kernel import tree
from iris_worker.launcher.kernel.event_loop import EventLoop
from iris_worker.launcher.starts.spawn import Child, NotBegun, failure

_CHECK_S = 0.25
_REPORT_BYTES = 4096


class Stopped(NotBegun):
    """The process was stopped again and again before it was its program, and is ended."""


@dataclass(slots=True, eq=False)
class _Start:
    """One process. ``on_begun``: called when it has become its program. ``error``: why it
    cannot.
    """

    child: Child
    name: str
    on_begun: Callable[[], object]
    began_s: float
    report: bytes = b""
    error: Exception | None = None
    is_read: bool = False


class Starts:
    """All of one launcher, by process id.

    ``stopped_s``: how long one that is stopped is continued, before it is ended.
    """

    def __init__(self, loop: EventLoop, stopped_s: float = 3.0) -> None:
        self._loop = loop
        self._stopped_s = stopped_s
        self._by_pid: dict[int, _Start] = {}
        self._checking = False

    def __contains__(self, pid: int) -> bool:
        return pid in self._by_pid

    def add(self, child: Child, name: str, on_begun: Callable[[], object]) -> None:
        """Wait for the report of a process that is to run the program ``name``."""
        start = self._by_pid[child.pid] = _Start(child, name, on_begun, time.monotonic())
        self._loop.watch(child.report, lambda: self._read(start))
        if not self._checking:
            self._checking = True
            self._loop.call_later(_CHECK_S, self._check)

    def settle(self, pid: int) -> Exception | None:
        """Why a process that has ended has not become its program; None: it had, or it was killed
        before.
        """
        start = self._by_pid.get(pid)
        if start is None:
            return None
        while not start.is_read:
            self._read(start)
        self._by_pid.pop(pid, None)
        return start.error

    def _read(self, start: _Start) -> None:
        """Read a part of a report, which arrives in pieces."""
        data = os.read(start.child.report, _REPORT_BYTES)
        start.report += data
        if data:
            return
        start.is_read = True
        self._loop.forget(start.child.report)
        os.close(start.child.report)
        if start.report:
            start.error = failure(start.report, start.name, of_host=start.child.of_host)
        elif start.error is None:
            del self._by_pid[start.child.pid]
            start.on_begun()

    def _check(self) -> None:
        """Continue those that somebody has stopped, and end those that this does not help."""
        now_s = time.monotonic()
        late = [
            one
            for one in self._by_pid.values()
            if not one.is_read and now_s - one.began_s >= _CHECK_S
        ]
        for start in late:
            if tree.is_stopped(start.child.pid):
                os.kill(start.child.pid, signal.SIGCONT)
                if now_s - start.began_s > self._stopped_s:
                    start.error = Stopped("it was stopped again and again before it began")
                    os.kill(start.child.pid, signal.SIGKILL)
        self._checking = bool(self._by_pid)
        if self._checking:
            self._loop.call_later(_CHECK_S, self._check)
