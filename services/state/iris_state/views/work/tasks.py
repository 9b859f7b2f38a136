"""Views of tasks and their attempts."""

from __future__ import annotations

from itertools import groupby

from iris_core import codec
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import LiveUsage
from iris_core.states import Budget, TaskState, display_name
from iris_core.views.jobs import (
    ArtifactView,
    AttemptPage,
    AttemptView,
    Page,
    TaskStatesView,
    TaskView,
    moment,
)
from iris_core.views.queries import AttemptsQuery, TasksQuery, TaskStatesQuery
from iris_state.records.entities import Attempt, Job, Task, ended_waiting
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_job, known_task
from iris_state.views.actors import actor_view
from iris_state.views.pages import MAX_TEXT, Piece, Pieces, behind, page, shortened, whole
from iris_state.views.work.interruptions import error_of
from iris_state.views.work.jobs import note_of_task, reason_of_task
from iris_state.views.work.notices import notice_views

ATTEMPT_BYTES = 1 << 18
"""Bytes of the newest attempts shown for a task, as JSON; `attempts` has all."""


def task_view(ledger: Ledger, record: Job, index: int) -> TaskView:
    task = record.task(index)
    last = task.attempts[-1] if task.attempts else None
    return TaskView(
        task=f"{record.name}/{index}",
        job=record.name,
        index=index,
        state=display_name(task.state),
        pending_reason=reason_of_task(ledger, record, index),
        failure_count=task.failure_count,
        preemption_count=task.preemption_count,
        requeue_count=task.requeue_count,
        reclaim_count=task.reclaim_count,
        worker=last.worker if last is not None and task.state is not TaskState.PENDING else None,
        attempts=_newest(ledger, record, index),
        exit_code=last.exit_code if last is not None else None,
        signal=last.signal if last is not None else None,
        error=shortened(error_of(task), MAX_TEXT) or None,
        cause=task.cause.value if task.cause is not None else None,
        no_retry=task.no_retry,
        note=note_of_task(ledger, record, task),
        attempt_count=len(task.attempts),
        rerun_of=_original(ledger, record, index),
        id=f"{record.id}/{index}",
        job_id=record.id,
        user=record.user,
        by=actor_view(task.by),
        levels=_levels(ledger, record, last)
        if last is not None and task.state is not TaskState.PENDING
        else {},
        output_evicted_bytes=record.evicted.output,
    )


def _levels(ledger: Ledger, record: Job, attempt: Attempt) -> dict[str, str]:
    """What the worker has of each level that a gang is placed by; a level that it lacks is left
    out.
    """
    gang = record.spec.coscheduling
    worker = ledger.workers.get(attempt.worker)
    if gang is None or worker is None:
        return {}
    return {
        level.key: str(value)
        for level in gang.several
        if (value := worker.attributes.get(level.key)) is not None
    }


def _original(ledger: Ledger, record: Job, index: int) -> str | None:
    """The task that a task of a rerun repeats, while that is kept."""
    before = ledger.jobs.get(record.rerun_of)
    return f"{before.id}/{index}" if before is not None and before.has(index) else None


def _newest(ledger: Ledger, record: Job, index: int) -> list[AttemptView]:
    """The newest attempts that fit, oldest first; always the last one."""
    shown: list[AttemptView] = []
    left = ATTEMPT_BYTES
    for attempt in reversed(record.task(index).attempts):
        view = attempt_view(record.task(index), attempt, _live(ledger, record, index, attempt))
        left -= len(codec.to_json(view))
        if shown and left < 0:
            break
        shown.append(view)
    return shown[::-1]


def _live(ledger: Ledger, record: Job, index: int, attempt: Attempt) -> LiveUsage | None:
    """What an open attempt uses, as of its host's newest heartbeat."""
    presence = ledger.presence.get(attempt.worker) if attempt.is_open else None
    return (
        presence.usage.get(AttemptRef(record.number, index, attempt.number))
        if presence is not None
        else None
    )


