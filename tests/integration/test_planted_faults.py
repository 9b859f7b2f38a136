"""Every planted breakage of the code is found by the simulation, within so many seeds."""

import pytest

from tests.sim.plants import PLANTS, planted
from tests.sim.world import play

pytestmark = pytest.mark.integration

SEEDS = 200
"""Most are found by the first few, the shyest by one in twenty; a commit that moves a moment plays other storms."""


@pytest.mark.parametrize("name", PLANTS)
def test_a_storm_finds(name):
    with planted(name):
        found = next((seed for seed in range(SEEDS) if _breaks(seed)), None)
    assert found is not None, f"{name}: {PLANTS[name].__doc__}"


def _breaks(seed: int) -> bool:
    try:
        return bool(play(seed).wrong)
    except Exception:  # noqa: BLE001 the judge itself may stumble over what the plant has broken
        return True


def test_there_are_enough_of_them():
    assert len(PLANTS) >= 30
