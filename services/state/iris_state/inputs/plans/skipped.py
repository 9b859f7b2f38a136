"""Counts how often pending jobs are skipped, and records it in their history. It decides nothing.

A new kind of reason is recorded at once. While the kind stays the same its numbers may change with
every cycle; those cycles are counted and recorded at intervals, with the text of the first. Source:
docs/design/semantics.md#rules-and-judgement.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.messages.scheduler_state import JobReason
from iris_core.states import SchedulingResult
from iris_core.tables.session import SCHEDULE
from iris_state.records.apply.sessions import last_row
from iris_state.records.changes import GANG, Judged
from iris_state.records.entities import HistoryEntry, Job
from iris_state.records.ledger import Ledger

EVERY_MS = 10_000
"""The shortest interval between recorded skips with one kind of reason, per job, in ms."""


def record_reason(ledger: Ledger, job: Job, update: JobReason, now_ms: int) -> Iterator[Judged]:
    """Store a pending job's reason and count the skip; yields the judgements to record."""
    before = ledger.reasons.get(job.number)
    row = _waiting_row(ledger, job)
    ledger.keep_reason(job, update.reason)
    looks = ledger.looks.pop(job.number, 0)
    if row is not None and before is not None and before.code is update.reason.code:
        looks += update.looks
        if now_ms - row.last_ms < EVERY_MS:
            ledger.looks[job.number] = looks
        else:
            yield _judged(job, row.reason, looks)
        return
    if row is not None and looks:
        yield _judged(job, row.reason, looks)
    yield _judged(job, update.reason.message, update.looks, update.since_ms)


def _waiting_row(ledger: Ledger, job: Job) -> HistoryEntry | None:
    row = last_row(ledger, job, GANG)
    return row if row is not None and row.result is SchedulingResult.SKIPPED else None


def _judged(job: Job, words: str, looks: int, since_ms: int = 0) -> Judged:
    return Judged(
        job.number,
        GANG,
        SCHEDULE.name,
        SchedulingResult.SKIPPED,
        reason=words,
        looks=looks,
        since_ms=since_ms,
    )
