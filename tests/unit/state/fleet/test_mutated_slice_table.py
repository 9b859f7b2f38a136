"""Changing any cell of the slice table makes a story fail.

As `test_mutated_tables` for tasks, jobs and sessions. Source:
docs/design/fleet.md#statuses-of-a-slice.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iris_core.guard import TableBroken, guard
from iris_core.states import SliceStatus
from iris_core.tables import slice as table
from tests.sim.fleet.cloud import CloudFaults
from tests.sim.fleet.world import FleetWorld, cpu_pool
from tests.support.mutation import Mutant, of_rule, unnoticed

QUICK = (20_000, 20_001)
UNCLAIMED = {"need_retry", "free_give_up"}
"""No failure is retried, so nothing claims these."""


def made(**given: object) -> FleetWorld:
    faults = CloudFaults(boot_ms=QUICK, **given)  # type: ignore[arg-type]
    return FleetWorld(1, [cpu_pool(max=1, idle_s=30.0, boot_timeout_s=100.0)], faults)


def went(world: FleetWorld, number: int = 1) -> list[tuple[str, str]]:
    """The statuses that a slice has had, each with its cause."""
    found = world.fleet.slices.get(number)
    return [(str(one.status), str(one.cause)) for one in found.steps] if found else []


def comes_and_goes() -> None:
    world = made()
    world.submit("/t", runs_ms=20_000)
    world.run(200)
    assert went(world) == [
        ("requested", "need"),
        ("creating", "accepted"),
        ("ready", "registered"),
        ("draining", "idle"),
        ("deleting", "drained"),
        ("deleted", "not_listed"),
    ]


def is_refused() -> None:
    world = made()
    world.cloud.quota["cpu"] = 0
    world.submit("/t")
    world.run(20)
    assert went(world) == [("requested", "need"), ("failed", "exhausted")]


def is_not_answered() -> None:
    world = made(down=((0, 1 << 50),))
    world.submit("/t")
    world.run(80)
    assert went(world) == [("requested", "need"), ("failed", "no_answer")]


def does_not_boot() -> None:
    world = made(boot_fails=1.0)
    world.submit("/t")
    world.run(80)
    assert went(world)[1:3] == [("creating", "accepted"), ("deleting", "boot_failed")]


def does_not_register() -> None:
    world = made()
    world.cloud.faults.boot_ms = (1 << 40, (1 << 40) + 1)
    world.submit("/t")
    world.run(200)
    assert went(world)[1:3] == [("creating", "accepted"), ("deleting", "boot_timeout")]


def is_lost() -> None:
    world = made()
    world.submit("/t", runs_ms=500_000)
    world.run(50)
    world.cloud.instances["cpu-0"].dead.add(0)
    world.run(80)
    assert went(world)[2:4] == [("ready", "registered"), ("deleting", "host_lost")]


def is_needed_again() -> None:
    world = made()
    world.submit("/a", runs_ms=1_000)
    world.run_until(lambda: went(world)[-1:] == [("draining", "idle")], 200)
    world.submit("/b", runs_ms=1_000)
    world.run(10)
    assert went(world)[3:5] == [("draining", "idle"), ("ready", "demand_back")]


def drains_to_its_deadline() -> None:
    world = made()
    work = world.submit("/t", runs_ms=500_000)
    world.run(50)
    assert work.runs
    world.drain(world.fleet.slices[1], deadline_ms=world.now_ms + 30_000)
    world.run(20)
    assert went(world)[-1] == ("draining", "operator")
    world.run(20)
    assert went(world)[3:5] == [("draining", "operator"), ("deleting", "deadline")]


def dies_while_it_drains() -> None:
    world = made()
    world.submit("/t", runs_ms=500_000)
    world.run(50)
    world.drain(world.fleet.slices[1])
    world.cloud.instances["cpu-0"].dead.add(0)
    world.run(60)
    assert went(world)[3:5] == [("draining", "operator"), ("deleting", "host_lost")]


def is_withdrawn_while_it_boots() -> None:
    world = made()
    world.submit("/t")
    world.run_until(lambda: went(world)[-1:] == [("creating", "accepted")], 20)
    world.drain(world.fleet.slices[1])
    assert went(world)[-1] == ("deleting", "operator")


def is_withdrawn_before_it_is_answered() -> None:
    world = made(down=((0, 1 << 50),))
    world.submit("/t")
    world.run(10)
    world.drain(world.fleet.slices[1])
    assert went(world) == [("requested", "need"), ("deleting", "operator")]


def cannot_be_deleted() -> None:
    world = made(delete_fails=1.0)
    world.submit("/t", runs_ms=1_000)
    world.run_until(lambda: went(world)[-1:] == [("deleting", "drained")], 200)
    world.run(30)
    one = world.fleet.slices[1]
    assert (str(one.status), one.detail, one.overdue) == ("deleting", "internal error", False)
    world.run(700)
    assert (str(one.status), one.overdue) == ("deleting", True)
    world.cloud.faults.delete_fails = 0.0
    world.run(60)
    assert (str(one.status), one.overdue) == ("deleted", False)


STORIES: tuple[Callable[[], None], ...] = (
    comes_and_goes,
    is_refused,
    is_not_answered,
    does_not_boot,
    does_not_register,
    is_lost,
    is_needed_again,
    drains_to_its_deadline,
    dies_while_it_drains,
    is_withdrawn_while_it_boots,
    is_withdrawn_before_it_is_answered,
    cannot_be_deleted,
)

SAME = {"DeleteSlice.give_up = DELETING, None": "it is in that status"}
"""Changes that are none, with the reason."""


def mutants() -> list[Mutant]:
    """But for results that nothing claims; only the handlers have a clock."""
    found = [mutant for rule in table.TABLE for mutant in of_rule(rule, SliceStatus)]
    timeless = {rule.name for rule in table.TABLE if rule not in table.HANDLERS}
    return [
        mutant
        for mutant in found
        if mutant.place not in UNCLAIMED
        and not (mutant.place == "expired" and mutant.row in timeless)
    ]


def refused() -> bool:
    """Whether the table as it is now could not be imported."""
    clocked = frozenset(SliceStatus) - table.TERMINAL
    try:
        guard("slice", SliceStatus, table.TERMINAL, table.TABLE, table.WAYS_OUT, clocked=clocked)
    except TableBroken:
        return True
    return False


def holds(story: Callable[[], None]) -> bool:
    try:
        story()
    except Exception:  # noqa: BLE001 - whatever a changed table makes of a story, it was noticed
        return False
    return True


@pytest.mark.parametrize("story", STORIES)
def test_a_story_of_a_slice_holds(story):
    story()


def test_some_story_notices_each_cell_of_the_slice_table_that_is_changed():
    assert unnoticed(mutants(), STORIES, refused, holds) == [*SAME]