def attempt_view(task: Task, attempt: Attempt, live: LiveUsage | None) -> AttemptView:
    usage = attempt.usage or (live.usage if live is not None else None)
    peak = attempt.peak_rss_bytes or (live.peak_bytes if live is not None else 0)
    return AttemptView(
        number=attempt.number,
        state=display_name(attempt.shown),
        stage=attempt.status.value.lower(),
        cause=attempt.cause.value if attempt.cause is not None else None,
        initiator=attempt.initiator.value if attempt.initiator is not None else None,
        charged_to=attempt.charged_to.value if attempt.charged_to is not None else None,
        worker=attempt.worker,
        exit_code=attempt.exit_code,
        signal=attempt.signal,
        error=shortened(attempt.error, MAX_TEXT) or None,
        stderr_tail=shortened(attempt.stderr_tail, MAX_TEXT) or None,
        peak_rss_bytes=peak or None,
        rss_bytes=live.rss_bytes if live is not None else None,
        cpu_ms=usage.cpu_ms if usage is not None else None,
        read_bytes=usage.read_bytes if usage is not None else None,
        written_bytes=usage.written_bytes if usage is not None else None,
        memory_limit_reached_bytes=(usage.memory_limit_bytes or None)
        if usage is not None
        else None,
        assigned_at=moment(attempt.assigned_ms),
        building_at=moment(attempt.building_ms),
        started_at=moment(attempt.started_ms),
        finished_at=moment(attempt.ended_ms),
        failure_count=attempt.failures,
        preemption_count=attempt.preemptions,
        open=attempt.is_open,
        output_dropped_bytes=attempt.dropped_bytes,
        output_bytes=attempt.output_bytes,
        artifact=_artifact(attempt),
        by=actor_view(attempt.by),
        stopping=attempt.ending.cause.value
        if attempt.ending is not None and attempt.is_open
        else None,
        notices=notice_views(attempt),
        requeued=attempt.charged_to is Budget.REQUEUE
        and (attempt is not task.attempts[-1] or not task.is_terminal or ended_waiting(task)),
    )


def _artifact(attempt: Attempt) -> ArtifactView | None:
    kept = attempt.artifact
    if kept is None:
        return None
    return ArtifactView(
        bytes=kept.bytes,
        files=kept.files,
        note=shortened(kept.note, MAX_TEXT) or None,
        upload=kept.upload or None,
    )


def tasks(ledger: Ledger, query: TasksQuery) -> Page:
    """By index."""
    record = known_job(ledger, query.job)
    after = behind(query.cursor)
    state = query.state
    start = 0 if after is None else after + 1

    def wanted(index: int) -> bool:
        task = record.task(index)
        if query.retried and not _is_retried(task):
            return False
        return state in ("", display_name(task.state))

    rows = ((index, index) for index in record.indexes.since(start))
    return page(rows, lambda index: task_view(ledger, record, index), query, wanted)


def _is_retried(task: Task) -> bool:
    """Whether the first attempt of a task was not its last."""
    return len(task.attempts) > 1 or (bool(task.attempts) and task.state is TaskState.PENDING)


def task_states(ledger: Ledger, query: TaskStatesQuery) -> TaskStatesView:
    """The state of every task of one job."""
    groups = groupby(task.state for task in known_job(ledger, query.job).tasks)
    return TaskStatesView(
        runs=[(display_name(state), sum(1 for _ in run)) for state, run in groups]
    )


def attempts(ledger: Ledger, query: AttemptsQuery) -> Pieces[AttemptPage]:
    """All attempts of one task by number."""

    def piece(asked: AttemptsQuery) -> Piece:
        after = behind(asked.cursor)
        start = 0 if after is None else after + 1
        rows = enumerate(task.attempts[start:], start)
        return page(
            rows, lambda made: attempt_view(task, made, _live(ledger, record, index, made)), asked
        )

    record, index = known_task(ledger, query.task)
    task = record.task(index)
    found = yield from whole(piece, query)
    return AttemptPage(
        items=found.items,
        next_cursor=found.next_cursor,
        id=f"{record.id}/{index}",
        task=f"{record.name}/{index}",
        user=record.user,
    )
