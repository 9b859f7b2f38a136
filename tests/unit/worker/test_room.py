"""What begins on a host that has come back waits for room, while what ran there has not ended and
may not count.
"""

from __future__ import annotations

from collections import deque

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Stage, TaskTemplate
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import KernelStatus
from iris_worker.agent.local_attempt import LocalAttempt
from iris_worker.agent.room import LACKING, LONGEST_MS, HostRoom
from tests.unit.worker.story import Story


@pytest.fixture
def story() -> Story:
    return Story()


FULL = """
    run 1-0-0 1-1-0                     -> taken, launch 1-0-0, launch 1-1-0
    started 1-0-0
    started 1-1-0
    tell                                -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-1-0 PREPARING, 1-1-0 RUNNING
    taken
    register                            -> 1-0-0 RUNNING, 1-1-0 RUNNING
"""
"""It has two processors, was LOST, and comes back."""
BACK = FULL + "registered 1-0-0 1-1-0 -> kill 1-0-0, kill 1-1-0\n"


def test_what_does_not_fit_beside_what_was_dropped_begins_when_it_does(story):
    story.play(
        BACK
        + """
        run 2-0-0 3-0-0 3-1-0           -> taken
        tell                            -> 2-0-0 PREPARING, 3-0-0 PREPARING, 3-1-0 PREPARING
        """
    )
    assert {stage.detail for stage in story.agent.attempts() if stage.ref.job > 1} == {LACKING}
    story.play("taken\n ended 1-0-0 0 -> prepare 2-0-0\n prepared 2-0-0 -> launch 2-0-0\n")
    assert "" in {stage.detail for stage in story.agent.attempts() if stage.ref.job == 2}
    story.play("ended 1-1-0 0 -> launch 3-0-0, launch 3-1-0\n run 3-2-0 -> taken, launch 3-2-0\n")


def test_what_fits_beside_what_was_dropped_begins_at_once(story):
    story.play("""
        run 1-0-0                       -> taken, launch 1-0-0
        register                        -> 1-0-0 PREPARING
        run 3-0-0 3-1-0                 -> taken, launch 3-0-0
        registered 1-0-0                -> kill 1-0-0
        ended 3-0-0 0                   -> launch 3-1-0
    """)


def test_an_order_that_overtakes_the_answer_to_a_registration_waits_for_it(story):
    story.play(FULL + "run 3-0-0 -> taken\n registered -> launch 3-0-0\n")


def test_an_order_that_overtakes_the_answer_waits_for_what_is_dropped(story):
    story.play(
        FULL
        + "run 3-0-0 -> taken\n registered 1-0-0 -> kill 1-0-0\n ended 1-0-0 0 -> launch 3-0-0\n"
    )


def test_what_waits_for_an_answer_that_was_lost_does_not_wait_for_itself(story):
    story.play(
        FULL
        + """
        run 3-0-0                       -> taken
        register                        -> 1-0-0 RUNNING, 1-1-0 RUNNING, 3-0-0 PREPARING
        registered 1-0-0 1-1-0          -> kill 1-0-0, kill 1-1-0
        ended 1-1-0 0                   -> launch 3-0-0
        """
    )


def test_nothing_waits_for_what_still_counts(story):
    story.play(FULL + "registered -> \n run 3-0-0 -> taken, launch 3-0-0\n")


def test_what_an_earlier_process_has_started_may_hold_everything(story):
    story.play("""
        adopt 1-0-0
        register                        -> 1-0-0 RUNNING
        run 3-0-0                       -> taken
        registered 1-0-0                -> kill 1-0-0
        ended 1-0-0 0                   -> launch 3-0-0
    """)


def test_a_member_of_a_gang_is_prepared_when_there_is_room(story):
    story.play(
        BACK
        + """
        prepare 3-0-0                   -> taken
        start 3-0-0                     -> taken
        free 1-0-0                      -> launch 3-0-0
        tell                            -> 3-0-0 PREPARING, 3-0-0 PREPARING, 3-0-0 PREPARED, 3-0-0 CREATING
        """
    )


def test_the_first_of_a_chain_waits_for_room_and_the_others_for_it(story):
    story.play(
        BACK
        + """
        chain : 3-0-0 3-1-0             -> taken
        ended 1-1-0 0                   -> launch 3-0-0
        ended 3-0-0 0                   -> launch 3-1-0
        """
    )


def test_what_waits_for_room_and_is_stopped_or_dropped_itself_never_runs(story):
    story.play(
        BACK
        + """
        run 3-0-0 3-1-0 3-2-0           -> taken
        stop 3-0-0                      -> taken, discard 3-0-0
        taken_but_drop 3-1-0            -> discard 3-1-0
        ended 1-0-0 0                   -> launch 3-2-0
        """
    )


def test_what_waits_for_room_ends_when_the_worker_does(story):
    story.play(
        BACK
        + "run 3-0-0 -> taken\n shutdown -> kill 1-0-0, kill 1-1-0, discard 3-0-0\n ended 1-0-0 0 ->\n"
    )


def test_what_was_dropped_and_does_not_end_is_not_waited_for_for_ever(story):
    story.play(BACK + "run 3-0-0 -> taken")
    story.agent.hand_back(LONGEST_MS - 1)
    story.play("heartbeat -> 1-0-0 RUNNING, 1-1-0 RUNNING, 3-0-0 PREPARING")
    story.agent.hand_back(LONGEST_MS)
    story.play("heartbeat -> 1-0-0 RUNNING, 1-1-0 RUNNING, 3-0-0 PREPARING, launch 3-0-0")


def test_what_was_dropped_after_its_end_is_not_waited_for(story):
    story.play(FULL + "ended 1-1-0 0\n free 1-0-0\n registered 1-0-0 1-1-0 -> kill 1-0-0")
    story.play("run 3-0-0 -> taken, launch 3-0-0")


def test_a_later_answer_does_not_begin_the_longest_wait_again(story):
    story.play(BACK + "run 3-0-0 -> taken")
    story.agent.room.believe({AttemptRef(1, 0, 0), AttemptRef(1, 1, 0)}, 1_000)
    story.agent.hand_back(LONGEST_MS)
    story.play("heartbeat -> 1-0-0 RUNNING, 1-1-0 RUNNING, 3-0-0 PREPARING, launch 3-0-0")


def test_what_an_earlier_process_started_and_counts_leaves_room_beside_it():
    counts, dropped, begins = (AttemptRef(1, index, 0) for index in range(3))
    one = TaskTemplate(1, "/a", ("true",), {}, 1, ResourceRequest(cpu_millis=1_000))
    running = [LocalAttempt(counts, None, Stage(counts, KernelStatus.RUNNING, 0))]
    running.append(LocalAttempt(dropped, one, Stage(dropped, KernelStatus.RUNNING, 0)))
    room = HostRoom({held.ref: held for held in running}, deque())
    room.total = Amount(cpu_millis=2_000)
    room.doubt()
    room.believe({dropped}, 0)
    assert (room.doubted, room.take(begins, one)) == ({dropped}, True)
