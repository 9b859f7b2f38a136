"""Every consumer of changes declares its reaction to each kind of change, or that it has none."""

from __future__ import annotations

import pytest

from iris_state.decide.retention import Retention
from iris_state.deployments.reconciler import Reconciler
from iris_state.effects.deltas import DeltaBuilder
from iris_state.effects.orders import OrderBook
from iris_state.machine.round import Round
from iris_state.records.apply import WRITERS
from iris_state.records.changes import Assigned, Led
from iris_state.records.reactions import KINDS, bind, complete
from iris_state.replication.metrics import StateMetrics
from iris_state.snapshots.snapshot import Cutter

CONSUMERS = (Retention, OrderBook, DeltaBuilder, Reconciler, Round, StateMetrics, Cutter)


def _ignored(*_: object) -> None: ...


def test_the_records_react_to_every_kind_of_change() -> None:
    assert WRITERS.keys() == KINDS


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_kind_that_a_consumer_does_not_name_is_refused(consumer: type[Round]) -> None:
    named = consumer.REACTIONS
    with pytest.raises(TypeError, match="named once for Led"):
        complete({**named}, nothing=KINDS - named.keys() - {Led})


def test_a_kind_that_is_named_twice_is_refused() -> None:
    with pytest.raises(TypeError, match="named once for Assigned"):
        complete({Assigned: _ignored}, nothing=KINDS)


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="named once for int"):
        complete({int: _ignored}, nothing=KINDS)


def test_consumers_react_in_the_order_they_are_bound_in() -> None:
    seen: list[str] = []

    class Consumer:
        def __init__(self, name: str) -> None:
            self.name = name

        def led(self, change: Led) -> None:
            seen.append(self.name)

        REACTIONS = complete({Led: led}, nothing=KINDS - {Led})

    reactions = bind(Consumer("first"), Consumer("second"))
    for react in reactions[Led]:
        react(Led("a", 1))
    assert (seen, reactions[Assigned]) == (["first", "second"], ())
