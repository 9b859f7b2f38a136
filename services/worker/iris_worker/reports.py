"""What is still to be told to the state service, in order, and what is on its way. Pure.

A stage is told until its report is answered; a failed report goes back to the front of the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from iris_core.messages import AttemptRef, Ended, Stage

MAX_STAGES = 4000
MAX_BYTES = 400_000
"""Of one report, far below the largest message."""


class Pace:
    """How soon the next report may go: at once while few go, in steady steps when many do, so that each says more.

    A short task's start and end each go at once. Under load a report, and the commit behind it, holds many tasks, and
    the more attempts there are, the less it matters that some wait.

    Args:
        longest_s: the longest step, reached at 100 attempts. burst: how many may go before there are steps.
    """

    def __init__(self, longest_s: float, burst: int = 4) -> None:
        self._longest_s = longest_s
        self._burst = burst
        self._gap_s = 0.0
        self._free_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long the next report has to wait."""
        return max(0.0, self._free_s - self._gap_s * (self._burst - 1) - now_s)

    def spend(self, now_s: float, attempts: int) -> None:
        """A report goes now, and so many attempts are held here."""
        self._gap_s = self._longest_s * min(1.0, max(0.1, attempts / 100))
        self._free_s = max(self._free_s, now_s) + self._gap_s


class Reports:
    """The line of stages that wait to be told."""

    def __init__(self) -> None:
        self._line: deque[Stage] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, stage: Stage) -> None:
        self._line.append(stage)

    def take(self) -> tuple[Stage, ...]:
        """The next stages to tell; they are on their way until somebody calls `give_back` or lets them go."""
        taken: list[Stage] = []
        size = 0
        while self._line and len(taken) < MAX_STAGES and size < MAX_BYTES:
            stage = self._line.popleft()
            taken.append(stage)
            size += weight(stage)
        return tuple(taken)

    def give_back(self, stages: Iterable[Stage], matters: Callable[[AttemptRef], bool]) -> None:
        """Their report was not answered: they come first again, as far as anybody still cares."""
        self._line.extendleft([s for s in reversed(tuple(stages)) if matters(s.ref)])

    def clear(self) -> None:
        """A registration tells everything at once."""
        self._line.clear()


def weight(stage: Stage) -> int:
    """About how many bytes a stage takes in a message."""
    ended = stage.ended
    return 40 if ended is None else 60 + len(ended.stderr_tail) + len(ended.error)


def fitting(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The same stages in one message: what tasks printed last is left out when all of it together is too much."""
    if sum(map(weight, stages)) <= MAX_BYTES:
        return stages
    return tuple(s if s.ended is None else Stage(s.ref, s.status, s.at_ms, shortened(s.ended)) for s in stages)


def shortened(ended: Ended) -> Ended:
    """An end without the words of the task."""
    return Ended(ended.cause, ended.exit_code, ended.signal, ended.error[:100], "", ended.peak_rss_bytes)
