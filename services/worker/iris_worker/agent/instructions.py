"""What a worker's agent tells its shell to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import TaskGrant, TaskTemplate
from iris_core.states import NoticeReason


@dataclass(frozen=True, slots=True)
class Prepare:
    """Provide the attempt's bundle and environment; answer with `on_prepared` or `on_unprepared`.
    ``in_gang``: others wait for it.
    """

    ref: AttemptRef
    template: TaskTemplate
    in_gang: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """Send the process group its stop signal after ``settle_ms``, then KILL; answer with
    `on_ended`. What is stored of an attempt that has exited is stored by then, or not at all.
    ``reason``: of a notice, where its job has one, which takes the place of the signal.
    """

    ref: AttemptRef
    grace_ms: int
    settle_ms: int = 0
    reason: NoticeReason | None = None


@dataclass(frozen=True, slots=True)
class Discard:
    """The attempt will never start: delete what was prepared for it."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class RenewToken:
    """Replace the attempt's token by one of this grant."""

    ref: AttemptRef
    grant: TaskGrant


@dataclass(frozen=True, slots=True)
class SetTimeout:
    """The attempt, which runs since ``started_ms``, has another timeout; None: none."""

    ref: AttemptRef
    started_ms: int
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class Notify:
    """Give the attempt a notice, after which it goes on; answer with `on_noticed`."""

    ref: AttemptRef
    reason: NoticeReason


Instruction = Prepare | Kill | Discard | RenewToken | SetTimeout | Notify
