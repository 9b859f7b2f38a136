"""Hosts whose inputs are ignored for a while, because judging one of them raised after it had
changed a record. Pure.

A host repeats what is not answered, and each time the ledger would have to be rebuilt. It is
declared lost instead, which ends its attempts, and registers again. Source:
    docs/adr/0016-what-raises-is-set-aside.md.
"""

from __future__ import annotations

from iris_core import codec, subjects
from iris_core.messages.state_worker import HeartbeatMessage, WorkerReport
from iris_state.records.inputs import (
    DeliveryResult,
    Heartbeat,
    Input,
    Load,
    Request,
    RoomMade,
    Timer,
)

_REQUESTS = {
    subjects.STATE_PLAN: "plan",
    subjects.STATE_QUERY: "query",
    subjects.SNAPSHOT_FULL: "snapshot",
}

_KINDS = {
    Heartbeat: "heartbeat",
    Load: "load",
    DeliveryResult: "delivery",
    RoomMade: "room",
    Timer: "timer",
}


def kind_of(one: Input | Timer) -> str:
    """The kind of an input or timer, as a label of the metric."""
    if isinstance(one, Request):
        return (
            "report" if subjects.is_report(one.subject) else _REQUESTS.get(one.subject, "command")
        )
    return _KINDS[type(one)]


def host_of(one: Input) -> str:
    """The host that an input is about or comes from; empty when there is none."""
    if isinstance(one, DeliveryResult):
        return one.worker
    try:
        if isinstance(one, Heartbeat):
            return codec.unpack(one.data, HeartbeatMessage).worker
        if isinstance(one, Request) and subjects.is_report(one.subject):
            return codec.unpack(one.data, WorkerReport).worker
    except codec.Undecodable:
        pass
    return ""


class Quarantine:
    """Until when the inputs of each quarantined host are ignored, ms."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}

    def put(self, one: Input, until_ms: int) -> None:
        host = host_of(one)
        if host:
            self._until.pop(host, None)
            self._until[host] = until_ms  # the last quarantine to end

    def holds(self, one: Input, now_ms: int) -> bool:
        """Whether an input is ignored now. Fast while no host is quarantined."""
        while self._until and next(iter(self._until.values())) <= now_ms:
            del self._until[next(iter(self._until))]
        return bool(self._until) and host_of(one) in self._until
