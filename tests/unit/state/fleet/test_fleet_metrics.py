"""Figures of pools and slices: by the records, and by what became of requests."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import HostResources
from iris_core.states import SliceCause, SliceStatus
from iris_state.effects.kinds import Output
from iris_state.records.fleet.records import Growth
from iris_state.records.fleet_changes import PoolGrowth, SliceMoved, SliceRequested
from iris_state.replication.metrics import StateMetrics
from tests.support.world import World

C, S = SliceCause, SliceStatus
CPU = PoolSpec(
    name="cpu", provider="process", max=4, price=3600.0, resources=HostResources(cpu_millis=4000)
)


class Watched:
    """A world with a pool, and its figures.

    Args:
        world: whose records they are of.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.metrics = StateMetrics(lambda: world.machine)
        world.change_fleet("set", "cpu", spec=CPU)

    def request(self, number: int) -> None:
        self.world.machine.round.apply(SliceRequested(number, "cpu", number, C.NEED))

    def move(self, number: int, status: S, cause: C, **more: Any) -> None:
        change = SliceMoved(number, status, "Test", cause, **more)
        self.world.machine.round.apply(change)
        self.metrics.committed(Output(0, None, (change,), ()), 0.0)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


def test_without_a_pool_there_are_no_figures_of_pools() -> None:
    metrics = StateMetrics(lambda: World().machine)
    shown = {
        sample.name: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("iris_fleet_")
    }
    assert shown == {"iris_fleet_orphans": 0, "iris_fleet_dry_run": 0}


def test_slices_are_counted_by_status_and_gone_ones_are_none() -> None:
    seen = Watched(World())
    for number in (1, 2):
        seen.request(number)
    seen.move(2, S.CREATING, C.ACCEPTED, asked_ms=1)
    assert seen.value("iris_fleet_slices", pool="cpu", status="requested") == 1
    assert seen.value("iris_fleet_slices", pool="cpu", status="creating") == 1
    seen.move(1, S.FAILED, C.EXHAUSTED)
    assert seen.value("iris_fleet_slices", pool="cpu", status="requested") == 0
    assert seen.value("iris_fleet_slices", pool="cpu", status="failed") is None


def test_requests_that_come_to_nothing_are_counted_by_cause() -> None:
    seen = Watched(World())
    for number, cause in ((1, C.EXHAUSTED), (2, C.EXHAUSTED), (3, C.REFUSED)):
        seen.request(number)
        seen.move(number, S.FAILED, cause)
    seen.request(4)
    seen.move(4, S.CREATING, C.ACCEPTED, asked_ms=1)
    seen.move(4, S.DELETING, C.BOOT_TIMEOUT)
    seen.move(4, S.DELETED, C.NOT_LISTED)
    counts = {
        cause: seen.value("iris_fleet_refusals_total", pool="cpu", cause=cause)
        for cause in ("exhausted", "refused", "boot_timeout", "not_listed")
    }
    assert counts == {"exhausted": 2, "refused": 1, "boot_timeout": 1, "not_listed": None}


def test_a_boot_lasts_from_the_request_until_the_hosts_can_be_used() -> None:
    seen = Watched(World())
    seen.request(1)
    seen.world.wait(7)
    seen.move(1, S.CREATING, C.ACCEPTED, asked_ms=1)
    seen.move(1, S.READY, C.REGISTERED)
    seen.move(1, S.DRAINING, C.IDLE)
    seen.move(1, S.READY, C.DEMAND_BACK)
    assert seen.value("iris_fleet_boot_seconds_count", pool="cpu") == 1
    assert seen.value("iris_fleet_boot_seconds_bucket", pool="cpu", le="5.0") == 0
    assert seen.value("iris_fleet_boot_seconds_bucket", pool="cpu", le="10.0") == 1
    assert seen.value("iris_fleet_boot_seconds_sum", pool="cpu") == 7.0


def test_time_and_cost_are_summed_while_slices_are_there() -> None:
    seen = Watched(World())
    seen.request(1)
    seen.move(1, S.CREATING, C.ACCEPTED, asked_ms=1)
    seen.move(1, S.READY, C.REGISTERED)
    seen.value("iris_fleet_cost_total", pool="cpu")
    seen.world.wait(10)
    assert seen.value("iris_fleet_cost_total", pool="cpu") == 10.0
    assert seen.value("iris_fleet_slice_seconds_total", pool="cpu", use="idle") == 10.0
    assert seen.value("iris_fleet_slice_seconds_total", pool="cpu", use="busy") == 0.0
    seen.move(1, S.DELETING, C.PREEMPTED)
    seen.move(1, S.DELETED, C.NOT_LISTED)
    seen.world.wait(10)
    assert seen.value("iris_fleet_cost_total", pool="cpu") == 10.0


def test_a_pool_that_is_halted_is_told_and_one_that_a_person_paused_is_not() -> None:
    seen = Watched(World())
    seen.world.change_fleet("pause", "cpu")
    assert seen.value("iris_fleet_pool_paused", pool="cpu") == 0
    seen.world.change_fleet("resume", "cpu")
    growth = replace(Growth(), refused="permission denied")
    seen.world.machine.round.apply(PoolGrowth("cpu", growth))
    assert seen.value("iris_fleet_pool_paused", pool="cpu") == 1


def test_an_overdue_deletion_is_told() -> None:
    seen = Watched(World())
    seen.request(1)
    seen.move(1, S.CREATING, C.ACCEPTED, asked_ms=1)
    seen.move(1, S.DELETING, C.BOOT_FAILED)
    assert seen.value("iris_fleet_slices_overdue", pool="cpu") == 0
    seen.move(1, S.DELETING, C.DELETE_OVERDUE, overdue=True)
    assert seen.value("iris_fleet_slices_overdue", pool="cpu") == 1
