"""Public events and lines of output as typed values: what `Job.follow`, `Client.events` and
`Client.logs` yield.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iris.client.decode import from_json
from iris.client.http.event_stream import EventStream, ServerEvent
from iris_core.views.events import (
    AmendmentEvent,
    DeploymentEvent,
    HoldEvent,
    JobEvent,
    NoticeEvent,
    RouteEvent,
    SessionEvent,
    TaskEvent,
)
from iris_core.views.streams import LogLineView

Event = (
    TaskEvent
    | NoticeEvent
    | JobEvent
    | AmendmentEvent
    | SessionEvent
    | DeploymentEvent
    | RouteEvent
    | HoldEvent
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


def read_lines(stream: Iterable[ServerEvent]) -> Iterator[LogLineView]:
    """The lines of output of a stream; duplicates after a lost connection are dropped."""
    reached: dict[tuple[int, int, str], int] = {}
    for message in stream:
        if message.name != "log":
            continue
        line = from_json(message.data, LogLineView)
        source = (line.index, line.attempt, line.stream)
        if line.offset > reached.get(source, -1):
            reached[source] = line.offset
            yield line
