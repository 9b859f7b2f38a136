"""What each lifecycle handler says of the sessions it is shown: done, failed, or not yet. It judges and touches nothing.

Adding one: a row in `iris_core.tables.session.HANDLERS`, a function here, its line in `REPORTS`. Source: ST
"LifecycleHandler", "HandlerResult"; semantics.md section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iris_core.states import SessionStatus
from iris_core.tables.session import PREPARE, START, TERMINATE

Id = tuple[int, int]
"""A session: job number, and task index or GANG."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """What a handler may know of one session.

    Attributes:
        kernels: how many it has. acknowledged: how many workers took the handler's order.
        undelivered: why the order could not be delivered; empty when nothing failed.
        open: how many of its attempts have no known end.
    """

    id: Id
    status: SessionStatus
    kernels: int
    acknowledged: int = 0
    undelivered: str = ""
    open: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A handler's words about everything it was shown; who is in no list was not touched."""

    successes: Sequence[Id] = ()
    failures: Sequence[Id] = ()
    skipped: Sequence[Id] = ()


Handler = Callable[[Sequence[SessionView]], Report]


def prepare_sessions(sessions: Sequence[SessionView]) -> Report:
    """Prepared means ordered and acknowledged everywhere; an order nobody took has failed."""
    return _delivered(sessions)


def start_sessions(sessions: Sequence[SessionView]) -> Report:
    """Started means that every worker of a prepared session took the order to start."""
    return _delivered([s for s in sessions if s.status is SessionStatus.PREPARED])


def terminate_sessions(sessions: Sequence[SessionView]) -> Report:
    """Ended means that the end of every attempt is known; until then it is neither done nor failed."""
    return Report(successes=[s.id for s in sessions if not s.open], skipped=[s.id for s in sessions if s.open])


def _delivered(sessions: Sequence[SessionView]) -> Report:
    done = [s.id for s in sessions if s.acknowledged == s.kernels and not s.undelivered]
    failed = [s.id for s in sessions if s.undelivered]
    rest = [s.id for s in sessions if s.acknowledged != s.kernels and not s.undelivered]
    return Report(successes=done, failures=failed, skipped=rest)


REPORTS: dict[str, Handler] = {
    PREPARE.name: prepare_sessions,
    START.name: start_sessions,
    TERMINATE.name: terminate_sessions,
}
"""The handlers that run in this service; ScheduleNewSessions runs in the scheduler."""
