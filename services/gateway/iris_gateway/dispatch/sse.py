"""Sends public events as text/event-stream until the client disconnects.

Out of scope: reading events (`feed`), filtering (`event`), log lines (`log_formats`).
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response, StreamingResponse

from iris_bus.contract import Unavailable
from iris_core.codec import to_json
from iris_core.subjects import EVENTS, Stream
from iris_gateway.dispatch.endpoint import EVENT_STREAM, Call
from iris_gateway.dispatch.identity import acceptance
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.settings import GatewaySettings
from iris_gateway.streams.event import EventRecord, Filter
from iris_gateway.streams.feed import Lagging, NewEvents

GREETING = b"retry: 1000\n\n"
_HEADERS = {"x-accel-buffering": "no"}


def frame(name: str, data: object, sequence: int = 0) -> bytes:
    """One event; without a sequence it does not change the position to resume from."""
    head = b"id: %d\n" % sequence if sequence else b""
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), to_json(data))


def stream(call: Call, body: AsyncIterator[bytes]) -> Response:
    """An endless response; see `counted`. Raises ProblemResponse, also unavailable when this
    gateway is about to stop.
    """
    if call.gateway.closing:
        raise _closing()
    return counted(call, body)


def counted(
    call: Call, body: AsyncIterator[bytes], media_type: str = EVENT_STREAM
) -> StreamingResponse:
    """A response that is made while it is read, counted until it ends or is dropped; it ends when
    its token is revoked or expires.

    Raises ProblemResponse when too many are open, unauthenticated.
    """
    gateway = call.gateway
    if why := no_room(gateway.streams, call.caller.user, gateway.settings):
        raise ProblemResponse("too_many_requests", why)
    accepted = acceptance(gateway, call.request)
    opened = _OpenStream(gateway.streams, call.caller.user)
    response = StreamingResponse(
        _counted(accepted, opened, body), media_type=media_type, headers=_HEADERS
    )
    weakref.finalize(response, opened.leave)  # it may never be sent
    return response


def no_room(open_streams: Counter[str], user: str, settings: GatewaySettings) -> str:
    """Why one more stream of this user is refused where so many of each user are open; empty: it is
    not.
    """
    everybody = open_streams.total()
    own = open_streams[user]
    if everybody >= settings.watchers:
        return f"{everybody} streams are open on this gateway, which is the limit"
    if own >= settings.watchers_per_user:
        return f"{user} has {own} streams open, which is the limit"
    return ""


def _closing() -> ProblemResponse:
    return ProblemResponse("unavailable", "the gateway is about to restart")


class _OpenStream:
    """One open stream of a user; it is counted until somebody leaves it."""

    def __init__(self, watching: Counter[str], user: str) -> None:
        self._watching = watching
        self._user = user
        self._left = False
        watching[user] += 1

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        self._watching[self._user] -= 1
        if not self._watching[self._user]:
            del self._watching[self._user]


async def _counted(
    accepted: Callable[[], bool], opened: _OpenStream, body: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    try:
        async for piece in body:
            if not accepted():
                return
            yield piece
    finally:
        opened.leave()


def resume_point(call: Call, after: int | None) -> int | None:
    """Where to resume: ``Last-Event-ID``, else the query's parameter. Raises ProblemResponse
    malformed.
    """
    text = call.request.headers.get("last-event-id", "")
    if not text:
        return after
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ProblemResponse("malformed", "Last-Event-ID is the number an event came with")
    return int(text)


async def resume_in(call: Call, stored: Stream) -> int:
    """Where to resume a stream by ``Last-Event-ID``; 0: none is given.

    Raises ProblemResponse malformed, gone, unavailable.
    """
    after = resume_point(call, None) or 0
    if after:
        await check_not_ahead(call, stored, after)
    return after


async def stream_events(call: Call, wanted: Filter, after: int | None) -> Response:
    """Matching events after ``after``, or from now on.

    Raises ProblemResponse gone when they are deleted, unavailable.
    """
    if call.gateway.closing:
        raise _closing()
    feed = call.gateway.feed
    await feed.wake()
    if after is not None and after > feed.newest:
        await check_not_ahead(call, EVENTS, after)
    position = feed.newest if after is None else after
    events = feed.watch(wanted, position)
    try:
        first = await anext(events)
    except Lagging:
        raise ProblemResponse(
            "unavailable", "the start of this stream has expired; reconnect"
        ) from None
    except StopAsyncIteration:
        raise _closing() from None
    return stream(call, _frames(call, first, events))


async def check_not_ahead(call: Call, stored: Stream, after: int) -> None:
    """Raises ProblemResponse gone for a position that the stream does not have, unavailable."""
    try:
        end = await call.gateway.feed.streams.end(stored.name)
    except Unavailable:
        raise ProblemResponse("unavailable", "the stream cannot be read") from None
    if after > end:
        words = f"position {after} is not in the stream, which ends at {end}: what was there is kept elsewhere or lost"
        raise ProblemResponse("gone", words)


async def _frames(
    call: Call, first: NewEvents, rest: AsyncIterator[NewEvents]
) -> AsyncIterator[bytes]:
    clock = call.gateway.clock
    keep_alive_s = call.gateway.settings.keep_alive_s
    spoken = clock()
    yield GREETING + _joined(first.events)
    with contextlib.suppress(Lagging, ProblemResponse):
        async for position, events in rest:
            if events:
                yield _joined(events)
            elif clock() - spoken < keep_alive_s:
                continue
            else:
                yield b"id: %d\n\n" % position
            spoken = clock()


def _joined(events: list[EventRecord]) -> bytes:
    return b"".join([event.frame for event in events])
