"""Which findings of earlier cycles still hold, so that only what may have changed is looked at again.

Room shrinks by placing and grows only on workers the mirror names. So a class that was full is still full unless a
grown worker has room for it, and a class no eviction helped is still unschedulable unless a worker that matters has
grown or other workers are kept for gangs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from iris_scheduler.classes import JobClass, job_at
from iris_scheduler.cycle import Cycle
from iris_scheduler.placement.capacity import Slots, fitting


def still_full(cycle: Cycle) -> set[JobClass]:
    """Classes that need no look in this cycle."""
    known = [kind for kind in cycle.memory.full if kind.waiting]
    if not known or cycle.memory.columns is not cycle.columns or cycle.memory.stuck != cycle.stuck:
        return set()
    grown = _grown(cycle)
    return {kind for kind in known if not _has_room(cycle, kind, grown) and _may_wait(cycle, kind)}


def still_unschedulable(cycle: Cycle, reserved: frozenset[tuple[int, int]]) -> set[JobClass]:
    """Classes for which no eviction need be tried in this cycle; ``reserved``: slots now kept, and for which gang."""
    memory = cycle.memory
    if not memory.unschedulable or memory.columns is not cycle.columns or memory.reserved != reserved:
        return set()
    grown = _grown(cycle)
    return {kind for kind in memory.unschedulable if not _may_be_helped(cycle, kind, grown)}


def soon_helped(cycle: Cycle, unschedulable: Iterable[JobClass]) -> set[JobClass]:
    """Classes below which this cycle has placed something that may be worth stopping in the next one.

    For a gang it can go with others that alone were not enough. A single task evicts one other only, and what was
    placed now gives back no more than there was; together with what is coming free beside it, it may be enough.
    """
    lowest = max((cycle.mirror.kinds[given.job].band for given in cycle.given), default=None)
    if lowest is None:
        return set()
    coming = {cycle.columns.slot[name] for name in cycle.mirror.hosts.ending if name in cycle.columns.slot}
    beside = max((cycle.mirror.kinds[g.job].band for g in cycle.given if coming.intersection(g.slots)), default=None)
    return {kind for kind in unschedulable if (lowest if kind.is_gang else beside or 0) > kind.band}


def _may_be_helped(cycle: Cycle, kind: JobClass, grown: Slots) -> bool:
    """A single task needs room where it may go; for a gang a session may go whose last member elsewhere has ended."""
    return bool(len(grown)) if kind.is_gang else bool(cycle.usable(kind).mask[grown].any())


def _grown(cycle: Cycle) -> Slots:
    """Workers that may have more room; those with nominations too, for a nomination may have become worthless."""
    names = cycle.mirror.hosts.grown | set(cycle.mirror.nominations.values())
    slots = [cycle.columns.slot[name] for name in names if name in cycle.columns.slot]
    return np.array(sorted(slots), np.int64)


def _has_room(cycle: Cycle, kind: JobClass, grown: Slots) -> bool:
    if not len(grown):
        return False
    usable = grown[cycle.usable(kind).mask[grown]]
    return bool(fitting(cycle.room.matrix, kind.need, usable).any())


def _may_wait(cycle: Cycle, kind: JobClass) -> bool:
    """Whether the first gang of the class may go on waiting without a group being kept for it."""
    if not kind.is_gang:
        return True
    retry_until = cycle.mirror.since_ms[job_at(kind.waiting[0])] + cycle.settings.gang_reservation_after_ms
    if cycle.now_ms > retry_until:
        return False
    cycle.wake_at(retry_until + 1)
    return True
