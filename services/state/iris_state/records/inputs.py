"""The inputs of the machine. Types only."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum, auto

from iris_core.messages.state_worker import Order
from iris_state.records.indexes.stored import StoredBytes


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


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What a provisioner tells; it is not answered."""

    data: bytes


@dataclass(frozen=True, slots=True)
class RoomMade:
    """So much of what a job has stored was deleted to make room."""

    job: int
    bytes: StoredBytes


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
    """How the delivery of an order ended; ``error`` is empty when its worker accepted it, otherwise
    ``fate`` tells more.

    ``monotonic_ms``: the host's monotonic clock when it took the order, 0: unknown.
    """

    worker: str
    order: Order
    error: str = ""
    fate: Fate = Fate.UNKNOWN
    monotonic_ms: int = 0


Input = Request | Heartbeat | Load | FleetReport | DeliveryResult | RoomMade

TimerKey = tuple[str, Hashable]
"""The kind of a timer, and the key of its record."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timeout that is due; ``judge`` computes its consequences."""

    keys: tuple[TimerKey, ...]
    judge: Callable[[], None]
