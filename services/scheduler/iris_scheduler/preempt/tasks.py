"""Preempts for a single task: evicts the cheapest single task whose resources make it fit, or as
many on one worker as it needs where no single one is enough.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.mirror.capacity import Slots, covers, plus
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.preempt.evictions import Evictions
from iris_scheduler.preempt.several import SeveralSearch, soonest_protected
from iris_scheduler.preempt.victims import Victim


class VictimSearch:
    """Finds workers for single tasks of one class with the same excluded workers: first capacity
    that is being freed, then victims.
    """

    def __init__(
        self, cycle: Cycle, evictions: Evictions, kind: JobClass, delayed: tuple[int, ...]
    ) -> None:
        self._evictions = evictions
        self._kind = kind
        self._mask = cycle.columns.usable(kind).mask.copy()
        self._mask[list(delayed)] = False
        usable = (
            np.flatnonzero(self._mask).tolist()
            if delayed
            else cycle.columns.usable(kind).slots.tolist()
        )
        self._coming = [slot for slot in usable if evictions.future.fits(slot, kind.need)]
        self._seen = len(evictions.freed)
        self._heap = self._helpful(np.arange(len(evictions.victims.all)))
        self._several: SeveralSearch | None = None

    def waits(self) -> bool:
        """Whether one more task will fit without another eviction; it is then counted there."""
        future = self._evictions.future
        freed = self._evictions.freed
        need = self._kind.need
        while self._seen < len(freed):
            slot = freed[self._seen]
            self._seen += 1
            if self._mask[slot]:
                self._coming.append(slot)
                for position in self._helpful(
                    np.flatnonzero(self._evictions.victims.slots == slot)
                ):
                    heappush(self._heap, position)
                if self._several is not None:
                    self._several.note_freed(slot)
        while self._coming:
            if future.fits(self._coming[-1], need):
                future.take(self._coming[-1], need)
                return True
            self._coming.pop()
        return False

    def victims(self) -> tuple[int, list[Victim]] | None:
        """The worker on which one more task will fit, and the fewest and cheapest victims there."""
        victim = self._victim()
        if victim is not None:
            return victim.slot, [victim]
        if self._several is None:
            self._several = SeveralSearch(self._evictions, self._kind, self._mask)
        return self._several.best()

    def _victim(self) -> Victim | None:
        """The cheapest victim whose eviction lets one more task fit."""
        future = self._evictions.future
        while self._heap:
            victim = self._evictions.victims.all[heappop(self._heap)]
            left = plus(future.at(victim.slot), victim.frees)
            if victim not in self._evictions.stopped and covers(left, self._kind.need):
                return victim
        return None

    def _helpful(self, positions: Slots) -> list[int]:
        """The victims whose eviction would help, in ascending order: a heap."""
        victims = self._evictions.victims
        future = self._evictions.future
        need = self._kind.need
        slots = victims.slots[positions]
        helps = victims.single[positions] & (victims.bands[positions] > int(self._kind.band))
        helps &= self._mask[slots]
        for dimension, amount in need.needed:
            helps &= future.matrix[dimension][slots] + victims.frees[dimension][positions] >= amount
        return [int(position) for position in positions[helps]]


class TaskPreemptor:
    """Preempts for the single tasks of one cycle.

    Attributes:
        claiming: classes that wait for capacity that stopping work frees, which later classes
            cannot use.
    """

    def __init__(self, cycle: Cycle, assignments: Assignments, evictions: Evictions) -> None:
        self._cycle = cycle
        self._assignments = assignments
        self._evictions = evictions
        self._searches: dict[tuple[JobClass, tuple[int, ...], tuple[int, ...]], VictimSearch] = {}
        self.claiming: set[JobClass] = set()

    def make_room(self, job: int) -> bool:
        """Find freed capacity or a victim for each pending task. False when a task without
        exclusions finds neither.
        """
        own = self._evictions.reserved_for(job)
        for slot in own:
            self._evictions.future.reopen(slot)
        has_room = self._make_room(job, own)
        for slot in own:
            self._evictions.future.shut(slot)
        return has_room

    def _make_room(self, job: int, own: tuple[int, ...]) -> bool:
        """``own``: workers that are open to this job only."""
        if self._cycle.is_paused(job):
            return True
        kind = self._cycle.mirror.kinds[job]
        places = self._assignments.places(job)
        for index in self._assignments.waiting(job):
            if (job, index) in self._assignments.nominations:
                continue
            if self._cycle.is_apart(job, index):
                continue  # what one victim frees is not a worker without attempts
            if not places:
                return True
            places -= 1
            delayed = self._cycle.delayed(job, index)
            search = self._searches.get((kind, delayed, own))
            if search is None:
                search = self._searches[kind, delayed, own] = VictimSearch(
                    self._cycle, self._evictions, kind, delayed
                )
            if search.waits():
                self.claiming.add(kind)
                self._evictions.settled.add((job, index))
            elif (found := search.victims()) is not None:
                self._evictions.make(job, [index], [found[0]], found[1])
            elif not delayed:
                self._note_protected(kind)
                return False
        return True

    def _note_protected(self, kind: JobClass) -> None:
        """Find the victims that may be evicted soonest, of which some are protected, if any would
        help: a single one if one is enough.
        """
        victims = self._evictions.victims
        mask = self._cycle.columns.usable(kind).mask
        helpful = [
            (until_ms, victim.cost, victim)
            for victim, until_ms in victims.protected.items()
            if victim.session is None
            and victim.band > kind.band
            and mask[victim.slot]
            and self._frees(victim, kind)
        ]
        if helpful:
            self._evictions.protect(kind, [min(helpful)[2]])
        elif victims.protected:
            several = soonest_protected(self._evictions, kind, mask)
            if several is not None:
                self._evictions.protect(kind, several[1])

    def _frees(self, victim: Victim, kind: JobClass) -> bool:
        return covers(plus(self._evictions.future.at(victim.slot), victim.frees), kind.need)
