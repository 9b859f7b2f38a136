"""The simulation finds every mutant within a bounded number of seeds; `make soak` looks for them."""

import pytest

from tests.sim import chain_mutants, crowd_mutants, team_mutants, window_mutants
from tests.sim.mutants import PLANTS, Plant, planted
from tests.sim.world import play

assert chain_mutants  # its mutants are among `PLANTS`
assert crowd_mutants
assert team_mutants
assert window_mutants
pytestmark = pytest.mark.integration

SEEDS = 120
"""One world in ten or more finds what is not shy: hardly ever does a commit move moments so that
none of these does.
"""
SHY_SEEDS = 1500


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTS)
def test_storms_find(name):
    plant = PLANTS[name]
    seeds = SHY_SEEDS if plant.is_shy else SEEDS
    assert finder(name, plant, seeds) is not None, plant.says


def finder(name: str, plant: Plant, seeds: int) -> int | None:
    """The first seed that finds it."""
    with planted(name):
        return next((seed for seed in range(seeds) if _breaks(seed, plant)), None)


def _breaks(seed: int, plant: Plant) -> bool:
    """Whether the judge has found something; not that the plant raises, because it fits the code no
    more.
    """
    try:
        wrong = play(seed, plant.storm).wrong
    except LookupError:
        return True  # the judge itself may stumble over what the plant has broken
    assert "TypeError" not in wrong
    assert "inputs raised" not in wrong
    return bool(wrong)


def test_there_are_enough_of_them():
    assert len(PLANTS) >= 30
