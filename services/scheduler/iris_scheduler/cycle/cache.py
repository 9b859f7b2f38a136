"""Results of earlier cycles, cached so that a cycle examines only what may have changed. It decides
nothing.

Clearing the cache changes no placement: the next cycle examines every class and publishes every
    reason.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from iris_core.placement.reasons import Reason
from iris_scheduler.cycle.drains import Drain, Period
from iris_scheduler.mirror.capacity import Need
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.columns import Columns
from iris_scheduler.mirror.hosts import HostRow
from iris_scheduler.mirror.mirror import MirrorChanges
from iris_scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True)
class Rejections:
    """Rejections of a job's placements by the state service: how many in a row, why, and when to
    try again.
    """

    times: int
    why: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class PublishedReason:
    """The reason last published for all jobs of a class, and when."""

    reason: Reason
    at_ms: int


@dataclass(slots=True)
class CycleFindings:
    """The results of one cycle.

    Attributes:
        full: classes of which no further task fits anywhere. unschedulable: classes that no
            eviction would help.
        classes: reasons published for all jobs of a class. jobs: reasons published for single jobs.
        stuck: workers with an attempt that does not stop in time, which reasons name.
        special: jobs that were examined although their class was full.
        reserved: slots reserved, and for which job; nothing else was placed there.
    """

    full: set[JobClass] = field(default_factory=set)
    unschedulable: set[JobClass] = field(default_factory=set)
    classes: dict[JobClass, PublishedReason] = field(default_factory=dict)
    jobs: dict[int, Reason] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()
    reserved: frozenset[tuple[int, int]] = frozenset()
    special: Set[int] = frozenset()


DrainKey = tuple[int, Period, Need, frozenset[int]]
"""The version of a worker, the period of a wait, what the task needs, and the jobs whose ends are not
waited for.
"""


class Cache:
    """The results of earlier cycles.

    Attributes:
        columns: the workers that the results are about; other columns invalidate them.
        last: the results of the last cycle. classes, jobs: reasons as they were last published.
        backoffs: jobs that pause because the state service refused them.
        drains: what must end on a worker for tasks of one need, by worker, as of a version of it
            and a period of the wait.
    """

    def __init__(self) -> None:
        self.columns: Columns | None = None
        self.last = CycleFindings()
        self.classes: dict[JobClass, PublishedReason] = {}
        self.jobs: dict[int, Reason] = {}
        self.backoffs: dict[int, Rejections] = {}
        self.drains: dict[HostRow, tuple[DrainKey, Drain | None]] = {}

    def learn(self, columns: Columns, findings: CycleFindings, changes: MirrorChanges) -> None:
        """Store the results of a cycle; ``changes`` are the mirror's changes before it."""
        if columns is not self.columns:
            self.drains.clear()
        self.columns = columns
        self.last = findings
        self.classes.update(findings.classes)
        for kind in [kind for kind in self.classes if not kind.waiting]:
            del self.classes[kind]
        for job in changes.left:
            self.jobs.pop(job, None)
            self.backoffs.pop(job, None)
        self.jobs.update(findings.jobs)

    def refuse(self, job: int, why: str, now_ms: int, settings: SchedulerSettings) -> None:
        """Pause a job whose placement was rejected, longer each time in a row, and examine every
        class again.
        """
        times = self.backoffs[job].times + 1 if job in self.backoffs else 1
        self.backoffs[job] = Rejections(times, why, now_ms + settings.rejected_backoff_ms(times))
        self.last.full.clear()
        self.last.unschedulable.clear()
