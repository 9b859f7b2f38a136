"""Endpoints of probes and Prometheus."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

from iris_bus.contract import Unavailable
from iris_core.codec import Undecodable, pack, unpack
from iris_core.messages.processes import Ping
from iris_core.subjects import STATE_PING
from iris_gateway.dispatch.endpoint import TEXT, Answers, Call, Endpoint
from iris_gateway.http.problem import ProblemResponse

_PING_S = 2.0
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


async def healthz(call: Call) -> Response:
    return PlainTextResponse("ok\n")


async def readyz(call: Call) -> Response:
    if call.gateway.closing:
        raise ProblemResponse("unavailable", "this gateway is draining")
    if not (await ping(call)).ready:
        raise ProblemResponse("unavailable", "the state service is still recovering")
    return PlainTextResponse("ready\n")


async def ping(call: Call) -> Ping:
    """The leader's answer to a ping. Raises ProblemResponse unavailable."""
    try:
        message = await call.gateway.bus.request(STATE_PING, pack(Ping()), timeout=_PING_S)
        return unpack(message.data, Ping)
    except (Unavailable, Undecodable) as error:
        raise ProblemResponse(
            "unavailable", f"the state service does not answer: {error}"
        ) from None


async def metrics(call: Call) -> Response:
    call.gateway.metrics.watchers.set(call.gateway.watching)
    return Response(call.gateway.metrics.text(), media_type=_EXPOSITION)


_TEXT = (TEXT,)

ENDPOINTS = (
    Endpoint(
        "GET",
        "/healthz",
        healthz,
        "The process is alive",
        answers={200: Answers("ok", media_types=_TEXT)},
        public=True,
    ),
    Endpoint(
        "GET",
        "/readyz",
        readyz,
        "The cluster can be used",
        answers={200: Answers("ready", media_types=_TEXT)},
        public=True,
    ),
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        "Figures",
        answers={200: Answers("Them.", media_types=_TEXT)},
        public=True,
    ),
)
