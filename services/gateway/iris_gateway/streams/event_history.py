"""Pages of past events, read from the stream in ranges: a page reads a bounded number of messages,
even if none matches.

Where types or a deployment are wanted, the server finds their messages by its index of subjects.
The newest `STRETCH` messages are read without it: a server that lags has fewer, and says that none
    is left.

Out of scope: new events (`feed`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from iris_bus.contract import Gap, StoredReader, Streams, Unavailable
from iris_core.subjects import EVENTS
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import EventRecord, Filter, read_event
from iris_gateway.streams.feed import PIECE, Feed
from iris_gateway.streams.readers import reading

STRETCH = 2000
BUDGET = 20_000
_WAIT_S = 2.0

EventRecords = tuple[list[EventRecord], int | None]
"""Events, and where the next page continues (None: there is none)."""


async def oldest_first(feed: Feed, wanted: Filter, limit: int, after: int) -> EventRecords:
    """Matching events after sequence ``after``."""
    end = await _end(feed.streams)
    events: list[EventRecord] = []
    budget = BUDGET
    while after < end and budget > 0:
        indexed = wanted.subjects if after < end - STRETCH else ()
        until = end - STRETCH if indexed else min(after + STRETCH, end)
        found = await _stretch(feed, after, until, indexed)
        budget -= len(found) if indexed else until - after
        for event in found:
            after = event.sequence
            if wanted.wants(event):
                events.append(event)
            if len(events) == limit:
                return events, after if after < end else None
        if len(found) <= STRETCH:
            after = until
    return events, after if after < end else None


async def newest_first(
    feed: Feed,
    wanted: Filter,
    limit: int,
    before: int | None,
    budget: int = BUDGET,
    after: int = 0,
) -> EventRecords:
    """Matching events before sequence ``before`` (None: the end) and after ``after``, latest first;
    reads about ``budget`` messages at most.
    """
    end = await _end(feed.streams)
    upper = end if before is None else before - 1
    events: list[EventRecord] = []
    width = STRETCH
    while upper > after and budget > 0:
        indexed = wanted.subjects if upper <= end - STRETCH else ()
        lower = max(upper - width, after)
        found = await _stretch(feed, lower, upper, indexed)
        budget -= len(found)
        if len(found) > STRETCH:
            width = max(STRETCH, width // 8)
            continue
        for event in reversed(found):
            if wanted.wants(event):
                events.append(event)
            if len(events) == limit:
                return events, event.sequence if event.sequence > after + 1 else None
        if not found and not indexed:
            return events, None  # older ones are deleted
        upper = lower
        width = 2 * width if indexed else width
    return events, upper + 1 if upper > after else None


async def _end(streams: Streams) -> int:
    try:
        message = await streams.last(EVENTS.name)
    except Unavailable:
        raise ProblemResponse("unavailable", "the events cannot be read") from None
    return message.sequence if message is not None else 0


async def _stretch(
    feed: Feed, after: int, until: int, subjects: Sequence[str]
) -> list[EventRecord]:
    """Events after ``after`` up to ``until``, without deleted ones. With ``subjects`` only those,
    as the server finds them; more than `STRETCH` when it has not read all of them.
    """
    try:
        return await _read(feed, after, until, subjects)
    except Gap:
        kept = await _read(feed, 0, until, ())
        return [event for event in kept if event.sequence > after]
    except (Unavailable, TimeoutError):
        raise ProblemResponse("unavailable", "the events cannot be read") from None


async def _read(feed: Feed, after: int, until: int, subjects: Sequence[str]) -> list[EventRecord]:
    events: list[EventRecord] = []
    with reading(feed.streams, EVENTS.name, after, *subjects) as reader:
        while after < until and not (
            subjects and (len(events) > STRETCH or await _finished(reader))
        ):
            batch = await reader.batch(limit=PIECE, wait=_WAIT_S)
            if not batch:
                raise Unavailable("the events were not delivered in time")
            after = batch[-1].sequence
            events += [read_event(message) for message in batch if message.sequence <= until]
            await feed.turns.give()
    return events


async def _finished(reader: StoredReader) -> bool:
    async with asyncio.timeout(_WAIT_S):
        return await reader.finished()
