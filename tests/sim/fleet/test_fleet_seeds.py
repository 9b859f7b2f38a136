"""Pools and slices beside a cloud that fails: every invariant holds for every seed, and each mutant
of the decisions is found.

`make test` plays one in `ONE_IN` of the seeds; `make soak` all of them, and looks for the mutants.
"""

import pytest

from tests.sim.fleet.mutants import MUTANTS, found_by
from tests.sim.fleet.play import play
from tests.support.samples import one_in

SEEDS = 200
AT_ONCE = 2
ONE_IN = 50


@pytest.mark.parametrize("first", one_in(ONE_IN, range(0, SEEDS, AT_ONCE)))
def test_every_promise_of_a_fleet_survives_its_cloud(first):
    outcomes = [play(seed) for seed in range(first, first + AT_ONCE)]
    assert [f"seed {one.seed}: {one.wrong}" for one in outcomes if one.wrong] == []


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_simulated_cloud_finds_a_mutant(mutant):
    assert found_by(mutant) is not None
