"""Applies changes of jobs: admission, progress of their tasks, deletion. Source: docs/design/semantics.md#jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_core.names import JobName
from iris_core.states import JobState, TaskState, display_name
from iris_state.records import changes as c
from iris_state.records.entities import Fact, Job, Session, Task, idempotency
from iris_state.records.ledger import Ledger


def admitted(ledger: Ledger, change: c.JobAdmitted, at_ms: int) -> None:
    """Add a job with all its tasks, which are pending."""
    spec = change.spec
    counts = [0] * len(TaskState)
    counts[TaskState.PENDING] = spec.task_count
    job = Job(
        number=change.number,
        name=change.name,
        spec=spec,
        user=change.user,
        band=spec.priority_band,
        depth=JobName.from_string(change.name).depth,
        submitted_ms=change.submitted_ms,
        root_submitted_ms=change.root_submitted_ms,
        parent=change.parent,
        tasks=[Task(queued_ms=change.submitted_ms) for _ in range(spec.task_count)],
        counts=counts,
        session=Session(since_ms=change.submitted_ms) if spec.is_gang else None,
        idempotency_key=change.idempotency_key,
        traceparent=change.traceparent,
        rerun_of=change.rerun_of,
        by=change.by,
    )
    ledger.next_number = max(ledger.next_number, change.number + 1)
    ledger.totals.admitted += 1
    ledger.index_job(job)
    ledger.index.add(job)
    ledger.count_tasks(job, 1)
    if change.idempotency_key:
        ledger.idempotency[idempotency(change.user, change.idempotency_key)] = change.number
    first, count = job.indexes[0], spec.task_count
    ledger.facts.append(Fact("task", job, first, None, "pending", None, None, at_ms, tasks=count, by=change.by))
    ledger.facts.append(Fact("job", job, None, None, "pending", None, None, at_ms, by=change.by))
    if job.session is not None:
        ledger.facts.append(Fact("session", job, None, None, "pending", None, None, at_ms, by=change.by))


def moved(ledger: Ledger, change: c.JobMoved, at_ms: int) -> None:
    """Set the derived state; the first RUNNING is the job's start, a terminal one its end."""
    job = ledger.jobs[change.job]
    previous, job.state = job.state, change.state
    ledger.index.move(job, previous)
    if change.state is JobState.RUNNING:
        job.started_ms = job.started_ms or at_ms
    if job.is_terminal:
        job.finished_ms, job.cause, job.error = at_ms, change.cause, change.error
        job.ended_by = change.by
        ledger.timers.clear(("scheduling", job.number, 0))
        ledger.held_back.discard(job.number)
        ledger.drop_reason(job)
        ledger.looks.pop(job.number, None)
    words = display_name(change.state), display_name(previous)
    ledger.facts.append(Fact("job", job, None, None, *words, change.cause, at_ms, by=change.by))


def pruned(ledger: Ledger, change: c.JobPruned, at_ms: int) -> None:
    """Delete a job; its counts are kept, and for a while the job number of its idempotency key."""
    job = ledger.jobs[change.job]
    totals = ledger.totals
    totals.pruned += 1
    _add(totals.jobs, display_name(job.state), 1)
    for state, n in job.counted().items():
        _add(totals.tasks, display_name(state), n)
    key = idempotency(job.user, job.idempotency_key)
    if job.idempotency_key and ledger.idempotency.get(key) == job.number:
        ledger.spend_key(key, at_ms)
    ledger.forget_job(job)


def _add(counts: dict[str, int], name: str, n: int) -> None:
    counts[name] = counts.get(name, 0) + n


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {
    c.JobAdmitted: admitted,
    c.JobMoved: moved,
    c.JobPruned: pruned,
}
