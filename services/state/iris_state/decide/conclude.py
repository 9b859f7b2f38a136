"""Judges a claim by the task table and the retry budgets, and returns changes or nothing.

Reads the ledger, writes nothing. A comment explains each claim that is dropped. Sources:
docs/design/semantics.md#tasks-and-attempts; docs/design/semantics.md#rules-and-judgement,
docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import msgspec

from iris_core.lifecycle import decide
from iris_core.states import (
    STAGE_ORDER,
    TERMINAL,
    Budget,
    Cause,
    Outcome,
    TaskState,
)
from iris_core.tables.task import LATE
from iris_core.units import counted
from iris_state.decide import endings, poison
from iris_state.policy import Policy
from iris_state.records.changes import Assigned, Change, Closed, Moved, Staged
from iris_state.records.claims import CURRENT, Claim
from iris_state.records.entities import Attempt, Job, Task, spent_and_limit
from iris_state.records.ledger import Ledger


def conclude(ledger: Ledger, claim: Claim, policy: Policy) -> Change | None:
    """The change that follows from one claim; None when it is late, repeated, or about an unknown
    record.
    """
    job = ledger.jobs.get(claim.job)
    if job is None or not job.has(claim.index):
        return None  # deleted, or never existed
    task = job.task(claim.index)
    attempt = task.current
    if (
        (ended := claim.ended) is not None
        and attempt is not None
        and attempt.number == claim.attempt
    ):
        asked = attempt.ending is not None or ended.cause is not Cause.EXITED
        claim = endings.judged(job, attempt, claim, ended) if asked else claim
    if claim.attempt != CURRENT and (attempt is None or attempt.number != claim.attempt):
        return _close_superseded(ledger, job, claim, policy)
    if task.state not in claim.rule.sources:
        return None  # no row starts from this state: a repeat, or a late claim
    if claim.worker:
        return Assigned(
            job.number, claim.index, len(task.attempts), claim.worker, chain=claim.chain
        )
    if claim.status is not None:
        return _stage(claim, attempt)
    return _leave(ledger, job, attempt, claim, policy=policy)


def _close_superseded(ledger: Ledger, job: Job, claim: Claim, policy: Policy) -> Change | None:
    """Close an attempt that its task has left: that frees its resources and, if its work was done,
    ends the task.

    The same holds for a gang's member that is stopped for its leader; a finished one is closed
    already.
    """
    task = job.task(claim.index)
    if claim.ended is None or not 0 <= claim.attempt < len(task.attempts):
        return None
    attempt = task.attempts[claim.attempt]
    if not attempt.is_open:
        return None
    late = LATE.get(claim.rule.name)
    counts = attempt is task.attempts[-1] and not attempt.exit_ignored and not job.is_gang
    if late is not None and task.state in late.sources and counts:
        return _leave(
            ledger, job, attempt, msgspec.structs.replace(claim, rule=late), policy=policy
        )
    return Closed(claim.job, claim.index, claim.attempt, claim.ended)


def _stage(claim: Claim, attempt: Attempt | None) -> Change | None:
    assert claim.status is not None
    if attempt is None or STAGE_ORDER[claim.status] < STAGE_ORDER[attempt.status]:
        return None  # an attempt never returns to an earlier stage
    if claim.status is attempt.status and claim.detail in ("", attempt.detail, attempt.doing):
        return None  # a repeat
    key = (claim.job, claim.index, attempt.number)
    return Staged(*key, claim.status, claim.detail, claim.waits)


def _leave(
    ledger: Ledger, job: Job, attempt: Attempt | None, claim: Claim, policy: Policy
) -> Change | None:
    rule = claim.rule
    task = job.task(claim.index)
    charged = rule.charged(task.state)
    outcome = Outcome.SUCCESS if charged is None else Outcome.FAILURE
    spent, limit = _spent_and_limit(job, task, charged, policy)
    _, target = decide(rule, task.state, outcome, tries=spent, limit=limit)
    suspect = attempt is not None and claim.sudden and poison.is_suspect(ledger, attempt, policy)
    verdict = poison.verdict(task, policy) if suspect else ""
    if target is not None and target.status is TaskState.PENDING and (verdict or _is_ending(job)):
        target = rule.give_up
    if target is None:
        return None
    state = target.status or task.state
    gave_up = charged is not None and state is TaskState.UNSCHEDULABLE
    over = (
        limit
        if charged is Budget.REQUEUE and state is not TaskState.PENDING and spent >= limit
        else None
    )
    return Moved(
        claim.job,
        claim.index,
        attempt.number if attempt is not None else CURRENT,
        state,
        shown=target.part or state,
        cause=Cause.RESCHEDULES_SPENT if gave_up else claim.cause,
        initiator=claim.initiator,
        closed=attempt is None or claim.ended is not None or claim.cause is Cause.WORKER_LOST,
        charged_to=charged,
        ended=claim.ended,
        note=verdict or (claim.note if over is None else _over(claim, over)),
        suspect=suspect,
        not_before_ms=_not_before(ledger, job, task, claim, charged=charged)
        if state is TaskState.PENDING
        else 0,
    )


def _over(claim: Claim, limit: int) -> str:
    """That a task has asked to be requeued more often than it may."""
    asked = claim.note or (claim.ended.error if claim.ended is not None else "")
    often = f"more than {counted(limit, 'time')}"
    return f"{asked or 'it asked to be requeued'}, {often} (max_requeues): raise --max-requeues"


def _not_before(ledger: Ledger, job: Job, task: Task, claim: Claim, charged: Budget | None) -> int:
    """When a task that is pending again may be placed: after the pause that its job asks for; 0: at
    once.

    A gang waits as long as the member that it starts again with.
    """
    if job.spec.backoff_s is None:
        return 0
    if claim.cause is Cause.COSCHEDULED_RESTART:
        return max(member.not_before_ms for member in job.tasks)
    if charged not in (Budget.FAILURE, Budget.REQUEUE):
        return 0
    return ledger.now_ms + job.spec.backoff_ms(task.failure_count + task.requeue_count)


def _spent_and_limit(
    job: Job, task: Task, charged: Budget | None, policy: Policy
) -> tuple[int, int]:
    if charged is None:
        return 0, 0
    if charged is Budget.RESCHEDULE:
        return task.reschedules, policy.max_reschedules
    return spent_and_limit(job, task, charged)


def _is_ending(job: Job) -> bool:
    """Whether a gang cannot be placed again: it is only placed whole, and a task of it has ended
    for good.
    """
    return job.is_gang and any(job.counts[state] for state in TERMINAL)
