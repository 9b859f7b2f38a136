"""Applies changes of open jobs: further calls, and the end of that. Source:
docs/design/semantics.md#jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from iris_core.states import TaskState
from iris_state.records import changes as c
from iris_state.records.apply.jobs import tell_pending
from iris_state.records.entities import Task
from iris_state.records.gates import WHOLE
from iris_state.records.ledger import Ledger
from iris_state.records.weight import memory_of


def grown(ledger: Ledger, change: c.JobGrown, at_ms: int) -> None:
    """Add pending tasks behind those that a job has."""
    job = ledger.jobs[change.job]
    first = len(job.tasks)
    count = change.tasks
    assert job.spec.calls is not None
    calls = job.spec.calls.with_more(change.segments, change.firsts, change.calls)
    job.spec = msgspec.structs.replace(job.spec, replicas=first + count, calls=calls)
    job.tasks = [*job.tasks, *(Task(queued_ms=at_ms) for _ in range(count))]
    ledger.weigh(job, ledger.written[job.number] + memory_of((change.segments, change.firsts)))
    job.grown_ms = at_ms
    for index in range(first, first + count):
        job.counts[TaskState.PENDING] += 1
        ledger.tally[job.band][TaskState.PENDING] += 1
        ledger.wait_for_place(job, index)
    ledger.timers.start_idle(job)
    if count:
        ledger.timers.start_scheduling(job, range(first, first + count))
        tell_pending(ledger, "task", job, at_ms, by=change.by, first=first, count=count)


def closed(ledger: Ledger, change: c.JobClosed, at_ms: int) -> None:
    """A job takes no further calls."""
    job = ledger.jobs[change.job]
    job.open = False
    job.note = change.note
    ledger.timers.clear(("idle", job.number, WHOLE))


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {c.JobGrown: grown, c.JobClosed: closed}
