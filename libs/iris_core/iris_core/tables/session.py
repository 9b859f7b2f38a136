"""Status table of sessions: the rows of the lifecycle handlers and the promotions over kernels.

No row sets a kernel's status: it begins with the assignment, follows its worker's reports, and ends
by a row of the task.

Sources: docs/design/semantics.md#sessions, which names each place where the two differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from iris_core.guard import guard
from iris_core.lifecycle import Condition, Derivation, Rule, To
from iris_core.states import (
    KERNEL_NON_TERMINAL,
    KERNEL_TERMINAL,
    KERNEL_UNPREPARED,
    KERNEL_UNSTARTED,
    SESSION_LIVE,
    SESSION_TERMINAL,
    KernelStatus,
    MatchType,
    SessionStatus,
)

S = SessionStatus
K = KernelStatus
SessionRule: TypeAlias = Rule[SessionStatus, KernelStatus]
Promotion: TypeAlias = Derivation[SessionStatus, KernelStatus]

_AGAIN: To[SessionStatus, KernelStatus] = To(S.PENDING)

SCHEDULE = SessionRule(
    name="ScheduleNewSessions",
    sources=frozenset({S.PENDING}),
    success=To(S.SCHEDULED),
    expired=To(S.CANCELLED),
    give_up=To(S.CANCELLED),
)
PREPARE = SessionRule(
    name="PrepareSessions",
    sources=frozenset({S.SCHEDULED, S.PREPARING}),
    success=To(S.PREPARING),
    expired=_AGAIN,
    give_up=_AGAIN,
)
START = SessionRule(
    name="StartSessions",
    sources=frozenset({S.PREPARED, S.CREATING}),
    success=To(S.CREATING),
    expired=_AGAIN,
    give_up=_AGAIN,
)
TERMINATE = SessionRule(
    name="TerminateSessions",
    sources=frozenset({S.TERMINATING}),
    # PromoteToTerminated checks that every end is known, and an order to stop cannot fail
    outcomes=frozenset(),
    expired=To(S.TERMINATED),
)
HANDLERS: tuple[SessionRule, ...] = (SCHEDULE, PREPARE, START, TERMINATE)
"""Status Transitions's four lifecycle handlers: the handler and the targets for a session of each
status.
"""

TABLE = HANDLERS

OWNER = {status: rule for rule in HANDLERS for status in rule.sources}
"""The handler of a session in each status; RUNNING belongs to DetectTermination alone."""

DETECT_CANCELLATION = Promotion(
    name="DetectCancellation",
    sources=frozenset({S.PENDING}),
    any_of=(
        (Condition(fact="ended_badly"), Condition(frozenset({K.TERMINATING}), MatchType.NOT_ANY)),
    ),
    target=S.CANCELLED,
)
DETECT_TERMINATION = Promotion(
    name="DetectTermination",
    sources=SESSION_LIVE | {S.PENDING},
    any_of=(
        (Condition(fact="ended_badly"),),
        (Condition(fact="leader_done"),),
        (Condition(KERNEL_TERMINAL, MatchType.ALL),),
    ),
    target=S.TERMINATING,
)
REGRESS_TO_PENDING = Promotion(
    name="RegressToPending",
    sources=SESSION_LIVE,
    any_of=((Condition(frozenset({K.PENDING}), MatchType.ANY),),),
    target=S.PENDING,
)
PROMOTE_TO_PREPARED = Promotion(
    name="PromoteToPrepared",
    sources=frozenset(
        {S.PREPARING}
    ),  # a kernel past PREPARING has taken its order, which PrepareSessions checks first
    any_of=((Condition(KERNEL_UNPREPARED, MatchType.NOT_ANY),),),
    target=S.PREPARED,
)
PROMOTE_TO_RUNNING = Promotion(
    name="PromoteToRunning",
    sources=frozenset({S.CREATING}),
    any_of=((Condition(KERNEL_UNSTARTED, MatchType.NOT_ANY),),),
    target=S.RUNNING,
)
PROMOTE_TO_TERMINATED = Promotion(
    name="PromoteToTerminated",
    sources=frozenset({S.TERMINATING}),
    any_of=((Condition(KERNEL_NON_TERMINAL, MatchType.NOT_ANY),),),
    target=S.TERMINATED,
)

ENDINGS: tuple[Promotion, ...] = (DETECT_CANCELLATION, DETECT_TERMINATION, REGRESS_TO_PENDING)
"""Judged before the handlers, so that no handler succeeds for a session that has ended."""

PROGRESS: tuple[Promotion, ...] = (PROMOTE_TO_PREPARED, PROMOTE_TO_RUNNING, PROMOTE_TO_TERMINATED)
"""Judged after the handlers."""

PROMOTIONS: tuple[Promotion, ...] = (*ENDINGS, *PROGRESS)
"""Judged in this order: ends come first."""

SINGLE = {
    K.PENDING: S.PENDING,
    K.SCHEDULED: S.SCHEDULED,
    K.PREPARING: S.PREPARING,
    K.PULLING: S.PREPARING,
    K.PREPARED: S.PREPARED,
    K.CREATING: S.CREATING,
    K.RUNNING: S.RUNNING,
    K.TERMINATING: S.TERMINATING,
    K.TERMINATED: S.TERMINATED,
    K.CANCELLED: S.CANCELLED,
    K.ERROR: S.TERMINATED,
}
"""The status of a session of one follows from its only kernel, which is prepared and started by one
order.
"""


@dataclass(frozen=True, slots=True)
class StatusTimeout:
    """How long a session may be in a status, ms; None: no limit. The limit of PENDING is its job's
    scheduling timeout.
    """

    scheduled_ms: int = 60_000
    preparing_ms: int = 900_000
    prepared_ms: int = 60_000
    creating_ms: int = 600_000
    terminating_ms: int = 120_000

    def of(self, status: SessionStatus) -> int | None:
        return {
            S.SCHEDULED: self.scheduled_ms,
            S.PREPARING: self.preparing_ms,
            S.PREPARED: self.prepared_ms,
            S.CREATING: self.creating_ms,
            S.TERMINATING: self.terminating_ms,
        }.get(status)


@dataclass(frozen=True, slots=True)
class MovedCell:
    """A cell of the tables of Status Transitions that another row owns here.

    Attributes:
        row: of Status Transitions. cell: what it has there and not here.
        owner: the row that has it here; None: no row needs it. reason: why, a sentence.
    """

    row: str
    cell: str
    owner: Promotion | SessionRule | None
    reason: str


MOVED: tuple[MovedCell, ...] = (
    MovedCell(
        "TerminateSessions",
        "SUCCESS: TERMINATED",
        PROMOTE_TO_TERMINATED,
        "A session has ended when the end of every kernel is known, which is a condition over kernels.",
    ),
    MovedCell(
        "TerminateSessions",
        "GIVE_UP: TERMINATED",
        None,
        "An order to stop is repeated until every end is known, so it cannot fail for good; the timeout ends it.",
    ),
    MovedCell(
        "PromoteToPrepared",
        "from SCHEDULED",
        PREPARE,
        "A kernel past PREPARING has taken its order, so PrepareSessions moves the session to PREPARING first.",
    ),
)
"""Each edge has one owner, and each declared edge can be produced.

Source: docs/design/semantics.md#sessions.
"""

CLOCKED = frozenset(
    {S.PENDING, *(status for status in SessionStatus if StatusTimeout().of(status) is not None)}
)

WAYS_OUT: dict[SessionStatus, SessionRule | Promotion] = {**OWNER, S.RUNNING: DETECT_TERMINATION}
"""A running session ends with its kernels, and the loss of a worker ends those."""

guard(
    "session",
    SessionStatus,
    SESSION_TERMINAL,
    (*HANDLERS, *PROMOTIONS),
    ways_out=WAYS_OUT,
    clocked=CLOCKED,
)
