"""Applies judgements to a session's record and merges them into rows of its history.

Source: docs/design/semantics.md#rules-and-judgement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_core.states import SchedulingResult, SessionStatus
from iris_state.records import changes as c
from iris_state.records.entities import Fact, HistoryEntry, Job, Session
from iris_state.records.ledger import Ledger

HISTORY_KEPT = 1_000
"""Rows of history kept for one job; the oldest are deleted first."""


def moved(ledger: Ledger, change: c.SessionMoved, at_ms: int) -> None:
    """Set the stored status of a gang's session, which resets its tries."""
    job = ledger.jobs[change.job]
    session = job.session
    assert session is not None
    before = session.status
    key = (job.number, c.GANG)
    row = HistoryEntry(
        index=c.GANG,
        handler=change.handler,
        from_status=before.value,
        to_status=change.status.value,
        result=change.result,
        reason=change.reason,
        attempts=1,
        first_ms=at_ms,
        last_ms=at_ms,
        by=change.by,
    )
    remember(ledger, job, row)
    session.version += 1
    session.tries = {}
    if before is change.status:
        return
    ledger.stop_timeout(before, key)
    session.status = change.status
    session.since_ms = at_ms
    if change.status is SessionStatus.PREPARED:
        session.begun_ms = at_ms
    for index, task in job.numbered() if change.status is SessionStatus.RUNNING else ():
        if task.current is not None:
            ledger.watch(job, index, task.current)
    ledger.start_timeout(change.status, key, at_ms)
    ledger.facts.append(
        Fact(
            entity="session",
            job=job,
            state=change.status.value.lower(),
            previous=before.value.lower(),
            at_ms=at_ms,
            by=change.by,
        )
    )


def judged(ledger: Ledger, change: c.Judged, at_ms: int) -> None:
    """Record a judgement that keeps the stored status: history, and the handler's tries unless it
    was skipped.
    """
    job = ledger.jobs[change.job]
    of_plain_job = change.index == c.GANG and job.session is None
    status = (
        SessionStatus.PENDING if of_plain_job else ledger.session_status(job, max(change.index, 0))
    )
    row = HistoryEntry(
        index=change.index,
        handler=change.handler,
        from_status=status.value,
        to_status=(change.to_status or status).value,
        result=change.result,
        reason=change.reason,
        attempts=change.looks,
        first_ms=change.since_ms or at_ms,
        last_ms=at_ms,
    )
    remember(ledger, job, row)
    over = job.session is None and change.to_status is SessionStatus.TERMINATED
    if change.result is SchedulingResult.SKIPPED:
        return
    session = job.session
    if session is None:
        task = job.task(change.index)
        session = task.session = task.session or Session(status, at_ms)
    if over:
        session.status = SessionStatus.TERMINATED
        ledger.stop_timeout(status, (job.number, change.index))
    session.version += 1
    session.tries = {**session.tries, change.handler: change.tries}
    session.judged_at = change.version


def remember(ledger: Ledger, job: Job, row: HistoryEntry) -> None:
    """Append a row of history, or count it into the session's last row when that is equal."""
    newest = _newest(ledger, job)
    last = newest.get(row.index)
    if last is not None and last.says(row):
        last.attempts += row.attempts
        last.last_ms = row.last_ms
        return
    job.history.append(row)
    newest[row.index] = row
    if len(job.history) > HISTORY_KEPT:
        oldest = job.history.pop(0)
        if newest[oldest.index] is oldest:
            del newest[oldest.index]


def last_row(ledger: Ledger, job: Job, index: int) -> HistoryEntry | None:
    """The newest row of one session."""
    return _newest(ledger, job).get(index)


def _newest(ledger: Ledger, job: Job) -> dict[int, HistoryEntry]:
    """The newest row of each session of a job: an index over its history, built on first use."""
    found = ledger.newest_rows.get(job.number)
    if found is None:
        found = ledger.newest_rows[job.number] = {row.index: row for row in job.history}
    return found


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {c.SessionMoved: moved, c.Judged: judged}
