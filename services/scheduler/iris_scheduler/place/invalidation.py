"""Invalidates results of earlier cycles, so that only what may have changed is examined again.

Free capacity shrinks by placement and grows only on workers that the mirror reports. So a class
that did not fit still does not fit unless a grown worker has enough free for it, or one that was
reserved, and a class that no eviction helped is still unschedulable unless a worker it may use has
grown, or is reserved now and was not, or the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import chain

import numpy as np

from iris_core.states import PriorityBand
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.mirror.capacity import Matrix, Room, Slots
from iris_scheduler.mirror.classes import JobClass, job_at
from iris_scheduler.place.assignments import Given


class Contenders:
    """Classes that were full in the last cycle: each still is unless a worker that has grown has
    enough free for it.

    Attributes:
        grown: these workers, and those that were reserved.
    """

    def __init__(self, cycle: Cycle) -> None:
        last = cycle.cache.last
        self._cycle = cycle
        self._alike: list[list[JobClass]] = []
        self.grown: Slots = np.zeros(0, np.int64)
        if last.full and cycle.cache.columns is cycle.columns and last.stuck == cycle.stuck:
            self.grown = _grown(cycle, {slot for slot, _ in last.reserved})
            for peers in chain.from_iterable(cycle.by_turn.values()):
                self._add([kind for kind in peers.waiting if kind in last.full])

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._alike)

    def full(self, matrix: Matrix) -> set[JobClass]:
        """Those of which no further task fits; ``matrix``: what is free now, all workers."""
        full = set[JobClass]()
        for kinds in self._alike:
            fits = _fitting(self._cycle, kinds, matrix, self.grown)
            full.update([kind for kind, has_room in zip(kinds, fits, strict=True) if not has_room])
        return full

    def drop(self, full: Set[JobClass]) -> None:
        """Some are known to be full for the rest of the cycle."""
        before, self._alike = self._alike, []
        for kinds in before:
            self._add([kind for kind in kinds if kind not in full])

    def _add(self, kinds: list[JobClass]) -> None:
        """Add classes that may use the same workers."""
        if kinds:
            self._alike.append(kinds)


def still_full(cycle: Cycle, contenders: Contenders, room: Room) -> frozenset[JobClass]:
    """Classes that need not be examined: no further task fits, and none of their gangs is due for a
    reservation.
    """
    full = frozenset(
        kind
        for kind in contenders.full(room.matrix)
        if not kind.is_gang or cycle.may_wait(job_at(kind.waiting[0]))
    )
    contenders.drop(full)
    return full


def _fitting(
    cycle: Cycle, kinds: Sequence[JobClass], matrix: Matrix, slots: Slots
) -> Sequence[bool]:
    """For each class, all of one shape, whether one more task fits on one of these workers."""
    usable = slots[cycle.columns.usable(kinds[0]).mask[slots]]
    if not len(usable):
        return [False] * len(kinds)
    rows = [kind.row for kind in kinds]
    fits: Sequence[bool] = cycle.mirror.needs.fitting(rows, matrix[:, usable]).tolist()
    return fits


def still_unschedulable(cycle: Cycle, reserved: frozenset[tuple[int, int]]) -> set[JobClass]:
    """Classes for which no eviction need be tried in this cycle; ``reserved``: slots reserved now,
    and for which gang.
    """
    last = cycle.cache.last
    if not last.unschedulable or cycle.cache.columns is not cycle.columns:
        return set()
    grown = _grown(cycle, {slot for slot, _ in last.reserved ^ reserved})
    return {
        kind
        for kind in last.unschedulable
        if kind.waiting and not _may_be_helped(cycle, kind, grown)
    }


def soon_helped(
    cycle: Cycle,
    given: Sequence[Given],
    unschedulable: Iterable[JobClass],
    tried: Iterable[JobClass],
) -> set[JobClass]:
    """Classes for which an attempt placed in this cycle may be a useful victim in the next.

    For a gang it may be evicted together with others. A single task had no use for the worker
    before the attempt was placed, and what is there for its band has not changed; so only those
    that were examined after the placement, and before it can be a victim, are examined again.
    """
    lower: dict[PriorityBand, set[int]] = {}
    for one in given:
        lower.setdefault(cycle.mirror.kinds[one.job].band, set()).update(one.slots)
    if not lower:
        return set()
    examined = set(tried)

    def may_use(kind: JobClass) -> bool:
        mask = cycle.columns.usable(kind).mask
        return any(mask[list(lower[band])].any() for band in lower if band > kind.band)

    return {
        kind
        for kind in unschedulable
        if max(lower) > kind.band and (kind.is_gang or (kind in examined and may_use(kind)))
    }


def _may_be_helped(cycle: Cycle, kind: JobClass, grown: Slots) -> bool:
    """Whether a class may be helped: a single task on a worker it may use; a gang also by a session
    elsewhere that has ended.
    """
    return bool(len(grown)) if kind.is_gang else bool(cycle.columns.usable(kind).mask[grown].any())


def _grown(cycle: Cycle, others: set[int]) -> Slots:
    """Workers that may have more free capacity, those with nominations, because a nomination may
    have become invalid, and others.
    """
    names = cycle.mirror.hosts.grown | set(cycle.mirror.nominations.values())
    slots = {cycle.columns.slot[name] for name in names if name in cycle.columns.slot}
    return np.array(sorted(slots | others), np.int64)
