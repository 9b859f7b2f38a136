"""Applies changes of jobs: admission, progress of their tasks, deletion. Source:
docs/design/semantics.md#jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from iris_core.access.actor import Actor
from iris_core.admission.amendments import changes_in_words
from iris_core.names import JobName
from iris_core.spec.jobs import JobSpec
from iris_core.states import (
    JOB_TERMINAL,
    JobState,
    KernelStatus,
    SchedulingResult,
    SessionStatus,
    TaskState,
    display_name,
)
from iris_state.records import changes as c
from iris_state.records.apply.sessions import remember
from iris_state.records.entities import (
    Fact,
    HistoryEntry,
    Job,
    Session,
    Task,
    has_budget_left,
    idempotency,
)
from iris_state.records.facts import AmendmentFact
from iris_state.records.gates import BACKOFF, WHOLE, GateKind
from iris_state.records.indexes.index import fields_of
from iris_state.records.indexes.usage_days import PROJECT
from iris_state.records.ledger import Ledger
from iris_state.records.weight import written


def admitted(ledger: Ledger, change: c.JobAdmitted, at_ms: int) -> None:
    """Add a job with all its tasks, which are pending."""
    spec = change.spec
    counts = [0] * len(TaskState)
    counts[TaskState.PENDING] = spec.task_count
    closed = sum(gate.bit for gate in change.gates if gate.each)
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
        tasks=[Task(queued_ms=change.submitted_ms, gates=closed) for _ in range(spec.task_count)],
        counts=counts,
        session=Session(since_ms=change.submitted_ms) if spec.is_gang else None,
        idempotency_key=change.idempotency_key,
        traceparent=change.traceparent,
        rerun_of=change.rerun_of,
        by=change.by,
        gates=change.gates,
        open=spec.grows,
        grown_ms=at_ms if spec.grows else 0,
        lineage=change.lineage,
    )
    ledger.next_number = max(ledger.next_number, change.number + 1)
    ledger.totals.admitted += 1
    ledger.index_job(job)
    ledger.index.add(job)
    ledger.count_tasks(job, 1)
    if change.idempotency_key:
        ledger.idempotency[idempotency(change.user, change.idempotency_key)] = change.number
    tell_pending(
        ledger, "task", job, at_ms, by=change.by, first=job.indexes[0], count=spec.task_count
    )
    tell_pending(ledger, "job", job, at_ms, by=change.by)
    if job.session is not None:
        tell_pending(ledger, "session", job, at_ms, by=change.by)


def tell_pending(
    ledger: Ledger,
    entity: str,
    job: Job,
    at_ms: int,
    *,
    by: Actor | None,
    first: int | None = None,
    count: int = 1,
) -> None:
    """Append the fact that a job, its session, or so many of its tasks from ``first`` on begin."""
    ledger.facts.append(
        Fact(
            entity=entity,
            job=job,
            state="pending",
            previous=None,
            at_ms=at_ms,
            task=first,
            tasks=count,
            by=by,
        )
    )


def moved(ledger: Ledger, change: c.JobMoved, at_ms: int) -> None:
    """Set the derived state; the first RUNNING is the job's start, a terminal one its end."""
    job = ledger.jobs[change.job]
    previous = job.state
    job.state = change.state
    ledger.index.move(job, previous)
    if change.state is JobState.RUNNING:
        job.started_ms = job.started_ms or at_ms
    if job.is_terminal:
        if previous not in JOB_TERMINAL:
            ledger.end_weight(job)
        job.finished_ms = at_ms
        job.cause = change.cause
        job.error = change.error
        job.ended_by = change.by
        ledger.timers.stop_scheduling(job)
        if job.open:
            job.open = False
            ledger.timers.clear(("idle", job.number, WHOLE))
        if job.gates:
            ledger.gates.remove(job, job.gates)
            ledger.timers.clear(("gate", job.number, WHOLE))
        if job.spec.singleton and not ledger.open_of_job[job.number]:
            ledger.gates.end_singleton(job)
        ledger.held_back.discard(job.number)
        ledger.retimed.discard(job.number)
        ledger.drop_reason(job)
        ledger.looks.pop(job.number, None)
    if job.number in ledger.gates.waiters and job.is_terminal:
        ledger.gates.note_job(job.number)
    ledger.facts.append(
        Fact(
            entity="job",
            job=job,
            state=display_name(change.state),
            previous=display_name(previous),
            at_ms=at_ms,
            cause=change.cause,
            by=change.by,
        )
    )


def gates_opened(ledger: Ledger, change: c.GatesOpened, at_ms: int) -> None:
    """Open a gate, as a whole or for some tasks, and queue the tasks for which no other one is
    closed.
    """
    job = ledger.jobs[change.job]
    indexes = [index for start, stop in change.ranges for index in range(start, stop)]
    if change.gate == BACKOFF:
        for index in indexes:
            ledger.delay(job, index, 0)
            ledger.enqueue(job, index)
        return
    gate = next(gate for gate in job.gates if gate.number == change.gate)
    for index in indexes:
        job.task(index).gates &= ~gate.bit
    if indexes:
        ledger.gates.left[job.number, gate.number] -= len(indexes)
    if gate.hold:
        job.gates = tuple(one for one in job.gates if one is not gate)
        ledger.gates.remove(job, (gate,))
    elif not indexes or not ledger.gates.left[job.number, gate.number]:
        opened = msgspec.structs.replace(gate, opened_ms=at_ms)
        job.gates = tuple(opened if one is gate else one for one in job.gates)
        ledger.gates.remove(job, (opened,))
    if gate.kind is GateKind.NOT_BEFORE:
        ledger.timers.clear(("gate", job.number, WHOLE))
    become_eligible(ledger, job, at_ms, indexes)


