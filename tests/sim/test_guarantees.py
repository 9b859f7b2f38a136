"""Projects that lend each other what they are guaranteed, in storms: it is taken back by the rules, and
the judge finds what breaks them. Their weights decide the order, and what each used is counted anew.
"""

from __future__ import annotations

import pytest

from iris_core.placement.guarantees import Guarantees
from iris_scheduler.preempt.reclaim import Reclaim
from tests.sim import faults
from tests.sim.faults import FAULTS, Storm
from tests.sim.world import play

STORM = Storm(tuple(fault for fault in FAULTS if fault is not faults.jump), most=6)
"""No clock jumps: what is bounded in time is bounded by records, not by clocks."""
CALM = Storm((), most=0, bad_weather=0.0)
MUTANTS = {
    "work within the guarantee of its own project gives way": (
        (Guarantees, "_lends", lambda self, path, amount: True),
        "is guaranteed",
    ),
    "what gave way takes its place back at once": (
        (Reclaim, "_has_given_way", lambda self, job, indexes: False),
        "takes back what it gave",
    ),
}


def test_what_is_lent_is_taken_back_by_the_rules_in_every_storm() -> None:
    outcomes = [play(seed, STORM, lends=True) for seed in (3, 15)]
    assert [f"seed {one.seed}: {one.wrong}" for one in outcomes if one.wrong] == []
    assert sum(one.reclaimed for one in outcomes) > 0
    assert all(one.shared for one in outcomes)  # and what each had used was counted anew


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("says", MUTANTS)
def test_the_judge_finds(says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (of, name, broken), words = MUTANTS[says]
    monkeypatch.setattr(of, name, broken)
    wrongs = (play(seed, CALM, lends=True).wrong for seed in range(40))
    assert any(words in wrong for wrong in wrongs), says
