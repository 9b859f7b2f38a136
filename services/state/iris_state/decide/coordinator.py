"""Runs a handler over sessions, judges its report, and returns the changes.

Only here do outcomes of handlers become transitions of a session. Promotions, which follow from
kernels alone, are judged here too. Reads the ledger, writes nothing. Source:
docs/design/semantics.md#rules-and-judgement, docs/design/semantics.md#sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from iris_core.lifecycle import by_source, derive
from iris_core.messages.state_worker import Ended
from iris_core.states import (
    FAILURES,
    KERNEL_UNPREPARED,
    KERNEL_UNSTARTED,
    Cause,
    Outcome,
    SchedulingResult,
    SessionStatus,
    TaskState,
)
from iris_core.tables import session as session_table
from iris_core.tables import task as task_table
from iris_core.tables.session import PREPARE, SCHEDULE, START, TERMINATE, Promotion, SessionRule
from iris_state.decide.conclude import conclude
from iris_state.decide.judging import judgement
from iris_state.policy import Policy
from iris_state.records.changes import GANG, Change, Judged, Moved, SessionMoved
from iris_state.records.claims import Claim
from iris_state.records.entities import Job
from iris_state.records.handlers import Handler, Report, SessionFacts, SessionId
from iris_state.records.ledger import Ledger

Steps = Iterator[Change | Claim]
Result = SchedulingResult

_BADLY = FAILURES | {TaskState.KILLED, TaskState.UNSCHEDULABLE}
_REQUEUED = {
    (PREPARE.name, Result.GIVE_UP): Cause.UNDELIVERED,
    (PREPARE.name, Result.EXPIRED): Cause.PREPARE_TIMEOUT,
    (START.name, Result.GIVE_UP): Cause.START_TIMEOUT,
    (START.name, Result.EXPIRED): Cause.START_TIMEOUT,
}
"""The cause with which tasks return to PENDING."""

_CANCELLED = {
    (SCHEDULE.name, Result.GIVE_UP): Cause.RESCHEDULES_SPENT,
    (SCHEDULE.name, Result.EXPIRED): Cause.SCHEDULING_TIMEOUT,
}
"""The cause with which tasks end that were never placed."""

REQUEUED_BY_A_HANDLER = frozenset(_REQUEUED.values())
"""The causes of attempts that end by a judgement, which is a row of history already."""

_LATE = {PREPARE.name: KERNEL_UNPREPARED, START.name: KERNEL_UNSTARTED}
"""The members of a gang that delayed the others; they are charged, and the others restart with
them.
"""


ENDINGS = by_source(session_table.ENDINGS, SessionStatus)
PROGRESS = by_source(session_table.PROGRESS, SessionStatus)
PROMOTIONS = by_source(session_table.PROMOTIONS, SessionStatus)


def promote(
    ledger: Ledger, job: Job, rows: Mapping[SessionStatus, Sequence[Promotion]] = PROMOTIONS
) -> SessionMoved | None:
    """The transition of a gang's session that follows from its kernels by one of these rows, which
    are listed by the status that they start from; None when it stays, or has ended.
    """
    session = job.session
    kernels = ledger.kernels.get(job.number)
    if session is None or kernels is None or not (judged := rows[session.status]):
        return None
    facts = {
        "ended_badly": sum(job.counts[state] for state in _BADLY),
        "leader_done": int(job.leader_is_done),
    }
    row = derive(judged, kernels, facts, session.status)
    return SessionMoved(job.number, row.target, row.name) if row is not None else None


def run(
    ledger: Ledger,
    policy: Policy,
    rule: SessionRule,
    handler: Handler,
    shown: Sequence[SessionFacts],
    now_ms: int,
) -> Steps:
    """Run a handler over sessions and judge each one exactly once, in its state at that time.

    A handler that raises has failed for its whole batch. A session missing in its report was not
    handled, and may only expire.
    """
    try:
        report = handler(shown)
        why = ""
    except Exception as error:  # noqa: BLE001 - an error of a handler fails its batch, not the service
        report = Report(failures=[s.id for s in shown])
        why = f"{rule.name} raised {error!r}"
    outcomes = dict.fromkeys(report.successes, Outcome.SUCCESS)
    outcomes.update(dict.fromkeys(report.failures, Outcome.FAILURE))
    for view in shown:
        if (view.status, view.version) == seen(ledger, view.id):
            outcome = outcomes.get(view.id, Outcome.SKIPPED)
            yield from settle(
                ledger,
                policy,
                rule,
                view.id,
                outcome=outcome,
                reason=why or view.undelivered,
                now_ms=now_ms,
                wanting=view.wanting,
            )


def unread(
    ledger: Ledger, policy: Policy, id_: SessionId, members: Sequence[int], reason: str, now_ms: int
) -> Steps:
    """Give up a session whose members, by task index, were never started and never will be.

    Their attempts have ended; the other members of a gang are stopped and restart with them.
    """
    yield from settle(
        ledger,
        policy,
        PREPARE,
        id_,
        outcome=Outcome.FAILURE,
        reason=reason,
        now_ms=now_ms,
        wanting=members,
        unread=True,
    )


def seen(ledger: Ledger, id_: SessionId) -> tuple[SessionStatus | None, int]:
    """A session's status and version, for compare-and-set. (None, 0) when there is no such
    session.
    """
    job = ledger.jobs.get(id_[0])
    if job is None:
        return None, 0
    session = ledger.session(job, id_[1])
    return ledger.session_status(job, id_[1]), session.version if session is not None else 0


def settle(
    ledger: Ledger,
    policy: Policy,
    rule: SessionRule,
    id_: SessionId,
    outcome: Outcome,
    reason: str,
    now_ms: int,
    wanting: Sequence[int] = (),
    version: int = 0,
    unread: bool = False,
) -> Steps:
    """Judge one outcome of one session and yield the changes.

    ``wanting``: the members that failed, by task index; ``unread``: they are known never to have
    started, so no further try helps. ``version``: see `changes.Judged`.
    """
    job = ledger.jobs.get(id_[0])
    if job is None:
        return
    status = ledger.session_status(job, id_[1])
    session = ledger.session(job, id_[1])
    tries = session.tries.get(rule.name, 0) if session is not None else 0
    found = judgement(
        rule,
        status,
        outcome,
        reason,
        tries=tries,
        limit=0 if unread else policy.tries_of(rule.name),
        in_status_ms=now_ms - ledger.session_since(job, id_[1]),
        timeout_ms=policy.timeout_of(status),
    )
    if found is None:
        return
    result, target, reason = found
    judged = Judged(
        job.number, id_[1], rule.name, result, reason=reason, tries=tries + 1, version=version
    )
    if id_[1] == GANG and target is not None:
        yield from _of_tasks(
            job,
            rule,
            result,
            target,
            members=_members(job, rule, result, wanting),
            reason=reason,
            unread=unread,
        )
        if target is SessionStatus.PENDING and any(job.counts[state] for state in _BADLY):
            yield judged  # a member has no retry left: DetectTermination ends this gang
        elif target is not status:
            yield SessionMoved(job.number, target, rule.name, result, reason=reason)
        return
    claims = list(
        _of_tasks(job, rule, result, target, members=[id_[1]], reason=reason, unread=unread)
    )
    if (
        result is not Result.SUCCESS
    ):  # a session of one follows its kernel; only failures are recorded
        stays = target is SessionStatus.PENDING and not _is_requeued(ledger, policy, claims)
        yield msgspec.structs.replace(judged, to_status=None if stays else target)
    yield from claims


def expire(job: Job, reason: str, index: int | None = None) -> Steps:
    """The scheduling timeout of a job, or of one task of it, has passed: its tasks that were never
    placed expire.

    For a session of one there is no row, because `history` derives it from the task's end.
    """
    tasks = job.numbered() if index is None else ((index, job.task(index)),)
    waiting = [
        index for index, task in tasks if task.state is TaskState.PENDING and not task.attempts
    ]
    to = SCHEDULE.target(Result.EXPIRED)
    if to is None or to.status is None or not waiting:
        return
    if job.is_gang:
        yield SessionMoved(job.number, to.status, SCHEDULE.name, Result.EXPIRED, reason=reason)
    yield from _of_tasks(job, SCHEDULE, Result.EXPIRED, to.status, members=waiting, reason=reason)


def _is_requeued(ledger: Ledger, policy: Policy, claims: Sequence[Claim]) -> bool:
    """Whether these claims return the task to PENDING; without a retry left it ends."""
    changes = [conclude(ledger, claim, policy) for claim in claims]
    return all(
        isinstance(change, Moved) and change.state is TaskState.PENDING for change in changes
    )


def _members(
    job: Job, rule: SessionRule, result: SchedulingResult, wanting: Sequence[int]
) -> list[int]:
    """The tasks of a gang that a judgement changes first; the others follow them
    (`cascade.siblings`).
    """
    active = [index for index, task in job.numbered() if task.current is not None]
    if result is Result.GIVE_UP and wanting:
        return list(wanting)
    late = _LATE.get(rule.name, frozenset())
    return [index for index in active if job.task(index).attempts[-1].status in late] or active


def _of_tasks(
    job: Job,
    rule: SessionRule,
    result: SchedulingResult,
    target: SessionStatus | None,
    members: Sequence[int],
    reason: str,
    unread: bool = False,
) -> Iterator[Claim]:
    """The claims about the tasks: requeued without charge from ASSIGNED and charged after, or
    UNSCHEDULABLE when never placed.
    """
    if target is SessionStatus.CANCELLED:
        for index in job.indexes if job.is_gang else members:
            yield Claim(
                task_table.EXPIRE,
                job.number,
                index,
                cause=_CANCELLED[rule.name, result],
                note=reason,
            )
    elif target is SessionStatus.PENDING:
        cause = _REQUEUED[rule.name, result]
        ended = Ended(cause, error=reason) if unread else None
        for index in members:
            free = cause is Cause.UNDELIVERED and job.task(index).state is TaskState.ASSIGNED
            row = task_table.UNDELIVER if free else task_table.OVERDUE
            yield Claim(row, job.number, index, cause=cause, ended=ended, note=reason)


def answered(
    ledger: Ledger, policy: Policy, rule: SessionRule, id_: SessionId, now_ms: int
) -> bool:
    """Whether the hosts of a session have listed their attempts lately, so that what they carried
    out is recorded.

    A host that is silent, or that this leader has not heard of yet, may have executed its order: it
    is heard first, or LOST. What is terminating is only shown as terminated: its attempts stay
        open.
    """
    if rule is TERMINATE:
        return True
    job = ledger.jobs[id_[0]]
    heard_ms = now_ms - 2 * policy.heartbeat_interval_ms
    indexes = job.indexes if id_[1] == GANG else (id_[1],)
    current = (job.task(index).current for index in indexes)
    return all(
        ledger.presence[attempt.worker].listed_ms >= heard_ms
        for attempt in current
        if attempt is not None
    )


def overdue(
    ledger: Ledger, policy: Policy, now_ms: int
) -> Iterator[tuple[SessionRule, list[SessionId]]]:
    """Every session that has exceeded its status's timeout, by the handler of that status.

    See also `answered`: none is given up before its hosts have told what became of it.
    """
    for status, line in ledger.timeouts.items():
        if not line:
            continue
        timeout_ms = policy.timeout_of(status)
        owner = session_table.OWNER.get(status)
        if timeout_ms is None or owner is None:
            continue
        late = line.over(timeout_ms, now_ms)
        if late:
            yield owner, late
