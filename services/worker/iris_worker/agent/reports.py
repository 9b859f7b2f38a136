"""The queue of reports to the state service, and those in flight. Pure.

A stage counts as reported when a report that holds it is answered. Until then every report,
registration or heartbeat that names the attempt holds all its unanswered stages, so no end arrives
before the start it follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Stage

MAX_STAGES = 4000
MAX_BYTES = 400_000
"""Bytes of one report, far below the largest message."""
_ref = attrgetter("ref")


class Reports:
    """The unanswered stages by attempt, and the queue of attempts that have new stages."""

    def __init__(self) -> None:
        self._unreported: dict[AttemptRef, list[Stage]] = {}
        self._line: dict[AttemptRef, None] = {}

    def __len__(self) -> int:
        """Attempts in the queue."""
        return len(self._line)

    def __iter__(self) -> Iterator[AttemptRef]:
        """The attempts in the queue."""
        return iter(self._line)

    def add(self, stage: Stage) -> None:
        waiting = self._unreported.get(stage.ref)
        if waiting is None:
            self._unreported[stage.ref] = [stage]
        else:
            waiting.append(stage)
        self._line[stage.ref] = None

    def of(self, ref: AttemptRef) -> list[Stage]:
        """The unanswered stages of an attempt, oldest first."""
        return self._unreported.get(ref, [])

    def take(self) -> tuple[Stage, ...]:
        """The next stages to report; they are in flight until `answered` or `give_back`."""
        taken: list[Stage] = []
        refs: list[AttemptRef] = []
        size = 0
        for ref in self._line:
            if len(taken) >= MAX_STAGES or size >= MAX_BYTES:
                break
            refs.append(ref)
            for stage in self._unreported[ref]:
                taken.append(stage)
                size += weight(stage)
        for ref in refs:
            del self._line[ref]
        return tuple(taken)

    def answered(self, stages: Iterable[Stage]) -> None:
        """Their report is committed; after an end nothing more is reported."""
        for ref, reported in groupby(stages, _ref):
            waiting = self._unreported.get(ref)
            if waiting is None:
                continue
            known = tuple(reported)
            left = (
                []
                if known[-1].ended is not None
                else [stage for stage in waiting if stage not in known]
            )
            if left:
                self._unreported[ref] = left
            else:
                del self._unreported[ref]
                self._line.pop(ref, None)

    def give_back(self, stages: Iterable[Stage]) -> None:
        """Their report was not answered: they are queued first, unless another report has held them
        since.
        """
        again = dict.fromkeys(stage.ref for stage in stages if stage.ref in self._unreported)
        self._line = again | self._line

    def clear(self) -> None:
        """A registration holds all stages."""
        self._line.clear()


def weight(stage: Stage) -> int:
    """Approximate bytes of a stage in a message."""
    ended = stage.ended
    if ended is None:
        return 40
    note = len(ended.artifact.note) + 40 if ended.artifact is not None else 0
    return 60 + len(ended.stderr_tail) + len(ended.error) + note


def fitting(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The same stages in one message; the last output of tasks is left out when the message would
    be too large.
    """
    if sum(map(weight, stages)) <= MAX_BYTES:
        return stages
    return tuple(
        s if s.ended is None else Stage(s.ref, s.status, s.at_ms, shortened(s.ended))
        for s in stages
    )


def shortened(ended: Ended) -> Ended:
    """An end without the task's output."""
    return structs.replace(ended, error=ended.error[:100], stderr_tail="")
