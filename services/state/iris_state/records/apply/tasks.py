"""Applies changes of tasks and their attempts. Sources:
docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_core.access.actor import Actor
from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.messages.state_worker import MOST_STORED, Ended
from iris_core.states import (
    ACTIVE,
    TERMINAL,
    Budget,
    Cause,
    KernelStatus,
    SchedulingResult,
    TaskState,
)
from iris_core.tables.session import SINGLE
from iris_core.tables.task import ASSIGN, STAGES, becomes
from iris_state.records import changes as c
from iris_state.records.apply.sessions import remember
from iris_state.records.apply.usage import account
from iris_state.records.entities import (
    Attempt,
    Fact,
    HistoryEntry,
    Job,
    Task,
    has_budget_left,
    kernel_status,
)
from iris_state.records.facts import NoticeFact
from iris_state.records.indexes import minutes
from iris_state.records.indexes.stored import StoredBytes
from iris_state.records.ledger import Ledger
from iris_state.records.stops import Ending

ChangeWriter = Callable[[Ledger, Any, int], None]

WORDS = {state: state.name.lower() for state in TaskState}
_NO_EXIT = frozenset(
    {
        Cause.INFRASTRUCTURE,
        Cause.MISSING,
        Cause.WORKER_LOST,
        Cause.WORKER_CRASHED,
        Cause.UNDELIVERED,
    }
)


def counted(write: ChangeWriter) -> ChangeWriter:
    """Keep a gang's counts of kernel statuses correct around a change of one of its tasks."""

    def enter(ledger: Ledger, change: Any, at_ms: int) -> None:
        kernels = ledger.kernels.get(change.job)
        if kernels is None:
            write(ledger, change, at_ms)
            return
        task = ledger.jobs[change.job].task(change.index)
        kernels[kernel_status(task)] -= 1
        write(ledger, change, at_ms)
        kernels[kernel_status(task)] += 1

    return enter


def assigned(ledger: Ledger, change: c.Assigned, at_ms: int) -> None:
    """Open a new attempt."""
    job = ledger.jobs[change.job]
    task = job.task(change.index)
    state, shown = becomes(ASSIGN)
    attempt = Attempt(change.attempt, change.worker, at_ms, at_ms, shown=shown, chain=change.chain)
    if ledger.avoided:
        attempt.alone = ledger.avoided.get((change.job, change.index), {}).get(OCCUPIED, 0) > at_ms
    if task.attempts:
        task.attempts.append(attempt)
    else:
        task.attempts = [attempt]
    ledger.dequeue(job, change.index)
    _show(ledger, job, change.index, state, attempt=attempt, cause=None, at_ms=at_ms)
    ledger.hold(job, change.index, attempt)
    if job.session is None:
        task.session = None
        ledger.start_timeout(SINGLE[attempt.status], (job.number, change.index), at_ms)


def staged(ledger: Ledger, change: c.Staged, at_ms: int) -> None:
    """Set an attempt's stage, and the task's state when it changes with it."""
    job = ledger.jobs[change.job]
    task = job.task(change.index)
    attempt = task.attempts[change.attempt]
    was_building = attempt.is_building
    before = attempt.status
    attempt.status = change.status
    attempt.waits = change.waits
    ledger.presence[attempt.worker].building += attempt.is_building - was_building
    if before is change.status is KernelStatus.RUNNING:
        attempt.doing = change.detail
    else:
        attempt.detail = change.detail
    if before is change.status:
        return
    if change.status is KernelStatus.RUNNING:
        attempt.started_ms = attempt.started_ms or at_ms
    elif not attempt.building_ms:
        attempt.building_ms = at_ms
    if attempt.chain is not None:
        ledger.use(job, change.index, attempt)
    left = SINGLE[before]
    entered = SINGLE[change.status]
    if left is not entered:  # a change of stage within a status does not restart its clock
        attempt.since_ms = at_ms
        if job.session is None:
            key = (job.number, change.index)
            ledger.stop_timeout(left, key)
            ledger.start_timeout(entered, key, at_ms)
            task.session = None
    state, attempt.shown = becomes(STAGES[change.status])
    if state is not task.state:
        _show(ledger, job, change.index, state, attempt=attempt, cause=None, at_ms=at_ms)
    if (
        change.status is KernelStatus.RUNNING and job.spec.timeout_s is not None
    ):  # else it has no timer
        ledger.watch(job, change.index, attempt)
    if change.status is KernelStatus.RUNNING and change.job in ledger.gates.followers:
        ledger.gates.note_task(job, change.index)


