"""Fault schedules on a simulated cluster: every invariant holds for every seed, deterministically.

`make test` plays one in `TURNS` of the seeds, others at each commit; `make soak` all.
"""

import pytest

from tests.sim.world import play
from tests.support.turns import in_turns

SEEDS = 240
AT_ONCE = 10
TURNS = 24


@pytest.mark.parametrize("first", in_turns(range(0, SEEDS, AT_ONCE), TURNS))
def test_every_promise_survives_the_storm(first):
    outcomes = [play(seed) for seed in range(first, first + AT_ONCE)]
    assert [f"make sim SEED={o.seed}: {o.wrong}" for o in outcomes if o.wrong] == []


@pytest.mark.parametrize("seed", in_turns([3, 17, 42], 3))
def test_one_seed_is_one_run_byte_for_byte(seed):
    first, second = play(seed), play(seed)
    assert first.digest
    assert first == second
