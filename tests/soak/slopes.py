"""Fits a line to each measured series and reports growth above its bound. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iris_bus.streams import window
from iris_worker.agent import seen
from iris_worker.launcher.cgroups import cgroup
from iris_worker.launcher.records import store

MIB = 1 << 20
WARM = 1 / 3
"""The first share of the samples counts for nothing: caches fill."""
EVENTS_PER_JOB = 8
WARM_JOBS = window.KEPT // EVENTS_PER_JOB
"""Nor do the first so many jobs: the largest thing that the state service keeps of them is its
newest events.
"""
_LEAST = 10


@dataclass(frozen=True)
class Sample:
    """What was seen ``at`` seconds after the start, ``jobs`` having been submitted."""

    at: float
    jobs: int
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Bound:
    """How much the fitted line may grow while everything is warm: so much, and so much for each
    job.

    ``fills``: as much more as is not full yet when it is warm, of what grows from the start on by
    ``of_a_job`` each.
    """

    grows: float
    per_job: float = 0.0
    fills: float = 0.0
    of_a_job: float = 0.0

    def of(self, first: int, last: int) -> float:
        """From one number of jobs to another."""
        return (
            self.grows
            + self.per_job * (last - first)
            + max(0.0, self.fills - self.of_a_job * first)
        )


NATS_BLOCK = 8 * MIB
"""What the NATS server fills of a stream before it begins another file; it has that one in
memory.
"""
JOURNAL_BYTES = 1000
"""What a short job takes of the journal: 1,012 bytes in four commits. Its first block is full after
8,400 jobs.
"""
ARENAS = 4 * MIB
"""Memory comes from the system in arenas of 1 MiB, and stays while one object lives in them."""
CALLS = 7
"""Of a map, which run or not when a sample is taken."""
POOL = min(32, (os.cpu_count() or 1) + 4)
"""Threads that asyncio starts for slow calls, when so many come together."""

BOUNDS: Mapping[str, Bound] = {
    # In use are the blocks that streams fill (by its heap profile nothing else is more than 1 MB:
    # 18 to 29 MB when all have been full once), and the collector lets garbage become as much as
    # that.
    "nats-0 memory": Bound(2 * NATS_BLOCK, fills=2 * NATS_BLOCK, of_a_job=2 * JOURNAL_BYTES),
    "worker-0 memory": Bound(ARENAS, seen.TASK_BYTES),
    "worker-1 memory": Bound(ARENAS, seen.TASK_BYTES),
    "memory": Bound(ARENAS),
    "worker-0 descriptors": Bound(3 + CALLS),
    "worker-1 descriptors": Bound(3 + CALLS),
    "launcher-0 descriptors": Bound(3 + cgroup.OPEN_FILES),
    "launcher-1 descriptors": Bound(3 + cgroup.OPEN_FILES),
    "descriptors": Bound(
        3
    ),  # tasks that run when a worker has none to spare, and requests under way
    "threads": Bound(POOL),
    # A block of the journal that is written and one that is not trimmed yet, and output up to the
    # `logs_bytes` of here.
    "disk of nats": Bound(2 * NATS_BLOCK + 4 * MIB),
    "disk of process stores": Bound(2 * store.COMPACT_BYTES),  # of two workers
    "disk of workers": Bound(MIB / 4),
    "disk of logs": Bound(MIB / 4),
}
"""By the last words of a figure's name; each follows from a limit of the product. All that is kept
of jobs is full when it is warm, so nothing grows with them but what a worker remembers of its last
200,000 tasks, and the journal's first block in a run of less than ten minutes."""


@dataclass(frozen=True)
class Verdict:
    """One figure: where its line begins and ends, and how much it may grow between."""

    name: str
    began: float
    ended: float
    allowed: float

    @property
    def holds(self) -> bool:
        return self.ended - self.began <= self.allowed

    def line(self) -> str:
        change, word = self.ended - self.began, "ok " if self.holds else "BAD"
        return f"{word} {self.name:24} {self.began:14,.0f} {change:+14,.0f} {self.allowed:14,.0f}"


def after_warm_up(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that count; none when they are too few to draw a line through."""
    warm = [sample for sample in samples[int(len(samples) * WARM) :] if sample.jobs >= WARM_JOBS]
    return warm if len(warm) >= _LEAST else []


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """Every figure of samples that are warm."""
    return [_judge(name, samples) for name in sorted(samples[-1].figures)]


def _judge(name: str, samples: Sequence[Sample]) -> Verdict:
    began, ended = fitted(
        (sample.at, sample.figures[name]) for sample in samples if name in sample.figures
    )
    bound = next(bound for words, bound in BOUNDS.items() if name.endswith(words))
    return Verdict(name, began, ended, bound.of(samples[0].jobs, samples[-1].jobs))


def fitted(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The first and the last value of the straight line that is nearest to all points."""
    given = list(points)
    middle = sum(at for at, _ in given) / len(given)
    mean = sum(value for _, value in given) / len(given)
    spread = sum((at - middle) ** 2 for at, _ in given)
    slope = sum((at - middle) * (value - mean) for at, value in given) / spread if spread else 0.0
    return mean + slope * (given[0][0] - middle), mean + slope * (given[-1][0] - middle)
