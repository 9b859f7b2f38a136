"""Exhaustive search over a session of two kernels: orders, reports, losses, restarts, cancels and
the clock.
"""

import pytest

from iris_core.messages.message import AttemptRef
from iris_state.check.records import check
from iris_state.policy import Policy
from tests.support.exploration import Cell, Path, endless, explore, gang
from tests.support.growth import check_timeouts
from tests.support.samples import one_in

ONE_IN = 6
STRICT = Policy(
    prepare_tries=0, start_tries=0, schedule_tries=0, max_reschedules=0, forget_workers_after_s=0
)
"""Nothing is forgiven, so the space of states is finite and small."""

FORGIVING = Policy(
    prepare_tries=1, start_tries=1, schedule_tries=1, max_reschedules=2, forget_workers_after_s=0
)

HARD = gang(max_retries_failure=0, max_retries_preemption=0)
SOFT = gang(max_retries_failure=1, max_retries_preemption=1)
HURRIED = gang(max_retries_preemption=0, timeout_s=30.0, scheduling_timeout_s=60.0)

PLACED: Path = (("plan",), ("take", "a"), ("take", "b"))
PREPARED: Path = (*PLACED, ("prepare", "a", "0.0"), ("prepare", "b", "1.0"))
STARTED: Path = (*PREPARED, ("take", "a"), ("take", "b"), ("run", "a", "0.0"))
RUNNING: Path = (*STARTED, ("run", "b", "1.0"))
AGAIN: Path = (*RUNNING, ("exit 1", "a", "0.0"))

SPACES = {
    "from the beginning": (HARD, STRICT, 400, ()),
    "from the beginning, in a hurry": (HURRIED, STRICT, 200, ()),
    "while one is prepared": (HARD, STRICT, 300, PREPARED[:-1]),
    "when both are prepared": (HARD, STRICT, 300, PREPARED),
    "while one has started": (HARD, STRICT, 300, STARTED),
    "when both run": (HARD, STRICT, 300, RUNNING),
    "when both run, in a hurry": (HURRIED, STRICT, 200, RUNNING),
    "when both run and may try again": (SOFT, FORGIVING, 300, RUNNING),
    "when both try again": (SOFT, FORGIVING, 300, AGAIN),
}


def what_must_hold(cell: Cell, path: Path) -> None:
    """Every invariant; and no place is free while its process lives, unless its worker was given up
    for lost.
    """
    try:
        ledger = cell.machine.ledger
        check(ledger)
        check_timeouts(ledger, cell.policy, cell.machine.last_ms)
        for name, host in cell.hosts.items():
            held = {AttemptRef(*key) for key in ledger.presence[name].open}
            free = set(host.stages) - held - host.forsaken
            assert not free, f"{free} still run on {name} and hold nothing"
    except Exception as error:
        error.add_note(f"after {' · '.join(' '.join(action) for action in path)}")
        raise


@pytest.mark.parametrize("name", one_in(ONE_IN, SPACES))
def test_every_way_a_session_can_go(name):
    spec, policy, limit, root = SPACES[name]
    space = explore(spec, policy, what_must_hold, limit, root)
    assert space.over, "some end is within reach"
    stuck = [
        " · ".join(" ".join(action) for action in space.paths[number]) for number in endless(space)
    ]
    assert not stuck, f"no way out after {stuck[0]}"


def test_a_tick_twice_changes_nothing():
    def twice(cell: Cell, path: Path) -> None:
        before = cell.machine.sequence
        cell.machine.step([], cell.now_ms)
        assert cell.machine.sequence == before, f"a tick changed something after {path}"

    explore(HARD, STRICT, twice, 200)
