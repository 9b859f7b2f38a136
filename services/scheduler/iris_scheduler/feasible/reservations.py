"""Reserves groups for gangs, and hosts for single tasks, that have waited too long: nothing is
placed there that would make them wait longer.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Hold, JobRow
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.cycle.drains import Drain, DrainingAttempt, Period, drain_of, period_at
from iris_scheduler.feasible.levels import in_domains
from iris_scheduler.feasible.nominations import Nominations
from iris_scheduler.mirror.capacity import (
    CHIPS,
    SHUT,
    WINDOW,
    Need,
    Room,
    Slots,
    covers,
    fitting,
    minus,
    row_of,
)
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.columns import Groups
from iris_scheduler.mirror.hosts import NEVER_MS, HostRow

_CANDIDATES = 64
"""At most so many groups for each slice are compared for a reservation: most free workers first,
then by name.
"""
_WAITED_FOR = 256
"""At most so many workers that are not free are compared beyond a gang's size, in a group of
several domains.
"""

Freed = tuple[int, int, int, tuple[int, ...]]
"""When a group will be free, how many of its workers are not free yet, the group, and the workers
to reserve.
"""
AllFreed = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""The same for all groups of a gang together."""


NO_INDEX = -1
"""Of an attempt that this cycle has placed."""
_HOSTS_COMPARED = 16
"""At most so many workers are compared for a single task: those that lack least, then by name."""


@dataclass(frozen=True, slots=True)
class HostReservation:
    """A worker that is kept for a single task, and what must end there first."""

    slot: int
    index: int
    drain: Drain


