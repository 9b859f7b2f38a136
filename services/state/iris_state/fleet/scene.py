"""What the decisions about the fleet read, from the ledger: its slices and their hosts. Pure.

Source: docs/design/fleet.md#decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from iris_core.placement.pools import differences
from iris_state.fleet.facts import HostFacts
from iris_state.fleet.slices import Scene
from iris_state.records.fleet.records import Slice
from iris_state.records.hosts import Worker
from iris_state.records.ledger import Ledger


class FleetHosts(Mapping[str, HostFacts]):
    """The registered hosts of slices, each looked up when it is asked for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._nominated = frozenset(ledger.nominations.values())
        self._places: dict[str, tuple[Slice, int]] = {}
        for one in ledger.fleet.slices.values():
            for index, name in enumerate(one.hosts):
                self._places[name] = (one, index)

    def __getitem__(self, name: str) -> HostFacts:
        worker = self._ledger.workers[name]
        presence = self._ledger.presence[name]
        place = self._places.get(name)
        return HostFacts(
            state=worker.state,
            since_ms=worker.since_ms,
            open=len(presence.open),
            nominated=name in self._nominated,
            last_end_ms=worker.last_end_ms,
            differs=() if place is None else differs(worker, *place),
            notice_ms=worker.notice_ms,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._ledger.workers)

    def __len__(self) -> int:
        return len(self._ledger.workers)


def differs(worker: Worker, one: Slice, index: int) -> tuple[str, ...]:
    """How a host falls short of what its slice was requested with, in words."""
    return differences(one.spec, one.slot, index, worker.total, worker.attributes)


def scene_of(ledger: Ledger) -> Scene:
    """What decisions read now."""
    return Scene(
        fleet=ledger.fleet,
        hosts=FleetHosts(ledger),
        sightings=ledger.sightings,
        policy=ledger.fleet_policy,
        now_ms=ledger.now_ms,
    )
