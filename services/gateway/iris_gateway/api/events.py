"""Endpoints of public events: pages of the stream, or server-sent events that resume without
loss.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from iris_core.subjects import EVENTS
from iris_core.views.jobs import Page
from iris_core.views.queries import DeploymentQuery, JobQuery, PageQuery, about
from iris_gateway.api.work.jobs import job_of
from iris_gateway.dispatch.endpoint import (
    EVENT_STREAM,
    JSON,
    Answers,
    Call,
    Endpoint,
    json_response,
)
from iris_gateway.dispatch.sse import check_not_ahead, resume_point, stream_events
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import TYPES, TYPES_HINT, Filter, of_run
from iris_gateway.streams.event_history import newest_first, oldest_first

_FARTHEST = 10**18 - 1
ORDERS = ("desc", "asc")


class _JobRecord(msgspec.Struct):
    id: str
    name: str
    user: str = ""
    next_run: str | None = None


class JobEventsParameters(PageQuery, frozen=True):
    """Which events of a job, and how."""

    type: Annotated[
        tuple[Annotated[str, about("", one_of=TYPES, hint=TYPES_HINT)], ...],
        about("Subjects or their beginnings, separated by commas."),
    ] = ()
    after: Annotated[int, about("Only events after this position.", ge=0, le=_FARTHEST)] | None = (
        None
    )
    order: Annotated[str, about("Newest first, or oldest first.", one_of=ORDERS)] = ""
    follow: Annotated[bool, about("Continue with new events, as server-sent events.")] = False


class EventsParameters(JobEventsParameters, frozen=True):
    """Which events, and how."""

    within: Annotated[
        str,
        about("Only this job (a name or an id) and all below it.", min_length=1, max_length=1100),
    ] = ""
    deployment: Annotated[
        str, about("Only this deployment and its routes.", min_length=1, max_length=63)
    ] = ""


async def listed(call: Call) -> Response:
    asked = call.asked(EventsParameters)
    if asked.deployment:
        await call.read(DeploymentQuery(asked.deployment))
    wanted = Filter(asked.type, deployment=asked.deployment)
    return await _answer(
        call, asked, await _within(call, asked.within, wanted) if asked.within else wanted
    )


async def of_job(call: Call) -> Response:
    asked = call.asked(JobEventsParameters)
    return await _answer(call, asked, await _within(call, job_of(call), Filter(asked.type)))


async def _within(call: Call, job: str, wanted: Filter) -> Filter:
    """The filter, of one job and all below it. Raises ProblemResponse not_found."""
    found = msgspec.json.decode(await call.read(JobQuery(job)), type=_JobRecord)
    return of_run(wanted, found.id, found.name, found.user, next_run=found.next_run)


async def _answer(call: Call, asked: JobEventsParameters, wanted: Filter) -> Response:
    if (asked.follow or call.accepts(EVENT_STREAM)) and call.request.method == "GET":
        return await stream_events(call, wanted, resume_point(call, asked.after))
    return json_response(await _page(call, wanted, asked))


async def _page(call: Call, wanted: Filter, asked: JobEventsParameters) -> Page:
    feed = call.gateway.feed
    after = asked.after
    place = _place(asked.cursor)
    if after:
        await check_not_ahead(call, EVENTS, after)
    if asked.order == "asc" or (after is not None and not asked.order):
        events, onward = await oldest_first(
            feed, wanted, asked.limit, after or 0 if place is None else place
        )
    else:
        events, onward = await newest_first(feed, wanted, asked.limit, place, after=after or 0)
    return Page(
        items=[event.shown() for event in events],
        next_cursor=None if onward is None else f"e{onward}",
    )


def _place(cursor: str) -> int | None:
    if not cursor:
        return None
    if cursor[0] != "e" or not cursor[1:].isdigit():
        raise ProblemResponse("invalid", "this cursor is not from a page of events")
    return int(cursor[1:])


class EventPage(msgspec.Struct):
    """A page of events: each is its body with ``id`` and ``type``.

    Those of a type or a deployment are found by the server's index. Those of a job are found by
    reading, 20,000 of all events for a page, which may be empty and go on at ``next_cursor``: give
        a ``type`` too.
    """

    items: list[dict[str, Any]]
    next_cursor: str | None


_ANSWERS = {
    200: Answers("One page, or events without end.", EventPage, media_types=(JSON, EVENT_STREAM))
}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/events",
        listed,
        "Events, and a live stream of them",
        answers=_ANSWERS,
        parameters=EventsParameters,
        problems=("gone", "not_found"),
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/events",
        of_job,
        "Events of a job and its descendants",
        answers=_ANSWERS,
        parameters=JobEventsParameters,
        problems=("gone",),
        task=True,
    ),
)
