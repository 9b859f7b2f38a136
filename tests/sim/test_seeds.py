"""Fault schedules on a simulated cluster: every invariant holds for every seed, deterministically."""

import pytest

from tests.sim.world import play

SEEDS = 120
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_every_promise_survives_the_storm(first):
    outcomes = [play(seed) for seed in range(first, first + AT_ONCE)]
    assert [f"make sim SEED={o.seed}: {o.wrong}" for o in outcomes if o.wrong] == []


@pytest.mark.parametrize("seed", [3, 17, 42])
def test_one_seed_is_one_run_byte_for_byte(seed):
    first, second = play(seed), play(seed)
    assert first.digest
    assert first == second
