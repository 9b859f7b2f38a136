"""Single tasks to workers: first fit in queue order, nobody held up by one that does not fit.

A class that does not fit is asked no more in this cycle. Tasks that are nominated to a worker, kept off a worker or
refused a moment ago are looked at one by one. Source: docs/design/semantics.md#order,
docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core import reasons
from iris_scheduler.classes import JobClass
from iris_scheduler.cycle import Cycle


def place_job(cycle: Cycle, job: int, *, over_quota: bool) -> bool:
    """Place what fits of a job's waiting tasks.

    Args:
        over_quota: everyone else of the band has had a turn, so the user's quota does not matter any more.

    Returns:
        Whether some of its tasks must let everyone else of the band go first.
    """
    if job in cycle.special:
        return _place_one_by_one(cycle, job, over_quota=over_quota)
    kind = cycle.mirror.kinds[job]
    if kind in cycle.full:
        return False
    waiting = cycle.waiting(job)
    count = len(waiting)
    if not over_quota:
        count = cycle.allowances.within(cycle.mirror.jobs[job].user, kind.need, count)
    seats = _seat(cycle, kind, count)
    if seats:
        cycle.give(job, kind.need, waiting[: len(seats)], seats)
    cycle.rest[job] = waiting[len(seats) :]
    return len(seats) == count < len(waiting)


def _seat(cycle: Cycle, kind: JobClass, count: int) -> list[int]:
    seats = cycle.candidates(kind).seat(count)
    if len(seats) < count and cycle.reserved:
        seats += _borrow(cycle, kind, count - len(seats))
    if len(seats) < count:
        cycle.full.add(kind)
    return seats


def _borrow(cycle: Cycle, kind: JobClass, count: int) -> list[int]:
    """Seats on workers kept for a gang, for tasks that surely end before the gang can start."""
    timeout_ms = kind.key.timeout_ms
    if timeout_ms is None:
        return []
    mask = cycle.usable(kind).mask
    seats: list[int] = []
    for slot, kept in sorted(cycle.reserved.items()):
        if kept.until_ms is None or cycle.now_ms + timeout_ms > kept.until_ms or not mask[slot]:
            continue
        cycle.room.reopen(slot)
        fits = min(count - len(seats), max(0, cycle.room.holds(slot, kind.need)))
        if fits:
            cycle.room.take(slot, kind.need, fits)
            seats += [slot] * fits
        cycle.room.shut(slot)
    return seats


def _place_one_by_one(cycle: Cycle, job: int, *, over_quota: bool) -> bool:
    if cycle.is_paused(job):
        backoff = cycle.memory.backoffs[job]
        cycle.wake_at(backoff.until_ms)
        cycle.notes[job] = reasons.delayed(backoff.until_ms, f"the state service refused its place: {backoff.why}")
        return False
    kind, user = cycle.mirror.kinds[job], cycle.mirror.jobs[job].user
    indexes: list[int] = []
    slots: list[int] = []
    deferred = False
    for index in _one_by_one(cycle, job, kind):
        slot = _nominated_seat(cycle, (job, index), kind)
        if slot is None and not over_quota and not cycle.allowances.within(user, kind.need, 1):
            deferred = True
        elif slot is None:
            slot = _seat_one(cycle, job, index)
            if slot is not None:
                cycle.kept.leave((job, index))
        if slot is not None:
            indexes.append(index)
            slots.append(slot)
            cycle.allowances.spend(user, kind.need, 1)
    if indexes:
        cycle.allowances.spend(user, kind.need, -len(indexes))
        cycle.give(job, kind.need, indexes, slots)
    placed = frozenset(indexes)
    cycle.rest[job] = [index for index in cycle.waiting(job) if index not in placed]
    return deferred


def _nominated_seat(cycle: Cycle, task: tuple[int, int], kind: JobClass) -> int | None:
    if task not in cycle.kept:
        return None
    with cycle.opened([task]):
        return cycle.kept.seat(cycle.room, task, kind.need)


def _one_by_one(cycle: Cycle, job: int, kind: JobClass) -> Iterator[int]:
    """Waiting indexes to look at;

    once the class is full, only those that are nominated to a worker or kept off a worker.
    """
    apart = {index for number, index in cycle.kept.slots if number == job} | cycle.mirror.avoids.get(job, {}).keys()
    waiting = cycle.waiting(job)
    looked_at = -1
    for index in waiting:
        if kind in cycle.full:
            break
        looked_at = index
        yield index
    yield from sorted(apart.intersection(waiting) - set(range(looked_at + 1)))


def _seat_one(cycle: Cycle, job: int, index: int) -> int | None:
    kind = cycle.mirror.kinds[job]
    avoided = cycle.mirror.avoids.get(job, {}).get(index)
    if not avoided:
        seats = [] if kind in cycle.full else _seat(cycle, kind, 1)
        return seats[0] if seats else None
    known = {cycle.columns.slot[worker]: until for worker, until in avoided.items() if worker in cycle.columns.slot}
    mask = cycle.usable(kind).mask
    last = sorted(slot for slot, until in known.items() if until <= cycle.now_ms and mask[slot])
    slot = cycle.candidates(kind).seat_beside(known, last)
    if slot is None:
        _note_delay(cycle, job, kind, {s: until for s, until in known.items() if until > cycle.now_ms and mask[s]})
    return slot


def _note_delay(cycle: Cycle, job: int, kind: JobClass, delays: dict[int, int]) -> None:
    """The task fits only where it is kept off: say so, and come back when the first delay ends."""
    open_again = [until for slot, until in delays.items() if cycle.room.holds(slot, kind.need) > 0]
    if delays:
        cycle.wake_at(min(delays.values()))
    if open_again:
        cycle.notes[job] = reasons.delayed(min(open_again), "it could not be brought up on the only worker with room")
