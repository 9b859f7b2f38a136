"""Commands about pools and slices, their answers, the audit of them, and the views.

Source: docs/design/fleet.md#pools.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from iris_core import subjects
from iris_core.codec import pack, to_json
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.messages.state_provisioner import ProvisionerReport
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import JobSpec
from iris_core.spec.pools import PoolSpec, Reservation
from iris_core.spec.resources import HostResources, ResourceRequest
from iris_core.states import SliceCause
from iris_state.fleet import admission, pools
from iris_state.records.fleet_changes import PoolGrowth, SliceRequested
from iris_state.records.inputs import FleetReport
from iris_state.replication.metrics import StateMetrics
from tests.support.world import World
from tests.unit.state.test_metrics import scraped

USER = Caller("mia", "user")
CPU = PoolSpec(name="cpu", provider="process", max=4, resources=HostResources(cpu_millis=4000))


def body(answer: Answer) -> Any:
    return json.loads(answer.body)


def plan_of(world: World, spec: PoolSpec) -> Answer:
    query = Query("pool_plan", {"spec": to_json(spec).decode()}, world.reader)
    answer = world.ask(subjects.STATE_QUERY, query, Answer)
    assert isinstance(answer, Answer)
    return answer


def with_slice(world: World) -> World:
    world.change_fleet("set", "cpu", spec=CPU)
    world.machine.round.apply(SliceRequested(1, "cpu", 0, SliceCause.NEED))
    return world


def wait(world: World, tasks: int) -> None:
    """Tasks of one processor wait, and a scheduler has said that nothing holds them."""
    resources = ResourceRequest(cpu_millis=1000)
    world.submit(JobSpec(name="/a", command=("true",), replicas=tasks, resources=resources))
    job = world.ledger.jobs[1]
    world.ledger.keep_reason(job, Reason(ReasonCode.NO_WORKERS, "no worker"))


def test_a_pool_is_made_changed_and_removed() -> None:
    world = World()
    made = world.change_fleet("set", "cpu", spec=CPU)
    assert (made.status, body(made)["max"], body(made)["version"]) == ("created", 4, 1)
    changed = world.change_fleet("set", "cpu", spec=replace(CPU, max=8), version=1)
    assert (changed.status, body(changed)["max"], body(changed)["version"]) == ("ok", 8, 2)
    gone = world.change_fleet("remove", "cpu")
    assert (gone.status, body(gone)) == ("ok", {"name": "cpu", "state": "removed"})
    assert world.query("pools", limit=10)["items"] == []


@pytest.mark.parametrize("only", ["", "any", "device"])
def test_a_pool_is_shown_with_the_words_of_its_record(only: str) -> None:
    world = World()
    made = world.change_fleet("set", "cpu", spec=replace(CPU, only=only))
    assert body(made)["only"] == only


def test_a_change_based_on_an_older_version_is_refused() -> None:
    world = World()
    world.change_fleet("set", "cpu", spec=CPU)
    world.change_fleet("set", "cpu", spec=replace(CPU, max=8))
    answer = world.change_fleet("set", "cpu", spec=replace(CPU, max=2), version=1)
    assert answer.status == "precondition_failed"
    assert world.query("pool", pool="cpu")["max"] == 8


def test_a_pool_that_is_set_again_forgets_what_hinders_its_growth() -> None:
    world = World()
    world.change_fleet("set", "cpu", spec=CPU)
    pool = world.ledger.fleet.pools["cpu"]
    halted = PoolGrowth("cpu", replace(pool.growth, refused="no permission"))
    world.machine.round.apply(halted)
    assert world.query("pool", pool="cpu")["state"] == "paused"
    again = body(world.change_fleet("set", "cpu", spec=CPU))
    assert (again["state"], again["version"]) == ("ok", 2)
    assert body(world.change_fleet("set", "cpu", spec=CPU))["version"] == 2


def test_a_pool_that_is_paused_says_who_and_why() -> None:
    world = World()
    world.change_fleet("set", "cpu", spec=CPU)
    paused = body(world.change_fleet("pause", "cpu", reason="bill"))
    assert (paused["state"], paused["reason"], paused["by"]["name"]) == ("paused", "bill", "root")
    resumed = body(world.change_fleet("resume", "cpu"))
    assert (resumed["state"], resumed["paused"]) == ("ok", False)


@pytest.mark.parametrize("action", ["set", "remove", "pause", "resume", "drain"])
def test_only_an_admin_changes_the_fleet(action: str) -> None:
    world = with_slice(World())
    target = "cpu-0" if action == "drain" else "cpu"
    before = world.query("pool", pool="cpu")
    assert world.change_fleet(action, target, USER, spec=CPU).status == "forbidden"
    assert world.query("pool", pool="cpu") == before


@pytest.mark.parametrize(
    ("action", "target"),
    [("remove", "gpu"), ("pause", "gpu"), ("resume", "gpu"), ("drain", "cpu-9"), ("drain", "s9")],
)
def test_what_is_not_there_is_not_found(action: str, target: str) -> None:
    assert with_slice(World()).change_fleet(action, target).status == "not_found"


def test_each_mistake_of_a_pool_is_told_with_its_place() -> None:
    world = World()
    other = replace(CPU, name="a", reservation=Reservation(name="r", chips=8))
    world.change_fleet("set", "a", spec=other)
    wrong = replace(
        CPU,
        min=9,
        options={"speed": 2},
        reservation=Reservation(name="r", chips=16),
    )
    answer = world.change_fleet("set", "cpu", spec=wrong)
    assert answer.status == "invalid"
    pointers = {mistake["pointer"] for mistake in body(answer)["errors"]}
    assert pointers == {"/min", "/options/speed", "/reservation/chips"}


def with_programs(*names: str) -> World:
    """A cluster whose provisioner has these programs; it is heard once a pool is there."""
    world = World()
    world.change_fleet("set", "cpu", spec=CPU)
    report = ProvisionerReport("p1", 0, programs=names)
    world.step(FleetReport(pack(report)))
    return world


def test_a_pool_names_a_program_that_the_provisioner_has() -> None:
    world = with_programs("cloud", "lab")
    mine = replace(CPU, name="mine", provider="exec", options={"program": "clou"})
    refused = world.change_fleet("set", "mine", spec=mine)
    [mistake] = body(refused)["errors"]
    assert (refused.status, mistake["pointer"]) == ("invalid", "/options/program")
    assert (mistake["code"], mistake["hint"]) == ("unknown_program", "cloud, lab")
    planned = plan_of(world, mine)
    assert (planned.status, body(planned)["errors"]) == ("invalid", [mistake])
    named = replace(mine, options={"program": "cloud"})
    assert world.change_fleet("set", "mine", spec=named).status == "created"
    assert world.change_fleet("set", "mine", spec=mine).status == "invalid"
    assert world.query("pool", pool="mine")["options"] == {"program": "cloud"}


def test_a_pool_whose_program_is_gone_keeps_it_and_says_so() -> None:
    world = with_programs("cloud")
    mine = replace(CPU, name="mine", provider="exec", options={"program": "cloud"})
    world.change_fleet("set", "mine", spec=mine)
    world.step(FleetReport(pack(ProvisionerReport("p1", 0, programs=("lab",)))))
    assert world.change_fleet("set", "mine", spec=replace(mine, max=1)).status == "ok"
    assert plan_of(world, replace(mine, max=2)).status == "ok"
    [warning] = world.query("pool", pool="mine")["warnings"]
    assert warning == "the provisioner has no program 'cloud'; it has lab"


def test_a_program_is_not_judged_while_no_provisioner_is_heard() -> None:
    world = with_programs("cloud")
    world.wait(30.0)
    mine = replace(CPU, name="mine", provider="exec", options={"program": "lab"})
    assert plan_of(world, mine).status == "ok"
    assert world.change_fleet("set", "mine", spec=mine).status == "created"


def test_a_pool_with_slices_goes_with_its_last_one_only() -> None:
    world = with_slice(World())
    refused = world.change_fleet("remove", "cpu")
    assert (refused.status, "1 slice" in body(refused)["detail"]) == ("conflict", True)
    removing = world.change_fleet("remove", "cpu", drain=True)
    assert (removing.status, body(removing)["removing"]) == ("accepted", True)


def test_the_provider_of_a_pool_with_slices_stays() -> None:
    world = with_slice(World())
    other = replace(CPU, provider="exec", options={"program": "mine"})
    assert world.change_fleet("set", "cpu", spec=other).status == "conflict"
    more = world.change_fleet("set", "cpu", spec=replace(CPU, price=2.0))
    assert (more.status, world.query("fleet_slice", slice="cpu-0")["outdated"]) == ("ok", True)


def test_a_plan_refuses_what_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_slice(World())
    monkeypatch.setattr(admission, "MAX_POOLS", 1)
    other = replace(CPU, provider="exec", options={"program": "mine"})
    for spec in (other, replace(CPU, name="second"), replace(CPU, min=9)):
        planned = plan_of(world, spec)
        set_ = world.change_fleet("set", spec.name, spec=spec)
        assert planned.status == set_.status != "ok"
        assert body(planned) == body(set_)


def test_a_slice_is_drained_by_name_or_id_and_says_by_whom() -> None:
    world = with_slice(World())
    drained = world.change_fleet("drain", "s1", deadline_s=60.0, reason="disk")
    one = body(drained)
    assert (drained.status, one["name"], one["status"]) == ("ok", "cpu-0", "deleting")
    assert (one["cause"], one["steps"][-1]["by"]["name"]) == ("operator", "root")
    assert world.change_fleet("drain", "cpu-0").status == "conflict"


def test_the_audit_names_pool_and_slice() -> None:
    world = with_slice(World())
    world.change_fleet("set", "cpu", spec=replace(CPU, max=8), reason="more")
    world.change_fleet("drain", "cpu-0", reason="disk")
    rows = [
        (row["action"], row["kind"], row["id"], row["detail"])
        for row in world.query("audit", limit=10)["items"]
    ]
    assert rows == [
        ("drain", "slice", "s1", "disk"),
        ("set", "pool", "cpu", "max 8, was 4; more"),
        ("set", "pool", "cpu", "new, of process, max 4"),
    ]


def test_a_slice_shows_its_hosts_and_its_steps() -> None:
    world = with_slice(World())
    one = world.query("fleet_slice", slice="cpu-0")
    assert one["hosts"] == [{"name": "cpu-0-0", "state": "missing", "differs": []}]
    assert [(step["from"], step["to"]) for step in one["steps"]] == [(None, "requested")]
    [row] = world.query("pool_history", pool="cpu")["items"]
    assert (row["slice"], row["id"], row["to"], row["cause"]) == (
        "cpu-0",
        "s1",
        "requested",
        "need",
    )
    assert world.query("pool", pool="cpu")["slices"]["requested"] == 1
    assert [found["id"] for found in world.query("fleet_slices")["items"]] == ["s1"]
    assert world.query("fleet_slices", status="deleted")["items"] == []


def test_a_plan_tells_what_a_pool_would_make_and_changes_nothing() -> None:
    world = World()
    wait(world, 10)
    spec = to_json(replace(CPU, max=2)).decode()
    plan = world.query("pool_plan", spec=spec)
    assert plan == {"create": 2, "delete": 0, "tasks": 8, "left": 2}
    assert world.query("pools", limit=10)["items"] == []


def test_the_fleet_tells_which_pool_holds_nothing_and_why() -> None:
    world = World()
    world.change_fleet("set", "cpu", spec=replace(CPU, max=1, paused=True))
    wait(world, 3)
    world.wait(6)  # a round packs it
    fleet = world.query("fleet")
    [unmet] = fleet["unmet"]
    assert (unmet["example"], unmet["tasks"]) == ("/a", 3)
    [obstacle] = unmet["pools"]
    assert (obstacle["pool"], obstacle["code"]) == ("cpu", "paused")
    assert [pool["name"] for pool in fleet["pools"]] == ["cpu"]


def test_reads_and_scrapes_take_what_the_last_round_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.change_fleet("set", "cpu", spec=replace(CPU, max=1, paused=True))
    wait(world, 3)
    world.wait(6)

    def pack(*_: object) -> None:
        raise AssertionError("a read packs all waiting work")

    monkeypatch.setattr(pools, "pack", pack)
    assert [one["tasks"] for one in world.query("fleet")["unmet"]] == [3]
    assert world.query("pool", pool="cpu")["need"] == 0
    assert world.query("pools")["items"]
    why = world.query("why", job="/a")["pending_reason"]["facts"]
    assert [one["code"] for one in why["pools"]] == ["paused"]
    seen = scraped(StateMetrics(lambda: world.machine))
    assert seen['iris_fleet_need_slices{pool="cpu"}'] == 0
