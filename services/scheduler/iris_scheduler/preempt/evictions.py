"""Records the evictions of one cycle and the capacity after them. Victims are chosen elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iris_core.messages.scheduler_state import Eviction, Nomination
from iris_core.states import PriorityBand
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.mirror.capacity import Matrix, Room, plus
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.preempt.victims import Victim, Victims


@dataclass(frozen=True, slots=True)
class Protected:
    """Jobs whose attempts would make room, and may not be evicted before ``until_ms``."""

    jobs: tuple[str, ...]
    until_ms: int


class Evictions:
    """The evictions of one cycle.

    Attributes:
        victims: all possible victims at the start of the cycle.
        future: free capacity after all attempts that stop in time or are evicted have ended, less
            all nominations. Reserved workers are open until `keep_reserved` shuts them.
        made: in order. stopped: all their victims.
        protected: classes that victims would help which may not be evicted yet: which are evicted
            then, and when.
        freed: the victims' slots, in order of eviction. settled: tasks for which room is made.
    """

    def __init__(self, cycle: Cycle, assignments: Assignments, *, all_bands: bool = False) -> None:
        """``all_bands``: PRODUCTION, too, may give way to a guarantee of its band."""
        self._cycle = cycle
        self.victims = Victims(cycle.mirror, cycle.columns, cycle.now_ms, all_bands=all_bands)
        self.settled: set[tuple[int, int]] = set()
        self.future = Room(assignments.room.matrix.copy())
        self.made: list[Eviction] = []
        self.protected: dict[JobClass, Protected] = {}
        self.freed: list[int] = []
        self.stopped: set[Victim] = set()
        assignments.nominations.give_back(self.future)
        for name in sorted(cycle.mirror.hosts.ending):
            slot = cycle.columns.slot.get(name)
            if slot is not None:
                coming = assignments.nominations.coming(slot, cycle.coming(name))
                self.future.put(slot, plus(self.future.at(slot), coming))
        self._reserved = assignments.reservations.kept()
        for slot, _ in self._reserved:
            self.future.reopen(slot)

    def keep_reserved(self, band: PriorityBand) -> None:
        """Shut the workers reserved for jobs of a band: this band and lower ones preempt nothing
        there.
        """
        for slot, job in self._reserved:
            if self._cycle.mirror.jobs[job].band is band:
                self.future.shut(slot)

    def reserved_for(self, job: int) -> tuple[int, ...]:
        """The workers reserved for a job, where it may preempt itself."""
        return tuple(slot for slot, of in self._reserved if of == job)

    def protect(self, kind: JobClass, victims: Sequence[Victim]) -> None:
        """Note that a class waits until these victims, of which some are protected, may be
        evicted.
        """
        protected = self.victims.protected
        jobs = self._cycle.mirror.jobs
        named = sorted({jobs[victim.ref.job].name for victim in victims if victim in protected})
        until_ms = max(protected.get(victim, 0) for victim in victims)
        self.protected[kind] = Protected(tuple(named), until_ms)
        self._cycle.wake_at(until_ms)

    def relieved(self, band: PriorityBand) -> Matrix:
        """Free capacity if everything below a band stopped, shape (DEPTH, workers)."""
        return self.future.matrix + self.victims.relief(band, len(self._cycle.columns))

    def make(
        self,
        job: int,
        indexes: Sequence[int],
        slots: Sequence[int],
        going: Sequence[Victim],
        *,
        reclaims: bool = False,
    ) -> None:
        """Evict these victims, if any, and nominate the workers, pairwise, for tasks of a job."""
        self.settled.update((job, index) for index in indexes)
        for victim in going:
            self.future.put(victim.slot, plus(self.future.at(victim.slot), victim.frees))
            self.freed.append(victim.slot)
        for slot in slots:
            self.future.take(slot, self._cycle.mirror.kinds[job].need)
        if going:
            self.stopped.update(going)
            names = self._cycle.columns.names
            nominations = (
                Nomination(job, index, names[slot])
                for index, slot in zip(indexes, slots, strict=True)
            )
            refs = tuple(victim.ref for victim in going)
            self.made.append(Eviction(refs, tuple(nominations), reclaims))
