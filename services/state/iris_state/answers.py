"""What people are answered: the ledger's records as the objects of the HTTP API, already JSON.

Reads only. Listings are pages with an opaque keyset cursor; each listing is one function in `READS`.
Source: interfaces.md section 3 "Objects".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from iris_core import codec
from iris_core.errors import Code, Mistake, Refused
from iris_core.messages import AdminCommand, Query, Quota
from iris_core.reasons import NOT_YET_LOOKED_AT, Reason
from iris_core.resources import DIMENSIONS, Amount
from iris_core.states import PriorityBand, TaskState, display_name
from iris_core.views import (
    AttemptView,
    HistoryRow,
    JobView,
    KernelView,
    Page,
    QueueRow,
    QuotaView,
    SessionView,
    TaskView,
    TreeView,
    WorkerView,
    moment,
)
from iris_state.history import rows_of
from iris_state.ledger import Ledger
from iris_state.masking import masked
from iris_state.records import Attempt, Job, Task, Worker, kernel_status

MAX_PAGE = 500
DEFAULT_PAGE = 100


def refusal(detail: str, mistakes: Sequence[Mistake] = ()) -> bytes:
    """The body of an `Answer` that says no."""
    return codec.to_json({"detail": detail, "errors": list(mistakes)})


def job(ledger: Ledger, record: Job) -> bytes:
    return codec.to_json(job_view(ledger, record))


def admin(ledger: Ledger, wish: AdminCommand) -> bytes:
    """What an operator's wish has made of its target."""
    if wish.action == "set_quota":
        return codec.to_json(_quota(ledger, wish.target))
    return codec.to_json(worker_view(ledger, ledger.workers[wish.target]))


def read(ledger: Ledger, query: Query, now_ms: int) -> bytes:
    """Answer one query. Raises Refused."""
    view = READS.get(query.what)
    if view is None:
        raise Refused(Code.NOT_FOUND, f"there is no view {query.what}")
    return codec.to_json(view(ledger, query.arguments))


# ── one record ──────────────────────────────────────────────────────────────────────────────────────────────────


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
        pending_reason=_reason(ledger, record) if record.counts[TaskState.PENDING] else None,
        children=len(record.children),
        coscheduled=record.is_gang,
        cause=record.cause.value if record.cause is not None else None,
    )


def _reason(ledger: Ledger, record: Job) -> Reason | None:
    return None if record.is_terminal else ledger.reasons.get(record.number, NOT_YET_LOOKED_AT)


def task_view(ledger: Ledger, record: Job, index: int) -> TaskView:
    task = record.tasks[index]
    last = task.attempts[-1] if task.attempts else None
    return TaskView(
        task=f"{record.name}/{index}",
        job=record.name,
        index=index,
        state=display_name(task.state),
        pending_reason=_reason(ledger, record) if task.state is TaskState.PENDING else None,
        failure_count=task.failure_count,
        preemption_count=task.preemption_count,
        worker=last.worker if last is not None and task.state is not TaskState.PENDING else None,
        attempts=[attempt_view(attempt) for attempt in task.attempts],
        exit_code=last.exit_code if last is not None else None,
        error=task.note or (last.error if last is not None else "") or None,
        log_subject=f"{record.id}.{index}",
        cause=task.cause.value if task.cause is not None else None,
    )


def attempt_view(attempt: Attempt) -> AttemptView:
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
        error=attempt.error or None,
        stderr_tail=attempt.stderr_tail or None,
        peak_rss_bytes=attempt.peak_rss_bytes or None,
        assigned_at=moment(attempt.assigned_ms),
        building_at=moment(attempt.building_ms),
        started_at=moment(attempt.started_ms),
        finished_at=moment(attempt.ended_ms),
        failure_count=attempt.failures,
        preemption_count=attempt.preemptions,
        open=attempt.is_open,
    )


def session_view(ledger: Ledger, record: Job, index: int | None) -> SessionView:
    """A coscheduled job's session (``index`` None), or the session of one task of a plain job."""
    members = range(len(record.tasks)) if index is None else (index,)
    at = index or 0
    stored = ledger.session(record, at)
    return SessionView(
        id=record.id if index is None else f"{record.id}-{index}",
        job=record.name,
        status=ledger.session_status(record, at).value.lower(),
        since=moment(ledger.session_since(record, at)),
        tries=dict(stored.tries) if stored is not None else {},
        kernels=[_kernel(record, i) for i in members],
    )


