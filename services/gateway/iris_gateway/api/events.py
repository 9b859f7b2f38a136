"""Endpoints of public events: pages of the stream, or server-sent events that resume without loss."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from iris_core.views import Page
from iris_gateway.api.handling import PAGING
from iris_gateway.api.work.jobs import job_of
from iris_gateway.http.endpoint import EVENT_STREAM, JSON, Answers, Call, Endpoint, json_response
from iris_gateway.http.parameters import Parameter, Parameters, job_reference
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import A_TYPE, Filter, is_event_type, of_run
from iris_gateway.streams.event_history import newest_first, oldest_first
from iris_gateway.streams.sse import resume_point, stream_events

_FARTHEST = 10**18
ORDERS = ("desc", "asc")


class _JobRecord(msgspec.Struct):
    id: str
    name: str
    next_run: str | None = None


async def listed(call: Call) -> Response:
    parameters = call.parameters()
    within = parameters.text("within", allow=lambda text: 0 < len(text) <= 1100)
    deployment = parameters.text("deployment", allow=lambda text: 0 < len(text) <= 63)
    wanted = Filter(_types(parameters), deployment=deployment)
    if within:
        wanted = await _within(call, job_reference(within), wanted)
    return await _answer(call, parameters, wanted)


async def of_job(call: Call) -> Response:
    parameters = call.parameters()
    wanted = await _within(call, job_of(call), Filter(_types(parameters)))
    return await _answer(call, parameters, wanted)


async def _within(call: Call, job: str, wanted: Filter) -> Filter:
    """The filter, of one job and all below it. Raises ProblemResponse not_found."""
    found = msgspec.json.decode(await call.read("job", job=job), type=_JobRecord)
    return of_run(wanted, found.id, found.name, found.next_run)


def _types(parameters: Parameters) -> tuple[str, ...]:
    text = parameters.text("type", allow=lambda text: all(map(is_event_type, text.split(","))), hint="task.state,job")
    return tuple(text.split(",")) if text else ()


async def _answer(call: Call, parameters: Parameters, wanted: Filter) -> Response:
    after = parameters.number("after", -1, 0, _FARTHEST) if "after" in call.request.query_params else None
    parameters.allow("after")
    follow = parameters.truth("follow") or call.accepts(EVENT_STREAM)
    order, limit, cursor = parameters.choice("order", ORDERS), parameters.limit(), parameters.cursor()
    parameters.finish()
    if follow and call.request.method == "GET":
        return await stream_events(call, wanted, resume_point(call, after))
    return json_response(await _page(call, wanted, order, limit, cursor, after))


async def _page(call: Call, wanted: Filter, order: str, limit: int, cursor: str, after: int | None) -> Page:
    streams = call.gateway.feed.streams
    place = _place(cursor)
    if order == "asc" or (after is not None and not order):
        events, onward = await oldest_first(streams, wanted, limit, after or 0 if place is None else place)
    else:
        events, onward = await newest_first(streams, wanted, limit, place)
    return Page(items=[event.shown() for event in events], next_cursor=None if onward is None else f"e{onward}")


def _place(cursor: str) -> int | None:
    if not cursor:
        return None
    if cursor[0] != "e" or not cursor[1:].isdigit():
        raise ProblemResponse("invalid", "this cursor is not from a page of events")
    return int(cursor[1:])


_TYPE = Parameter(
    "type",
    "Subjects or their beginnings, separated by commas.",
    {"type": "string", "pattern": f"^{A_TYPE}(,{A_TYPE})*$"},
)
_WITHIN = Parameter("within", "Only this job (a name or an id) and all below it.", {"type": "string", "minLength": 1})
_DEPLOYMENT = Parameter(
    "deployment", "Only this deployment and its routes.", {"type": "string", "minLength": 1, "maxLength": 63}
)
_AFTER = Parameter("after", "Only events behind this place.", {"type": "integer", "minimum": 0, "maximum": _FARTHEST})
_ORDER = Parameter("order", "Newest first, or oldest first.", {"type": "string", "enum": list(ORDERS)})
_FOLLOW = Parameter("follow", "Go on with what happens, as server-sent events.", {"type": "boolean", "default": False})
_PARAMETERS = (_TYPE, _AFTER, _ORDER, _FOLLOW, *PAGING)


class EventPage(msgspec.Struct):
    """A page of events: each is its body with ``id`` and ``type``."""

    items: list[dict[str, Any]]
    next_cursor: str | None


_ANSWERS = {200: Answers("One page, or events without end.", EventPage, media_types=(JSON, EVENT_STREAM))}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/events",
        listed,
        "Events, and a live stream of them",
        _ANSWERS,
        parameters=(_WITHIN, _DEPLOYMENT, *_PARAMETERS),
        problems=("gone", "not_found"),
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/events",
        of_job,
        "Events of a job and its descendants",
        _ANSWERS,
        parameters=_PARAMETERS,
        problems=("gone",),
        task=True,
    ),
)
