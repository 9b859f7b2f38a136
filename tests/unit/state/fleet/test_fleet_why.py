"""Why a job waits, where pools could make a host for it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import JobSpec
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import HostResources, ResourceRequest
from iris_core.states import SliceCause, SliceStatus
from iris_state.records.fleet.records import Growth
from iris_state.records.fleet_changes import PoolGrowth, SliceMoved, SliceRequested
from tests.support.world import World

CPU = PoolSpec(name="cpu", provider="process", max=1, resources=HostResources(cpu_millis=4000))
NO_WORKER = Reason(ReasonCode.NO_WORKERS, "no workers are registered")


def waiting(world: World, *, cpu_millis: int = 1000) -> World:
    """A job waits."""
    resources = ResourceRequest(cpu_millis=cpu_millis)
    world.submit(JobSpec(name="/a", command=("true",), resources=resources))
    return world


def reason(world: World, said: Reason = NO_WORKER, what: str = "why") -> Any:
    """The answer after a scheduler has ``said`` why the job waits."""
    world.ledger.reasons[1] = said
    try:
        return world.query(what, job="/a")["pending_reason"]
    finally:
        del world.ledger.reasons[1]


def test_without_a_pool_nothing_of_an_answer_changes() -> None:
    assert reason(waiting(World())) == {"code": "no_workers", "message": NO_WORKER.message}


def test_a_job_waits_for_the_slice_that_will_hold_it() -> None:
    world = waiting(World())
    world.change_fleet("set", "cpu", spec=CPU)
    world.machine.round.apply(SliceRequested(1, "cpu", 0, SliceCause.NEED))
    world.wait(40)
    found = reason(world)
    facts = found["facts"]
    assert (found["code"], found["message"]) == (
        "slice_coming",
        "waits for slice cpu-0: requested, requested 40s ago",
    )
    assert facts.keys() == {"slice", "pool", "status", "requested_at"}
    assert (facts["slice"], facts["pool"], facts["status"]) == ("cpu-0", "cpu", "requested")
    assert reason(world, what="job") == found, "`iris run` and `iris show` say the same"


def test_after_three_boots_it_is_told_how_long_slices_take() -> None:
    world = waiting(World())
    world.change_fleet("set", "cpu", spec=CPU)
    boots = (100_000, 170_000, 240_000)
    world.machine.round.apply(PoolGrowth("cpu", replace(Growth(), boots=boots)))
    world.machine.round.apply(SliceRequested(1, "cpu", 0, SliceCause.NEED))
    creating = SliceMoved(1, SliceStatus.CREATING, "Test", SliceCause.ACCEPTED, asked_ms=1)
    world.machine.round.apply(creating)
    found = reason(world)
    assert found["message"].startswith("waits for slice cpu-0: creating, requested ")
    assert found["message"].endswith("; in this pool slices take 170s (p50), 4m (p90)")
    assert (found["facts"]["p50_s"], found["facts"]["p90_s"]) == (170.0, 240.0)


def test_each_pool_that_could_hold_it_says_why_it_makes_nothing() -> None:
    world = waiting(World())
    world.change_fleet("set", "cpu", spec=replace(CPU, max=0))
    world.change_fleet("set", "more", spec=replace(CPU, name="more", paused=True))
    small = replace(CPU, name="small", resources=HostResources(cpu_millis=500))
    world.change_fleet("set", "small", spec=small)
    found = reason(world)
    assert (found["code"], found["message"]) == ("no_workers", NO_WORKER.message)
    pools = {one["pool"]: (one["code"], one["message"]) for one in found["facts"]["pools"]}
    assert pools == {
        "cpu": ("at_max", "at its maximum (0)"),
        "more": ("paused", "paused: by an admin"),
    }


def test_a_job_that_waits_for_something_else_is_not_told_of_pools() -> None:
    world = waiting(World())
    world.change_fleet("set", "cpu", spec=replace(CPU, max=0))
    assert "facts" not in reason(world, Reason(ReasonCode.OVER_QUOTA, "over quota"))
