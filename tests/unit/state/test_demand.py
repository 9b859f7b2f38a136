"""Demand of waiting work in whole slices and hosts, for autoscalers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from iris_core.spec.resources import Amount, times
from iris_core.views.cluster import DemandView
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import plan
from iris_scheduler.settings import SchedulerSettings
from iris_state.replication.metrics import StateMetrics
from iris_state.views import demand as module
from iris_state.views.cluster.demand import HostShape, demand, in_whole_gib
from iris_state.views.pages import at_once


def plan_once(script) -> None:
    """Have the scheduler itself look at what waits, so that every job has its reason."""
    mirror = Mirror.of([script.world.snapshot()])
    script.world.plan(plan(mirror, Cache(), script.world.now_ms, SchedulerSettings()).plan)


def missing(script) -> DemandView:
    plan_once(script)
    return at_once(demand(script.world.ledger))


def slices(script) -> list[tuple[str, int, int, int]]:
    return [(one.variant, one.slices, one.hosts, one.chips) for one in missing(script).slices]


def hosts(script) -> list[tuple[int, int]]:
    """Cores of the shape, and how many of it."""
    return [(one.shape["cpu_millis"] // 1000, one.hosts) for one in missing(script).hosts]


def test_nothing_is_missing_while_nothing_waits(script):
    script.play("worker w0 cpu=8")
    assert missing(script) == DemandView(
        slices=[], hosts=[], unsatisfiable=[], not_counted={}, truncated=False
    )


def test_a_gang_of_a_slice_that_is_not_there_is_one_slice(script):
    script.play("""
        worker w0 cpu=8
        submit /train replicas=4 gang=tpu-name tpu=v5litepod-16
    """)
    assert slices(script) == [("v5litepod-16", 1, 4, 16)]
    assert missing(script).slices[0].tasks == 4


def test_gangs_of_a_variant_are_as_many_slices_as_there_are_gangs(script):
    script.play("""
        worker a0 tpu-name=a tpu-worker-id=0 chips=4 device-type=tpu device-variant=v4-16
        worker a1 tpu-name=a tpu-worker-id=1 chips=4 device-type=tpu device-variant=v4-16
        submit /one replicas=2 gang=tpu-name tpu=v4-16
        submit /two replicas=2 gang=tpu-name tpu=v4-16
        submit /three replicas=2 gang=tpu-name tpu=v4-16
        schedule -> placed 2
    """)
    assert slices(script) == [("v4-16", 2, 4, 16)]


def test_a_gang_of_several_slices_lacks_all_of_them(script):
    script.play("submit /one replicas=6 gang=tpu-name tpu=v4-16 slices=3")
    assert slices(script) == [("v4-16", 3, 6, 24)]


def test_single_tasks_share_the_hosts_of_a_slice_by_their_chips(script):
    script.play("""
        worker w0 cpu=8
        submit /eval replicas=5 tpu=v5litepod-8 chips=4 cpu=1
    """)
    assert slices(script) == [("v5litepod-8", 3, 3, 24)]


def test_forty_tasks_of_two_cores_are_ten_hosts_of_eight(script):
    script.play("""
        worker w0 cpu=8
        submit /full cpu=8
        schedule -> placed 1
        submit /sweep replicas=40 cpu=2
    """)
    assert hosts(script) == [(8, 10)]
    assert (missing(script).hosts[0].tasks, missing(script).hosts[0].jobs) == (40, 1)


def test_jobs_of_other_sizes_fill_the_same_hosts(script):
    script.play("""
        worker w0 cpu=8
        submit /full cpu=8
        schedule -> placed 1
        submit /large replicas=2 cpu=6
        submit /small replicas=2 cpu=2
    """)
    assert hosts(script) == [(8, 2)]


def test_the_smallest_shape_that_is_large_enough_is_asked_for(script):
    script.play("""
        worker w0 cpu=4
        worker w1 cpu=16
        submit /full cpu=16
        submit /full4 cpu=4
        schedule -> placed 2
        submit /a cpu=3
        submit /b cpu=10
    """)
    assert hosts(script) == [(4, 1), (16, 1)]


def test_no_tpu_is_bought_for_work_that_asks_for_none(script):
    script.play("""
        worker a0 cpu=4 chips=4 device-type=tpu device-variant=v4-8 tpu-name=a tpu-worker-id=0
        submit /full cpu=4
        schedule -> placed 1
        submit /a cpu=3
    """)
    assert hosts(script) == []
    assert [one.constraints for one in missing(script).unsatisfiable] == [
        ["no worker but those of TPU slices is registered"]
    ]


def test_hosts_that_differ_by_some_mebibytes_are_of_one_shape():
    sizes = [Amount(8000, (32 << 30) + extra, 0, 0) for extra in (1, 5 << 20, 1 << 29)]
    assert {in_whole_gib(size) for size in sizes} == {Amount(8000, 32 << 30, 0, 0)}
    assert in_whole_gib(Amount(1, 1 << 20, 7, 0)) == Amount(1, 1 << 20, 7, 0)


def test_no_more_classes_are_told_apart_than_the_bound(script, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "CLASSES", 1)
    script.play("""
        worker w0 cpu=2
        submit /full cpu=2
        schedule -> placed 1
        submit /a cpu=1
        submit /b cpu=2
        submit /c cpu=1
    """)
    assert (hosts(script), missing(script).truncated) == ([(2, 1)], True)


def test_a_gang_of_hosts_has_a_host_for_each_member(script):
    script.play("""
        worker a0 cpu=8 rack=a
        submit /g replicas=3 gang=rack cpu=1
    """)
    assert hosts(script) == [(8, 3)]


def test_work_over_a_quota_is_no_demand(script):
    script.play("""
        worker w0 cpu=8
        quota ann max_running_cpu=2
        submit /one cpu=2 user=ann
        schedule -> placed 1
        submit /two cpu=8 user=ann
        submit /three cpu=8 user=ann
    """)
    assert (missing(script).hosts, missing(script).not_counted) == ([], {"over_quota": 2})


def test_what_no_known_host_could_take_is_named_by_its_constraint(script):
    script.play("""
        worker w0 cpu=8 zone=eu
        submit /mars where=zone:mars
        submit /mars2 replicas=2 where=zone:mars
        submit /large cpu=64
    """)
    found = missing(script)
    assert found.hosts == []
    assert {
        tuple(one.constraints): (one.tasks, one.jobs, one.example) for one in found.unsatisfiable
    } == {
        ("zone eq mars",): (3, 2, "/mars"),
        ("cpu 64 of at most 8",): (1, 1, "/large"),
    }


def test_a_slice_says_where_it_is_wanted(script):
    script.play("""
        worker w0 cpu=8
        submit /t replicas=4 gang=tpu-name tpu=v5litepod-16 where=zone:eu-1
    """)
    assert missing(script).slices[0].constraints == ["zone eq eu-1"]


def test_hosts_of_a_lost_worker_are_still_known(script):
    script.play("""
        worker w0 cpu=8
        lose w0
        submit /a replicas=9 cpu=1
    """)
    assert hosts(script) == [(8, 2)]


def test_what_was_not_looked_at_yet_does_not_count(script):
    script.play("""
        worker w0 cpu=1
        submit /a replicas=9
    """)
    found = at_once(demand(script.world.ledger))
    assert (found.hosts, found.not_counted) == ([], {"not_yet_looked_at": 9})


def test_no_more_jobs_are_looked_at_than_the_bound(script, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "JOBS", 2)
    script.play("""
        worker w0 cpu=1
        submit /full
        schedule -> placed 1
        submit /a
        submit /b
        submit /c
    """)
    assert (hosts(script), missing(script).truncated) == ([(1, 2)], True)


amounts = st.builds(Amount, st.integers(0, 8), st.integers(0, 8), st.just(0), st.integers(0, 4))


@given(st.lists(st.tuples(amounts, st.integers(1, 50), st.booleans()), max_size=12))
def test_new_hosts_are_enough_and_are_not_overfull(asked: list[tuple[Amount, int, bool]]):
    shape = HostShape(Amount(8, 8, 0, 4), {})
    used = Amount()
    for amount, tasks, apart in asked:
        before = shape.hosts
        shape.take(amount, tasks, apart=apart)
        used = used + amount * tasks
        assert all(min(free.values) >= 0 for _, free in shape.bins)
        assert shape.hosts - before <= tasks
    held = zip(used.values, (shape.total * shape.hosts).values, strict=True)
    assert all(taken <= there for taken, there in held)
    assert sum(count for count, _ in shape.bins) <= shape.hosts


def test_a_task_that_asks_for_nothing_fits_any_number_of_times():
    assert times(Amount(1), Amount()) > 10**9


def test_metrics_tell_an_autoscaler_the_same_with_zeros(script):
    script.play("""
        worker w0 cpu=8
        worker a0 cpu=4 tpu-name=a tpu-topology=v4-8 tpu-worker-id=0 chips=4 device-type=tpu device-variant=v4-8
        submit /full replicas=2 cpu=8
        submit /t replicas=4 gang=tpu-name tpu=v5litepod-16
        submit /large cpu=64
    """)
    plan_once(script)
    plan_once(script)
    page = generate_latest(StateMetrics(lambda: script.world.machine).registry).decode()
    assert {line for line in page.splitlines() if line.startswith("iris_demand")} == {
        'iris_demand_slices{variant="v5litepod-16"} 1.0',
        'iris_demand_slices{variant="v4-8"} 0.0',
        'iris_demand_hosts{shape="cpu=8000"} 1.0',
        'iris_demand_hosts{shape="cpu=4000,chips=4"} 0.0',
        'iris_demand_tasks{kind="slices"} 4.0',
        'iris_demand_tasks{kind="hosts"} 1.0',
        'iris_demand_tasks{kind="unsatisfiable"} 1.0',
    }


def test_the_answer_is_plain_json(script):
    script.play("""
        worker w0 cpu=8
        submit /large cpu=64
    """)
    shown: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(missing(script)))
    assert set(shown) == {"slices", "hosts", "unsatisfiable", "not_counted", "truncated"}
