"""Hosts, slices and the whole cluster as people see them."""

from __future__ import annotations

from typing import Any

from iris_core import codec
from iris_core.errors import Code, Refused
from iris_core.resources import DIMENSIONS, Amount
from iris_core.states import WorkerState, display_name
from iris_core.views import Page, WorkerView, moment
from iris_state.answers.pages import page
from iris_state.changes import UNDECODABLE
from iris_state.ledger import Ledger, whole_number
from iris_state.records import Worker


def worker_view(ledger: Ledger, worker: Worker) -> WorkerView:
    presence = ledger.presence[worker.id]
    return WorkerView(
        id=worker.id,
        state=worker.state.value,
        attributes=worker.attributes,
        total=amount(worker.total),
        committed=amount(presence.committed),
        tasks=[f"{ledger.jobs[number].name}/{index}" for number, index, _ in presence.open],
        building=presence.building,
        last_beat_at=moment(presence.beat_ms),
        detail=worker.reason or presence.detail,
    )


def amount(amount: Amount) -> dict[str, int]:
    return {name: getattr(amount, name) for name in DIMENSIONS}


def workers(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """By id; the cursor is the last id shown."""
    last, state = str(arguments.get("cursor") or ""), arguments.get("state")
    rows = (
        (worker.id, worker)
        for worker in sorted(ledger.workers.values(), key=lambda w: w.id)
        if worker.id > last and state in (None, "", worker.state.value)
    )
    return page(rows, lambda worker: worker_view(ledger, worker), arguments)


def worker(ledger: Ledger, arguments: dict[str, Any]) -> WorkerView:
    worker = ledger.workers.get(str(arguments.get("id", "")))
    if worker is None:
        raise Refused(Code.NOT_FOUND, f"there is no worker {arguments.get('id')}")
    return worker_view(ledger, worker)


def slices(ledger: Ledger, arguments: dict[str, Any]) -> Page:
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
            "free_workers": sum(_is_free(ledger, host) for host in hosts),
            "whole_free": all(_is_free(ledger, host) for host in hosts),
        }
        for name, hosts in sorted(groups.items())
    ]
    return Page(items=items)


def _is_free(ledger: Ledger, worker: Worker) -> bool:
    """Whether a host runs nothing and takes work."""
    return worker.state is WorkerState.HEALTHY and not ledger.presence[worker.id].open


def _slice_order(worker: Worker) -> tuple[float, str]:
    place = worker.attributes.get("tpu-worker-id")
    return (float(place) if isinstance(place, int | float) else float("inf"), worker.id)


def overview(ledger: Ledger, arguments: dict[str, Any]) -> dict[str, Any]:
    """Counts for the first page: tasks and jobs by state, workers, what healthy ones have and what of it is held."""
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
        if worker.state is WorkerState.HEALTHY:
            capacity = capacity + worker.total
            committed = committed + ledger.presence[worker.id].committed
    return {
        "tasks": tasks,
        "jobs": jobs,
        "workers": workers,
        "pending": len(ledger.queue),
        "capacity": amount(capacity),
        "committed": amount(committed),
        "users": sorted({record.user for record in ledger.jobs.values()}),
    }


def dead_letters(ledger: Ledger, arguments: dict[str, Any]) -> dict[str, Any]:
    """Commands that could not be read: how many ever, and of those still remembered their place and what was wrong."""
    letters = [
        {"command": command, "detail": codec.from_json(body, dict).get("detail", "")}
        for request, (_, body) in ledger.answers.items()
        if request.startswith(UNDECODABLE) and (command := whole_number(request.removeprefix(UNDECODABLE))) is not None
    ]
    return {"total": ledger.totals.dead_letters, "items": letters}
