"""What attempts cost on the hosts of pools, and what idled there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_core import subjects
from iris_core.errors import Code
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import HostResources
from iris_core.states import SliceCause, SliceStatus
from iris_core.units import DAY_MS
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.fleet_changes import SliceMoved, SliceRequested
from iris_state.snapshots import snapshot

HOUR_S = 3600
CPU = PoolSpec(
    name="cpu", provider="process", max=4, price=8.0, resources=HostResources(cpu_millis=4000)
)
TPU = PoolSpec(
    name="v5e",
    provider="process",
    max=4,
    hosts=4,
    price=16.0,
    resources=HostResources(cpu_millis=8000, chips=4),
    attributes={"device-type": "tpu", "device-variant": "v5litepod-16"},
)


def grow(script: Any, spec: PoolSpec, number: int = 1) -> None:
    """A pool, with its first slice, which is paid for from now on."""
    script.world.change_fleet("set", spec.name, spec=spec)
    script.world.machine.round.apply(SliceRequested(number, spec.name, 0, SliceCause.NEED))
    move(script, number, "RequestSlice", "creating", asked_ms=script.world.now_ms)
    move(script, number, "BootSlice", "ready")


def move(script: Any, number: int, handler: str, status: str, asked_ms: int = 0) -> None:
    change = SliceMoved(
        number, SliceStatus(status), handler, SliceCause.REGISTERED, asked_ms=asked_ms
    )
    script.world.machine.round.apply(change)


def end(script: Any, number: int = 1) -> None:
    """A slice is given back."""
    move(script, number, "CheckSlice", "deleting")
    move(script, number, "DeleteSlice", "deleted")


def by_pool(script: Any, **query: Any) -> dict[tuple[str | None, str | None], dict[str, Any]]:
    rows = script.world.query("usage", by="pool", **query)["items"]
    return {(row["pool"], row["user"]): row for row in rows}


def costs(rows: dict[Any, dict[str, Any]]) -> dict[Any, float]:
    return {key: round(row["pools_cost"], 2) for key, row in rows.items() if row["pools_cost"]}


def an_hour_of_two(script: Any) -> None:
    grow(script, CPU)
    script.play(f"""
        worker cpu-0-0 cpu=4
        worker own cpu=4
        submit /a cpu=2 user=ann
        submit /b cpu=1 user=bob
        submit /c cpu=1 user=bob
        place /a/0 cpu-0-0
        place /b/0 cpu-0-0
        place /c/0 own
        /a/0 running
        /b/0 running
        /c/0 running
        wait {HOUR_S}
    """)


def test_an_attempt_costs_its_part_of_its_slice_and_the_rest_idles(script):
    an_hour_of_two(script)
    rows = by_pool(script)
    assert costs(rows) == {
        ("cpu", "ann"): pytest.approx(4, abs=0.1),
        ("cpu", "bob"): pytest.approx(2, abs=0.1),
        ("cpu", None): pytest.approx(2, abs=0.1),
    }
    assert rows["cpu", None]["total"]["cpu_seconds"] == pytest.approx(HOUR_S, rel=0.02)
    assert list(rows) == [("cpu", "ann"), ("cpu", "bob"), ("cpu", None), (None, "bob")]
    assert rows[None, "bob"]["outside"]["cpu_seconds"] == pytest.approx(HOUR_S, rel=0.02)
    assert rows["cpu", "bob"]["outside"]["cpu_seconds"] == 0


def test_what_has_ended_costs_what_it_cost_while_it_ran(script):
    an_hour_of_two(script)
    running = by_pool(script)
    script.play("""
        /a/0 exit 0
        /b/0 exit 0
        /c/0 exit 0
    """)
    ended = by_pool(script)
    for key, row in running.items():
        assert ended[key]["pools_cost"] == (
            row["pools_cost"] and pytest.approx(row["pools_cost"], rel=0.01)
        )
    users = {row["user"]: row for row in script.world.query("usage")["items"]}
    assert users["ann"]["pools_cost"] == pytest.approx(4, abs=0.1)
    assert users["bob"]["outside"]["cpu_seconds"] == pytest.approx(HOUR_S, rel=0.02)
    [job] = [row for row in script.world.query("usage", by="job")["items"] if row["job"] == "/a"]
    assert job["pools_cost"] == users["ann"]["pools_cost"]


def test_what_a_slice_has_cost_stays_when_it_and_its_pool_are_gone(script):
    an_hour_of_two(script)
    script.play("""
        /a/0 exit 0
        /b/0 exit 0
    """)
    before = by_pool(script)
    end(script)
    script.world.change_fleet("remove", "cpu")
    assert "cpu" not in script.world.ledger.fleet.pools
    script.play(f"wait {HOUR_S}")
    after = by_pool(script)
    assert costs(after) == pytest.approx(costs(before))


def test_the_larger_part_of_processors_and_devices_is_paid(script):
    grow(script, TPU)
    script.play(f"""
        worker v5e-0-0 cpu=8 chips=4 device-type=tpu device-variant=v5litepod-16
        submit /t cpu=1 tpu=v5litepod-16 chips=4 user=ann
        place /t/0 v5e-0-0
        /t/0 running
        wait {HOUR_S}
    """)
    rows = by_pool(script)
    assert costs(rows)["v5e", "ann"] == pytest.approx(4, abs=0.1)  # one of four hosts
    assert costs(rows)["v5e", None] == pytest.approx(12, abs=0.1)
    idle = rows["v5e", None]["total"]["chip_seconds"]
    assert idle == {"v5litepod-16": pytest.approx(12 * HOUR_S, rel=0.02)}


def test_what_the_cluster_lost_is_billed_to_nobody(script):
    grow(script, CPU)
    script.play(f"""
        worker cpu-0-0 cpu=4
        submit /a cpu=4 user=ann
        place /a/0 cpu-0-0
        /a/0 running
        wait {HOUR_S}
        lose cpu-0-0
    """)
    rows = by_pool(script)
    assert rows["cpu", "ann"]["pools_cost"] is None
    assert list(rows["cpu", "ann"]["lost"]) == ["worker_lost"]
    assert rows["cpu", None]["pools_cost"] == pytest.approx(8, abs=0.2)


def test_what_idled_is_for_admins_and_a_user_sees_only_what_is_theirs(script):
    an_hour_of_two(script)
    assert list(by_pool(script, user="bob")) == [("cpu", "bob"), (None, "bob")]
    script.world.reader = bob = Caller("bob", "user")
    assert list(by_pool(script)) == [("cpu", "bob"), (None, "bob")]
    asked = Query("usage", {"by": "pool", "user": "ann"}, bob)
    assert script.world.ask(subjects.STATE_QUERY, asked, Answer).status == Code.FORBIDDEN


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_rows_go_on_behind_a_cursor(script, limit):
    an_hour_of_two(script)
    found, cursor = [], ""
    while cursor is not None:
        answer = script.world.query("usage", by="pool", limit=limit, cursor=cursor)
        found += [(row["pool"], row["user"]) for row in answer["items"]]
        cursor = answer["next_cursor"]
    assert found == list(by_pool(script))


def test_a_pool_without_a_price_costs_nothing_and_says_no_cost(script):
    grow(script, replace(CPU, price=0.0))
    script.play("""
        worker cpu-0-0 cpu=4
        submit /a cpu=2 user=ann
        place /a/0 cpu-0-0
        /a/0 running
        wait 100
    """)
    rows = by_pool(script)
    assert costs(rows) == {}
    assert rows["cpu", "ann"]["outside"]["cpu_seconds"] == 0


def test_costs_are_of_the_days_on_which_they_arose(script):
    grow(script, CPU)
    hours = 30
    script.play(f"wait {hours * HOUR_S}")
    today = script.world.now_ms // DAY_MS * DAY_MS
    all_of_it = by_pool(script)["cpu", None]["pools_cost"]
    since = by_pool(script, since_ms=script.world.now_ms)["cpu", None]["pools_cost"]
    assert all_of_it == pytest.approx(8 * hours, rel=0.01)
    assert since == pytest.approx(8 * (script.world.now_ms - today) / 3_600_000, rel=0.01)


def test_one_that_has_taken_the_place_of_another_is_paid_for_beside_it(script):
    """A restored cluster learns that its provider has the slice with another number."""
    grow(script, CPU)
    script.play(f"wait {HOUR_S}")
    now_ms = script.world.now_ms
    script.world.machine.round.apply(
        SliceMoved(1, SliceStatus.READY, "BootSlice", SliceCause.ADOPTED, asked_ms=now_ms, label=9)
    )
    assert by_pool(script)["cpu", None]["pools_cost"] == pytest.approx(8, rel=0.01)
    script.play(f"wait {HOUR_S}")
    assert by_pool(script)["cpu", None]["pools_cost"] == pytest.approx(16, rel=0.01)
    end(script)
    script.play("wait 60")
    assert by_pool(script)["cpu", None]["pools_cost"] == pytest.approx(16, rel=0.01)


def test_sums_of_pools_outlive_a_restart(script):
    an_hour_of_two(script)
    script.play("""
        /a/0 exit 0
        /b/0 exit 0
    """)
    end(script)
    machine = script.world.machine
    data = snapshot.cut(machine.ledger, machine.sequence, machine.last_ms)
    restored = Machine(Policy(), "restored")
    restored.restore(snapshot.read(data))
    group = (None, "cpu")
    assert restored.ledger.pool_usage.since(group, 0) == machine.ledger.pool_usage.since(group, 0)
    slices = ("cpu", None)
    assert restored.ledger.slice_usage.since(slices, 0) == machine.ledger.slice_usage.since(
        slices, 0
    )
    assert machine.ledger.slice_usage.since(slices, 0)


@pytest.mark.parametrize("asked", [{"label": "project=x"}, {"label": "team=x"}])
def test_usage_by_pool_is_of_no_label(script, asked):
    an_hour_of_two(script)
    query = Query("usage", {"by": "pool", **asked}, Caller("ann", "admin"))
    assert script.world.ask(subjects.STATE_QUERY, query, Answer).status == Code.INVALID