def _kernel(record: Job, index: int) -> KernelView:
    task: Task = record.tasks[index]
    placed = task.attempts[-1] if task.attempts and task.state is not TaskState.PENDING else None
    return KernelView(
        task=f"{record.name}/{index}",
        attempt=placed.number if placed is not None else len(task.attempts),
        worker=placed.worker if placed is not None else "",
        status=kernel_status(task).value.lower(),
    )


def worker_view(ledger: Ledger, worker: Worker) -> WorkerView:
    presence = ledger.presence[worker.id]
    return WorkerView(
        id=worker.id,
        state=worker.state.value,
        attributes=worker.attributes,
        total=_amount(worker.total),
        committed=_amount(presence.committed),
        tasks=[f"{ledger.jobs[number].name}/{index}" for number, index, _ in presence.open],
        building=presence.building,
        last_beat_at=moment(presence.beat_ms),
        detail=worker.reason or presence.detail,
    )


def _amount(amount: Amount) -> dict[str, int]:
    return {name: getattr(amount, name) for name in DIMENSIONS}


def _quota(ledger: Ledger, user: str) -> QuotaView:
    quota = ledger.quotas.get(user) or Quota(user)
    view = QuotaView(
        user=user,
        max_running_cpu=quota.max_running_cpu,
        max_running_memory=quota.max_running_memory,
        max_running_accelerators=quota.max_running_accelerators,
        max_pending_tasks=quota.max_pending_tasks,
        max_band=display_name(PriorityBand(max(quota.max_band, 1))),
        pending_tasks=ledger.pending_of_user[user],
    )
    for presence in ledger.presence.values():
        for number, _, _ in presence.open:
            owner = ledger.jobs[number]
            if owner.user == user:
                amount = owner.spec.resources.amount
                view.running_cpu += amount.cpu_millis
                view.running_memory += amount.memory_bytes
                view.running_accelerators += amount.chips
    return view


# ── listings ────────────────────────────────────────────────────────────────────────────────────────────────────


def _found_job(ledger: Ledger, arguments: dict[str, Any]) -> Job:
    name = str(arguments.get("job", ""))
    record = ledger.find_job(name)
    if record is None:
        raise Refused(Code.NOT_FOUND, f"there is no job {name}")
    return record


def _found_task(ledger: Ledger, arguments: dict[str, Any]) -> tuple[Job, int]:
    name = str(arguments.get("task", ""))
    found = ledger.find_task(name)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"there is no task {name}")
    return found


def _limit(arguments: dict[str, Any]) -> int:
    limit = arguments.get("limit") or DEFAULT_PAGE
    if not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise Refused(Code.INVALID, f"limit is 1 to {MAX_PAGE}")
    return limit


def _after(arguments: dict[str, Any]) -> int | None:
    """The number a page goes on behind; cursors are opaque to everybody else."""
    cursor = arguments.get("cursor")
    if not cursor:
        return None
    if not str(cursor).isdigit():
        raise Refused(Code.INVALID, "not a cursor of this listing")
    return int(cursor)


def _page(rows: Iterable[tuple[int | str, Any]], view: Callable[[Any], Any], arguments: dict[str, Any]) -> Page:
    """The first ``limit`` of (position, record) rows, worded; the cursor names the last position shown."""
    items: list[Any] = []
    limit, last = _limit(arguments), ""
    for position, record in rows:
        if len(items) == limit:
            return Page(items=items, next_cursor=last)
        items.append(view(record))
        last = str(position)
    return Page(items=items)


