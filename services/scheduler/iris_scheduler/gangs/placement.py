"""Gangs to groups: whole or not at all, and a group kept for one that has waited too long.

Source: docs/design/semantics.md#coscheduling, docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iris_core import reasons
from iris_core.messages import Hold
from iris_scheduler.classes import JobClass
from iris_scheduler.cycle import Cycle, Reservation
from iris_scheduler.hosts import NEVER_MS, HostRow
from iris_scheduler.placement.capacity import SHUT, WINDOW, Need, covers, fitting, row_of
from iris_scheduler.placement.columns import Groups

_CANDIDATES = 64
"""Groups weighed for a reservation: those with the most workers free now, then by name."""


def place_gang(cycle: Cycle, job: int, *, over_quota: bool) -> bool:
    """Place all waiting tasks of a gang, or none. Returns whether it must let everyone else of the band go first."""
    kind = cycle.mirror.kinds[job]
    indexes = cycle.waiting(job)
    cycle.rest[job] = indexes
    if cycle.is_paused(job):
        backoff = cycle.memory.backoffs[job]
        cycle.wake_at(backoff.until_ms)
        cycle.notes[job] = reasons.delayed(backoff.until_ms, f"the state service refused its places: {backoff.why}")
        return False
    nominated = (job, indexes[0]) in cycle.kept
    if nominated and _give(cycle, job, kind, indexes, _nominated_seats(cycle, job, kind, indexes)):
        return False
    size = len(indexes)
    if not over_quota and cycle.allowances.within(cycle.mirror.jobs[job].user, kind.need, size) < size:
        return True
    seats = _seat(cycle, job, kind, size)
    placed = _give(cycle, job, kind, indexes, seats)
    if placed and nominated:
        for index in indexes:
            cycle.kept.leave((job, index))
    elif not placed and not nominated:
        _reserve_in_time(cycle, job, kind, size)
    return False


def _give(cycle: Cycle, job: int, kind: JobClass, indexes: Sequence[int], seats: Sequence[int] | None) -> bool:
    if seats is None:
        return False
    cycle.give(job, kind.need, indexes, seats)
    cycle.rest[job] = ()
    return True


def _nominated_seats(cycle: Cycle, job: int, kind: JobClass, indexes: Sequence[int]) -> list[int] | None:
    tasks = [(job, index) for index in indexes]
    with cycle.opened(tasks):
        if not all(cycle.kept.is_free(cycle.room, task, kind.need) for task in tasks):
            return None
        seats = [cycle.kept.seat(cycle.room, task, kind.need) for task in tasks]
    return [slot for slot in seats if slot is not None]


def _seat(cycle: Cycle, job: int, kind: JobClass, size: int) -> list[int] | None:
    avoided = cycle.mirror.avoids.get(job)
    if avoided:
        return _seat_beside(cycle, job, kind, size)
    if kind in cycle.full:
        return None
    seats = cycle.group_candidates(kind, size).seat()
    if seats is None and size == kind.size:
        cycle.full.add(kind)
    elif seats is None:
        cycle.apart.add(job)
    return seats


def _seat_beside(cycle: Cycle, job: int, kind: JobClass, size: int) -> list[int] | None:
    """Seats for a gang some of whose tasks are kept off workers: for the gang, off all of them."""
    shunned, last = [], []
    for workers in cycle.mirror.avoids[job].values():
        for worker, until_ms in workers.items():
            slot = cycle.columns.slot.get(worker)
            if slot is None:
                continue
            if until_ms > cycle.now_ms:
                shunned.append(slot)
                cycle.wake_at(until_ms)
            else:
                last.append(slot)
    seats = cycle.fresh_group_candidates(kind, size, sorted(shunned), sorted(last)).seat()
    if seats is None and shunned:
        until_ms = min(u for workers in cycle.mirror.avoids[job].values() for u in workers.values() if u > cycle.now_ms)
        cycle.notes[job] = reasons.delayed(until_ms, "it could not be brought up on workers it would need")
    return seats


# ── a group is kept ─────────────────────────────────────────────────────────────────────────────────────────────


def _reserve_in_time(cycle: Cycle, job: int, kind: JobClass, size: int) -> None:
    """Keep the group that will be free first for a gang that has waited longer than timeout allows."""
    retry_until = cycle.mirror.since_ms[job] + cycle.settings.gang_reservation_after_ms
    if cycle.now_ms <= retry_until:
        cycle.wake_at(retry_until + 1)
        return
    groups = cycle.columns.groups(kind.key.group_by)
    best = min(
        (_freed(cycle, kind, groups, group, size) for group in _possible(cycle, kind, groups, size)), default=None
    )
    if best is None:
        return
    at_ms, _, _, slots = best
    for slot in slots:
        cycle.room.shut(slot)
        cycle.reserved[slot] = Reservation(job, at_ms if at_ms < NEVER_MS else None)


Freed = tuple[int, int, int, tuple[int, ...]]
"""When a group will be free, how many of its workers are not yet, the group, and the workers to keep."""


def _possible(cycle: Cycle, kind: JobClass, groups: Groups, size: int) -> list[int]:
    """Groups that could hold the gang if they were empty, those with the most free workers first."""
    slots = cycle.usable(kind).slots
    slots = slots[(groups.codes.take(slots) >= 0) & (cycle.room.matrix[WINDOW].take(slots) > -SHUT // 2)]
    large = [s for s in slots.tolist() if s not in cycle.reserved and covers(_total(cycle, s), kind.need)]
    counts = np.bincount(groups.codes.take(large), minlength=len(groups.names)) if large else np.zeros(0, np.int64)
    free = slots[fitting(cycle.room.matrix, kind.need, slots)]
    free_counts = np.bincount(groups.codes.take(free), minlength=len(groups.names))
    possible = np.flatnonzero(counts >= size).tolist()
    return sorted(possible, key=lambda group: (-int(free_counts[group]), group))[:_CANDIDATES]


def _freed(cycle: Cycle, kind: JobClass, groups: Groups, group: int, size: int) -> Freed:
    mask = cycle.usable(kind).mask
    times = sorted(
        (
            _free_at(cycle, cycle.mirror.hosts.host(cycle.columns.names[slot]), kind.need),
            order,
            slot,
        )
        for order, slot in enumerate(groups.members[group])
        if mask[slot] and slot not in cycle.reserved and covers(_total(cycle, slot), kind.need)
    )[:size]
    busy = sum(at_ms > cycle.now_ms for at_ms, _, _ in times)
    return times[-1][0], busy, group, tuple(slot for _, _, slot in times)


def _total(cycle: Cycle, slot: int) -> Sequence[int]:
    row = cycle.mirror.hosts.host(cycle.columns.names[slot]).row
    assert row is not None
    return row_of(row.total, row.max_building if cycle.mirror.hosts.host(row.worker).takes_work else 0)


def _free_at(cycle: Cycle, host: HostRow, need: Need) -> int:
    """When one task will fit on a worker, by the time limits of what runs there; NEVER_MS when nothing says."""
    room = host.room()
    if covers(room, need):
        return cycle.now_ms
    ends = sorted((_end_of(cycle, hold), ref) for ref, (hold, _) in host.holds.items())
    for at_ms, ref in ends:
        hold, held = host.holds[ref]
        for dimension, amount in held.held:
            room[dimension] += amount
        room[WINDOW] += hold.building
        if covers(room, need):
            return max(at_ms, cycle.now_ms)
    return NEVER_MS


def _end_of(cycle: Cycle, hold: Hold) -> int:
    if hold.stopping:
        return cycle.now_ms if hold.stopping_ms + cycle.settings.stop_timeout_ms >= cycle.now_ms else NEVER_MS
    timeout_ms = cycle.mirror.jobs[hold.ref.job].timeout_ms
    return NEVER_MS if timeout_ms is None else hold.since_ms + timeout_ms
