"""Processes that have no attempt: templates, and reused processes that wait for a call.

One has ended when it and all that it has started are gone. Where tasks are confined it has the user
and the sandbox of its slot, which another job gets only when nothing of an earlier one is left
there (`empty`). Out of scope: what they are for (templates, reuse).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from iris_worker.launcher.cgroups.cgroup import Cgroups
from iris_worker.launcher.cgroups.group import Group
from iris_worker.launcher.kernel import tree
from iris_worker.launcher.kernel.event_loop import EventLoop
from iris_worker.launcher.kernel.signals import signal_process
from iris_worker.launcher.processes.process import GIVE_UP_ROUNDS
from iris_worker.launcher.records.records import EmptySlot

_LINGER_S = 0.02
_UNKILLABLE = "what an earlier job has left in this place cannot be killed"


@dataclass(slots=True, eq=False)
class _Spare:
    """``slot``: in whose sandbox, or as whose user it runs; -1: it is not confined."""

    slot: int
    group: Group | None


@dataclass(slots=True, eq=False)
class _Emptying:
    """A slot that is being emptied, but of the process ``kept``.

    ``strays``: what is killed besides, and when each was started. ``done``: called with what cannot
    be killed.
    """

    request: EmptySlot
    kept: int
    done: Callable[[str], object]
    strays: dict[int, int] = field(default_factory=dict)


class Spares:
    """Those of one launcher, by process id.

    Args:
        groups: control groups; None where there are none.
        find_strays: returns what else runs in a slot that has no attempt, or all that ends with.
        on_left: told of a slot, and of a group in which one of these has ended there.
    """

    def __init__(
        self,
        loop: EventLoop,
        groups: Cgroups | None,
        find_strays: Callable[[EmptySlot], list[int]],
        on_left: Callable[[int, Group], object],
    ) -> None:
        self._loop = loop
        self._groups = groups
        self._find_strays = find_strays
        self._on_left = on_left
        self._by_pid: dict[int, _Spare] = {}
        self._leaving: set[_Spare] = set()
        self._emptying: dict[int, _Emptying] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._by_pid

    def add(self, pid: int, slot: int, group: Group | None) -> None:
        self._by_pid[pid] = _Spare(slot, group)

    def take(self, pid: int) -> None:
        """It has an attempt now."""
        self._by_pid.pop(pid, None)

    def kill(self, pid: int) -> None:
        if pid in self._by_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def reaped(self, pid: int) -> None:
        """A child of this process has ended, maybe one of these."""
        if (spare := self._by_pid.pop(pid, None)) is not None:
            self._leaving.add(spare)
            self._clear(spare)

    def _clear(self, spare: _Spare) -> None:
        """Kill what it has left, and give its control group back once that is empty."""
        if spare.group is not None and self._groups is not None:
            spare.group.spoilt = True
            if self._groups.kill(spare.group):
                self._loop.call_later(_LINGER_S, self._clear, spare)
                return
            self._groups.end(spare.group)
            self._on_left(spare.slot, spare.group)
        self._leaving.discard(spare)
        if spare.slot in self._emptying:
            self._check(spare.slot)

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────

    def empty(self, request: EmptySlot, kept: int, done: Callable[[str], object]) -> None:
        """Call ``done`` once all that was killed in a slot is gone, but the process ``kept``; with
        words for a person when something cannot be killed.
        """
        self._emptying[request.slot] = _Emptying(request, kept, done)
        self._look(request.slot, 1)

    def _look(self, slot: int, round_: int) -> None:
        """Check at intervals: not all ends are signalled."""
        if slot not in self._emptying or self._check(slot):
            return
        if round_ > GIVE_UP_ROUNDS:
            self._emptying.pop(slot).done(_UNKILLABLE)
            return
        self._loop.call_later(_LINGER_S, self._look, slot, round_ + 1)

    def _check(self, slot: int) -> bool:
        one = self._emptying[slot]
        left = [spare for pid, spare in self._by_pid.items() if pid != one.kept]
        if any(spare.slot == slot for spare in (*left, *self._leaving)):
            return False
        strays = one.strays | {
            pid: tree.started_ticks(pid) for pid in self._find_strays(one.request)
        }
        one.strays = {
            pid: ticks
            for pid, ticks in strays.items()
            if signal_process(pid, ticks, signal.SIGKILL)
        }
        if one.strays:
            return False
        del self._emptying[slot]
        one.done("")
        return True
