"""What the machine's inputs cause, as one list of one union, and the result of a round. Types only.

Judging an input appends to the list; what raises is undone by removing its end. When the round
ends, changes and public facts become the commit, and what can only be worded then (answers,
snapshots, orders, events) takes its place. Adding an effect: a class here, its place in `Effect`,
    and what the leader does with it (`replication.leader`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from iris_bus.contract import Publication
from iris_core.messages.gateway_state import Answer
from iris_core.messages.scheduler_state import JobReason
from iris_core.messages.state_provisioner import FleetOrders
from iris_core.messages.state_worker import Order
from iris_core.spec.serving import Discovery
from iris_state.records.changes import Change
from iris_state.records.facts import PublicFact
from iris_state.records.inputs import Input, Request


@dataclass(frozen=True, slots=True)
class AnswerTo:
    """The answer to a command; it names the commit, so it becomes a `ReplyTo` when the round
    ends.
    """

    to: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class SnapshotTo:
    """A scheduler's request for a full snapshot, which is made as of the end of the round."""

    request: Request


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """A message to whoever sent a request."""

    to: str
    data: bytes


@dataclass(frozen=True, slots=True)
class OrderTo:
    """An order to a worker."""

    worker: str
    order: Order


@dataclass(frozen=True, slots=True)
class FleetOrdersTo:
    """Orders to the provisioner."""

    orders: FleetOrders


@dataclass(frozen=True, slots=True)
class MirrorDelta:
    """The delta of the commit for the mirrors of schedulers; it alone may be sent before the commit
    is durable.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class Undiscovered:
    """The name of a deployment that is forgotten; proxies forget its set of routes."""

    name: str


@dataclass(frozen=True, slots=True)
class PlacementRefused:
    """A placement of a plan was not accepted, for the metrics."""

    cause: str


@dataclass(frozen=True, slots=True)
class Raised:
    """An input or timer of this kind was set aside, because judging it raised."""

    kind: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Unjudged:
    """An input that is judged when the machine has been reloaded (see `Machine.torn`)."""

    input: Input


Effect: TypeAlias = (
    Change
    | PublicFact
    | AnswerTo
    | SnapshotTo
    | ReplyTo
    | OrderTo
    | FleetOrdersTo
    | MirrorDelta
    | Publication
    | Discovery
    | Undiscovered
    | JobReason
    | PlacementRefused
    | Raised
    | Unjudged
)

E = TypeVar("E")


class Output:
    """The result of one round. Nothing of it may be sent before ``commit`` is durable.

    Attributes:
        sequence: of the last commit in the journal, once this one is there.
        commit: the bytes to append, so that they end at ``sequence``; None when nothing changed.
        changes, facts: what the commit holds, and what its public events say.
    """

    def __init__(
        self,
        sequence: int,
        commit: bytes | None,
        changes: Sequence[Change],
        facts: Sequence[PublicFact],
    ) -> None:
        self.sequence = sequence
        self.commit = commit
        self.changes = changes
        self.facts = facts
        self._effects: defaultdict[type, list[Any]] = defaultdict(list)

    def add(self, effects: Iterable[Effect]) -> None:
        """Add what is sent, each kind in the order in which it is sent."""
        for one in effects:
            self._effects[type(one)].append(one)

    def of(self, kind: type[E]) -> Sequence[E]:
        """The effects of one kind, in order."""
        return self._effects.get(kind, ())
