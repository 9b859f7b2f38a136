"""Room for unplaced work of a higher band, made by stopping lower bands; nothing is stopped that would not help.

It looks at the room there will be once everything already stopping has stopped: work that fits there waits and evicts
nobody. A single task evicts the one cheapest single task with which it then fits. Gangs are served in `eviction`. The
freed place is nominated for the task. Source: docs/design/semantics.md#tasks-and-attempts,
docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np

from iris_core.messages import Nomination
from iris_core.states import PriorityBand
from iris_scheduler.classes import JobClass
from iris_scheduler.cycle import Cycle, Evicted
from iris_scheduler.order import in_order
from iris_scheduler.placement.capacity import Room, Slots, covers, fitting
from iris_scheduler.preemption.gangs import evict_for_gang
from iris_scheduler.preemption.victims import Victim, Victims

PREEMPTORS = (PriorityBand.PRODUCTION, PriorityBand.INTERACTIVE)
"""BATCH never preempts."""


class VictimSearch:
    """Single tasks of one class, kept off the same workers, look for places: first those that come free, then victims.

    Attributes:
        claims: whether it has found a place that comes free anyway, which later classes then do not find.
    """

    def __init__(
        self, cycle: Cycle, future: Room, victims: Victims, evicted: list[int], kind: JobClass, delayed: Sequence[int]
    ) -> None:
        self._future = future
        self._victims = victims
        self._evicted = evicted
        self._kind = kind
        self._mask = cycle.usable(kind).mask.copy()
        self._mask[list(delayed)] = False
        usable = np.flatnonzero(self._mask).tolist() if delayed else cycle.usable(kind).slots.tolist()
        self._coming = [slot for slot in usable if future.holds(slot, kind.need) > 0]
        self._seen = len(evicted)
        self.claims = False
        self._heap = self._helpful(np.arange(len(victims.all)))

    def waits(self) -> bool:
        """Whether one more task will fit without another eviction; it then counts as placed there."""
        while self._seen < len(self._evicted):
            slot = self._evicted[self._seen]
            self._seen += 1
            if self._mask[slot]:
                self._coming.append(slot)
                for position in self._helpful(np.flatnonzero(self._victims.slots == slot)):
                    heappush(self._heap, position)
        while self._coming:
            if self._future.holds(self._coming[-1], self._kind.need) > 0:
                self._future.take(self._coming[-1], self._kind.need)
                self.claims = True
                return True
            self._coming.pop()
        return False

    def victim(self, stopped: set[int]) -> Victim | None:
        """The cheapest victim that makes room for one more task; ``stopped`` are positions already evicted."""
        while self._heap:
            position = heappop(self._heap)
            victim = self._victims.all[position]
            if position not in stopped and covers(self._with(victim), self._kind.need):
                stopped.add(position)
                return victim
        return None

    def _with(self, victim: Victim) -> list[int]:
        return [a + b for a, b in zip(self._future.at(victim.slot), victim.frees, strict=True)]

    def _helpful(self, positions: Slots) -> list[int]:
        """Those of the victims that would make room, in ascending order: a heap."""
        victims, need = self._victims, self._kind.need
        slots = victims.slots[positions]
        helps = victims.single[positions] & (victims.bands[positions] > int(self._kind.band))
        helps &= self._mask[slots]
        for dimension, amount in need.needed:
            helps &= self._future.matrix[dimension][slots] + victims.frees[dimension][positions] >= amount
        return [int(position) for position in positions[helps]]


def preempt(cycle: Cycle, unschedulable: set[JobClass]) -> set[JobClass]:
    """Evict for what could not be placed, highest band first.

    Args:
        unschedulable: classes that no eviction would help; more are added.

    Returns those that have claimed room that comes free anyway: what others find depends on their being looked at.
    """
    bands = [band for band in PREEMPTORS if any(cycle.mirror.held[lower] for lower in PriorityBand if lower > band)]
    apart = {cycle.mirror.kinds[job] for job in cycle.mirror.avoids if len(cycle.waiting(job))}
    tried = [
        k for k in cycle.mirror.classes() if (k in cycle.full or k in apart) and k not in unschedulable and k.waiting
    ]
    kinds = {band: [kind for kind in tried if kind.band is band] for band in bands}
    if not any(kinds.values()):
        return set()
    future, victims = _future(cycle), Victims(cycle.mirror, cycle.columns)
    stopped: set[int] = set()
    evicted: list[int] = []
    searches: dict[tuple[JobClass, tuple[int, ...]], VictimSearch] = {}

    def search(kind: JobClass, delayed: tuple[int, ...]) -> VictimSearch:
        return searches.get((kind, delayed)) or searches.setdefault(
            (kind, delayed), VictimSearch(cycle, future, victims, evicted, kind, delayed)
        )

    for band in bands:
        for job in in_order([k for k in kinds[band] if k.is_gang], unschedulable, ()):
            evict_for_gang(cycle, future, victims, stopped, evicted, unschedulable, job)
        for job in in_order([k for k in kinds[band] if not k.is_gang], unschedulable, ()):
            if not _evict_for_job(cycle, future, search, stopped, evicted, job):
                unschedulable.add(cycle.mirror.kinds[job])
                if _several_would_help(cycle, future, victims, cycle.mirror.kinds[job]):
                    cycle.several.add(cycle.mirror.kinds[job])
    return {kind for (kind, _), one in searches.items() if one.claims}


def _future(cycle: Cycle) -> Room:
    """The room there will be when everything that is stopping in time has stopped and every nomination is kept."""
    future = Room(cycle.room.matrix.copy())
    cycle.kept.give_back(future)
    for name in sorted(cycle.mirror.hosts.ending):
        slot = cycle.columns.slot.get(name)
        if slot is not None:
            coming = cycle.kept.coming(slot, cycle.coming(name))
            future.put(slot, [a + b for a, b in zip(future.at(slot), coming, strict=True)])
    return future


def _several_would_help(cycle: Cycle, future: Room, victims: Victims, kind: JobClass) -> bool:
    """Whether a task would fit somewhere if everything of lower bands there stopped."""
    relieved = future.matrix + victims.relief(kind.band, len(cycle.columns))
    return bool(fitting(relieved, kind.need, cycle.usable(kind).slots).any())


def _evict_for_job(
    cycle: Cycle,
    future: Room,
    search: Callable[[JobClass, tuple[int, ...]], VictimSearch],
    stopped: set[int],
    evicted: list[int],
    job: int,
) -> bool:
    """Find a place or a victim for each waiting task. False when there is none for one that may go to any worker."""
    if cycle.is_paused(job):
        return True
    kind = cycle.mirror.kinds[job]
    for index in cycle.waiting(job):
        delayed = tuple(sorted(cycle.delayed(job, index)))
        if (job, index) in cycle.kept or search(kind, delayed).waits():
            continue
        victim = search(kind, delayed).victim(stopped)
        if victim is None and delayed:
            continue
        if victim is None:
            return False
        future.put(victim.slot, [a + b for a, b in zip(future.at(victim.slot), victim.frees, strict=True)])
        future.take(victim.slot, kind.need)
        evicted.append(victim.slot)
        nomination = Nomination(job, index, cycle.columns.names[victim.slot])
        cycle.evicted.append(Evicted((victim.ref,), (nomination,)))
    return True
