"""The assignments of one cycle, and what remains: free capacity, quotas, and the tasks that are
still pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from iris_core.placement import reasons
from iris_core.placement.reasons import Reason
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.near import WITHOUT_GUARANTEES, NearSide, Side
from iris_scheduler.feasible.nominations import Nominations
from iris_scheduler.feasible.quota import Allowances
from iris_scheduler.feasible.reservations import Reservations
from iris_scheduler.mirror.capacity import Room
from iris_scheduler.place.heads import Heads


class Given(NamedTuple):
    """Tasks of one job that got workers: the task indexes and the slots of their workers,
    pairwise.
    """

    job: int
    indexes: Sequence[int]
    slots: Sequence[int]


class Assignments:
    """The assignments of one cycle.

    Attributes:
        before: the free capacity at the start of the cycle. room: the free capacity that is left.
        nominations, reservations, allowances: the capacity set aside for nominated tasks and gangs,
            and each user's remaining quota. near: what projects may still start within their
            guarantees; None while none has one. sides: the parts of a band, in order.
        heads: the single tasks that are due for a reservation.
        given: the assignments in order. is_full: more tasks are given than a plan may place.
        notes: reasons of single jobs that differ from their class's.
    """

    def __init__(self, cycle: Cycle, most: int) -> None:
        """``most``: how many tasks a plan may place."""
        self._cycle = cycle
        free = cycle.mirror.hosts.free()
        self.nominations = Nominations(cycle, free)
        self.room = Room(free)
        self.before = free.copy()
        self.reservations = Reservations(cycle, self.room, self.nominations, self.placed_on)
        self.allowances = Allowances(
            cycle.mirror.quotas,
            cycle.mirror.usage,
            cycle.mirror.projects,
            cycle.mirror.project_usage,
        )
        near = NearSide(cycle.mirror)
        self.near = near if near.guarantees else None
        self.sides = tuple(Side) if near.guarantees else WITHOUT_GUARANTEES
        self.given: list[Given] = []
        self.is_full = False
        self._left = most
        self.notes: dict[int, Reason] = {}
        self._rest: dict[int, Sequence[int]] = {}
        self._placed: dict[int, list[int]] = {}
        self._counted = 0
        self.heads = Heads(cycle, self._may_start)

    def _may_start(self, job: int) -> bool:
        return self.places(job) > 0 and self.within(job, 1) > 0

    def waiting(self, job: int) -> Sequence[int]:
        """Indexes of a job's pending tasks that are not assigned in this cycle."""
        rest = self._rest.get(job)
        return self._cycle.mirror.queue.pending(job) if rest is None else rest

    def places(self, job: int) -> int:
        """How many of a job's waiting tasks may start besides those that are nominated, by its
        ``max_parallel``.
        """
        mirror = self._cycle.mirror
        waiting = len(self.waiting(job))
        if mirror.jobs[job].max_parallel is None:
            return waiting
        pending = len(mirror.queue.pending(job))
        taken = pending - waiting + sum(of == job for of, _ in self.nominations.slots)
        return min(waiting, max(0, mirror.places(job, pending) - taken))

    def within(self, job: int, count: int, side: Side = Side.BORROWING) -> int:
        """How many of ``count`` tasks of a job are on a side of their band: within every limit of their
        user and their project, and on the near side within its guarantee.
        """
        count = self.allowances.within(
            self._cycle.mirror.jobs[job], self._cycle.mirror.kinds[job].need, count
        )
        if side is Side.NEAR and self.near is not None:
            count = self.near.within(job, count)
        return count

    def give(
        self, job: int, indexes: Sequence[int], slots: Sequence[int], rest: Sequence[int]
    ) -> None:
        """Assign tasks to workers; the job's other tasks stay pending. The caller has already
        subtracted the capacity.
        """
        count = len(slots)
        self.given.append(Given(job, indexes, slots))
        self._left -= count
        self.is_full = self._left < 0
        self._rest[job] = rest
        self.allowances.spend(
            self._cycle.mirror.jobs[job], self._cycle.mirror.kinds[job].need, count
        )
        if self.near is not None:
            self.near.spend(job, indexes)

    def planned(self) -> list[Given]:
        """The assignments that a plan may have: all, or all but the last when it is full, but one
        at least.
        """
        return self.given[:-1] or self.given if self.is_full else self.given

    def placed_on(self, slot: int) -> Sequence[int]:
        """The job of each task that has got its place on a worker in this cycle."""
        for one in self.given[self._counted :]:
            for taken in one.slots:
                self._placed.setdefault(taken, []).append(one.job)
        self._counted = len(self.given)
        return self._placed.get(slot, ())

    def reserve_host(self, job: int) -> None:
        """Reserve a worker for the next task of a job that may start, if there is one."""
        if not self.places(job):
            return
        slots = self.nominations.slots
        index = next(
            (
                index
                for index in self.waiting(job)
                if (job, index) not in slots and not self._cycle.is_apart(job, index)
            ),
            None,
        )
        if index is not None:
            self.reservations.reserve_host(job, index)

    def note(self, job: int, reason: Reason) -> None:
        """Record a reason for a single job."""
        self.notes[job] = reason

    def note_pause(self, job: int, places: str) -> None:
        """Record that a job pauses because the state service rejected its placement a moment
        ago.
        """
        backoff = self._cycle.cache.backoffs[job]
        self._cycle.wake_at(backoff.until_ms)
        self.note(
            job,
            reasons.delayed(
                backoff.until_ms, f"the state service refused its {places}: {backoff.why}"
            ),
        )
