"""What the scheduler remembers of its own looking, so that it need not look at everything again. It decides nothing.

Forgetting all of it changes no placement: it only makes the next cycle look at every class and tell every reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iris_core.reasons import Reason
from iris_scheduler.classes import JobClass
from iris_scheduler.columns import Columns
from iris_scheduler.mirror import News
from iris_scheduler.settings import Settings


@dataclass(frozen=True, slots=True)
class Setback:
    """The state service refused a place of this job: how often in a row, why, and when to try again."""

    times: int
    why: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Told:
    """The reason a class was last told for all its jobs, and when."""

    reason: Reason
    at_ms: int


@dataclass(slots=True)
class Learnt:
    """What one cycle found out.

    Attributes:
        full: classes of which no further task fits anywhere. hopeless: classes that no eviction would help.
        several: those of them that more than one eviction at a time would.
        classes: reasons now known to all jobs of a class. jobs: reasons told to single jobs.
        reserving: whether groups are kept for gangs, so that ``full`` may be wrong without any worker having more room.
        stuck: workers where a stop hangs, which reasons name.
    """

    full: set[JobClass] = field(default_factory=set)
    hopeless: set[JobClass] = field(default_factory=set)
    several: set[JobClass] = field(default_factory=set)
    classes: dict[JobClass, Told] = field(default_factory=dict)
    jobs: dict[int, Reason] = field(default_factory=dict)
    reserving: bool = False
    stuck: frozenset[str] = frozenset()


class Memory:
    """What is known from earlier cycles.

    Attributes:
        columns: the workers it was learnt about; other columns make ``full`` and ``hopeless`` worthless.
        setbacks: jobs that pause because the state service refused them.
    """

    def __init__(self) -> None:
        self.columns: Columns | None = None
        self.full: set[JobClass] = set()
        self.hopeless: set[JobClass] = set()
        self.several: set[JobClass] = set()
        self.classes: dict[JobClass, Told] = {}
        self.jobs: dict[int, Reason] = {}
        self.setbacks: dict[int, Setback] = {}
        self.stuck: frozenset[str] = frozenset()

    def learn(self, columns: Columns, learnt: Learnt, news: News) -> None:
        """Take in what a cycle found out; ``news`` is what had happened before it."""
        self.columns = columns
        self.full = set() if learnt.reserving else {kind for kind in learnt.full if kind.waiting}
        self.hopeless = {kind for kind in learnt.hopeless if kind.waiting}
        self.stuck = learnt.stuck
        self.several = learnt.several & self.hopeless
        self.classes.update(learnt.classes)
        for kind in [kind for kind in self.classes if not kind.waiting]:
            del self.classes[kind]
        for job in news.left:
            self.jobs.pop(job, None)
            self.setbacks.pop(job, None)
        self.jobs.update(learnt.jobs)

    def refuse(self, job: int, why: str, now_ms: int, settings: Settings) -> None:
        """A place of this job was refused: pause it, longer each time in a row, and look at every class again."""
        times = self.setbacks[job].times + 1 if job in self.setbacks else 1
        self.setbacks[job] = Setback(times, why, now_ms + settings.refused_delay_ms(times))
        self.full.clear()
        self.hopeless.clear()
