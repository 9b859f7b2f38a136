"""Processes that make several calls of a job, one after the other; each call is an attempt.

A process that has made its call says so and waits: with what the call has left in its memory, or,
where it restores that, with what it had before its first call. Its attempt has ended when nothing but the
process itself is left of it, and the next attempt that has the same template, limits and devices is
given to it. Otherwise, and when no call comes for a while, its connection is closed, at which it
ends. Out of scope: what such a process does (template_process), and what is left of an attempt
    (runner).
Source: docs/design/calls.md#reused-processes, docs/design/calls.md#restored-memory.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_worker.launcher.kernel.event_loop import DelayedCall, EventLoop
from iris_worker.launcher.kernel.tree import UsedStorage
from iris_worker.launcher.processes.process import Process
from iris_worker.launcher.processes.runner import RESULT_BYTES, Runner
from iris_worker.launcher.records.records import StartProcess
from iris_worker.launcher.starts.spawner import Spawner
from iris_worker.launcher.templates import template_process as inside

IDLE_S = 2.0
"""How long a process waits for its next call."""
_ANSWER_S = 5.0
"""How long one may take to begin a call, or to end when it gets no further one."""
_REASONS = 1000
_MOST_IN_VAIN = 8
"""So many snapshots of clones of a template, none of which was restored, are enough."""
DIFFERS = "a page differs from the snapshot"
"""What a process says whose restored memory was compared, and is another one than before its call."""
_MOST_CALLS = 2**53
"""Of a process that restores its memory: as many as there are."""


@dataclass(slots=True, eq=False)
class _Reused:
    """One process, its present or last attempt, how many calls it may make after that, and since
    when it runs.

    ``link``: how it is told of calls. ``storage``: what it has used of it; both are closed when it
    gets no further one. ``timer``: until it must have a call, begin one, or end. ``is_first``: its
    first call has not begun. ``is_again``: it has been given another one.
    """

    request: StartProcess
    process: Process
    link: socket.socket
    storage: UsedStorage
    left: int
    after_s: float
    timer: DelayedCall | None = None
    is_first: bool = False
    is_again: bool = False

    def fits(self, request: StartProcess) -> bool:
        mine = self.request
        return (
            mine.template == request.template
            and mine.cgroup == request.cgroup
            and mine.limits == request.limits
            and mine.record.devices == request.record.devices
            and mine.restores == request.restores
        )


class ReusedProcesses:
    """Those of one launcher.

    Args:
        on_call: told of each attempt that one of them is to make, and since when that runs.
            on_begun: that it does.
        on_again: told of an attempt whose process has ended before it had begun: it is to be
            started again. on_unable: told of a template whose clones cannot restore their memory,
            and why. on_differs: told of a job after a call of which restored memory was
            another one.
    """

    def __init__(
        self,
        loop: EventLoop,
        runner: Runner,
        spawner: Spawner,
        on_call: Callable[[StartProcess, Process, float], object],
        on_begun: Callable[[AttemptRef], object],
        on_again: Callable[[StartProcess], object],
        on_unable: Callable[[str, str], object],
        on_differs: Callable[[int], object],
    ) -> None:
        self._loop = loop
        self._runner = runner
        self._spawner = spawner
        self._on_call = on_call
        self._on_begun = on_begun
        self._on_again = on_again
        self._on_unable = on_unable
        self._on_differs = on_differs
        self._waiting: list[_Reused] = []
        self._idle: dict[int, _Reused] = {}
        self._why: dict[str, str] = {}
        self._in_vain: dict[str, int] = {}
        self._beginning: dict[AttemptRef, _Reused] = {}
        self._again: dict[AttemptRef, StartProcess] = {}
        runner.on_unbegun = self._unbegun

    def note(self, request: StartProcess) -> str:
        """Why an attempt has a new process that was to be reused, as far as that has not been
        said.
        """
        why = self._why.pop(request.template, "")
        return f"a new process: that of an earlier call was not reused: {why}" if why else ""

    def keep(self, request: StartProcess, process: Process, link: socket.socket) -> None:
        """A clone, which makes its first call, can be reused. ``link``: the launcher's end of its
        socket.
        """
        self._watch(request, process, link, left=request.reuse - 1)

    def begin(
        self, request: StartProcess, process: Process, link: socket.socket, order: bytes
    ) -> None:
        """A clone restores its memory before each call: have it make its first one."""
        one = self._watch(request, process, link, left=_MOST_CALLS)
        one.is_first = True
        process.begun = False
        one.timer = self._loop.call_later(_ANSWER_S, self._kill, one)
        self._beginning[process.ref] = one
        with contextlib.suppress(OSError):  # it has ended already, which the runner finds out
            link.send(order)

    def _watch(
        self, request: StartProcess, process: Process, link: socket.socket, left: int
    ) -> _Reused:
        link.setblocking(False)
        storage = UsedStorage(process.pid)
        one = _Reused(request, process, link, storage, left=left, after_s=request.record.after_s)
        self._loop.watch(link.fileno(), partial(self._read, one))
        return one

    def give(self, request: StartProcess, call: Mapping[str, object]) -> bool:
        """Have a process that waits make the call of an attempt; False when there is none for
        it.
        """
        fit = (
            [one for one in reversed(self._waiting) if one.fits(request)]
            if request.reuse > 1 or request.restores
            else []
        )
        if not fit:
            return False
        below = request.record.below
        one = next(
            (one for one in fit if one.request.record.below == below), fit[0]
        )  # which has its output open
        self._stop_waiting(one)
        one.left -= 1
        one.is_again = True
        self._in_vain.pop(request.template, None)
        order = {**call, "workdir": self._spawner.workdir_of(below), "again": one.left > 0}
        try:
            if below == one.request.record.below:
                one.link.send(marshal.dumps(order))
            else:
                with self._spawner.output_of(below) as (_, out, err):
                    socket.send_fds(one.link, [marshal.dumps(order)], [out, err])
        except OSError:  # it has ended
            self._read(one)
            self._end(one)
            return False
        del self._idle[one.process.pid]
        one.request, one.process = request, self._runner.begin_call(request.record, one.process)
        one.timer = self._loop.call_later(_ANSWER_S, self._kill, one)
        self._beginning[one.process.ref] = one
        self._on_call(request, one.process, one.after_s)
        return True

    def _unbegun(self, process: Process) -> bool:
        """A process has ended; returns whether its call is to be made again, as it has not said
        that it had begun.
        """
        one = self._beginning[process.ref]
        self._read(one)
        self._beginning.pop(process.ref, None)
        self._stop_waiting(one)
        self._close(one)
        if process.begun or process.terminated:
            return False
        request = one.request
        if one.is_first:  # it may be restoring that fails
            request = structs.replace(request, restores=False)
        self._again[process.ref] = request
        self._loop.call_later(
            0.0, self._start_again, process.ref
        )  # not while the runner judges ends
        return True

    def _start_again(self, ref: AttemptRef) -> None:
        if (request := self._again.pop(ref, None)) is not None:
            self._on_again(request)

    def stop(self, ref: AttemptRef) -> bool:
        """Stop an attempt that is to be started again; False when it is not."""
        return self._again.pop(ref, None) is not None

    @property
    def unbegun(self) -> list[AttemptRef]:
        """Attempts that are to be started again."""
        return list(self._again)

    def _read(self, one: _Reused) -> None:
        try:
            data = _received(one.link)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not one.process.begun and data == inside.HELLO:
            self._beginning.pop(one.process.ref, None)
            one.process.begun = True
            one.is_first = False
            self._stop_waiting(one)
            self._on_begun(one.process.ref)
        elif data[:1] == inside.LAST and (one.is_first or one.process.pid not in self._idle):
            self._note_last(one, data[1:].decode(errors="replace"))
            if not one.is_first:
                self._stop_waiting(one)
                self._close(one)
        elif one.process.pid in self._idle:  # it has ended, or says that it cannot restore
            if data[:1] == inside.LAST:
                self._note_last(one, data[1:].decode(errors="replace"))
            self._end(one)
        elif data[:1] != inside.DONE or len(data) < len(inside.DONE) + 1:
            self._stop_waiting(one)
            self._close(one)
        elif why := self._runner.finish_call(
            one.process, one.storage, data[1], data[2:], restores=one.request.restores
        ):
            self._note_why(one, why)
            with contextlib.suppress(OSError):
                one.link.send(inside.END)
            self._close(one)
        else:
            self._idle[one.process.pid] = one
            self._waiting.append(one)
            one.timer = self._loop.call_later(IDLE_S, self._end, one)

    def _note_last(self, one: _Reused, why: str) -> None:
        """A process takes no further call. When the clones of a template make one call each, a
        snapshot before it is work for nothing.
        """
        self._note_why(one, why)
        key = one.request.template
        if why == DIFFERS:
            self._on_differs(one.request.record.ref.job)
        if not one.request.restores or one.is_again:
            return
        self._in_vain[key] = self._in_vain.get(key, 0) + 1
        if one.is_first:
            self._on_unable(key, why)
        elif self._in_vain[key] >= _MOST_IN_VAIN:
            self._on_unable(key, f"of {_MOST_IN_VAIN} calls in a row each said: {why}")

    def _note_why(self, one: _Reused, why: str) -> None:
        """For the next call of its template."""
        if len(self._why) >= _REASONS:
            del self._why[next(iter(self._why))]
        self._why[one.request.template] = why

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def _end(self, one: _Reused) -> None:
        """Have a process without an attempt end."""
        self._stop_waiting(one)
        self._close(one)
        one.timer = self._loop.call_later(_ANSWER_S, self._kill, one)

    def _stop_waiting(self, one: _Reused) -> None:
        if one in self._waiting:
            self._waiting.remove(one)
        if one.timer is not None:
            one.timer.cancel()

    def _close(self, one: _Reused) -> None:
        if one.link.fileno() >= 0:
            self._loop.forget(one.link.fileno())
            one.link.close()
            one.storage.close()

    def _kill(self, one: _Reused) -> None:
        self._stop_waiting(one)
        self._close(one)
        if one.process.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.process.pid, signal.SIGKILL)

    def ended(self, pid: int) -> None:
        """A child that is no attempt's has ended, maybe one of these. What it said last may not have
        been read.
        """
        if (one := self._idle.get(pid)) is not None:
            self._read(one)
            del self._idle[pid]
            self._stop_waiting(one)
            self._close(one)

    def end_in(self, slot: int) -> None:
        """Kill those in a slot that have no attempt."""
        for one in [one for one in self._idle.values() if one.process.slot == slot]:
            self._kill(one)

    def end_of(self, key: str) -> None:
        """Kill those of a template that have no attempt."""
        self._why.pop(key, None)
        self._in_vain.pop(key, None)
        for one in [one for one in self._idle.values() if one.request.template == key]:
            self._kill(one)

    def close(self) -> None:
        for one in list(self._idle.values()):
            self._kill(one)


def _received(link: socket.socket) -> bytes:
    """The next message of a process. Raises OSError."""
    try:
        return link.recv(RESULT_BYTES)
    except ConnectionResetError:  # it has ended before it read all; what it has sent is still there
        return link.recv(RESULT_BYTES)
