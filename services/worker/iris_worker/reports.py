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
