"""Lists that overlap: pools of one provider whose options reach the same place."""

from __future__ import annotations

import pytest

from iris_state.records.fleet.sightings import ListedSlice, ListSource, ProviderOrder, Sightings
from tests.sim.fleet.cloud import CloudFaults
from tests.sim.fleet.world import FleetWorld, cpu_pool

SPOT = cpu_pool("spot", min=1, options={"capacity": "spot"})
PLAIN = cpu_pool("plain", options={"capacity": "plain"})
HERS = ListedSlice("spot-0", 1)


@pytest.fixture
def it() -> FleetWorld:
    """A slice of the one pool, which both lists have."""
    made = FleetWorld(1, (SPOT, PLAIN), CloudFaults())
    made.run_until(lambda: made.fleet.slices, 60)
    return made


def listed(it: FleetWorld, *entries: ListedSlice) -> Sightings:
    it.sightings.on_list(
        ListSource.of(PLAIN), entries, began_ms=it.now_ms, fleet=it.fleet, policy=it.scene.policy
    )
    return it.sightings


def test_what_belongs_to_another_pool_is_no_stranger(it: FleetWorld) -> None:
    found = listed(it, HERS, ListedSlice("spot-1", 9)).orphans(it.fleet)
    assert [seen.listed.name for source, seen in found] == ["spot-1"]


def test_a_list_that_ended_with_its_pool_leaves_nothing_behind(it: FleetWorld) -> None:
    sightings = listed(it, HERS)
    del it.fleet.pools["plain"]
    sightings.forget(it.fleet)
    it.fleet.slices.clear()  # the slice has ended, which no list of the removed pool says
    assert [
        source for source, _ in sightings.orphans(it.fleet) if source != ListSource.of(SPOT)
    ] == []


def test_a_stranger_of_a_removed_pool_is_known_until_it_is_deleted(
    it: FleetWorld,
) -> None:
    stranger = ListedSlice("plain-4", 9)
    sightings = listed(it, stranger)
    del it.fleet.pools["plain"]
    sightings.forget(it.fleet)
    [(source, seen)] = [one for one in sightings.orphans(it.fleet) if one[1].listed == stranger]
    order = ProviderOrder("delete", source, seen.listed.name, seen.listed.label)
    sightings.on_answer(order, "failed", "", it.now_ms)
    sightings.forget(it.fleet)
    assert stranger in [seen.listed for _, seen in sightings.orphans(it.fleet)]
    sightings.on_answer(order, "accepted", "", it.now_ms)
    sightings.forget(it.fleet)
    assert stranger not in [seen.listed for _, seen in sightings.orphans(it.fleet)]
