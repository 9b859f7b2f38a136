"""Gates: what keeps the tasks of a job, or one of them, out of the queue. Types, and the verdict on
a dependency. Pure.

A gate opens once and is never closed again; only a hold is added after the admission. Out of scope:
when a gate is judged, and what follows from the verdict (`decide.gates`). Source:
    docs/adr/0079-gates-keep-tasks-out-of-the-queue.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, StrEnum, auto

import msgspec

from iris_core.access.actor import Actor
from iris_core.spec.jobs import When

WHOLE = -1
"""In place of a task index: every task of the job."""
BACKOFF = -1
"""In place of a gate's number: the time before which one task is not tried again."""


class GateKind(StrEnum):
    """What a gate waits for. The values are also reasons why a task is pending."""

    DEPENDENCY = "dependency"
    NOT_BEFORE = "not_before"
    SINGLETON = "singleton"
    HELD = "held"


class Gate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One gate of a job. New fields go last, with a default.

    Attributes:
        number: unique within the job.
        job, when, each: of a dependency: the other job's number, and see `spec.jobs.Dependency`.
        until_ms: of a time before which nothing is placed. key: of a singleton. by, at_ms: of a
            hold, whose and since when. reason: of a hold. hold: the number of the hold on the queue
                that it belongs to; 0: the job's own.
        opened_ms: when it opened; 0: it is closed. One with ``each`` opens task by task, and at
            last as a whole.
    """

    number: int
    kind: GateKind
    job: int = 0
    when: When = "ok"
    each: bool = False
    until_ms: int = 0
    key: str = ""
    by: Actor | None = None
    at_ms: int = 0
    opened_ms: int = 0
    reason: str = ""
    hold: int = 0

    @property
    def is_closed(self) -> bool:
        return not self.opened_ms

    @property
    def follows_tasks(self) -> bool:
        """Whether each start and end of a task of the other job matters to it."""
        return self.each or self.when == "start"

    @property
    def bit(self) -> int:
        """Its bit in `Task.gates`, of one with ``each``."""
        return 1 << self.number


def next_number(gates: Iterable[Gate]) -> int:
    """The number of one more gate of a job."""
    return max((gate.number for gate in gates), default=-1) + 1


class Verdict(Enum):
    """What is to become of a gate."""

    STAYS = auto()
    OPENS = auto()
    NEVER = auto()
    """It can never open: what waits for it ends."""


def judge_dependency(
    when: When, *, has_started: bool, has_ended: bool, has_succeeded: bool
) -> Verdict:
    """The verdict on a gate from what has become of the job or task it waits for."""
    if when == "start" and has_started:
        return Verdict.OPENS
    if not has_ended:
        return Verdict.STAYS
    wanted = {"ok": has_succeeded, "any": True, "notok": not has_succeeded, "start": False}[when]
    return Verdict.OPENS if wanted else Verdict.NEVER
