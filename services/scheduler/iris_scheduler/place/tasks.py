"""Places single tasks by first fit in queue order; a task that does not fit does not block those
after it.

A class that does not fit is skipped for the rest of the cycle. Tasks that are nominated to a
worker, kept off a worker or rejected a moment ago are tried one by one. Source:
docs/design/semantics.md#order, docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.placement import reasons
from iris_core.spec.jobs import TASKS
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.candidates import Candidates
from iris_scheduler.feasible.near import Side
from iris_scheduler.mirror.capacity import CHIPS, SHUT, WINDOW, Matrix, with_room
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.place.invalidation import Contenders
from iris_scheduler.place.spreading import Spreading


class TaskPlacer:
    """Places the single tasks of one cycle.

    Attributes:
        full: classes of which no further task fits. dropped: those of them that were not examined
            alone, because what has grown was taken by others.
        spreading: where the routes of each deployment are.
    """

    def __init__(
        self,
        cycle: Cycle,
        assignments: Assignments,
        full: Iterable[JobClass],
        contenders: Contenders | None = None,
        *,
        spreading: dict[str, Spreading] | None = None,
        reserves: bool = True,
    ) -> None:
        """``contenders``: classes that fit only where something has grown. ``spreading``: as of the
        placer before this one. ``reserves``: workers for what has waited too long and does not fit.
        """
        self._contenders = contenders
        self._reserves = reserves
        self._dropped_at = 0
        self.dropped: set[JobClass] = set()
        self._cycle = cycle
        self._assignments = assignments
        self._candidates: dict[JobClass, Candidates] = {}
        self.spreading: dict[str, Spreading] = {} if spreading is None else spreading
        self.full = {kind for kind in full if not kind.is_gang}

    def place(self, job: int, *, side: Side) -> bool:
        """Place the pending tasks of a job that fit.

        Args:
            side: tasks beyond it wait for their turn; of the last one there are none, because
                everybody else of the band has been placed.

        Returns:
            Whether some of its tasks must yield to others of the band.

        For a task that is due for one, and does not fit, a worker is reserved.
        """
        yields = self._place(job, side)
        assignments = self._assignments
        if (
            self._reserves
            and not yields
            and job in assignments.heads.jobs
            and len(assignments.waiting(job))
        ):
            assignments.reserve_host(job)
        return yields

    def _place(self, job: int, side: Side) -> bool:
        kind = self._cycle.mirror.kinds[job]
        if job in self._cycle.special:
            return self._place_one_by_one(job, side)
        if kind in self.full:
            return False
        if job in self._cycle.mirror.avoids:
            return self._place_one_by_one(job, side)
        assignments = self._assignments
        row = self._cycle.mirror.jobs[job]
        waiting = assignments.waiting(job)
        places = len(waiting) if row.max_parallel is None else assignments.places(job)
        if not places:
            return False
        count = places if side is Side.OVER_QUOTA else assignments.within(job, places, side)
        spread = row.spread
        seats = (
            self._seat(kind, count, spread)
            if spread in ("", TASKS)
            else self._seat_routes(kind, count, spread)
        )
        placed = len(seats)
        if placed:
            assignments.give(job, waiting[:placed], seats, waiting[placed:])
        return placed == count < places

    def _candidates_of(self, kind: JobClass) -> Candidates:
        candidates = self._candidates.get(kind)
        if candidates is None:
            usable = self._cycle.columns.usable(kind)
            boundary = 0 if kind.need.amounts[CHIPS] else self._cycle.columns.accelerated
            candidates = self._candidates[kind] = Candidates(
                self._assignments.room, kind.need, usable, boundary
            )
        return candidates

    def _seat(self, kind: JobClass, count: int, spread: str = "") -> list[int]:
        """Seats for single tasks; those of one job softly over several workers."""
        seats = self._candidates_of(kind).seat(count, spread=spread == TASKS)
        if len(seats) < count:
            seats += self._borrow(kind, count - len(seats))
            if len(seats) < count:
                self.full.add(kind)
                self._drop_contenders()
        return seats

    def _drop_contenders(self) -> None:
        """Compare all contenders at once with what others have left, when that is less than before;
        a worker that is reserved may be borrowed.
        """
        contenders = self._contenders
        room = self._assignments.room
        if not contenders or self._dropped_at == len(room.taken):
            return
        self._dropped_at = len(room.taken)
        full = {kind for kind in contenders.full(self._unreserved()) if not kind.is_gang}
        contenders.drop(full)
        self.dropped |= full - self.full
        self.full |= full

    def _unreserved(self) -> Matrix:
        """What is free, with the workers that are kept for others."""
        kept = [slot for slot, _ in self._assignments.reservations.kept()]
        matrix = self._assignments.room.matrix
        if kept:
            matrix = matrix.copy()
            matrix[WINDOW, kept] += SHUT
        return matrix

    def _seat_routes(
        self, kind: JobClass, count: int, deployment: str, avoided: Collection[int] = ()
    ) -> list[int]:
        """Seats for routes of one deployment: on other hosts than its routes, then in other racks
        and slices.

        ``avoided``: none there.
        """
        spreading = self.spreading.get(deployment)
        if spreading is None:
            placed = self._cycle.mirror.routes.get(deployment, {}).values()
            spreading = self.spreading[deployment] = Spreading(self._cycle.columns, placed)
        room = self._assignments.room
        seats = list[int]()
        while len(seats) < count:
            slots = with_room(room.matrix, kind.need, self._cycle.columns.usable(kind).slots)
            slot = spreading.best(slot for slot in slots.tolist() if slot not in avoided)
            if slot is None:
                return seats if avoided else seats + self._seat(kind, count - len(seats))
            room.take(slot, kind.need)
            spreading.add(slot)
            seats.append(slot)
        return seats

    def _borrow(self, kind: JobClass, count: int) -> list[int]:
        """Assign reserved workers to tasks that are certain to end before the gang can start."""
        reservations = self._assignments.reservations
        seats = list[int]()
        for slot in reservations.open_for(kind):
            with reservations.opened([slot]):
                seats += [slot] * self._assignments.room.fill(slot, kind.need, count - len(seats))
        return seats

    def _place_one_by_one(self, job: int, side: Side) -> bool:
        """Place the tasks of a job in order: alone those that are nominated to a worker or have
        avoided one, the others as many at a time as are between them.
        """
        assignments = self._assignments
        if self._cycle.is_paused(job):
            assignments.note_pause(job, "place")
            return False
        places: dict[int, int] = {}
        left = assignments.places(job)
        deferred = False
        for indexes in self._stretches(job):
            nominated = (job, indexes[0]) in assignments.nominations
            if not nominated and not left:
                continue
            slots: list[int] = []
            if nominated:
                slots = self._nominated_seat(job, indexes[0])
            if not slots:
                wanted = len(indexes) if nominated else min(left, len(indexes))
                if side is not Side.OVER_QUOTA:
                    count = assignments.within(job, len(places) + wanted, side) - len(places)
                    deferred = deferred or count < wanted
                    wanted = max(0, min(wanted, count))
                slots = self._seat_some(job, indexes, wanted)
                for index in indexes[: len(slots)]:
                    assignments.nominations.leave((job, index))
            places.update(zip(indexes, slots, strict=False))
            left -= 0 if nominated else len(slots)
        if places:
            rest = [index for index in assignments.waiting(job) if index not in places]
            assignments.give(job, list(places), list(places.values()), rest)
        return deferred

    def _stretches(self, job: int) -> Iterator[Sequence[int]]:
        """The pending indexes to examine, in order, those together that have nothing of their own.

        Once the class is full, only those that are nominated to a worker or excluded from one now.
        """
        kind = self._cycle.mirror.kinds[job]
        waiting = self._assignments.waiting(job)
        nominated = {index for of, index in self._assignments.nominations.slots if of == job}
        avoids = self._cycle.mirror.avoids.get(job, {})
        alone = sorted(nominated.union(avoids).intersection(waiting))
        start = 0
        for index in alone:
            at = bisect_left(waiting, index)
            if start < at and kind not in self.full:
                yield waiting[start:at]
            start = at + 1
            if kind not in self.full or index in nominated or self._avoids_now(avoids, index):
                yield (index,)
        if start < len(waiting) and kind not in self.full:
            yield waiting[start:]

    def _avoids_now(self, avoids: Mapping[int, Mapping[str, int]], index: int) -> bool:
        return any(until_ms > self._cycle.now_ms for until_ms in avoids.get(index, {}).values())

    def _seat_some(self, job: int, indexes: Sequence[int], count: int) -> list[int]:
        """Seats for the first of some tasks that may share one, or for one that may not."""
        if not count:
            return []
        kind = self._cycle.mirror.kinds[job]
        spread = self._cycle.mirror.jobs[job].spread
        if indexes[0] in self._cycle.mirror.avoids.get(job, {}):
            slot = self._seat_one(job, indexes[0])
            return [] if slot is None else [slot]
        if kind in self.full:
            return []
        if spread in ("", TASKS):
            return self._seat(kind, count, spread)
        return self._seat_routes(kind, count, spread)

    def _nominated_seat(self, job: int, index: int) -> list[int]:
        nominations = self._assignments.nominations
        task = (job, index)
        need = self._cycle.mirror.kinds[job].need
        with self._assignments.reservations.opened([nominations.slots[task]]):
            slot = nominations.seat(self._assignments.room, task, need)
        return [] if slot is None else [slot]

    def _seat_one(self, job: int, index: int) -> int | None:
        """The seat of a task that has avoided a worker: now it does not go there, later last."""
        cycle = self._cycle
        kind = self._cycle.mirror.kinds[job]
        avoided = cycle.mirror.avoids[job][index]
        spread = cycle.mirror.jobs[job].spread
        route = spread not in ("", TASKS)
        if self._cycle.is_apart(job, index):
            return self._seat_alone(job, kind, cycle.delayed(job, index), avoided[OCCUPIED])
        known = {
            cycle.columns.slot[worker]: until
            for worker, until in avoided.items()
            if worker in cycle.columns.slot
        }
        mask = cycle.columns.usable(kind).mask
        if route and (seats := self._seat_routes(kind, 1, spread, known)):
            return seats[0]
        last = sorted(slot for slot, until in known.items() if until <= cycle.now_ms and mask[slot])
        slot = self._candidates_of(kind).seat_beside(known, last)
        if slot is None and all(until <= cycle.now_ms for until in avoided.values()):
            self.full.add(kind)
        elif slot is None:
            self._note_delay(
                job, {s: until for s, until in known.items() if until > cycle.now_ms and mask[s]}
            )
        return slot

    def _seat_alone(
        self, job: int, kind: JobClass, shunned: Collection[int], until_ms: int
    ) -> int | None:
        """Place a suspect on a worker without any attempt, on which nothing is placed after it."""
        room = self._assignments.room
        free = self._assignments.before[WINDOW]
        mask = self._cycle.columns.usable(kind).mask
        for slot in self._empty:
            if (
                mask[slot]
                and slot not in shunned
                and free[slot] == room.matrix[WINDOW, slot]
                and room.fits(slot, kind.need)
            ):
                room.take(slot, kind.need)
                room.shut(slot)
                return slot
        self._cycle.wake_at(until_ms)
        words = "it may have crashed its last worker, so it starts alone, and no worker that matches is without tasks"
        self._assignments.note(job, reasons.delayed(until_ms, words))
        return None

    @cached_property
    def _empty(self) -> list[int]:
        """Workers without an attempt at the start of the cycle."""
        hosts = self._cycle.mirror.hosts
        names = self._cycle.columns.names
        return [slot for slot, name in enumerate(names) if not hosts.host(name).holds]

    def _note_delay(self, job: int, delays: dict[int, int]) -> None:
        """The task fits only on workers it is excluded from: record the reason and the end of the
        first exclusion.
        """
        need = self._cycle.mirror.kinds[job].need
        room = self._assignments.room
        open_again = [until for slot, until in delays.items() if room.fits(slot, need)]
        if delays:
            self._cycle.wake_at(min(delays.values()))
        if open_again:
            delayed = reasons.delayed(
                min(open_again), "it failed to start on the only worker with capacity"
            )
            self._assignments.note(job, delayed)
