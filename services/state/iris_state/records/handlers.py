"""The lifecycle handlers of sessions: each reports which succeeded, failed, or are not ready.
Nothing is judged here.

Adding one: a row in `iris_core.tables.session.HANDLERS`, a function here, its line in `REPORTS`.
Source: docs/design/semantics.md#sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iris_core.states import SessionStatus
from iris_core.tables.session import PREPARE, START, TERMINATE

SessionId = tuple[int, int]
"""A session: job number, and task index or GANG."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The input of a handler about one session.

    Attributes:
        version: of the record, for compare-and-set. kernels: how many it has.
        wanting: the members, by task index, whose workers have not taken the handler's order.
        undelivered: why the order could not be delivered; empty when nothing failed.
    """

    id: SessionId
    status: SessionStatus
    kernels: int
    wanting: tuple[int, ...] = ()
    undelivered: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A handler's outcomes for the sessions it received; one that is in no list was not touched."""

    successes: Sequence[SessionId] = ()
    failures: Sequence[SessionId] = ()
    skipped: Sequence[SessionId] = ()


Handler = Callable[[Sequence[SessionFacts]], Report]


def prepare_sessions(sessions: Sequence[SessionFacts]) -> Report:
    """A session is prepared when every worker has accepted its order; an order that was not
    accepted is a failure.

    A session in PREPARING has had its success and is only observed.
    """
    return _delivered(sessions, DELIVERING[PREPARE.name])


def start_sessions(sessions: Sequence[SessionFacts]) -> Report:
    """A session is started when every worker has accepted the order to start."""
    return _delivered(sessions, DELIVERING[START.name])


def terminate_sessions(sessions: Sequence[SessionFacts]) -> Report:
    """Report nothing: workers are ordered to stop until every end is known, which
    PromoteToTerminated checks.
    """
    return Report(skipped=[s.id for s in sessions])


def _delivered(sessions: Sequence[SessionFacts], before: SessionStatus) -> Report:
    failed = [s.id for s in sessions if s.undelivered]
    taken = [s.id for s in sessions if not s.undelivered and s.status is before and not s.wanting]
    judged = {*failed, *taken}
    return Report(
        successes=taken, failures=failed, skipped=[s.id for s in sessions if s.id not in judged]
    )


REPORTS: dict[str, Handler] = {
    PREPARE.name: prepare_sessions,
    START.name: start_sessions,
    TERMINATE.name: terminate_sessions,
}
"""The handlers that run in this service; ScheduleNewSessions runs in the scheduler."""

DELIVERING = {PREPARE.name: SessionStatus.SCHEDULED, START.name: SessionStatus.PREPARED}
"""The handlers that run whenever an order was accepted or failed, and the status in which each
waits for acceptance; other handlers run by timers.
"""

AWAITING = frozenset(DELIVERING.values())
"""The statuses in which a handler waits until every order was accepted; it succeeds then and not
before.
"""
