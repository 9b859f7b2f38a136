"""The inputs of the machine and the result of one round. Types only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from iris_bus.contract import Publication
from iris_core.messages.scheduler_state import JobReason
from iris_core.messages.state_worker import Order
from iris_core.serving import Discovery
from iris_state.deployments.records import PublicFact
from iris_state.records.changes import Change


@dataclass(frozen=True, slots=True)
class Request:
    """A request on a core subject, answered to ``reply`` after the commit that holds its effect."""

    subject: str
    data: bytes
    reply: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat; it is not answered."""

    subject: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Load:
    """A report of the load of deployments; it is not answered."""

    data: bytes


class Fate(Enum):
    """What is known of an order that was not accepted."""

    UNKNOWN = auto()
    """No answer: it may still arrive, or was accepted and the answer is lost."""
    REFUSED = auto()
    """The worker refused it; it may accept the next one."""
    NEVER = auto()
    """It never reached the worker, or reached one that is stopping: it will never be executed."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """How the delivery of an order ended; ``error`` is empty when its worker accepted it, otherwise ``fate`` tells
    more.

    ``monotonic_ms``: the host's monotonic clock when it answered, 0: unknown.
    """

    worker: str
    order: Order
    error: str = ""
    fate: Fate = Fate.UNKNOWN
    monotonic_ms: int = 0


Input = Request | Heartbeat | Load | DeliveryResult

TimerKey = tuple[str, Hashable]
"""The kind of a timer, and the key of its record."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timeout that is due; ``judge`` computes its consequences."""

    keys: tuple[TimerKey, ...]
    judge: Callable[[], None]


@dataclass(slots=True)
class Output:
    """The result of one round. Nothing of it may be sent before ``commit`` is durable.

    Attributes:
        commit: the bytes to append, so that they end at ``sequence``; None when nothing changed.
        delta: for the scheduler's mirror, present with every commit.
        facts: the facts that were worded, and refused: why placements of a plan were not taken, for the metrics.
        raised: inputs and timers that were set aside, by kind, and how they raised.
        left: inputs to be judged when the machine has been reloaded (see `Machine.torn`).
        reasons: why jobs wait, for replicas that follow.
        discovery: the sets of routes that have changed, for proxies; undiscovered: names of
            deployments that are forgotten.
    """

    sequence: int
    commit: bytes | None = None
    replies: list[tuple[str, bytes]] = field(default_factory=list)
    orders: dict[str, Order] = field(default_factory=dict)
    events: list[Publication] = field(default_factory=list)
    delta: bytes | None = None
    changes: Sequence[Change] = ()
    facts: Sequence[PublicFact] = ()
    refused: Sequence[str] = ()
    raised: list[tuple[str, Exception]] = field(default_factory=list)
    left: Sequence[Input] = ()
    reasons: Sequence[JobReason] = ()
    discovery: Sequence[Discovery] = ()
    undiscovered: Sequence[str] = ()