def _jobs(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """Newest first."""
    after = _after(arguments)
    rows = (
        (number, ledger.jobs[number])
        for number in reversed(ledger.jobs)
        if (after is None or number < after) and _wanted(ledger.jobs[number], arguments)
    )
    return _page(rows, lambda record: job_view(ledger, record), arguments)


def _wanted(record: Job, arguments: dict[str, Any]) -> bool:
    return (
        arguments.get("state") in (None, "", display_name(record.state))
        and arguments.get("user") in (None, "", record.user)
        and arguments.get("band") in (None, "", display_name(record.band))
        and record.name.startswith(str(arguments.get("name_prefix") or ""))
    )


def _tasks(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    record = _found_job(ledger, arguments)
    after, state = _after(arguments), arguments.get("state")
    start = 0 if after is None else after + 1
    rows = (
        (index, index)
        for index in range(start, len(record.tasks))
        if state in (None, "", display_name(record.tasks[index].state))
    )
    return _page(rows, lambda index: task_view(ledger, record, index), arguments)


def _tree(ledger: Ledger, arguments: dict[str, Any]) -> TreeView:
    return _subtree(ledger, _found_job(ledger, arguments))


def _subtree(ledger: Ledger, record: Job) -> TreeView:
    children = [ledger.jobs[number] for number in record.children if number in ledger.jobs]
    return TreeView(job=job_view(ledger, record), children=[_subtree(ledger, child) for child in children])


def _why(ledger: Ledger, arguments: dict[str, Any]) -> dict[str, Any]:
    """Why a job's or task's waiting tasks wait, and what stands before them."""
    if arguments.get("task"):
        record, index = _found_task(ledger, arguments)
    else:
        record = _found_job(ledger, arguments)
        pending = ledger.queue.pending(record.number)
        index = pending[0] if len(pending) else 0
    waiting = (record.number, index) in ledger.queue
    return {
        "job": record.name,
        "task": f"{record.name}/{index}",
        "state": display_name(record.tasks[index].state),
        "job_state": display_name(record.state),
        "pending_tasks": record.counts[TaskState.PENDING],
        "pending_reason": _reason(ledger, record) if waiting else None,
        "ahead": ledger.queue.position(record.number, index) if waiting else None,
        "error": record.error or None,
        "history": rows_of(ledger, record)[-20:],
    }


def _history(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    rows: list[HistoryRow] = rows_of(ledger, _found_job(ledger, arguments))
    after = _after(arguments)
    start = 0 if after is None else after + 1
    return _page(list(enumerate(rows))[start:], lambda row: row, arguments)


def _sessions(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """Coscheduled sessions, and every placed or waiting session of one; newest job first."""
    wanted = arguments.get("status")
    only = ledger.find_job(str(arguments["job"])) if arguments.get("job") else None
    records = [only] if only is not None else [ledger.jobs[number] for number in reversed(ledger.jobs)]
    if arguments.get("job") and only is None:
        raise Refused(Code.NOT_FOUND, f"there is no job {arguments['job']}")
    after = _after_session(arguments)
    rows = (
        (f"{record.number}-{-1 if index is None else index}", (record, index))
        for record, index in _all_sessions(records)
        if (after is None or (-record.number, -1 if index is None else index) > after)
        and wanted in (None, "", ledger.session_status(record, index or 0).value.lower())
    )
    return _page(rows, lambda row: session_view(ledger, *row), arguments)


def _after_session(arguments: dict[str, Any]) -> tuple[int, int] | None:
    """Newest job first, so the key is (minus the job's number, task index or -1)."""
    cursor = arguments.get("cursor")
    if not cursor:
        return None
    found = re.fullmatch(r"(\d+)-(-1|\d+)", str(cursor))
    if found is None:
        raise Refused(Code.INVALID, "not a cursor of this listing")
    return -int(found[1]), int(found[2])


def _all_sessions(records: Iterable[Job]) -> Iterable[tuple[Job, int | None]]:
    for record in records:
        if record.is_gang:
            yield record, None
        else:
            for index in range(len(record.tasks)):
                yield record, index


def _session(ledger: Ledger, arguments: dict[str, Any]) -> SessionView:
    name, _, index = str(arguments.get("id", "")).partition("-")
    record = ledger.find_job(name)
    if record is None or (index and not (index.isdigit() and int(index) < len(record.tasks))):
        raise Refused(Code.NOT_FOUND, f"there is no session {arguments.get('id')}")
    return session_view(ledger, record, None if record.is_gang else int(index or 0))


def _queue(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """One row per waiting job, in the exact order; ``position`` counts the tasks before its first."""
    after = _after(arguments)
    start = -1 if after is None else after
    rows = ((position, row) for position, row in enumerate(ledger.queue.jobs()) if position > start)
    return _page(rows, lambda number: _queue_row(ledger, number), arguments)


def _queue_row(ledger: Ledger, number: int) -> QueueRow:
    record = ledger.jobs[number]
    pending = ledger.queue.pending(number)
    return QueueRow(
        position=ledger.queue.position(number, pending[0]),
        task=f"{record.name}/{pending[0]}",
        job=record.name,
        user=record.user,
        band=display_name(record.band),
        depth=record.depth,
        root_submitted_at=moment(record.root_submitted_ms),
        submitted_at=moment(record.submitted_ms),
        sequence=record.number,
        tasks=len(pending),
        pending_reason=_reason(ledger, record),
    )


def _workers(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    after, state = _after(arguments), arguments.get("state")
    start = -1 if after is None else after
    rows = (
        (position, worker)
        for position, worker in enumerate(sorted(ledger.workers.values(), key=lambda w: w.id))
        if position > start and state in (None, "", worker.state.value)
    )
    return _page(rows, lambda worker: worker_view(ledger, worker), arguments)


def _worker(ledger: Ledger, arguments: dict[str, Any]) -> WorkerView:
    worker = ledger.workers.get(str(arguments.get("id", "")))
    if worker is None:
        raise Refused(Code.NOT_FOUND, f"there is no worker {arguments.get('id')}")
    return worker_view(ledger, worker)


def _slices(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """Workers that share a ``tpu-name``, by ``tpu-worker-id``."""
    groups: dict[str, list[Worker]] = {}
    for worker in ledger.workers.values():
        name = worker.attributes.get("tpu-name")
        if name is not None:
            groups.setdefault(str(name), []).append(worker)
    items = [
        {
            "name": name,
            "topology": hosts[0].attributes.get("tpu-topology"),
            "workers": [worker_view(ledger, host) for host in sorted(hosts, key=_slice_order)],
            "free_workers": sum(not ledger.presence[host.id].open for host in hosts),
            "whole_free": all(not ledger.presence[h.id].open and h.state.value == "healthy" for h in hosts),
        }
        for name, hosts in sorted(groups.items())
    ]
    return Page(items=items)


def _slice_order(worker: Worker) -> tuple[float, str]:
    place = worker.attributes.get("tpu-worker-id")
    return (float(place) if isinstance(place, int | float) else float("inf"), worker.id)


def _overview(ledger: Ledger, arguments: dict[str, Any]) -> dict[str, Any]:
    """Counts for the first page: tasks and jobs by state, workers, what is held and free."""
    tasks: dict[str, int] = {}
    jobs: dict[str, int] = {}
    for record in ledger.jobs.values():
        jobs[display_name(record.state)] = jobs.get(display_name(record.state), 0) + 1
        for state, n in record.counted().items():
            tasks[display_name(state)] = tasks.get(display_name(state), 0) + n
    workers: dict[str, int] = {}
    capacity, committed = Amount(), Amount()
    for worker in ledger.workers.values():
        workers[worker.state.value] = workers.get(worker.state.value, 0) + 1
        if worker.state.value != "lost":
            capacity = capacity + worker.total
            committed = committed + ledger.presence[worker.id].committed
    return {
        "tasks": tasks,
        "jobs": jobs,
        "workers": workers,
        "pending": len(ledger.queue),
        "capacity": _amount(capacity),
        "committed": _amount(committed),
        "users": sorted({record.user for record in ledger.jobs.values()}),
    }


READS: dict[str, Callable[[Ledger, dict[str, Any]], Any]] = {
    "jobs": _jobs,
    "job": lambda ledger, a: job_view(ledger, _found_job(ledger, a)),
    "tasks": _tasks,
    "task": lambda ledger, a: task_view(ledger, *_found_task(ledger, a)),
    "attempts": lambda ledger, a: Page(items=task_view(ledger, *_found_task(ledger, a)).attempts),
    "tree": _tree,
    "why": _why,
    "history": _history,
    "sessions": _sessions,
    "session": _session,
    "queue": _queue,
    "workers": _workers,
    "worker": _worker,
    "slices": _slices,
    "quota": lambda ledger, a: _quota(ledger, str(a.get("user", ""))),
    "quotas": lambda ledger, a: Page(items=[_quota(ledger, user) for user in sorted(ledger.quotas)]),
    "overview": _overview,
}
