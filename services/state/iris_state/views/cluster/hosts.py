"""Views of hosts, slices and the whole cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import asdict

from iris_core import codec
from iris_core.addresses import LOOPBACK, LOOPBACK_BESIDE_NATS, is_loopback
from iris_core.errors import Code, Refused
from iris_core.placement.constraints import TPU_NAME
from iris_core.states import JobState, TaskState, WorkerState, display_name
from iris_core.views.cluster import WorkerView
from iris_core.views.jobs import Page, moment
from iris_core.views.queries import (
    DeadLettersQuery,
    LastHourQuery,
    SlicesQuery,
    WorkerQuery,
    WorkersQuery,
)
from iris_state.records.deployments.health import SILENT_INTERVALS
from iris_state.records.hosts import Worker
from iris_state.records.indexes.host_sums import SliceHosts
from iris_state.records.indexes.minutes import held_in_last_hour
from iris_state.records.ledger import Ledger
from iris_state.views.actors import actor_view
from iris_state.views.pages import (
    MAX_TEXT,
    Piece,
    Pieces,
    behind,
    behind_name,
    cursor_of,
    page,
    shortened,
    whole,
)

WARNINGS = 8
"""Warnings shown of a host."""
TASKS = 200
"""Open attempts shown for a host."""
USERS = 200
"""Users shown in the overview; `users` lists all."""


def worker_view(ledger: Ledger, worker: Worker) -> WorkerView:
    presence = ledger.presence[worker.id]
    pool, one = ledger.fleet.of_host(worker.id) or ("", None)
    heard_ms = worker.lost_ms if worker.state is WorkerState.LOST else presence.heartbeat_ms
    return WorkerView(
        id=worker.id,
        state=worker.state.value,
        attributes=worker.attributes,
        total=asdict(worker.total),
        committed=asdict(presence.committed),
        tasks=[
            f"{ledger.jobs[number].name}/{index}"
            for number, index, _ in islice(presence.open, TASKS)
        ],
        building=presence.building,
        last_heartbeat_at=moment(heard_ms),
        detail=shortened(_detail(ledger, worker), MAX_TEXT),
        task_count=len(presence.open),
        registered_at=moment(worker.registered_ms),
        version=worker.version,
        clock_ahead_ms=presence.clock_ahead_ms,
        task_ids=[
            f"{ledger.jobs[number].id}/{index}" for number, index, _ in islice(presence.open, TASKS)
        ],
        by=actor_view(worker.by),
        warnings=dict(islice(_warnings(ledger, worker), WARNINGS)),
        pool=pool,
        slice=one.name if one is not None else "",
        given_up=ledger.fleet.is_given_up(worker.id),
    )


def _warnings(ledger: Ledger, worker: Worker) -> Iterator[tuple[str, str]]:
    """What a host has found wrong, by code; whether loopback is its right address is known here,
    where the other hosts are.
    """
    for code, text in ledger.presence[worker.id].warnings.items():
        if code != LOOPBACK_BESIDE_NATS:
            yield code, shortened(text, MAX_TEXT)
        elif any(_is_elsewhere(other) for other in ledger.workers.values()):
            yield LOOPBACK, shortened(text, MAX_TEXT)


def _is_elsewhere(worker: Worker) -> bool:
    """Whether a worker that is not lost has an address that other machines reach."""
    known = worker.address and worker.state is not WorkerState.LOST
    return bool(known) and not is_loopback(worker.address)


def _detail(ledger: Ledger, worker: Worker) -> str:
    """Why a host is in its state; its late heartbeat comes first, since it may be gone though its
    state is healthy.
    """
    presence = ledger.presence[worker.id]
    probes = ledger.probes
    detail = worker.reason or presence.detail
    silent_ms = ledger.now_ms - max(presence.heartbeat_ms, probes.floor_ms)
    if worker.state is WorkerState.LOST or silent_ms <= SILENT_INTERVALS * probes.heartbeat_ms:
        return detail
    return f"no heartbeat for {silent_ms // 1000} s" + (f"; {detail}" if detail else "")


def workers(ledger: Ledger, query: WorkersQuery) -> Page:
    """Workers by id, those of slices left out with ``without_slice``; the cursor is the last id
    read.
    """
    last = behind_name(query.cursor)
    state = query.state
    alone = query.without_slice
    rows = ((cursor_of(id_), ledger.workers[id_]) for id_ in sorted(ledger.workers) if id_ > last)

    def wanted(worker: Worker) -> bool:
        return state in ("", worker.state.value) and not (alone and TPU_NAME in worker.attributes)

    return page(rows, lambda worker: worker_view(ledger, worker), query, wanted)


def worker(ledger: Ledger, query: WorkerQuery) -> WorkerView:
    return worker_view(ledger, _found_worker(ledger, query.worker))


def _found_worker(ledger: Ledger, id_: str) -> Worker:
    worker = ledger.workers.get(id_)
    if worker is None:
        raise Refused(Code.NOT_FOUND, f"there is no worker {id_}")
    return worker


def slices(ledger: Ledger, query: SlicesQuery) -> Piece:
    """Workers that share a ``tpu-name``, by ``tpu-worker-id``; the cursor is the place of the last
    slice by name.

    ``job``: only slices on whose hosts it has an open attempt.
    """
    found = ledger.host_sums.slices
    names: Sequence[str] = found.keys()
    if job := ledger.find_job(query.job):
        held = {
            attempt.worker for task in job.tasks for attempt in task.attempts if attempt.is_open
        }
        names = [name for name, one in found.items() if not held.isdisjoint(one.hosts)]
    after = behind(query.cursor)
    start = 0 if after is None else after + 1
    rows = enumerate(names[start:], start)
    return page(rows, lambda name: _slice(ledger, name, found[name]), query)


def _slices_by_state(ledger: Ledger) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for (_, state), count in (+ledger.host_sums.slice_states).items():
        counts[state] += count
    return dict(counts)


def _slice(ledger: Ledger, name: str, found: SliceHosts) -> dict[str, Any]:
    hosts = sorted(found.hosts.values(), key=_slice_order)
    return {
        "name": name,
        "topology": found.topology,
        "workers": [worker_view(ledger, host) for host in hosts],
        "free_workers": found.free,
        "whole_free": found.free == len(hosts),
    }


def _slice_order(worker: Worker) -> tuple[float, str]:
    place = worker.attributes.get("tpu-worker-id")
    return (float(place) if isinstance(place, int | float) else float("inf"), worker.id)


def overview(ledger: Ledger) -> dict[str, Any]:
    """Counts for the first page: tasks and jobs by state, workers and slices, what healthy workers
    have and hold, the first users.
    """
    tasks = {
        display_name(state): n
        for state in TaskState
        if (n := sum(counts[state] for counts in ledger.tally.values()))
    }
    jobs = {
        display_name(state): n
        for state in JobState
        if (n := len(ledger.index.of(("state", state))))
    }
    sums = ledger.host_sums
    return {
        "tasks": tasks,
        "jobs": jobs,
        "workers": {state.value: n for state, n in sums.states.items() if n},
        "pending": len(ledger.queue),
        "capacity": asdict(sums.capacity),
        "committed": asdict(sums.committed),
        "slices": _slices_by_state(ledger),
        "users": list(ledger.index.users[:USERS]),
    }


def last_hour(ledger: Ledger, query: LastHourQuery) -> dict[str, Any]:
    """The last minutes in which tasks were placed or ended, oldest first, sixty at most; and what
    one ``worker``, else all healthy ones, held from each minute on in which that changed.
    """
    host = _found_worker(ledger, query.worker) if query.worker else None
    held = held_in_last_hour(ledger, host)
    return {
        "minutes": [
            {"at": moment(one.number * 60_000), **asdict(one)} for one in ledger.totals.minutes
        ],
        "held": [
            {
                "number": one.number,
                "committed": asdict(one.committed),
                "capacity": asdict(one.capacity),
            }
            for one in held
        ],
    }


def dead_letters(ledger: Ledger, query: DeadLettersQuery) -> Pieces[dict[str, Any]]:
    """Commands that failed with an internal error: how many ever, and those whose answers are
    kept.
    """
    total = ledger.totals.dead_letters
    kept = [
        (request, body)
        for request, (status, body) in ledger.answers.items()
        if status == Code.INTERNAL.value
    ]

    def piece(asked: DeadLettersQuery) -> Piece:
        after = behind(asked.cursor) or 0
        numbered = enumerate(kept, total - len(kept) + 1)
        rows = ((number, (number, *one)) for number, one in numbered if number > after)
        return page(rows, _dead_letter, asked)

    found = yield from whole(piece, query)
    return {"total": total, "items": found.items, "next_cursor": found.next_cursor}


def _dead_letter(letter: tuple[int, str, bytes]) -> dict[str, Any]:
    number, request, body = letter
    return {
        "number": number,
        "request_id": request,
        "detail": codec.from_json(body, dict).get("detail", ""),
    }
