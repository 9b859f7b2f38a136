"""Endpoints of workers, slices, sessions and the queue, and an operator's commands on workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from iris_core.admission.actions import (
    Action,
    DrainWorker,
    ForgetWorker,
    MarkWorkerLost,
    UndrainWorker,
    WorkerAction,
)
from iris_core.codec import to_builtins
from iris_core.messages.gateway_state import AdminCommand
from iris_core.views import queries as q
from iris_core.views.cluster import DemandView, ProcessView, WorkerView
from iris_core.views.jobs import GatedJobView, QueueRow, SessionView, moment
from iris_gateway.api.handling import json_body, listing, page_of, request_key, view
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, json_response, passed_on
from iris_gateway.http.parameters import identifier
from iris_gateway.processes import KnownProcess


async def processes(call: Call) -> Response:
    return json_response({"items": [_process(one) for one in await call.gateway.processes.all()]})


def _process(known: KnownProcess) -> ProcessView:
    info = known.info
    return ProcessView(
        service=info.service,
        id=info.id,
        version=info.version,
        host=info.host,
        pid=info.pid,
        started_at=moment(info.started_ms),
        silent_s=known.silent_s,
        tokens=info.tokens,
        clock_ahead_s=known.clock_ahead_s,
        times_ahead_s=info.replica.times_ahead_s if info.replica is not None else None,
        certificates={
            path: datetime.fromtimestamp(expires_s, UTC)
            for path, expires_s in info.certificates.items()
        },
    )


async def administer(call: Call, target: str, asked: Action) -> bytes:
    """Send an operator's command to the state service and return its answer. Raises Problem."""
    command = AdminCommand(asked.action, target, call.caller, *UNSENT, to_builtins(asked))
    return (await call.command(command, key=request_key(call))).body


_WORKER = Answers("The worker.", WorkerView)


def _action(kind: type[WorkerAction], summary: str, answer: Answers = _WORKER) -> Endpoint:
    async def act(call: Call) -> Response:
        target = identifier(call.segment("worker"), "worker")
        return passed_on(await administer(call, target, await json_body(call, kind)), 202)

    path = f"/v1/workers/{{worker}}/{kind.action.replace('_', '-')}"
    return Endpoint("POST", path, act, summary, answers={202: answer}, body=kind, admin=True)


ENDPOINTS = (
    listing("/v1/workers", q.WorkersQuery, "List workers", page_of(WorkerView)),
    view("/v1/workers/{worker}", q.WorkerQuery, "Show a worker", _WORKER),
    _action(DrainWorker, "Drain a worker"),
    _action(UndrainWorker, "Undrain a worker"),
    _action(MarkWorkerLost, "Declare a worker lost"),
    _action(ForgetWorker, "Forget a lost worker", Answers("Its id.", dict[str, str])),
    listing("/v1/slices", q.SlicesQuery, "Groups of workers", dict[str, Any]),
    listing("/v1/queue", q.QueueQuery, "The queue, in scheduling order", page_of(QueueRow)),
    listing(
        "/v1/queue/gated",
        q.GatedJobsQuery,
        "Jobs outside the queue, and why",
        page_of(GatedJobView),
    ),
    listing("/v1/sessions", q.SessionsQuery, "List sessions", page_of(SessionView)),
    view(
        "/v1/sessions/{session}",
        q.SessionQuery,
        "Show a session",
        Answers("The session.", SessionView),
    ),
    view(
        "/v1/demand", q.DemandQuery, "Capacity that pending work lacks", Answers("It.", DemandView)
    ),
    listing(
        "/v1/dead-letters",
        q.DeadLettersQuery,
        "Commands that failed with an internal error",
        dict[str, Any],
    ),
    Endpoint(
        "GET",
        "/v1/processes",
        processes,
        "List processes",
        answers={200: Answers("They.", dict[str, list[ProcessView]])},
    ),
    view(
        "/v1/overview",
        q.OverviewQuery,
        "Figures of the whole cluster",
        Answers("Them.", dict[str, Any]),
    ),
)
