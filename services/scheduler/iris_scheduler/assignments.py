"""The assignments of one cycle, and what remains: free capacity, quotas, and the tasks that are still pending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iris_core import reasons
from iris_core.reasons import Reason
from iris_scheduler.cycle import Cycle
from iris_scheduler.gangs.reservations import Reservations
from iris_scheduler.placement.capacity import Room
from iris_scheduler.preemption.nominations import Nominations
from iris_scheduler.quota import Allowances


@dataclass(frozen=True, slots=True)
class Given:
    """Places for tasks of one job: its indexes and their workers' slots, pairwise."""

    job: int
    indexes: Sequence[int]
    slots: Sequence[int]


class Assignments:
    """The places given in one cycle.

    Attributes:
        before: the room there was at the beginning. room: what is left of it.
        nominations, reservations, allowances: what of the room belongs to whom.
        given: the places, in the order in which they were given.
        notes: reasons that hold for one job and not for its class.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        free = cycle.mirror.hosts.free()
        self.nominations = Nominations(cycle, free)
        self.room = Room(free)
        self.before = free.copy()
        self.reservations = Reservations(cycle, self.room, self.nominations, self.placed_on)
        self.allowances = Allowances(cycle.mirror.quotas, cycle.mirror.usage)
        self.given: list[Given] = []
        self.notes: dict[int, Reason] = {}
        self._rest: dict[int, Sequence[int]] = {}
        self._placed: dict[int, list[int]] = {}
        self._counted = 0

    def waiting(self, job: int) -> Sequence[int]:
        """Indexes of a job that wait and have no place yet."""
        rest = self._rest.get(job)
        return self._cycle.mirror.queue.pending(job) if rest is None else rest

    def within_quota(self, job: int, count: int) -> int:
        """How many of ``count`` tasks of a job leave its user within every limit."""
        return self.allowances.within(self._cycle.mirror.jobs[job].user, self._cycle.mirror.kinds[job].need, count)

    def give(self, job: int, indexes: Sequence[int], slots: Sequence[int], rest: Sequence[int]) -> None:
        """These tasks go there, and the rest of the job goes on waiting; the room is already taken."""
        self.given.append(Given(job, indexes, slots))
        self._rest[job] = rest
        self.allowances.spend(self._cycle.mirror.jobs[job].user, self._cycle.mirror.kinds[job].need, len(slots))

    def placed_on(self, slot: int) -> Sequence[int]:
        """The job of each task that has got its place on a worker in this cycle."""
        for one in self.given[self._counted :]:
            for taken in one.slots:
                self._placed.setdefault(taken, []).append(one.job)
        self._counted = len(self.given)
        return self._placed.get(slot, ())

    def note(self, job: int, reason: Reason) -> None:
        """A job waits for a reason of its own."""
        self.notes[job] = reason

    def note_pause(self, job: int, places: str) -> None:
        """A job waits because the state service refused its places a moment ago."""
        backoff = self._cycle.cache.backoffs[job]
        self._cycle.wake_at(backoff.until_ms)
        self.note(job, reasons.delayed(backoff.until_ms, f"the state service refused its {places}: {backoff.why}"))
