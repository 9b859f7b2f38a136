"""Public events and lines of output as typed values: what `Job.follow`, `Client.events` and
`Client.logs` yield.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from iris.client.decode import from_json
from iris.client.http.event_stream import EventStream, ServerEvent
from iris.client.http.transport import UrlQuery
from iris_core.views.events import (
    AmendmentEvent,
    DeploymentEvent,
    HoldEvent,
    JobEvent,
    NoticeEvent,
    PoolEvent,
    RouteEvent,
    SessionEvent,
    SliceEvent,
    TaskEvent,
)
from iris_core.views.streams import LogLineView

_Source = tuple[int, int, str]
Event = (
    TaskEvent
    | NoticeEvent
    | JobEvent
    | AmendmentEvent
    | SessionEvent
    | DeploymentEvent
    | RouteEvent
    | HoldEvent
    | SliceEvent
    | PoolEvent
)

_KINDS: dict[str, type[Event]] = {
    "task.state": TaskEvent,
    "task.notice": NoticeEvent,
    "job.state": JobEvent,
    "job.spec": AmendmentEvent,
    "session.state": SessionEvent,
    "queue.state": HoldEvent,
    "deployment.state": DeploymentEvent,
    "route.state": RouteEvent,
    "fleet.slice": SliceEvent,
    "fleet.pool": PoolEvent,
    "fleet.orphan": PoolEvent,
}


def read_event(message: ServerEvent) -> Event | None:
    """The event in a server-sent event, by its name (``task.state.running``); None for an unknown
    type.
    """
    kind = _KINDS.get(message.name.rpartition(".")[0])
    return None if kind is None else from_json(message.data, kind)


def read_events(stream: EventStream) -> Iterator[Event]:
    """The events of a stream without unknown types; later reads are at least as new as them."""
    for message in stream:
        event = read_event(message)
        if event is not None:
            stream.transport.note(event.seq)
            yield event


def log_query(query: UrlQuery | None, follow: bool, unfinished: bool) -> UrlQuery:
    """The query of a request for output."""
    more: UrlQuery = {"unfinished": True} if unfinished else {}
    return {"follow": follow, **(query or {}), **more}


def log_lines(stream: Iterable[ServerEvent], *, unfinished: bool) -> Iterator[LogLineView]:
    """The lines of output of a stream, each whole, or with ``unfinished`` also as they come."""
    lines = read_lines(stream)
    return lines if unfinished else whole_lines(lines)


def read_lines(stream: Iterable[ServerEvent]) -> Iterator[LogLineView]:
    """The lines of output of a stream; what arrives again after a lost connection is dropped, also
    a part of a line that has not ended.
    """
    reached: dict[_Source, LogLineView] = {}
    for message in stream:
        if message.name != "log":
            continue
        line = from_json(message.data, LogLineView)
        source = (line.index, line.attempt, line.stream)
        new = _behind(reached.get(source), line)
        if new is not None:
            reached[source] = new
            yield new


def _behind(last: LogLineView | None, line: LogLineView) -> LogLineView | None:
    """What of a line comes after the last one of its source; None: nothing."""
    if last is None or line.offset > last.offset + len(last.printed):
        return line
    if not last.continued:
        return line if line.offset > last.offset else None
    known = last.offset + len(last.printed) - line.offset
    size = len(line.printed)
    if known == 0:
        return line
    if known > size + 1 or (known >= size and line.continued):
        return None  # one byte more than its own may be the \r of a line end
    rest = line.printed[known:]
    text = rest.decode(errors="replace")
    data = rest if text.encode() != rest else b""
    return msgspec.structs.replace(line, offset=line.offset + known, line=text, data=data)


def whole_lines(lines: Iterable[LogLineView]) -> Iterator[LogLineView]:
    """The lines with those that came in pieces joined, in the order of their ends. One that has
    not ended when no more arrives stays ``continued``.
    """
    parts: dict[_Source, list[LogLineView]] = {}
    for line in lines:
        source = (line.index, line.attempt, line.stream)
        if line.continued:
            parts.setdefault(source, []).append(line)
        else:
            yield _joined([*parts.pop(source, ()), line])
    yield from map(_joined, parts.values())


def _joined(parts: list[LogLineView]) -> LogLineView:
    if len(parts) == 1:
        return parts[0]
    printed = b"".join(part.printed for part in parts)
    if not parts[-1].continued and not parts[-1].printed:
        printed = printed.removesuffix(b"\r")  # of a line end whose bytes came apart
    text = printed.decode(errors="replace")
    data = printed if any(part.data for part in parts) else b""
    continued = parts[-1].continued
    return msgspec.structs.replace(parts[0], line=text, data=data, continued=continued)
