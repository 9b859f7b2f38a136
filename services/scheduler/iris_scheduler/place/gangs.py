"""Places gangs on groups of workers, all-or-nothing.

Source: docs/design/semantics.md#coscheduling, docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iris_core.placement import reasons
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.groups import GangCandidates
from iris_scheduler.feasible.near import Side
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.place.assignments import Assignments


class GangPlacer:
    """Places the gangs of one cycle.

    Attributes:
        full: classes of which no further gang fits. apart: gangs smaller than their class that did
            not fit either.
    """

    def __init__(
        self,
        cycle: Cycle,
        assignments: Assignments,
        full: Iterable[JobClass],
        *,
        reserves: bool = True,
    ) -> None:
        """``reserves``: workers for what has waited too long and does not fit."""
        self._reserves = reserves
        self._cycle = cycle
        self._assignments = assignments
        self._candidates: dict[JobClass, GangCandidates] = {}
        self.full = {kind for kind in full if kind.is_gang}
        self.apart: set[int] = set()

    def place(self, job: int, *, side: Side) -> bool:
        """Place all pending tasks of a gang, or none. Returns whether it must yield to others of the
        band, since it is not on this side of it.

        For a single task that is due for one a worker is reserved, so that the gangs behind it do
        not take what becomes free there.
        """
        cycle = self._cycle
        assignments = self._assignments
        if self._reserves and job in assignments.heads.jobs:
            if side is Side.NEAR and not assignments.within(job, 1, side):
                return True
            assignments.reserve_host(job)
            return False
        if cycle.is_paused(job):
            assignments.note_pause(job, "places")
            return False
        indexes = assignments.waiting(job)
        size = len(indexes)
        nominated = (job, indexes[0]) in assignments.nominations
        seats = self._nominated_seats(job, indexes) if nominated else None
        if seats is None:
            if side is not Side.OVER_QUOTA and assignments.within(job, size, side) < size:
                return True
            seats = self._seat(job, size)
        if seats is not None:
            assignments.give(job, indexes, seats, ())
            for index in indexes:
                assignments.nominations.leave((job, index))
        elif self._reserves and not nominated and not cycle.may_wait(job):
            assignments.reservations.reserve(job, size)
        return False

    def _nominated_seats(self, job: int, indexes: Sequence[int]) -> list[int] | None:
        nominations = self._assignments.nominations
        room = self._assignments.room
        need = self._cycle.mirror.kinds[job].need
        tasks = [(job, index) for index in indexes]
        with self._assignments.reservations.opened(nominations.slots.get(task) for task in tasks):
            if not all(nominations.is_free(room, task, need) for task in tasks):
                return None
            seats = [nominations.seat(room, task, need) for task in tasks]
        return [slot for slot in seats if slot is not None]

    def _seat(self, job: int, size: int) -> list[int] | None:
        kind = self._cycle.mirror.kinds[job]
        if job in self._cycle.avoiding:
            return self._seat_beside(job, size)
        if kind in self.full:
            return None
        if job in self._cycle.mirror.avoids:
            seats = self._seat_beside(job, size)
            if seats is None and size == kind.size:
                self.full.add(kind)
            return seats
        if size != kind.size:
            if size % kind.slices:
                return None
            seats = GangCandidates(self._assignments.room, self._cycle.columns, kind, size).seat()
            if seats is None:
                self.apart.add(job)
            return seats
        candidates = self._candidates.get(kind)
        if candidates is None:
            candidates = GangCandidates(self._assignments.room, self._cycle.columns, kind, size)
            self._candidates[kind] = candidates
        seats = candidates.seat()
        if seats is None:
            self.full.add(kind)
        return seats

    def _seat_beside(self, job: int, size: int) -> list[int] | None:
        """Assign workers to a gang with tasks that are excluded from some workers; the whole gang
        avoids those.
        """
        cycle = self._cycle
        kind = self._cycle.mirror.kinds[job]
        until = [pair for workers in cycle.mirror.avoids[job].values() for pair in workers.items()]
        shunned = cycle.delayed(job)
        slots = ((cycle.columns.slot.get(worker), until_ms) for worker, until_ms in until)
        last = [slot for slot, until_ms in slots if slot is not None and until_ms <= cycle.now_ms]
        seats = GangCandidates(
            self._assignments.room, cycle.columns, kind, size, shunned=shunned, last=last
        ).seat()
        if shunned:
            until_ms = min(until_ms for _, until_ms in until if until_ms > cycle.now_ms)
            cycle.wake_at(until_ms)
            if seats is None:
                why = "it failed to start on workers that it needs"
                self._assignments.note(job, reasons.delayed(until_ms, why))
        return seats
