"""Judgements: what they leave of a session's record, and the merged row of history. Source: semantics.md section 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from iris_core.states import SchedulingResult, SessionStatus
from iris_state import changes as c
from iris_state.records import HistoryEntry, Job, Session, Told

if TYPE_CHECKING:
    from iris_state.ledger import Ledger

HISTORY_KEPT = 1_000
"""Rows of history one job keeps; the oldest go first."""
_LOOK_BACK = 64
"""How far back an equal row of the same session is looked for among those of its job's other sessions."""


def moved(ledger: Ledger, change: c.SessionMoved, at_ms: int) -> None:
    """The stored status of a gang's session; its tries end with the status they were made in."""
    job = ledger.jobs[change.job]
    session = job.session
    assert session is not None
    before, key = session.status, (job.number, c.GANG)
    words = (before.value, change.status.value)
    remember(job, HistoryEntry(c.GANG, change.handler, *words, change.result, change.reason, 1, at_ms, at_ms))
    session.version += 1
    session.tries = {}
    if before is change.status:
        return
    ledger.leave_line(before, key)
    session.status, session.since_ms = change.status, at_ms
    ledger.enter_line(change.status, key, at_ms)
    told = (change.status.value.lower(), before.value.lower())
    ledger.told.append(Told("session", job, None, None, *told, None, at_ms))


def judged(ledger: Ledger, change: c.Judged, at_ms: int) -> None:
    """A judgement that moved nothing: history, and the handler's tries unless it was a skip."""
    job = ledger.jobs[change.job]
    of_plain_job = change.index == c.GANG and job.session is None
    status = SessionStatus.PENDING if of_plain_job else ledger.session_status(job, max(change.index, 0))
    words, times = (status.value, status.value), (change.since_ms or at_ms, at_ms)
    remember(
        job, HistoryEntry(change.index, change.handler, *words, change.result, change.reason, change.looks, *times)
    )
    if change.result is SchedulingResult.SKIPPED:
        return
    session = job.session
    if session is None:
        task = job.tasks[change.index]
        session = task.session = task.session or Session(status, at_ms)
    session.version += 1
    session.tries = {**session.tries, change.handler: change.tries}
    session.judged_at = change.version


def remember(job: Job, row: HistoryEntry) -> None:
    """Append a row, or count it into the last one of its session when that says the same."""
    last = last_row(job, row.index)
    if last is not None and last.says(row):
        last.attempts += row.attempts
        last.last_ms = row.last_ms
        return
    job.history.append(row)
    if len(job.history) > HISTORY_KEPT:
        del job.history[0]


def last_row(job: Job, index: int) -> HistoryEntry | None:
    """The newest row of one session."""
    if job.session is not None:
        return job.history[-1] if job.history else None
    return next((row for row in reversed(job.history[-_LOOK_BACK:]) if row.index == index), None)


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {c.SessionMoved: moved, c.Judged: judged}
