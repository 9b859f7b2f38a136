"""Which building windows the judge of the simulation rejects, and which it accepts."""

from __future__ import annotations

import pytest

from iris_core.messages.scheduler_state import Placement, Plan
from iris_state.inputs.plans import accept
from iris_state.policy import Policy
from tests.sim.windows import Windows
from tests.support.script import Script

WINDOW = 2
USERS = ("ann", "bob", "eve", "zoe")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """A host with room for everybody, and a state service that takes whatever is placed there."""
    monkeypatch.setattr(accept, "_has_share", lambda *given, **named: True)
    made = Script(Policy(max_building=WINDOW))
    made.play("worker w0 cpu=64")
    for user in USERS:
        made.play(f"submit /{user} user={user} replicas=8")
    return made


def place(script: Script, user: str, *indexes: int) -> None:
    world = script.world
    placed = Placement(USERS.index(user) + 1, indexes, (0,) * len(indexes))
    world.plan(Plan("s", world.machine.sequence, ("w0",), (placed,)))


def wrong(script: Script, judge: Windows) -> list[str]:
    return list(judge.look(script.world.machine.ledger, WINDOW))


def test_a_window_for_a_user_and_three_for_all_are_accepted(script: Script):
    judge = Windows()
    for user in USERS[:3]:
        place(script, user, 0, 1)
    assert wrong(script, judge) == []


def test_more_than_a_window_of_one_user_is_rejected(script: Script):
    judge = Windows()
    place(script, "ann", 0, 1, 2)
    assert wrong(script, judge) == ["ann prepares 3 on w0, whose window is 2"]


def test_more_than_three_windows_of_all_are_rejected(script: Script):
    judge = Windows()
    for user in USERS:
        place(script, user, 0, 1)
    assert wrong(script, judge) == ["w0 prepares 8, and its window is 2"]


def test_what_has_waited_for_another_is_not_counted(script: Script):
    judge = Windows()
    place(script, "ann", 0, 1)
    ledger = script.world.machine.ledger
    waiting = list(ledger.presence["w0"].open.values())
    for attempt in waiting:
        attempt.waits = True
    assert wrong(script, judge) == []
    for attempt in waiting:
        attempt.waits = False
    place(script, "ann", 2, 3)
    assert wrong(script, judge) == []


def test_what_runs_is_not_counted(script: Script):
    judge = Windows()
    place(script, "ann", 0, 1)
    script.play("/ann/0 run\n/ann/1 run")
    place(script, "ann", 2, 3)
    assert wrong(script, judge) == []


def test_what_was_missed_is_not_counted(script: Script):
    judge = Windows()
    place(script, "ann", 0, 1, 2)
    judge.miss()
    assert wrong(script, judge) == []
    place(script, "ann", 3, 4, 5)
    assert wrong(script, judge) == ["ann prepares 3 on w0, whose window is 2"]