def amended(ledger: Ledger, change: c.JobAmended, at_ms: int) -> None:
    """Set what a job waits for and is; its pending tasks enter or leave the queue by that, or move
    in it.
    """
    job = ledger.jobs[change.job]
    was_gated = job.is_gated
    before = job.gates
    ledger.timers.stop_scheduling(job)
    changes = _changes_in_words(job, change)
    _remember(ledger, job, change, changes, at_ms=at_ms)
    ledger.facts.append(AmendmentFact(job, display_name(job.state), changes, at_ms, by=change.by))
    kept = {gate.number for gate in change.gates}
    dropped = sum(gate.bit for gate in before if gate.each and gate.number not in kept)
    job.version += 1
    if change.spec != job.spec:
        _specify(ledger, job, change.spec)
    job.gates = change.gates
    for task in job.tasks if dropped else ():
        task.gates &= ~dropped
    ledger.gates.remove(job, before)
    ledger.gates.add(job)
    if job.is_gated:
        suspend(ledger, job)
    elif was_gated or dropped:
        become_eligible(ledger, job, at_ms)
    else:
        ledger.timers.start_scheduling(job)


AMEND = "AmendJob"
"""In place of a handler, in the history of a job that somebody has changed."""


def _changes_in_words(job: Job, change: c.JobAmended) -> tuple[str, ...]:
    """What changes of a job, for a person."""
    before, after = (
        {gate for gate in gates if gate.is_closed} for gates in (job.gates, change.gates)
    )
    words = changes_in_words(job.spec, change.spec)
    words += [
        f"held: {gate.reason}".removesuffix(": ")
        for gate in after - before
        if gate.kind is GateKind.HELD
    ]
    words += ["released" for gate in before - after if gate.kind is GateKind.HELD]
    if any(gate.kind is GateKind.DEPENDENCY for gate in before - after):
        words.append("waits for no other job")
    return tuple(words)


def _remember(
    ledger: Ledger, job: Job, change: c.JobAmended, changes: Sequence[str], at_ms: int
) -> None:
    """Add what changes to the job's history."""
    status = job.session.status if job.session is not None else SessionStatus.PENDING
    row = HistoryEntry(
        index=c.GANG,
        handler=AMEND,
        from_status=status.value,
        to_status=status.value,
        result=SchedulingResult.SUCCESS,
        reason="; ".join(changes),
        attempts=1,
        first_ms=at_ms,
        last_ms=at_ms,
        by=change.by,
    )
    remember(ledger, job, row)


def _specify(ledger: Ledger, job: Job, spec: JobSpec) -> None:
    """Set a job's specification; its place in the queue, its timeouts and its place in listings
    follow from it.
    """
    ledger.drop_reason(job)
    ledger.count_tasks(job, -1)
    listed = set(fields_of(job))
    retimed = spec.timeout_s != job.spec.timeout_s
    job.spec = spec
    job.band = spec.priority_band
    ledger.count_tasks(job, 1)
    ledger.index.relist(job, listed)
    ledger.weigh(job, written(spec, ledger.index))
    ledger.running_usage.move(job, spec.labels.get(PROJECT, ""))
    if len(ledger.queue.pending(job.number)):
        ledger.queue.move(job.number, ledger.key_of(job))
    if retimed:
        job.retimed = True
        ledger.retimed.add(job.number)
    for index, task in job.numbered():
        if retimed:
            ledger.timers.clear(("timeout", job.number, index))
        if retimed and task.current is not None and task.current.status is KernelStatus.RUNNING:
            ledger.watch(job, index, task.current)
        if task.is_terminal:
            task.no_retry = has_budget_left(job, task, task.state)


def suspend(ledger: Ledger, job: Job) -> None:
    """Take the pending tasks of a job out of the queue, and withdraw what is nominated for them."""
    ledger.queue.drop(job.number)
    ledger.drop_reason(job)
    for key in [key for key in ledger.nominations if key[0] == job.number]:
        del ledger.nominations[key]


def become_eligible(ledger: Ledger, job: Job, at_ms: int, indexes: Sequence[int] = ()) -> None:
    """Queue the pending tasks of a job, or some of them, that no gate keeps out of the queue now;
    they wait since now.
    """
    if job.is_gated:
        return
    job.eligible_ms = at_ms
    waiting = [
        (index, task)
        for index, task in (
            ((index, job.task(index)) for index in indexes) if indexes else job.numbered()
        )
        if task.state is TaskState.PENDING and not task.is_gated
    ]
    for _, task in waiting:
        task.queued_ms = at_ms
    if job.started_ms or indexes:
        for index, _ in waiting:
            ledger.enqueue(job, index)
    else:
        ledger.enqueue_new(job)
    ledger.timers.start_scheduling(job, indexes)


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
        ledger.spent_keys.spend(key, at_ms)
    ledger.forget_job(job)


def evicted(ledger: Ledger, change: c.Evicted, at_ms: int) -> None:
    """Keep that something was deleted of what a job has stored."""
    ledger.evict(ledger.jobs[change.job], change.bytes)


def _add(counts: dict[str, int], name: str, n: int) -> None:
    counts[name] = counts.get(name, 0) + n


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {
    c.JobAdmitted: admitted,
    c.JobMoved: moved,
    c.GatesOpened: gates_opened,
    c.JobAmended: amended,
    c.JobPruned: pruned,
    c.Evicted: evicted,
}
