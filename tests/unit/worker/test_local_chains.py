"""What waits on a host behind other attempts of its job: it runs in their place, or is handed
back.
"""

from __future__ import annotations

import pytest

from iris_core.placement.chains import HAND_BACK_MS
from tests.unit.worker.story import Story


@pytest.fixture
def story() -> Story:
    return Story()


BUSY = """
    run 1-0-0                       -> taken, launch 1-0-0
    started 1-0-0
    chain 1-0-0 : 1-1-0 1-2-0       -> taken
"""


def test_one_runs_after_the_other(story):
    story.play(
        BUSY
        + """
        ended 1-0-0 0                   -> launch 1-1-0
        started 1-1-0
        ended 1-1-0 3                   -> launch 1-2-0
        started 1-2-0
        ended 1-2-0 0
        tell -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED exited 0, 1-1-0 RUNNING, 1-1-0 TERMINATED exited 3, \
1-2-0 RUNNING, 1-2-0 TERMINATED exited 0
        """.replace("\\\n", "")
    )


def test_what_waits_is_listed_and_not_reported(story):
    story.play(BUSY + "tell -> 1-0-0 PREPARING, 1-0-0 RUNNING\n taken\n tell ->\n")
    story.play("heartbeat -> 1-0-0 RUNNING, 1-1-0 SCHEDULED, 1-2-0 SCHEDULED")


def test_the_next_runs_before_the_end_of_the_last_is_stored(story):
    story.play(BUSY + "free 1-0-0 -> launch 1-1-0\n ended 1-0-0 0\n")


def test_what_waits_for_an_attempt_whose_order_is_late_does_not_start(story):
    story.play("""
        chain 1-0-0 : 1-1-0             -> taken
        run 1-0-0                       -> taken, launch 1-0-0
        ended 1-0-0 0                   -> launch 1-1-0
    """)


def test_what_is_ordered_again_waits_for_those_that_came_before(story):
    story.play(
        BUSY
        + """
        ended 1-0-0 0                   -> launch 1-1-0
        chain 1-0-0 1-1-0 1-2-0 : 1-3-0 -> taken
        chain 1-0-0 1-1-0 : 1-2-0 1-3-0 -> taken
        ended 1-1-0 0                   -> launch 1-2-0
        ended 1-2-0 0                   -> launch 1-3-0
        """
    )


def test_what_comes_behind_attempts_that_have_ended_starts_at_once(story):
    story.play(
        "run 1-0-0 -> taken, launch 1-0-0\n ended 1-0-0 0\n chain 1-0-0 : 1-1-0 -> taken, launch 1-1-0\n"
    )


def test_what_comes_behind_an_adopted_attempt_waits_for_it(story):
    story.play("adopt 1-0-0\n chain 1-0-0 : 1-1-0 -> taken\n ended 1-0-0 0 -> launch 1-1-0\n")


def test_what_waits_and_is_stopped_never_runs(story):
    story.play(BUSY + "stop 1-1-0 -> taken, discard 1-1-0\n ended 1-0-0 0 -> launch 1-2-0\n")


def test_what_is_stopped_while_its_bundle_comes_is_discarded_afterwards(story):
    story.play("""
        run 2-0-0                       -> taken, prepare 2-0-0
        prepared 2-0-0                  -> launch 2-0-0
        chain 2-0-0 : 2-1-0             -> taken
        ended 2-0-0 0                   -> prepare 2-1-0
        stop 2-1-0                      -> taken
        prepared 2-1-0                  -> discard 2-1-0
    """)


def test_a_kill_of_what_runs_lets_the_rest_go_on(story):
    story.play(BUSY + "stop 1-0-0 -> taken, kill 1-0-0\n ended 1-0-0 0 -> launch 1-1-0\n")


def test_nothing_that_waits_starts_while_the_worker_shuts_down(story):
    story.play(BUSY + "shutdown -> kill 1-0-0, discard 1-1-0, discard 1-2-0\n ended 1-0-0 0 -> \n")


def test_what_waits_behind_an_attempt_that_takes_long_is_handed_back(story):
    story.play(BUSY + "tell -> 1-0-0 PREPARING, 1-0-0 RUNNING\n")
    story.agent.hand_back(HAND_BACK_MS - 1)
    story.play("tell ->")
    story.agent.hand_back(HAND_BACK_MS)
    story.play("""
        tell          -> 1-2-0 TERMINATED handed_back, 1-1-0 TERMINATED handed_back
        ended 1-0-0 0 ->
        run 1-1-0     -> taken
        run 1-1-1     -> taken, launch 1-1-1
    """)


def test_ends_in_whose_place_others_run_may_wait_to_be_told(story):
    story.play(BUSY + "tell -> 1-0-0 PREPARING, 1-0-0 RUNNING\n")
    story.play("ended 1-0-0 0 -> launch 1-1-0")
    assert story.agent.is_patient
    story.play("started 1-1-0\n ended 1-1-0 0 -> launch 1-2-0\n started 1-2-0\n")
    assert story.agent.is_patient
    story.play("ended 1-2-0 0")
    assert not story.agent.is_patient