def moved(ledger: Ledger, change: c.Moved, at_ms: int) -> None:
    """A task leaves its attempt, the queue, or its gang."""
    job = ledger.jobs[change.job]
    index = change.index
    task = job.task(index)
    attempt = task.attempts[change.attempt] if change.attempt >= 0 else None
    if task.state is TaskState.PENDING:
        ledger.dequeue(job, index)
    if attempt is not None and task.state in ACTIVE:
        _leave(ledger, job, task, attempt, change=change, at_ms=at_ms)
    elif attempt is not None:
        _end_late(ledger, job, task, attempt, change=change, at_ms=at_ms)
    if change.state in TERMINAL:
        _end(ledger, job, task, change)
        if not change.closed or attempt is None:
            _await_end(ledger, job, index)
    if change.state is TaskState.RUNNING and attempt is not None:
        attempt.started_ms = attempt.started_ms or at_ms
        if attempt.chain is not None and attempt.is_open:
            ledger.use(job, index, attempt)
    if change.state is not task.state:
        cause = None if change.state in ACTIVE else change.cause
        last = task.attempts[-1] if task.state in ACTIVE else attempt
        _show(
            ledger, job, index, change.state, attempt=last, cause=cause, at_ms=at_ms, by=change.by
        )
    if change.state is TaskState.PENDING:
        task.queued_ms = at_ms
        ledger.delay(job, index, change.not_before_ms)
        ledger.wait_for_place(job, index)
    elif change.job in ledger.gates.followers:
        ledger.gates.note_task(job, index)


def _end(ledger: Ledger, job: Job, task: Task, change: c.Moved) -> None:
    """A task has ended: why, and what was noted for its next attempt is dropped."""
    task.cause = change.cause
    task.note = change.note
    task.by = change.by
    if ledger.avoided:
        ledger.avoided.pop((change.job, change.index), None)
    if task.not_before_ms:
        ledger.delay(job, change.index, 0)
    task.no_retry = has_budget_left(job, task, change.state)


def _await_end(ledger: Ledger, job: Job, index: int) -> None:
    """A session of one is terminating once its kernel is ordered to stop, unless its end is
    known.
    """
    last = job.task(index).attempts[-1:]
    if job.session is None and last and last[0].is_open:
        ledger.start_timeout(SINGLE[last[0].status], (job.number, index), last[0].since_ms)


def closed(ledger: Ledger, change: c.Closed, at_ms: int) -> None:
    """Close an attempt that its task has left before."""
    job = ledger.jobs[change.job]
    task = job.task(change.index)
    _close(
        ledger, job, change.index, task.attempts[change.attempt], ended=change.ended, at_ms=at_ms
    )
    if task.state is TaskState.PENDING:
        ledger.enqueue(job, change.index)


def requeued(ledger: Ledger, change: c.Requeued, at_ms: int) -> None:
    ledger.jobs[change.job].task(change.index).attempts[change.attempt].requeued = True


def grace_ended(ledger: Ledger, change: c.GraceEnded, at_ms: int) -> None:
    job = ledger.jobs[change.job]
    attempt = job.task(change.index).attempts[change.attempt]
    attempt.at_once = True
    if attempt.ending is not None:
        ledger.watch(job, change.index, attempt)


def stop_ordered(ledger: Ledger, change: c.StopOrdered, at_ms: int) -> None:
    """A running attempt is told to stop; its task does not leave it yet."""
    job = ledger.jobs[change.job]
    attempt = job.task(change.index).attempts[change.attempt]
    attempt.ending = Ending(change.cause, at_ms, change.note)
    ledger.watch(job, change.index, attempt)


def noticed(ledger: Ledger, change: c.Noticed, at_ms: int) -> None:
    """Keep that an attempt was given a notice, and show it in the history of its job."""
    job = ledger.jobs[change.job]
    task = job.task(change.index)
    attempt = task.attempts[change.attempt]
    attempt.notices = (*attempt.notices, change.notice)
    ledger.facts.append(
        NoticeFact(job, change.index, attempt, WORDS[task.state], notice=change.notice, at_ms=at_ms)
    )
    status = SINGLE[attempt.status].value
    words = f"attempt {attempt.number} was told: {change.notice.reason}"
    row = (change.index, "notice", status, status, SchedulingResult.SUCCESS, words, 1, at_ms, at_ms)
    remember(ledger, job, HistoryEntry(*row))


def _leave(
    ledger: Ledger, job: Job, task: Task, attempt: Attempt, change: c.Moved, at_ms: int
) -> None:
    _record_end(task, attempt, change, at_ms)
    ledger.unwatch(job, change.index, attempt)
    ledger.presence[attempt.worker].building -= attempt.is_building
    if change.closed:
        _close(ledger, job, change.index, attempt, ended=change.ended, at_ms=at_ms)
    else:
        attempt.status = KernelStatus.TERMINATING
        attempt.since_ms = at_ms


def _end_late(
    ledger: Ledger, job: Job, task: Task, attempt: Attempt, change: c.Moved, at_ms: int
) -> None:
    """The attempt that a pending task has left had exited by itself: that, and not its stop, is its
    end.
    """
    _charge(task, attempt.charged_to, -1)
    _record_end(task, attempt, change, at_ms)
    _close(ledger, job, change.index, attempt, ended=change.ended, at_ms=at_ms)


