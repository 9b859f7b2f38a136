"""Judges stops of attempts whose task may still succeed by exit 0: when they are told, and when
they have ended.

A job with a notice, or whose time limit requeues, is asked to end in time: exit 0 is its success to
the end of the grace period. So its task stays in its state until the end is known, and only then is
the stop charged. Reads records, writes nothing. Source:
    docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from iris_core.messages.state_worker import Ended
from iris_core.states import GIVES_WAY, Cause, Initiator, KernelStatus
from iris_core.tables import task as table
from iris_core.tables.task import TaskRule
from iris_state.records.claims import Claim, Step
from iris_state.records.entities import Attempt, Job
from iris_state.records.stops import StopOrdered

_STOPPED = frozenset({Cause.CANCELLED, Cause.TIMEOUT})
"""What a worker calls the end of an attempt that it was told to stop, or has stopped by itself."""


WAYS = {Cause.PREEMPTED: table.PREEMPT, Cause.RECLAIMED: table.RECLAIM}
"""The row by which an attempt makes way, by why it does."""


def way_out(attempt: Attempt, cause: Cause = Cause.PREEMPTED) -> TaskRule:
    """The row by which an attempt makes way; one that has not started is handed back, uncharged."""
    return table.HAND_BACK if attempt.waits_in_chain else WAYS[cause]


def order(job: Job, index: int, stop: Claim) -> Step:
    """The stop that a claim asks for: of an attempt that may still succeed, the order to stop; else
    the claim.
    """
    attempt = job.task(index).current
    if attempt is None or not job.spec.ends_late or attempt.status is not KernelStatus.RUNNING:
        return stop
    if stop.cause in GIVES_WAY and job.spec.notice is None:
        return stop
    return StopOrdered(job.number, index, attempt.number, stop.cause, note=stop.note)


def on_limit(job: Job, index: int) -> Iterator[Step]:
    """A task has run for as long as it may, or the end of an attempt that was told to stop is not
    known for long.
    """
    attempt = job.task(index).current
    if attempt is not None and attempt.ending is not None:
        initiator = _initiator(attempt.ending.cause)
        rule = _row(job, attempt)
        cause = attempt.ending.cause
        note = attempt.ending.note
        yield Claim(
            rule, job.number, index, attempt.number, cause=cause, initiator=initiator, note=note
        )
        return
    note = f"ran longer than {job.spec.timeout_s:g} s"
    rule = table.ON_TIMEOUT[job.spec.on_timeout]
    yield order(job, index, Claim(rule, job.number, index, cause=Cause.TIMEOUT, note=note))


def judged(job: Job, attempt: Attempt, claim: Claim, ended: Ended) -> Claim:
    """The claim of an end as it counts for the task: by the exit code, or by why the attempt was
    told to stop.
    """
    if ended.cause in _STOPPED and _succeeds(job, attempt, ended):
        rule = table.FINISH if job.is_gang else table.SUCCEED
        return structs.replace(claim, rule=rule, cause=Cause.EXITED, note="")
    ending = attempt.ending
    if ending is None:
        late = ended.cause is Cause.TIMEOUT and claim.rule is table.KILL
        return structs.replace(claim, rule=table.ON_TIMEOUT[job.spec.on_timeout]) if late else claim
    if ended.cause is Cause.EXITED and not attempt.requeued:
        return claim  # it has exited by itself, before its stop arrived
    initiator = _initiator(ending.cause)
    rule = _row(job, attempt)
    return structs.replace(
        claim, rule=rule, cause=ending.cause, initiator=initiator, note=ending.note
    )


def _succeeds(job: Job, attempt: Attempt, ended: Ended) -> bool:
    """Whether what an attempt that was stopped exited with is its task's success."""
    asked = (
        job.spec.notice is not None or attempt.ending is not None or ended.cause is Cause.TIMEOUT
    )
    return (
        job.spec.ends_late
        and asked
        and not attempt.requeued
        and (ended.exit_code, ended.signal) == (0, None)
    )


def _initiator(cause: Cause) -> Initiator:
    return Initiator.SCHEDULER if cause in GIVES_WAY else Initiator.SYSTEM


def _row(job: Job, attempt: Attempt) -> TaskRule:
    """The row for an attempt that did not succeed before its stop."""
    assert attempt.ending is not None
    if attempt.ending.cause in WAYS:
        return WAYS[attempt.ending.cause]
    return table.REQUEUE_ON_TIMEOUT if attempt.requeued else table.ON_TIMEOUT[job.spec.on_timeout]
