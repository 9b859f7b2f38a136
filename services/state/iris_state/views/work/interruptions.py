"""Why a task is not running any more: its end, or that of its last attempt, as text for users."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from iris_core.states import TERMINAL, Budget, Cause, TaskState
from iris_core.views.jobs import InterruptionView, moment
from iris_state.decide.cascade import end_of_process
from iris_state.records.entities import Attempt, Job, Task
from iris_state.records.ledger import Ledger

_LOOKED_AT = 256
"""Tasks of a job that are examined, which bounds the cost for large jobs."""

_FOLLOWED = frozenset({Cause.COSCHEDULED_RESTART, Cause.COSCHEDULED_SIBLING})
"""Causes of members that ended only because another member of their gang did."""

_MESSAGES = {
    Cause.WORKER_LOST: "its worker {0.worker} was lost",
    Cause.WORKER_CRASHED: "the worker process on {0.worker} ended while it ran",
    Cause.MISSING: "worker {0.worker} no longer knew it",
    Cause.UNDELIVERED: "worker {0.worker} could not be reached",
    Cause.HANDED_BACK: "it was not started on {0.worker}, because the call before it takes long",
    Cause.FAILED: "failed on {0.worker} with exit code {0.exit_code}",
}


def of_job(ledger: Ledger, record: Job) -> InterruptionView | None:
    """The latest interruption of a job; None while no pending task of it was ever placed."""
    if record.is_terminal or not record.is_waiting:
        return None
    queued = ledger.queue.pending(record.number)
    return of_tasks(record, chain(islice(queued, _LOOKED_AT), islice(record.indexes, _LOOKED_AT)))


def of_tasks(record: Job, indexes: Iterable[int]) -> InterruptionView | None:
    """The latest end of an attempt among the pending ones of these tasks."""
    ended = [
        (index, task.attempts[-1])
        for index in indexes
        if (task := record.task(index)).attempts and task.state is TaskState.PENDING
    ]
    if not ended:
        return None
    index, attempt = max(
        ended, key=lambda one: (one[1].cause not in _FOLLOWED, one[1].ended_ms, -one[0])
    )
    return InterruptionView(
        task=f"{record.name}/{index}",
        cause=attempt.cause.value if attempt.cause is not None else None,
        message=_message(attempt),
        worker=attempt.worker,
        at=moment(attempt.ended_ms),
    )


def error_of(task: Task) -> str:
    """The error of a task's end, or of its last attempt."""
    if task.note or not task.attempts or task.state is TaskState.SUCCEEDED:
        return task.note
    return task.attempts[-1].error


def end_of_task(record: Job, index: int) -> str:
    """Why a task ended without success; empty for any other. One that ended because its job did has
    the job's error.
    """
    task = record.task(index)
    if task.state not in TERMINAL or task.state is TaskState.SUCCEEDED:
        return ""
    if task.cause in (Cause.JOB_ENDED, Cause.PARENT_ENDED):
        return record.error
    process = (
        end_of_process(task.attempts[-1] if task.attempts else None)
        if task.state is TaskState.FAILED
        else ""
    )
    return (
        error_of(task)
        or process
        or (task.cause.value.replace("_", " ") if task.cause is not None else "")
    )


def _message(attempt: Attempt) -> str:
    if (
        attempt.charged_to is Budget.REQUEUE
        and attempt.exit_code is not None
        and attempt.cause is Cause.FAILED
    ):
        return f"it asked to be requeued on {attempt.worker} with exit code {attempt.exit_code}"
    if attempt.cause in _MESSAGES and not (
        attempt.cause is Cause.FAILED and attempt.exit_code is None
    ):
        return _MESSAGES[attempt.cause].format(attempt)
    words = attempt.cause.value.replace("_", " ") if attempt.cause is not None else "ended"
    return attempt.error or f"{words} on {attempt.worker}"
