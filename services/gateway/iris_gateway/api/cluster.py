"""Endpoints of workers, slices, sessions and the queue, and an operator's commands on workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from iris_core import view_queries as q
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import AdminCommand
from iris_core.subjects import CMD_ADMIN
from iris_core.views import DemandView, ProcessView, QueueRow, SessionView, WorkerView, moment
from iris_gateway.api.handling import json_body, listing, request_key, view
from iris_gateway.api.pages import page_of
from iris_gateway.commands import Envelope
from iris_gateway.http.endpoint import Answers, Call, Endpoint, json_response, passed_on
from iris_gateway.http.parameters import identifier
from iris_gateway.processes import KnownProcess


class WorkerActionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why it is done: shown with the host, and in the audit."""

    reason: Annotated[str, msgspec.Meta(max_length=SENTENCE)] = ""


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
    )


def worker_action(action: str) -> Callable[[Call], Awaitable[Response]]:
    """The endpoint that applies ``action`` to the worker in its path."""

    async def act(call: Call) -> Response:
        target = identifier(call.segment("worker"), "worker")
        body = await json_body(call, WorkerActionBody, WorkerActionBody())
        arguments = {"reason": body.reason} if body.reason else {}
        return passed_on(await administer(call, action, target, arguments), 202)

    return act


async def administer(call: Call, action: str, target: str, arguments: dict[str, Any]) -> bytes:
    """Send an operator's command to the state service and return its answer. Raises Problem."""

    def command(envelope: Envelope) -> AdminCommand:
        return AdminCommand(action, target, call.caller, envelope.request_id, envelope.at_ms, arguments)

    return (await call.command(CMD_ADMIN, command, key=request_key(call))).body


_WORKER = Answers("The worker.", WorkerView)


def _action(path: str, action: str, summary: str, answer: Answers = _WORKER) -> Endpoint:
    return Endpoint(
        "POST",
        f"/v1/workers/{{worker}}/{path}",
        worker_action(action),
        summary,
        {202: answer},
        body=WorkerActionBody,
        admin=True,
    )


ENDPOINTS = (
    listing("/v1/workers", q.WorkersQuery, "List workers", page_of(WorkerView)),
    view("/v1/workers/{worker}", q.WorkerQuery, "Show a worker", _WORKER),
    _action("drain", "drain", "Drain a worker"),
    _action("undrain", "undrain", "Undrain a worker"),
    _action("mark-lost", "mark_lost", "Declare a worker lost"),
    _action("forget", "forget", "Forget a lost worker", Answers("Its id.", dict[str, str])),
    listing("/v1/slices", q.SlicesQuery, "Groups of workers", dict[str, Any]),
    listing("/v1/queue", q.QueueQuery, "The queue, in scheduling order", page_of(QueueRow)),
    listing("/v1/sessions", q.SessionsQuery, "List sessions", page_of(SessionView)),
    view("/v1/sessions/{session}", q.SessionQuery, "Show a session", Answers("The session.", SessionView)),
    view("/v1/demand", q.DemandQuery, "Capacity that pending work lacks", Answers("It.", DemandView)),
    listing("/v1/dead-letters", q.DeadLettersQuery, "Commands that failed with an internal error", dict[str, Any]),
    Endpoint(
        "GET", "/v1/processes", processes, "List processes", {200: Answers("They.", dict[str, list[ProcessView]])}
    ),
    view("/v1/overview", q.OverviewQuery, "Figures of the whole cluster", Answers("Them.", dict[str, Any])),
)
