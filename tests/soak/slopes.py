"""What a figure does over time: the line that fits it best, and whether that grows more than it may. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MIB = 1 << 20
WARM = 1 / 3
"""The share of the samples in which caches fill, and which count for nothing."""


@dataclass(frozen=True)
class Bound:
    """How much the fitted line may grow while everything is warm: so much, and so much for each job."""

    grows: float
    per_job: float = 0.0

    def allows(self, growth: float, jobs: float) -> bool:
        return growth <= self.grows + self.per_job * jobs


BOUNDS: Mapping[str, Bound] = {
    "nats-0 memory": Bound(64 * MIB, 64),
    "memory": Bound(6 * MIB, 64),
    "descriptors": Bound(3),
    "threads": Bound(2),
    "disk of nats": Bound(24 * MIB, 12_000),
    "disk of workers": Bound(1 * MIB),
    "disk of logs": Bound(1 * MIB, 1_000),
}
"""By the last words of a figure's name. Events and output are kept for days, so the NATS server's disk grows with each
job, and its memory by what it remembers of them; its heap also takes its time to fill. So do the services' own logs."""


@dataclass(frozen=True)
class Verdict:
    """One figure: where its line begins and ends, and whether it may."""

    name: str
    began: float
    ended: float
    holds: bool

    def line(self) -> str:
        change = self.ended - self.began
        return f"{'ok ' if self.holds else 'BAD'} {self.name:32} {self.began:14,.0f} {change:+14,.0f}"


def judge(samples: Sequence[tuple[float, Mapping[str, float]]], jobs: float) -> list[Verdict]:
    """Every figure of the warm samples, ``(seconds, figures)``; ``jobs`` were run in all of them."""
    warm = samples[int(len(samples) * WARM) :]
    return [_judge(name, warm, jobs * (1 - WARM)) for name in sorted(warm[-1][1])]


def _judge(name: str, samples: Sequence[tuple[float, Mapping[str, float]]], jobs: float) -> Verdict:
    points = [(at, figures[name]) for at, figures in samples if name in figures]
    began, ended = fitted(points)
    bound = next(bound for words, bound in BOUNDS.items() if name.endswith(words))
    return Verdict(name, began, ended, bound.allows(ended - began, jobs))


def fitted(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The first and the last value of the straight line that is nearest to all points."""
    given = list(points)
    middle = sum(at for at, _ in given) / len(given)
    mean = sum(value for _, value in given) / len(given)
    spread = sum((at - middle) ** 2 for at, _ in given)
    slope = sum((at - middle) * (value - mean) for at, value in given) / spread if spread else 0.0
    return mean + slope * (given[0][0] - middle), mean + slope * (given[-1][0] - middle)
