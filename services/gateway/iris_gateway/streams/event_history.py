"""Pages of past events, read from the stream in ranges: a page reads a bounded number of messages, even if none
matches.

Out of scope: new events (`feed`).
"""

from __future__ import annotations

from iris_bus.contract import Gap, Streams, Unavailable
from iris_core.subjects import EVENTS
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import EventRecord, Filter, read_event
from iris_gateway.streams.readers import reading

STRETCH = 2000
BUDGET = 20_000
_WAIT_S = 2.0

EventRecords = tuple[list[EventRecord], int | None]
"""Events, and where the next page continues (None: there is none)."""


async def oldest_first(streams: Streams, wanted: Filter, limit: int, after: int) -> EventRecords:
    """Matching events after sequence ``after``."""
    end = await _end(streams)
    events: list[EventRecord] = []
    stop = min(end, after + BUDGET)
    while after < stop:
        until = min(after + STRETCH, stop)
        for event in await _stretch(streams, after, until):
            after = event.sequence
            if wanted.wants(event):
                events.append(event)
            if len(events) == limit:
                return events, after if after < end else None
        after = max(after, until)
    return events, after if after < end else None


async def newest_first(
    streams: Streams, wanted: Filter, limit: int, before: int | None, budget: int = BUDGET, after: int = 0
) -> EventRecords:
    """Matching events before sequence ``before`` (None: the end) and after ``after``, latest first; reads ``budget``
    messages at most.
    """
    upper = await _end(streams) if before is None else before - 1
    events: list[EventRecord] = []
    lowest = max(after, upper - budget)
    while upper > lowest:
        lower = max(upper - STRETCH, lowest)
        found = await _stretch(streams, lower, upper)
        for event in reversed(found):
            if wanted.wants(event):
                events.append(event)
            if len(events) == limit:
                return events, event.sequence if event.sequence > after + 1 else None
        if not found:
            return events, None  # older ones are deleted
        upper = lower
    return events, upper + 1 if upper > after else None


async def _end(streams: Streams) -> int:
    try:
        message = await streams.last(EVENTS.name)
    except Unavailable:
        raise ProblemResponse("unavailable", "the events cannot be read") from None
    return message.sequence if message is not None else 0


async def _stretch(streams: Streams, after: int, until: int) -> list[EventRecord]:
    """Events after ``after`` up to ``until``, without deleted ones."""
    try:
        return await _read(streams, after, until)
    except Gap:
        kept = await _read(streams, 0, until)
        return [event for event in kept if event.sequence > after]
    except Unavailable:
        raise ProblemResponse("unavailable", "the events cannot be read") from None


async def _read(streams: Streams, after: int, until: int) -> list[EventRecord]:
    events: list[EventRecord] = []
    with reading(streams, EVENTS.name, after) as reader:
        while after < until:
            batch = await reader.batch(wait=_WAIT_S)
            if not batch:
                break
            after = batch[-1].sequence
            events += [read_event(message) for message in batch if message.sequence <= until]
    return events
