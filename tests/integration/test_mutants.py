"""The simulation finds every mutant within a bounded number of seeds.

`make test` looks for one in `TURNS`, others for each commit; `make soak` for all.
"""

import pytest

from tests.sim import chain_mutants, crowd_mutants
from tests.sim.mutants import PLANTS, Plant, planted
from tests.sim.world import play
from tests.support import turns
from tests.support.turns import in_turns

assert chain_mutants  # its mutants are among `PLANTS`
assert crowd_mutants
pytestmark = pytest.mark.integration

SEEDS = 120
"""One world in ten or more finds what is not shy: hardly ever does a commit move moments so that
none of these does.
"""
SHY_SEEDS = 1500
TURNS = 20


@pytest.mark.parametrize(
    "name", in_turns((name for name, plant in PLANTS.items() if not plant.is_shy), TURNS)
)
def test_a_storm_finds(name):
    assert finder(name, PLANTS[name], SEEDS) is not None, PLANTS[name].says


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name, plant in PLANTS.items() if plant.is_shy])
def test_many_storms_find(name):
    assert finder(name, PLANTS[name], SHY_SEEDS) is not None, PLANTS[name].says


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


def test_each_mutant_has_its_turn(monkeypatch: pytest.MonkeyPatch):
    names = [name for name, plant in PLANTS.items() if not plant.is_shy]
    taken = []
    for now in range(TURNS):
        monkeypatch.setattr(turns, "commits", lambda now=now: now)
        taken += [
            case.values[0] for case in in_turns(names, TURNS) if pytest.mark.soak not in case.marks
        ]
    assert sorted(taken) == sorted(names)


def test_there_are_enough_of_them():
    assert len(PLANTS) >= 30
