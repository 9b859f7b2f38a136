"""The inputs of one cycle: the records, the cache of earlier cycles, and the time. It decides
nothing.

Nothing here changes while a plan is made, except the time at which the next one is due.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.messages.scheduler_state import OCCUPIED
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.classes import JobClass, Peers, Turn
from iris_scheduler.mirror.columns import Columns
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.settings import SchedulerSettings


class Cycle:
    """The input of one plan.

    Attributes:
        columns: the workers. by_turn: the classes with pending jobs.
        avoiding: pending jobs with a task that is excluded from a worker now.
        special: pending jobs that are examined although their class is full: some task is nominated
            to a worker, excluded from one, or was rejected.
        stuck: workers with an attempt that was ordered to stop and has not stopped within
            ``stop_timeout_s``.
        wake_ms: the earliest time at which the same records would give another plan.
    """

    def __init__(
        self, mirror: Mirror, cache: Cache, now_ms: int, settings: SchedulerSettings
    ) -> None:
        self.mirror = mirror
        self.cache = cache
        self.now_ms = now_ms
        self.settings = settings
        self.columns: Columns = mirror.hosts.columns()
        self.by_turn: dict[Turn, list[Peers]] = {}
        for peers in mirror.peers():
            if peers.waiting:
                self.by_turn.setdefault(peers.turn, []).append(peers)
        self.avoiding = mirror.avoiding(now_ms)
        others = (*mirror.nominated_jobs, *cache.backoffs)
        self.special = self.avoiding.union(job for job in others if mirror.queue.pending(job))
        self.stuck = frozenset(mirror.hosts.stuck(now_ms - settings.stop_timeout_ms))
        self.wake_ms: int | None = None

    def classes(self, turn: Turn) -> Iterator[JobClass]:
        """The classes of a turn with pending jobs."""
        for peers in self.by_turn.get(turn, ()):
            yield from peers.waiting

    def wake_at(self, at_ms: int) -> None:
        """Request the next plan at this time at the latest, because time alone changes it then."""
        if self.wake_ms is None or at_ms < self.wake_ms:
            self.wake_ms = at_ms

    def coming(self, worker: str) -> list[int]:
        """Capacity that stopping attempts will free on a worker, all dimensions, without those past
        ``stop_timeout_s``.
        """
        timeout_ms = self.settings.stop_timeout_ms
        amounts, first_ms = self.mirror.hosts.host(worker).coming(self.now_ms - timeout_ms)
        if any(amounts):
            self.wake_at(first_ms + timeout_ms + 1)
        return amounts

    def delayed(self, job: int, index: int | None = None) -> tuple[int, ...]:
        """Slots from which one task, or all tasks of a job together, are excluded now,
        ascending.
        """
        tasks = self.mirror.avoids.get(job, {})
        chosen = tasks.values() if index is None else [tasks.get(index, {})]
        workers = {
            worker for one in chosen for worker, until_ms in one.items() if until_ms > self.now_ms
        }
        return tuple(
            sorted(self.columns.slot[worker] for worker in workers if worker in self.columns.slot)
        )

    def is_apart(self, job: int, index: int) -> bool:
        """Whether a task may only be placed on a worker without other attempts."""
        avoided = self.mirror.avoids.get(job, {}).get(index, {})
        return avoided.get(OCCUPIED, 0) > self.now_ms

    def is_paused(self, job: int) -> bool:
        """Whether the state service rejected this job a moment ago, so that it pauses."""
        backoff = self.cache.backoffs.get(job)
        return backoff is not None and backoff.until_ms > self.now_ms

    def may_wait(self, job: int) -> bool:
        """Whether a gang may stay pending without a reservation."""
        until_ms = self.mirror.since_ms[job] + self.settings.gang_reservation_after_ms
        if self.now_ms > until_ms:
            return False
        self.wake_at(until_ms + 1)
        return True