def _record_end(task: Task, attempt: Attempt, change: c.Moved, at_ms: int) -> None:
    """Charge the end of an attempt, and store what it is known by."""
    failures = task.failure_count
    preemptions = task.preemption_count
    _charge(task, change.charged_to)
    attempt.failures = (failures, task.failure_count)
    attempt.preemptions = (preemptions, task.preemption_count)
    attempt.cause = change.cause
    attempt.initiator = change.initiator
    attempt.charged_to = change.charged_to
    attempt.shown = change.shown
    attempt.ended_ms = at_ms
    attempt.error = change.note
    attempt.suspect = change.suspect
    attempt.by = change.by
    attempt.doing = ""


def _charge(task: Task, budget: Budget | None, by: int = 1) -> None:
    if budget is Budget.FAILURE:
        task.failure_count += by
    elif budget is Budget.PREEMPTION:
        task.preemption_count += by
    elif budget is Budget.RESCHEDULE:
        task.reschedules += by
    elif budget is Budget.REQUEUE:
        task.requeue_count += by
    elif budget is Budget.RECLAIM:
        task.reclaim_count += by


def _close(
    ledger: Ledger, job: Job, index: int, attempt: Attempt, ended: Ended | None, at_ms: int
) -> None:
    if ended is not None:
        attempt.exit_code = ended.exit_code
        attempt.signal = ended.signal
        attempt.error = attempt.error or ended.error
        attempt.stderr_tail = ended.stderr_tail
        attempt.peak_rss_bytes = ended.peak_rss_bytes
        attempt.dropped_bytes = ended.dropped_bytes
        attempt.usage = ended.usage
        attempt.artifact = ended.artifact
        attempt.output_bytes = ended.output_bytes
    if attempt.status is KernelStatus.TERMINATING and job.session is None:
        ledger.stop_timeout(SINGLE[attempt.status], (job.number, index))
    attempt.status = (
        KernelStatus.ERROR if ended is None or ended.cause in _NO_EXIT else KernelStatus.TERMINATED
    )
    if not attempt.closed_ms:
        account(ledger, job, index, attempt, at_ms)
        if ended is not None:
            _store(ledger, job, ended, attempt.assigned_ms, at_ms=at_ms)
            if ended.output_bytes:
                ledger.end_output(attempt.worker, job.number, ended.output_bytes)
    attempt.since_ms = attempt.closed_ms = at_ms
    ledger.release(job, index, attempt)
    if attempt.worker in ledger.workers:
        ledger.workers[attempt.worker].last_end_ms = at_ms


def _store(ledger: Ledger, job: Job, ended: Ended, began_ms: int, at_ms: int) -> None:
    """Add what an attempt has stored to what its job holds, and its user has stored today."""
    artifact = ended.artifact
    kept = min(max(0, artifact.bytes), MOST_STORED) if artifact and artifact.upload else 0
    if kept or ended.output_bytes or ended.result_bytes:
        stored = StoredBytes(kept, ended.output_bytes, ended.result_bytes)
        ledger.store(job, stored)
        ledger.stored.count_today(job.user, stored.total, began_ms, at_ms)


def _show(
    ledger: Ledger,
    job: Job,
    index: int,
    state: TaskState,
    attempt: Attempt | None,
    cause: Cause | None,
    at_ms: int,
    by: Actor | None = None,
) -> None:
    """Set the task's state, update the counts, and append the public fact."""
    task = job.task(index)
    previous = task.state
    job.counts[previous] -= 1
    job.counts[state] += 1
    tally = ledger.tally[job.band]
    tally[previous] -= 1
    tally[state] += 1
    task.state = state
    exit_code, signal = (attempt.exit_code, attempt.signal) if attempt is not None else (None, None)
    lasted_ms = None
    if state is TaskState.ASSIGNED:
        lasted_ms = at_ms - task.queued_ms
    elif previous is TaskState.RUNNING and attempt is not None:
        lasted_ms = (attempt.ended_ms or at_ms) - attempt.started_ms
    minutes.count(ledger.totals.minutes, state, lasted_ms, at_ms)
    ledger.facts.append(
        Fact(
            entity="task",
            job=job,
            state=WORDS[state],
            previous=WORDS[previous],
            at_ms=at_ms,
            task=index,
            attempt=attempt,
            cause=cause,
            exit_code=exit_code,
            lasted_ms=lasted_ms,
            by=by,
            signal=signal,
        )
    )


WRITERS: dict[type, ChangeWriter] = {
    c.Assigned: counted(assigned),
    c.Staged: counted(staged),
    c.Moved: counted(moved),
    c.Closed: counted(closed),
    c.Requeued: requeued,
    c.GraceEnded: grace_ended,
    c.StopOrdered: stop_ordered,
    c.Noticed: noticed,
}
