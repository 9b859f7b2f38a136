"""One public event, and the filter of a caller.

Pure: a message is decoded to an `EventRecord` once for all watchers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from iris_bus.contract import Message
from iris_core.states import (
    DeploymentLifecycle,
    JobState,
    NoticeReason,
    RouteStatus,
    SessionStatus,
    SliceStatus,
    TaskState,
    display_name,
)

WORDS: Mapping[str, Sequence[str]] = {
    "task.state": [display_name(state) for state in TaskState if state],
    "job.state": [display_name(state) for state in JobState if state],
    "session.state": [status.value.lower() for status in SessionStatus],
    "deployment.state": [status.value for status in DeploymentLifecycle],
    "route.state": [status.value for status in RouteStatus],
    "queue.state": ["held", "released"],
    "fleet.slice": [status.value for status in SliceStatus],
    "project.state": ["set", "removed"],
    "fleet.pool": ["set", "removed", "paused", "resumed", "exhausted", "recovered", "stopped"],
    "fleet.orphan": ["adopted", "deleted"],
    "task.notice": [reason.value for reason in NoticeReason],
    "job.spec": ["amended"],
}
"""The last tokens of the subjects of events, by what is before them."""
_ENTITIES = dict.fromkeys(prefix.partition(".")[0] for prefix in WORDS)
_OF_DEPLOYMENTS = ("deployment", "route")
TYPES = (
    *_ENTITIES,
    *WORDS,
    *(f"{prefix}.{word}" for prefix, words in WORDS.items() for word in words),
)
"""Valid types of events in a filter."""
TYPES_HINT = f"one or more of {', '.join((*_ENTITIES, *WORDS))}, or of these with a state, as task.state.running"
"""What a refusal of another type says."""

_JOB_ID = re.compile(r"j[0-9]{1,18}\Z")


class _Body(msgspec.Struct):
    job: str = ""
    job_id: str = ""
    task: str | None = None
    deployment: str = ""
    worker: str | None = None
    at_ms: int = 0
    attempt: int | None = None
    user: str = ""


_read_body = msgspec.json.Decoder(_Body).decode


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event: its stream sequence, its subject, its body as published, and as text/event-stream.

    ``number``: of its job; 0 when it is about none.
    ``attempt``: of its task; None when there is none. ``user``: the owner of its job; empty when
    that is not known.
    """

    sequence: int
    type: str
    job: str
    number: int
    task: str | None
    deployment: str
    worker: str | None
    at_ms: int
    body: bytes
    frame: bytes
    attempt: int | None = None
    user: str = ""

    def shown(self) -> dict[str, Any]:
        """The event as an item of a page: its body with ``id`` and ``type``."""
        return {
            "id": str(self.sequence),
            "type": self.type,
            **msgspec.json.decode(self.body, type=dict[str, Any]),
        }


def read_event(message: Message) -> EventRecord:
    """The event in a message; a body that cannot be decoded belongs to no job and is shown
    empty.
    """
    try:
        body = _read_body(message.data)
        data = message.data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = _Body()
        data = b"{}"
    frame = b"id: %d\nevent: %s\ndata: %s\n\n" % (message.sequence, message.subject.encode(), data)
    number = int(body.job_id[1:]) if _JOB_ID.match(body.job_id) else 0
    about = (body.job, number, body.task, body.deployment, body.worker)
    rest = (body.at_ms, data, frame, body.attempt, body.user)
    return EventRecord(message.sequence, message.subject, *about, *rest)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of events.

    Attributes:
        types: subjects or their prefixes (``task``, ``task.state``, ``task.state.running``); all
            when empty.
        within: a job's name: the job and its descendants; all when empty. number: of the one job of
            that name; 0: all.
            next_run: the number of the next job of that name, which is above all its descendants';
                0: there is none.
        user: the owner of that job, and of those below it: others may have jobs of these names.
        deployment: a deployment's name: the deployment and its routes; all when empty.
        worker: a worker's name: of attempts and routes that are on it; all when empty.
    """

    types: tuple[str, ...] = ()
    within: str = ""
    deployment: str = ""
    worker: str = ""
    number: int = 0
    next_run: int = 0
    user: str = ""

    def wants(self, event: EventRecord) -> bool:
        of_it = self.deployment in ("", event.deployment) and self.worker in ("", event.worker)
        return of_it and self._wants_type(event.type) and self._wants_job(event)

    def of(self, events: Iterable[EventRecord]) -> list[EventRecord]:
        """The events that match, in order."""
        if self == EVERYTHING:
            return list(events)
        return [event for event in events if self.wants(event)]

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects of ``types`` on the bus, or of what has a deployment, without those that
        another one includes; none for all. They do not say of which job or worker an event is.
        """
        types = self.types or (_OF_DEPLOYMENTS if self.deployment else ())
        least = [
            one for one in dict.fromkeys(types) if not one.startswith(tuple(f"{t}." for t in types))
        ]
        return tuple(one if one.count(".") == 2 else f"{one}.>" for one in least)

    def _wants_type(self, subject: str) -> bool:
        if not self.types:
            return True
        return any(subject == wanted or subject.startswith(f"{wanted}.") for wanted in self.types)

    def _wants_job(self, event: EventRecord) -> bool:
        if not self.within:
            return True
        if event.job == self.within:
            return not event.number or self.number in (0, event.number)
        below = event.job.startswith(f"{self.within}/")
        is_of_user = not event.user or self.user in ("", event.user)
        return (
            below
            and is_of_user
            and (not event.number or self.number < event.number < (self.next_run or math.inf))
        )


EVERYTHING = Filter()


def of_run(wanted: Filter, job: str, name: str, user: str, next_run: str | None) -> Filter:
    """The filter, of one job by its id, and of all of its owner below it: not of other jobs that
    have its name, or have had it.
    """
    number = int(job[1:])
    end = int(next_run[1:]) if next_run else 0
    return replace(wanted, within=name, number=number, next_run=end, user=user)
