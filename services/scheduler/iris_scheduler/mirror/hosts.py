"""The resources that attempts hold on each worker, and the columns of free capacity derived from
them.

A worker's free capacity is its total less that of its open attempts. Nothing here decides.
Source: docs/design/semantics.md#tasks-and-attempts, section 9 "building-count window".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Hold, WorkerRow
from iris_core.states import WorkerState
from iris_scheduler.mirror.capacity import DEPTH, SHUT, WINDOW, Matrix, Need, minus, row_of
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.columns import Columns

NEVER_MS = 1 << 60


class HostRow:
    """One worker: its row, None while it is unknown, and its open attempts.

    Attributes:
        used: amounts held, all dimensions. stopping: the part of it held by attempts that were
            ordered to stop.
        alone: how many attempts here may have nothing beside them.
        preparing: how many attempts of each job count in the building window.
        chains: the attempts of each chain of several, in the order in which they run. Only one of
            them is counted.
        version: grows with each change.
        oldest_stop_ms: no attempt here was ordered to stop earlier; that attempt may have ended
            since.
    """

    __slots__ = (
        "_counted",
        "alone",
        "chains",
        "holds",
        "oldest_stop_ms",
        "preparing",
        "row",
        "stopping",
        "used",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        self.row: WorkerRow | None = None
        self.holds: dict[AttemptRef, tuple[Hold, Need]] = {}
        self.used = [0] * DEPTH
        self.stopping = [0] * DEPTH
        self.oldest_stop_ms = NEVER_MS
        self.alone = 0
        self.preparing: dict[int, int] = {}
        self.chains: dict[AttemptRef, dict[AttemptRef, None]] = {}
        self._counted: dict[AttemptRef, AttemptRef] = {}

    def put(self, hold: Hold, need: Need) -> None:
        """An attempt is open, or holds something else than before."""
        self.version += 1
        name = hold.chain or hold.ref
        before = self.holds.get(hold.ref)
        if hold.chain is not None and name not in self.chains:
            self.chains[name] = {}
            if name in self.holds:
                self.chains[name][name], self._counted[name] = None, name
        if name in self.chains:
            if before is not None and self._counted.get(name) == hold.ref:
                self.count(*before, -1)
                del self._counted[name]
            self.holds[hold.ref] = (hold, need)
            self.chains[name][hold.ref] = None
            self._count_one_of(name)
            return
        if before is not None:
            self.count(*before, -1)
        self.holds[hold.ref] = (hold, need)
        self.count(hold, need, 1)

    def pop(self, ref: AttemptRef) -> tuple[Hold, Need]:
        """An attempt has ended; returns what it held, alone or with its chain."""
        self.version += 1
        hold, need = self.holds.pop(ref)
        name = hold.chain or ref
        if name not in self.chains:
            self.count(hold, need, -1)
            return hold, need
        if self._counted.get(name) == ref:
            self.count(hold, need, -1)
            del self._counted[name]
        self.chains[name].pop(ref, None)
        if self.chains[name]:
            self._count_one_of(name)
        else:
            del self.chains[name]
        return hold, need

    def _count_one_of(self, name: AttemptRef) -> None:
        """Count the attempt of a chain that runs, or runs next: the first that is not stopping."""
        members = self.chains[name]
        chosen = next(
            (ref for ref in members if not self.holds[ref][0].stopping), next(iter(members))
        )
        before = self._counted.get(name)
        if before == chosen:
            return
        if before is not None:
            self.count(*self.holds[before], -1)
        self._counted[name] = chosen
        self.count(*self.holds[chosen], 1)

    def counted(self) -> Iterator[tuple[Hold, Need]]:
        """The open attempts, of each chain the one that runs or runs next."""
        for ref, held in self.holds.items():
            name = held[0].chain or ref
            if name not in self.chains or self._counted[name] == ref:
                yield held

    def chained(self, hold: Hold) -> int:
        """How many attempts of its chain are open."""
        name = hold.chain or hold.ref
        return len(self.chains[name]) if name in self.chains else int(hold.ref in self.holds)

    def count(self, hold: Hold, need: Need, sign: int) -> None:
        """Add (1) or subtract (-1) what an attempt holds."""
        for amounts in (self.used, self.stopping) if hold.stopping else (self.used,):
            for dimension, amount in need.held:
                amounts[dimension] += sign * amount
            if hold.building:
                amounts[WINDOW] += sign
        if hold.building:
            self._count_preparing(hold.ref.job, sign)
        self.alone += sign * hold.alone
        if hold.stopping:
            self.oldest_stop_ms = (
                min(self.oldest_stop_ms, hold.stopping_ms) if any(self.stopping) else NEVER_MS
            )

    def _count_preparing(self, job: int, sign: int) -> None:
        count = self.preparing.get(job, 0) + sign
        if count:
            self.preparing[job] = count
        else:
            del self.preparing[job]

    def coming(self, since_ms: int) -> tuple[list[int], int]:
        """What the attempts ordered to stop since then will free, all dimensions, and when the
        first was ordered to.
        """
        if self.oldest_stop_ms >= since_ms:
            return list(self.stopping), self.oldest_stop_ms
        recent = HostRow()
        for hold, need in self.counted():
            if hold.stopping and hold.stopping_ms >= since_ms:
                recent.count(hold, need, 1)
        return recent.stopping, recent.oldest_stop_ms

    def is_stuck(self, since_ms: int) -> bool:
        """Whether an attempt that was ordered to stop before that time has not ended."""
        return self.oldest_stop_ms < since_ms and any(
            hold.stopping and hold.stopping_ms < since_ms for hold, _ in self.holds.values()
        )

    @property
    def is_crowded(self) -> bool:
        """Whether it has its maximum number of attempts, so that the end of any of them lets
        another one start.
        """
        return self.row is not None and len(self.holds) >= self.row.max_attempts

    @property
    def takes_work(self) -> bool:
        return self.row is not None and self.row.state is WorkerState.HEALTHY and not self.alone

    def room(self) -> list[int]:
        """The free capacity, all dimensions; its building window is shut when it accepts no new
        work.
        """
        assert self.row is not None
        total = row_of(self.row.total, self.row.max_building)
        left = minus(total, self.used)
        left[WINDOW] = min(left[WINDOW], self.row.max_attempts - len(self.holds))
        if not self.takes_work:
            left[WINDOW] -= SHUT
        return left


class Hosts:
    """All workers.

    Attributes:
        grown: names of workers that may have more free capacity, or more possible victims, than
            when last examined.
        lost: rows of the workers that `mirror.columns` leaves out.
        ending: names of workers where an attempt that was ordered to stop still holds resources.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, HostRow] = {}
        self._holds: dict[AttemptRef, HostRow] = {}
        self._columns: Columns | None = None
        self._free: Matrix = np.zeros((DEPTH, 0), np.int64)
        self._totals: Matrix | None = None
        self._stale: set[str] = set()
        self.grown: set[str] = set()
        self.ending: set[str] = set()
        self.lost: list[WorkerRow] = []

    def columns(self) -> Columns:
        """The workers as columns, without LOST ones; the same object until a worker or its
        attributes change.
        """
        if self._columns is None:
            rows = [host.row for host in self._hosts.values() if host.row is not None]
            self._columns = Columns(
                {row.worker: row for row in rows if row.state is not WorkerState.LOST}
            )
            self.lost = [row for row in rows if row.state is WorkerState.LOST]
            names = self._columns.names
            self._free = (
                np.array([self._hosts[name].room() for name in names], np.int64)
                .reshape(len(names), DEPTH)
                .T
            )
            self._stale.clear()
        return self._columns

    def free(self) -> Matrix:
        """Free capacity of every worker, shape (DEPTH, workers): a copy that the caller may
        change.
        """
        columns = self.columns()
        for name in self._stale:
            slot = columns.slot.get(name)
            if slot is not None:
                self._free[:, slot] = self._hosts[name].room()
        self._stale.clear()
        return np.array(self._free, order="C")

    def totals(self) -> Matrix:
        """Total capacity of every worker, shape (DEPTH, workers): not to be changed."""
        columns = self.columns()
        if self._totals is None:
            rows = [self._hosts[name].row for name in columns.names]
            totals = [row_of(row.total, row.max_building) for row in rows if row is not None]
            self._totals = np.array(totals, np.int64).reshape(-1, DEPTH).T.copy()
        return self._totals

    def host(self, name: str) -> HostRow:
        """One worker; an empty row when it is unknown."""
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = HostRow()
        return host

    def known(self) -> Iterator[HostRow]:
        """Every registered worker, unordered."""
        return (host for host in self._hosts.values() if host.row is not None)

    def put(self, row: WorkerRow) -> None:
        """Add or replace a worker."""
        host = self.host(row.worker)
        old = host.row
        host.row = row
        host.version += 1
        self._totals = None
        if old is None or _differs(old, row):
            self._columns = None
        self._touch(row.worker, grew=True)

    def lose(self, name: str) -> None:
        """Remove a worker and its attempts."""
        host = self._hosts.pop(name, None)
        if host is None:
            return
        for ref in host.holds:
            del self._holds[ref]
        self._stale.discard(name)
        self.grown.discard(name)
        self.ending.discard(name)
        if host.row is not None:
            self._columns = self._totals = None

    def hold(self, hold: Hold, need: Need) -> bool:
        """Open an attempt, or change what it holds. Returns whether it is new."""
        known = self._holds.get(hold.ref)
        before = known.holds[hold.ref] if known is not None else None
        host = self.host(hold.worker)
        if known is not None and known is not host:
            self._drop(hold.ref)
        host.put(hold, need)
        if not any(host.stopping):
            self.ending.discard(hold.worker)
        if hold.stopping and any(host.stopping):
            self.ending.add(hold.worker)
        self._holds[hold.ref] = host
        if before is not None:
            self._touch(before[0].worker, grew=before[0].worker != hold.worker)
        self._touch(hold.worker, grew=before is not None and _smaller(hold, before[0]))
        return before is None

    def release(self, ref: AttemptRef) -> tuple[Hold, Need] | None:
        """Close an attempt. Returns what it held, None when it is unknown."""
        held = self._drop(ref)
        if held is not None:
            self._touch(held[0].worker, grew=True)
        return held

    def chained(self, hold: Hold) -> int:
        """How many attempts of its chain are open."""
        host = self._hosts.get(hold.worker)
        return host.chained(hold) if host is not None else 0

    def stuck(self, since_ms: int) -> Iterator[str]:
        """Names of workers where an attempt that was ordered to stop before that time has not
        ended.
        """
        return (name for name in self.ending if self._hosts[name].is_stuck(since_ms))

    def forget(self, kind: JobClass) -> None:
        """Drop the cached results of a class that has no jobs any more."""
        if self._columns is not None:
            self._columns.forget(kind)

    def holds(self) -> Iterator[tuple[Hold, Need]]:
        """All open attempts, unordered."""
        for host in self._hosts.values():
            yield from host.holds.values()

    def counted(self) -> Iterator[tuple[Hold, Need]]:
        """All open attempts, of each chain the one that runs or runs next, unordered."""
        for host in self._hosts.values():
            yield from host.counted()

    def _drop(self, ref: AttemptRef) -> tuple[Hold, Need] | None:
        host = self._holds.pop(ref, None)
        if host is None:
            return None
        held = host.pop(ref)
        if not any(host.stopping):
            self.ending.discard(held[0].worker)
        if host.row is None and not host.holds:
            self._hosts.pop(held[0].worker, None)
        return held

    def _touch(self, name: str, *, grew: bool) -> None:
        self._stale.add(name)
        if grew:
            self.grown.add(name)


def _differs(old: WorkerRow, new: WorkerRow) -> bool:
    """Whether a worker's position among the others changes, or its attributes do."""
    lost = WorkerState.LOST
    return (
        old.attributes != new.attributes
        or (old.total.chips > 0) != (new.total.chips > 0)
        or (old.state is lost) != (new.state is lost)
    )


def _smaller(now: Hold, before: Hold) -> bool:
    """Whether an attempt holds less than before, has begun to stop, or may have others beside
    it.
    """
    return (
        before.building > now.building
        or before.stopping != now.stopping
        or before.alone > now.alone
    )