class Reservations:
    """Which workers are kept for which gang or task in one cycle, and until when; nothing else is
    placed there.

    ``placed_on``: by slot, the job of each task that has got its place there in this cycle.

    Attributes:
        hosts: by job, the worker kept for one of its single tasks.
    """

    def __init__(
        self,
        cycle: Cycle,
        room: Room,
        nominations: Nominations,
        placed_on: Callable[[int], Sequence[int]],
    ) -> None:
        self._cycle = cycle
        self._room = room
        self._nominations = nominations
        self._placed_on = placed_on
        self._kept: dict[int, tuple[int, int]] = {}
        self.hosts: dict[int, HostReservation] = {}

    def kept(self) -> list[tuple[int, int]]:
        """The job of the gang or task for which each reserved slot is kept."""
        return [(slot, job) for slot, (job, _) in sorted(self._kept.items())]

    def kept_for(self, job: int) -> list[int]:
        """The workers that are reserved for a job."""
        return [slot for slot, (of, _) in sorted(self._kept.items()) if of == job]

    def open_for(self, kind: JobClass) -> list[int]:
        """Reserved workers on which a task of a class is certain to end before the gang or
        task could start.
        """
        if not self._kept or kind.key.timeout_ms is None:
            return []
        mask = self._cycle.columns.usable(kind).mask
        end_ms = self._cycle.now_ms + kind.key.timeout_ms
        return [
            slot
            for slot, (_, at_ms) in sorted(self._kept.items())
            if end_ms <= at_ms < NEVER_MS and mask[slot]
        ]

    @contextmanager
    def opened(self, slots: Iterable[int | None]) -> Iterator[None]:
        """Allow placements on these reserved workers."""
        kept = {slot for slot in slots if slot is not None and slot in self._kept}
        for slot in kept:
            self._room.reopen(slot)
        yield
        for slot in kept:
            self._room.shut(slot)

    def reserve_host(self, job: int, index: int) -> None:
        """Reserve the worker that will be free first for a single task, if there is one.

        Of those that lack least now, the one with the fewest long attempts among those that must
        end, then by the latest time of these ends, then by their number.
        """
        cycle = self._cycle
        need = self._cycle.mirror.kinds[job].need
        delay_ms = cycle.settings.task_reservation_after_ms
        period = period_at(cycle.mirror.since_ms[job] + delay_ms, delay_ms, cycle.now_ms)
        best: tuple[tuple[int, int, int, int], HostReservation] | None = None
        for order, slot in enumerate(self._nearest(job, index)):
            drain = self._drain(slot, need, period)
            if drain is not None:
                at_ms = max(drain.at_ms, cycle.now_ms)
                rank = (drain.long, at_ms, drain.ends, order)
                if best is None or rank < best[0]:
                    best = rank, HostReservation(slot, index, drain._replace(at_ms=at_ms))
        if best is None:
            return
        cycle.wake_at(period.end_ms)
        found = self.hosts[job] = best[1]
        self._room.shut(found.slot)
        self._kept[found.slot] = (job, found.drain.at_ms)

    def release_hosts(self, jobs: Iterable[int]) -> None:
        """Open the workers that are kept for single tasks of these jobs."""
        for job in jobs:
            reservation = self.hosts.pop(job, None)
            if reservation is not None:
                self._room.reopen(reservation.slot)
                del self._kept[reservation.slot]

    def _nearest(self, job: int, index: int) -> list[int]:
        """The workers that could hold a task if they were empty, those that lack least first.

        A task without devices is not waited for on workers with devices, if others are as large.
        """
        columns = self._cycle.columns
        kind = self._cycle.mirror.kinds[job]
        slots = columns.usable(kind).slots
        slots = slots[self._room.matrix[WINDOW].take(slots) > -SHUT // 2]
        slots = slots[fitting(self._cycle.mirror.hosts.totals(), kind.need, slots)]
        delayed = self._cycle.delayed(job, index)
        if delayed:
            slots = slots[~np.isin(slots, delayed)]
        if not kind.need.amounts[CHIPS] and (slots < columns.accelerated).any():
            slots = slots[slots < columns.accelerated]
        lack = np.zeros(len(slots), np.int64)
        for dimension, amount in kind.need.needed:
            short = np.maximum(amount - self._room.matrix[dimension].take(slots), 0)
            lack += np.minimum(short, amount) * 1000 // amount
        nearest = np.argsort(lack, kind="stable")[:_HOSTS_COMPARED]
        return [int(slot) for slot in slots[nearest]]

    def _drain(self, slot: int, need: Need, period: Period) -> Drain | None:
        """What must end on a worker before one task fits beside those nominated to it."""
        host = self._host(slot)
        held_up = self._held_up(slot)
        if any(host.stopping) or any(self._nominations.at(slot)) or self._placed_on(slot):
            return self._find_drain(slot, need, period)  # it depends on this cycle
        key = (host.version, period, need, held_up)
        drains = self._cycle.cache.drains
        known = drains.get(host)
        if known is None or known[0] != key:
            known = drains[host] = key, self._find_drain(slot, need, period)
        return known[1]

    def _find_drain(self, slot: int, need: Need, period: Period) -> Drain | None:
        cycle = self._cycle
        host = self._host(slot)
        held_up = self._held_up(slot)
        room = minus(host.room(), self._nominations.at(slot))
        endings = []
        for hold, held in host.counted():
            if hold.ref.job in held_up and not hold.stopping:
                continue
            at_ms = self._end_of(hold)
            is_long = hold.since_ms < period.long_ms and at_ms > period.end_ms
            frees = (*held.held, (WINDOW, int(hold.building or host.is_crowded)))
            endings.append(DrainingAttempt(is_long, at_ms, hold.ref, frees))
        for job in self._placed_on(slot):
            placed = cycle.mirror.kinds[job].need
            room = minus(room, placed.amounts)
            at_ms = self._timeout_at(job, cycle.now_ms)
            endings.append(
                DrainingAttempt(False, at_ms, AttemptRef(job, NO_INDEX, 0), placed.needed)
            )
        return drain_of(room, endings, need)

    def _held_up(self, slot: int) -> frozenset[int]:
        """The jobs on a worker that may wait for a job below them, which the reservation may keep
        from starting: their ends are not waited for.
        """
        mirror = self._cycle.mirror
        if not mirror.families:
            return frozenset()
        jobs = {hold.ref.job for hold, _ in self._host(slot).counted()}
        return frozenset(job for job in jobs if self._waits_below(mirror.jobs[job]))

    def _waits_below(self, row: JobRow) -> bool:
        """Whether a job below this one has waited for longer than tasks do that get a
        reservation.
        """
        cycle = self._cycle
        below = cycle.mirror.families.first_below(row)
        if below is None:
            return False
        due_ms = cycle.mirror.since_ms[below] + cycle.settings.task_reservation_after_ms
        if due_ms >= cycle.now_ms:
            cycle.wake_at(due_ms + 1)
            return False
        return True

    def reserve(self, gang: int, size: int) -> None:
        """Reserve the groups that will be free first for a gang of that size, if there are any; of
        those that are free at the same time, with as many preferred levels as possible.
        """
        columns = self._cycle.columns
        kind = self._cycle.mirror.kinds[gang]
        matrix = self._room.matrix
        slots = columns.usable(kind).slots
        slots = slots[
            (columns.groups(kind).codes.take(slots) >= 0)
            & (matrix[WINDOW].take(slots) > -SHUT // 2)
        ]
        large = np.array(
            [slot for slot in slots.tolist() if self._is_large(slot, kind.need)], np.int64
        )
        ways = (
            self._first_free(kind, groups, large, size // kind.slices)
            for groups in columns.groupings(kind)
        )
        best = min((way for way in ways if way is not None), key=itemgetter(0, 1), default=None)
        if best is None:
            return
        at_ms, _, _, slots_kept = best
        for slot in slots_kept:
            self._room.shut(slot)
            self._kept[slot] = (gang, at_ms)

    def _first_free(
        self, kind: JobClass, groups: Groups, large: Slots, each: int
    ) -> AllFreed | None:
        """The groups that will be free first, of one way to group the workers that are large
        enough.
        """
        by_domain: dict[int, list[Freed]] = {}
        for group in self._possible(kind, groups, large, each):
            by_domain.setdefault(int(groups.domains[group]), []).append(
                self._freed(kind, groups, group, large, size=each)
            )
        together = (
            _together(sorted(freed)[: kind.slices])
            for freed in by_domain.values()
            if len(freed) >= kind.slices
        )
        return min(together, default=None)

    def _possible(self, kind: JobClass, groups: Groups, large: Slots, size: int) -> list[int]:
        """Groups that could hold the gang if they were empty, those with the most free workers
        first.
        """
        grouped = large[groups.codes.take(large) >= 0]
        counts = np.bincount(groups.codes.take(grouped), minlength=len(groups.names))
        free = grouped[fitting(self._room.matrix, kind.need, grouped)]
        free_counts = np.bincount(groups.codes.take(free), minlength=len(groups.names))
        possible = np.flatnonzero(counts >= size).tolist()
        by_free = sorted(possible, key=lambda group: (-int(free_counts[group]), group))
        return by_free[: _CANDIDATES * kind.slices]

    def _freed(self, kind: JobClass, groups: Groups, group: int, large: Slots, size: int) -> Freed:
        inside = large[groups.codes.take(large) == group]
        if groups.near:
            free = fitting(self._room.matrix, kind.need, inside)
            members = in_domains(
                [*inside[free][:size].tolist(), *inside[~free][: size + _WAITED_FOR].tolist()],
                groups.near,
            )
        else:
            there = set(inside.tolist())
            members = [slot for slot in groups.members[group] if slot in there]
        times = sorted(
            (self._free_at(slot, kind.need), order, slot) for order, slot in enumerate(members)
        )[:size]
        busy = sum(at_ms > self._cycle.now_ms for at_ms, _, _ in times)
        return times[-1][0], busy, group, tuple(slot for _, _, slot in times)

    def _is_large(self, slot: int, need: Need) -> bool:
        """Whether an unreserved worker could hold one task when everything has ended there that
        can be waited for.
        """
        host = self._host(slot)
        held_up = self._held_up(slot)
        assert host.row is not None
        total = list(row_of(host.row.total, host.row.max_building if host.takes_work else 0))
        for hold, held in host.counted() if held_up else ():
            if hold.ref.job in held_up and not hold.stopping:
                for dimension, amount in held.held:
                    total[dimension] -= amount
        return slot not in self._kept and covers(total, need)

    def _host(self, slot: int) -> HostRow:
        return self._cycle.mirror.hosts.host(self._cycle.columns.names[slot])

    def _free_at(self, slot: int, need: Need) -> int:
        """When one task fits on a worker beside those nominated to it, by the time limits there;
        else NEVER_MS.
        """
        cycle = self._cycle
        host = self._host(slot)
        room = minus(host.room(), self._nominations.at(slot))
        ends = [
            (self._end_of(hold), (*held.held, (WINDOW, hold.building)))
            for hold, held in host.counted()
        ]
        for job in self._placed_on(slot):
            placed = cycle.mirror.kinds[job].need
            room = minus(room, placed.amounts)
            ends.append((self._timeout_at(job, cycle.now_ms), placed.needed))
        if covers(room, need):
            return cycle.now_ms
        for at_ms, freed in sorted(ends, key=itemgetter(0)):
            for dimension, amount in freed:
                room[dimension] += amount
            if covers(room, need):
                return max(at_ms, cycle.now_ms)
        return NEVER_MS

    def _end_of(self, hold: Hold) -> int:
        cycle = self._cycle
        if hold.stopping:
            return (
                cycle.now_ms
                if hold.stopping_ms + cycle.settings.stop_timeout_ms >= cycle.now_ms
                else NEVER_MS
            )
        return self._timeout_at(hold.ref.job, hold.since_ms)

    def _timeout_at(self, job: int, since_ms: int) -> int:
        timeout_ms = self._cycle.mirror.jobs[job].timeout_ms
        return NEVER_MS if timeout_ms is None else since_ms + timeout_ms


def _together(freed: Sequence[Freed]) -> AllFreed:
    """When all of these groups will be free."""
    slots = tuple(slot for _, _, _, own in freed for slot in own)
    return (
        max(at_ms for at_ms, *_ in freed),
        sum(busy for _, busy, *_ in freed),
        tuple(f[2] for f in freed),
        slots,
    )
