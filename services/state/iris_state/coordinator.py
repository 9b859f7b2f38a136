"""One round of a handler over sessions: show them, hear its report, judge, and say what changes.

The only place where a session's handler results become transitions. Promotions, which follow from kernels alone,
are judged here too. Reads the ledger, writes nothing. Source: ST "Coordinator Processing Flow", semantics.md 3, 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iris_core.lifecycle import derive, judge
from iris_core.states import (
    ACTIVE,
    FAILURES,
    KERNEL_UNPREPARED,
    Cause,
    Initiator,
    KernelStatus,
    Outcome,
    SchedulingResult,
    SessionStatus,
    TaskState,
)
from iris_core.tables import session as session_table
from iris_core.tables import task as task_table
from iris_core.tables.session import SessionRule
from iris_state.changes import GANG, Change, Judged, SessionMoved
from iris_state.claims import Claim
from iris_state.handlers import REPORTS, Id, Report, SessionView
from iris_state.ledger import Ledger
from iris_state.policy import Policy
from iris_state.records import Job

_BADLY = FAILURES | {TaskState.KILLED, TaskState.UNSCHEDULABLE}
_CAUSES = {
    session_table.PREPARE.name: (Cause.UNDELIVERED, Cause.PREPARE_TIMEOUT),
    session_table.START.name: (Cause.START_TIMEOUT, Cause.START_TIMEOUT),
}
"""Why tasks go back when their handler gives up, and when it expires."""


def promote(ledger: Ledger, job: Job) -> SessionMoved | None:
    """Where a coscheduled session's kernels have brought it; None when it stays."""
    session = job.session
    if session is None:
        return None
    facts = {"ended_badly": sum(job.counts[state] for state in _BADLY)}
    counts = ledger.kernels[job.number]
    row = derive(session_table.PROMOTIONS, counts, facts, session.status)
    return SessionMoved(job.number, row.target, row.name) if row is not None else None


def placed(job: Job) -> SessionMoved:
    """ScheduleNewSessions took effect: every kernel has its worker."""
    to = session_table.SCHEDULE.success
    assert to is not None and to.status is not None
    return SessionMoved(job.number, to.status, session_table.SCHEDULE.name)


def acknowledged(ledger: Ledger, job: Job, taken: Iterable[int]) -> int:
    """How many kernels of a session have taken its present order: told so, or already past it."""
    past = (
        frozenset({KernelStatus.SCHEDULED})
        if job.session is not None and job.session.status in session_table.PREPARE.sources
        else KERNEL_UNPREPARED | {KernelStatus.PREPARED}
    )
    told = frozenset(taken)
    return sum(
        index in told or (bool(task.attempts) and task.attempts[-1].status not in past)
        for index, task in enumerate(job.tasks)
    )


def run(
    ledger: Ledger, policy: Policy, rule: SessionRule, shown: Sequence[SessionView], now_ms: int
) -> list[Change | Claim]:
    """Show sessions to a handler and judge each one exactly once.

    A handler that raises has failed for its whole batch. What it leaves out was not touched, and may only expire.
    """
    try:
        report = REPORTS[rule.name](shown)
        why = ""
    except Exception as error:  # a handler is a guest: its mistake is a failure of its batch, not of the service
        report, why = Report(failures=[s.id for s in shown]), f"{rule.name} raised {error!r}"
    outcomes = dict.fromkeys(report.successes, Outcome.SUCCESS)
    outcomes.update(dict.fromkeys(report.failures, Outcome.FAILURE))
    steps: list[Change | Claim] = []
    for view in shown:
        outcome = outcomes.get(view.id, Outcome.SKIPPED)
        steps += settle(ledger, policy, rule, view.id, outcome, why or view.undelivered, now_ms)
    return steps


def settle(
    ledger: Ledger, policy: Policy, rule: SessionRule, id: Id, outcome: Outcome, reason: str, now_ms: int
) -> list[Change | Claim]:
    """One session, one outcome, one judgement, and what it changes."""
    job = ledger.jobs.get(id[0])
    if job is None:
        return []
    status = ledger.session_status(job, id[1])
    if status not in rule.sources:
        return []  # it has moved on between claim and judgement
    session = ledger.session(job, id[1])
    tries = session.tries.get(rule.name, 0) if session is not None else 0
    result = judge(
        outcome,
        tries=tries,
        limit=policy.tries,
        in_status_ms=now_ms - _since(job, id[1]),
        patience_ms=policy.patience_of(status),
    )
    if result is SchedulingResult.SKIPPED:
        return []
    to = rule.target(result)
    if to is None or to.status is None:
        return [Judged(job.number, id[1], rule.name, result, reason, tries + 1)]
    moved: list[Change | Claim] = []
    if id[1] == GANG and to.status is not status:
        moved.append(SessionMoved(job.number, to.status, rule.name, result, reason))
    elif id[1] != GANG and result is not SchedulingResult.SUCCESS:
        moved.append(Judged(job.number, id[1], rule.name, result, reason, tries + 1))
    if to.status is SessionStatus.PENDING:
        moved += _requeue(job, id[1], rule, result, reason)
    return moved


def _since(job: Job, index: int) -> int:
    if job.session is not None:
        return job.session.since_ms
    task = job.tasks[index]
    return task.attempts[-1].since_ms if task.attempts else task.queued_ms


def _requeue(job: Job, index: int, rule: SessionRule, result: SchedulingResult, reason: str) -> list[Claim]:
    """The tasks of a session that goes back to PENDING: free from ASSIGNED, charged after."""
    cause = _CAUSES[rule.name][result is SchedulingResult.EXPIRED]
    members = range(len(job.tasks)) if index == GANG else (index,)
    return [
        Claim(
            task_table.OVERDUE,
            job.number,
            member,
            outcome=Outcome.FAILURE,
            cause=cause,
            initiator=Initiator.SYSTEM,
            note=reason or f"{rule.name} {result.value.lower()}",
        )
        for member in members
        if job.tasks[member].state in ACTIVE
    ]


def overdue(ledger: Ledger, policy: Policy, now_ms: int) -> list[Change | Claim]:
    """Everything that has been in its status for longer than anybody will wait."""
    steps: list[Change | Claim] = []
    for status, line in ledger.lines.items():
        patience, owner = policy.patience_of(status), session_table.OWNER.get(status)
        if patience is None or owner is None:
            continue
        for id in line.over(patience, now_ms):
            reason = f"{status.value} for more than {patience // 1000} s"
            steps += settle(ledger, policy, owner, id, Outcome.SKIPPED, reason, now_ms)
    return steps
