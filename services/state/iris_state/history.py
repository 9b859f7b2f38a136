"""A job's history as people read it: the judgements that were kept, and those that follow from attempts' times.

A session of one that went straight through has no row of its own: its SUCCESS rows are worded here from the times
on its attempts. History is shown and decides nothing. Source: semantics.md section 3 "History".
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.states import Cause, SchedulingResult, SessionStatus
from iris_core.tables import session as table
from iris_core.views import HistoryRow, moment
from iris_state.changes import GANG
from iris_state.ledger import Ledger
from iris_state.records import Attempt, HistoryEntry, Job

Timed = tuple[int, HistoryRow]


def rows_of(ledger: Ledger, job: Job) -> list[HistoryRow]:
    """Every judgement about the sessions of a job, oldest first."""
    rows = [_stored(job, entry) for entry in job.history]
    if not job.is_gang:
        for index, task in enumerate(job.tasks):
            for attempt in task.attempts:
                rows.extend(_straight(job, index, attempt))
            if task.cause is Cause.SCHEDULING_TIMEOUT:
                rows.append(_never_placed(job, index, task.note))
    return [row for _, row in sorted(rows, key=lambda timed: timed[0])]


def entity(job: Job, index: int) -> str:
    """The public id of a session."""
    return job.id if index == GANG else f"{job.id}-{index}"


def _stored(job: Job, entry: HistoryEntry) -> Timed:
    return entry.first_ms, HistoryRow(
        entity=entity(job, entry.index),
        handler=entry.handler,
        from_status=entry.from_status.lower(),
        to_status=entry.to_status.lower(),
        result=entry.result.value,
        reason=entry.reason,
        attempts=entry.attempts,
        first_at=moment(entry.first_ms),
        last_at=moment(entry.last_ms),
    )


def _never_placed(job: Job, index: int, why: str) -> Timed:
    entry = HistoryEntry(
        index,
        table.SCHEDULE.name,
        SessionStatus.PENDING.value,
        SessionStatus.CANCELLED.value,
        SchedulingResult.EXPIRED,
        why,
        1,
        job.finished_ms,
        job.finished_ms,
    )
    return _stored(job, entry)


def _straight(job: Job, index: int, attempt: Attempt) -> Iterator[Timed]:
    """The rows that the times on one attempt tell."""
    built = "preparing" if attempt.building_ms else "scheduled"
    reached = "running" if attempt.started_ms else built
    why = attempt.cause.value if attempt.cause is not None else ""
    steps = (
        (attempt.assigned_ms, table.SCHEDULE.name, "pending", "scheduled", ""),
        (attempt.building_ms, table.PREPARE.name, "scheduled", "preparing", ""),
        (attempt.started_ms, table.PROMOTE_TO_RUNNING.name, built, "running", ""),
        (attempt.ended_ms, table.DETECT_TERMINATION.name, reached, "terminating", why),
        (attempt.closed_ms, table.PROMOTE_TO_TERMINATED.name, "terminating", "terminated", ""),
    )
    for at_ms, handler, before, after, reason in steps:
        if at_ms:
            row = HistoryEntry(index, handler, before, after, SchedulingResult.SUCCESS, reason, 1, at_ms, at_ms)
            yield _stored(job, row)
