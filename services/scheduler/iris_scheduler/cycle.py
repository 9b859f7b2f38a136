"""One cycle's working state: the room there is, what has been given away, and what was passed over and why.

The rooms that place and evict write here; only `plan` reads it all. It holds no rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from iris_core.messages import AttemptRef, Nomination
from iris_core.reasons import Reason
from iris_scheduler.cache import Cache
from iris_scheduler.classes import JobClass
from iris_scheduler.gangs.groups import GroupCandidates
from iris_scheduler.mirror import Mirror
from iris_scheduler.placement.candidates import Candidates
from iris_scheduler.placement.capacity import Need, Room
from iris_scheduler.placement.columns import Columns, Usable
from iris_scheduler.preemption.nominations import Nominations
from iris_scheduler.quota import Allowances
from iris_scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True)
class Given:
    """Places for tasks of one job: its indexes and their workers' slots, pairwise."""

    job: int
    indexes: Sequence[int]
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class Evicted:
    """Attempts to stop, and what their places are nominated to."""

    victims: tuple[AttemptRef, ...]
    nominations: tuple[Nomination, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """A worker is kept for a gang; work that surely ends by ``until_ms`` may still go there."""

    gang: int
    until_ms: int | None


class Cycle:
    """Everything one plan is made from and into.

    Attributes:
        before: the room there was at the beginning. room: what is left of it.
        full: classes of which no further task fits. skipped: those of them known to be full from earlier cycles.
        rest: indexes still waiting of jobs that were looked at. apart: jobs that failed where their class may not.
        several: classes that only the end of several tasks would help, where one task may preempt one only.
        stuck: workers where something was told to stop and has not for longer than it is counted on.
        notes: reasons that hold for one job and not its class. reserved: workers kept for gangs, by slot.
        wake_ms: the earliest time at which the same records would give another plan.
    """

    def __init__(self, mirror: Mirror, memory: Cache, now_ms: int, settings: SchedulerSettings) -> None:
        self.mirror = mirror
        self.memory = memory
        self.now_ms = now_ms
        self.settings = settings
        self.columns: Columns = mirror.hosts.columns()
        self.wake_ms: int | None = None
        free = mirror.hosts.free()
        self.kept = Nominations(mirror, self.columns, free, self.coming)
        self.room = Room(free)
        self.before = free.copy()
        self.allowances = Allowances(mirror.quotas, mirror.usage)
        self.special = {*mirror.special(), *(job for job in memory.backoffs if mirror.queue.pending(job))}
        self.full: set[JobClass] = set()
        self.skipped: set[JobClass] = set()
        self.apart: set[int] = set()
        self.rest: dict[int, Sequence[int]] = {}
        self.given: list[Given] = []
        self.evicted: list[Evicted] = []
        self.several: set[JobClass] = set()
        self.stuck = frozenset(mirror.hosts.stuck(now_ms - settings.stop_timeout_ms))
        self.notes: dict[int, Reason] = {}
        self.reserved: dict[int, Reservation] = {}
        self._candidates: dict[JobClass, Candidates] = {}
        self._group_candidates: dict[JobClass, GroupCandidates] = {}

    def usable(self, kind: JobClass) -> Usable:
        """The workers a class may use."""
        return self.columns.usable(kind)

    def candidates(self, kind: JobClass) -> Candidates:
        """How far a class of single tasks has come."""
        candidates = self._candidates.get(kind)
        if candidates is None:
            candidates = self._candidates[kind] = Candidates(self.room, kind.need, self.usable(kind).slots)
        return candidates

    def group_candidates(self, kind: JobClass, size: int) -> GroupCandidates:
        """How far a class of gangs has come; gangs that are smaller than their class look for themselves."""
        if size != kind.size:
            return self.fresh_group_candidates(kind, size)
        candidates = self._group_candidates.get(kind)
        if candidates is None:
            candidates = self._group_candidates[kind] = self.fresh_group_candidates(kind, size)
        return candidates

    def fresh_group_candidates(
        self, kind: JobClass, size: int, shunned: Sequence[int] = (), last: Sequence[int] = ()
    ) -> GroupCandidates:
        groups = self.columns.groups(kind.key.group_by)
        return GroupCandidates(self.room, kind.need, size, self.usable(kind), groups, shunned, last)

    def waiting(self, job: int) -> Sequence[int]:
        """Indexes of a job that wait and have no place yet."""
        rest = self.rest.get(job)
        return self.mirror.queue.pending(job) if rest is None else rest

    def give(self, job: int, need: Need, indexes: Sequence[int], slots: Sequence[int]) -> None:
        """These tasks go there; the room is already taken."""
        self.given.append(Given(job, indexes, slots))
        self.allowances.spend(self.mirror.jobs[job].user, need, len(slots))

    @contextmanager
    def opened(self, tasks: Iterable[tuple[int, int]]) -> Iterator[None]:
        """The nominated places of these tasks stand open to them, though their groups are kept for a gang."""
        shut = {slot for task in tasks if (slot := self.kept.slots.get(task)) in self.reserved}
        for slot in shut:
            self.room.reopen(slot)
        yield
        for slot in shut:
            self.room.shut(slot)

    def wake_at(self, at_ms: int) -> None:
        """Time alone will change the plan then."""
        if self.wake_ms is None or at_ms < self.wake_ms:
            self.wake_ms = at_ms

    def coming(self, worker: str) -> list[int]:
        """What is being freed on a worker, all dimensions, without what has been told to stop for too long."""
        timeout_ms = self.settings.stop_timeout_ms
        amounts, first_ms = self.mirror.hosts.host(worker).coming(self.now_ms - timeout_ms)
        if any(amounts):
            self.wake_at(first_ms + timeout_ms + 1)
        return amounts

    def delayed(self, job: int, index: int | None = None) -> dict[int, int]:
        """Slots one task is kept off now, or all tasks of a job together, and until when."""
        tasks = self.mirror.avoids.get(job, {})
        return {
            self.columns.slot[worker]: until_ms
            for of, workers in tasks.items()
            if index is None or of == index
            for worker, until_ms in workers.items()
            if until_ms > self.now_ms and worker in self.columns.slot
        }

    def is_paused(self, job: int) -> bool:
        """Whether the state service refused this job a moment ago."""
        backoff = self.memory.backoffs.get(job)
        return backoff is not None and backoff.until_ms > self.now_ms
