"""Jobs as people see them: one, a listing, a tree, why one waits, and its history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iris_core.reasons import NOT_YET_LOOKED_AT, Reason, run_before_ending, still_ending
from iris_core.states import TaskState, display_name
from iris_core.views import HistoryRow, JobView, Page, TreeView, moment
from iris_state.answers import interruptions
from iris_state.answers.pages import behind, found_job, found_task, page
from iris_state.history import rows_of
from iris_state.ledger import Ledger
from iris_state.masking import masked
from iris_state.records import Job, Task


def job_view(ledger: Ledger, record: Job) -> JobView:
    parent = ledger.jobs.get(record.parent)
    head, _, _ = record.name.rpartition("/")
    return JobView(
        id=record.id,
        name=record.name,
        state=display_name(record.state),
        user=record.user,
        band=display_name(record.band),
        replicas=len(record.tasks),
        spec=masked(record.spec),
        parent=parent.name if parent is not None else head or None,
        submitted_at=moment(record.submitted_ms),
        root_submitted_at=moment(record.root_submitted_ms),
        started_at=moment(record.started_ms),
        finished_at=moment(record.finished_ms),
        error=record.error or None,
        task_counts={display_name(state): n for state, n in record.counted().items()},
        pending_reason=reason_of(ledger, record),
        children=len(record.children),
        coscheduled=record.is_gang,
        cause=record.cause.value if record.cause is not None else None,
        interrupted=interruptions.of_job(ledger, record),
    )


def reason_of(ledger: Ledger, record: Job) -> Reason | None:
    """Why the waiting tasks of a job wait; None when none does."""
    if record.is_terminal or not record.counts[TaskState.PENDING]:
        return None
    if len(ledger.queue.pending(record.number)):
        return ledger.reasons.get(record.number, NOT_YET_LOOKED_AT)
    return _reason_outside_the_queue(ledger, record, [task for task in record.tasks if task.state is TaskState.PENDING])


def reason_of_task(ledger: Ledger, record: Job, index: int) -> Reason | None:
    """Why one task waits; None when it does not."""
    task = record.tasks[index]
    if task.state is not TaskState.PENDING:
        return None
    if record.is_gang or (record.number, index) in ledger.queue:
        return reason_of(ledger, record)
    return _reason_outside_the_queue(ledger, record, [task])


def _reason_outside_the_queue(ledger: Ledger, record: Job, waiting: Iterable[Task]) -> Reason:
    before = _open_on(task for run in ledger.ending_runs(record) for task in run.tasks)
    if before:
        return run_before_ending(before)
    ending = _open_on(waiting)
    return still_ending(ending) if ending else ledger.reasons.get(record.number, NOT_YET_LOOKED_AT)


def _open_on(tasks: Iterable[Task]) -> list[str]:
    return sorted({attempt.worker for task in tasks for attempt in task.attempts if attempt.is_open})


def jobs(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """Newest first."""
    after = behind(arguments)
    rows = (
        (number, ledger.jobs[number])
        for number in reversed(ledger.jobs)
        if (after is None or number < after) and _wanted(ledger.jobs[number], arguments)
    )
    return page(rows, lambda record: job_view(ledger, record), arguments)


def _wanted(record: Job, arguments: dict[str, Any]) -> bool:
    return (
        arguments.get("state") in (None, "", display_name(record.state))
        and arguments.get("user") in (None, "", record.user)
        and arguments.get("band") in (None, "", display_name(record.band))
        and record.name.startswith(str(arguments.get("name_prefix") or ""))
    )


def tree(ledger: Ledger, arguments: dict[str, Any]) -> TreeView:
    return _subtree(ledger, found_job(ledger, arguments))


def _subtree(ledger: Ledger, record: Job) -> TreeView:
    children = [ledger.jobs[number] for number in record.children if number in ledger.jobs]
    return TreeView(job=job_view(ledger, record), children=[_subtree(ledger, child) for child in children])


def why(ledger: Ledger, arguments: dict[str, Any]) -> dict[str, Any]:
    """Why a job's or task's waiting tasks wait, and what stands before them."""
    if arguments.get("task"):
        record, index = found_task(ledger, arguments)
        reason, interrupted = reason_of_task(ledger, record, index), interruptions.of_tasks(record, [index])
    else:
        record = found_job(ledger, arguments)
        index, reason = _first_that_waits(ledger, record), reason_of(ledger, record)
        interrupted = interruptions.of_job(ledger, record)
    in_line = (record.number, index) in ledger.queue
    return {
        "job": record.name,
        "task": f"{record.name}/{index}",
        "state": display_name(record.tasks[index].state),
        "job_state": display_name(record.state),
        "pending_tasks": record.counts[TaskState.PENDING],
        "pending_reason": reason,
        "ahead": ledger.queue.position(record.number, index) if in_line else None,
        "error": record.error or None,
        "replicas": len(record.tasks),
        "task_counts": {display_name(state): n for state, n in record.counted().items()},
        "interrupted": interrupted,
        "history": rows_of(ledger, record)[-20:],
    }


def _first_that_waits(ledger: Ledger, record: Job) -> int:
    """In the queue or, when none is, anywhere; the first task when none waits."""
    pending = ledger.queue.pending(record.number)
    if len(pending):
        return pending[0]
    if not record.counts[TaskState.PENDING]:
        return 0
    return next(index for index, task in enumerate(record.tasks) if task.state is TaskState.PENDING)


def history(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    rows: list[HistoryRow] = rows_of(ledger, found_job(ledger, arguments))
    after = behind(arguments)
    start = 0 if after is None else after + 1
    return page(list(enumerate(rows))[start:], lambda row: row, arguments)
