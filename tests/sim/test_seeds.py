"""Fault schedules on a simulated cluster: every invariant holds for every seed, deterministically.

`make test` plays one in `ONE_IN` of the seeds; `make soak` all.
"""

import pytest

from tests.sim.world import play
from tests.support.samples import one_in

SEEDS = 240
AT_ONCE = 10
ONE_IN = 24


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", one_in(ONE_IN, range(0, SEEDS, AT_ONCE)))
def test_every_promise_survives_the_storm(first):
    outcomes = [play(seed) for seed in range(first, first + AT_ONCE)]
    assert [f"make sim SEED={o.seed}: {o.wrong}" for o in outcomes if o.wrong] == []


@pytest.mark.parametrize("seed", one_in(3, [3, 17, 42]))
def test_one_seed_is_one_run_byte_for_byte(seed):
    first, second = play(seed), play(seed)
    assert first.digest
    assert first == second
