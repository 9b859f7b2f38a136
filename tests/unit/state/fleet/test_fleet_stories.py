"""What a fleet does, told as the reports of other systems in which it went wrong.

Source: docs/design/fleet.md#what-others-got-wrong.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest

from iris_core.spec.resources import Device
from iris_core.states import SliceCause, SliceStatus
from iris_state.fleet import pools
from iris_state.records.apply.fleet import apply_change
from iris_state.records.fleet.packing import CoverFrom
from iris_state.records.fleet.sightings import ENOUGH_LISTS, ListedSlice, ListSource
from iris_state.records.fleet_changes import SliceMoved, SliceRequested
from tests.sim.fleet.cloud import CloudFaults
from tests.sim.fleet.world import FleetWorld, cpu_pool, tpu_pool

QUICK = CloudFaults(boot_ms=(20_000, 20_001))
GANG = Device("tpu", "v5litepod-16", 4)


def world(*specs, faults=QUICK, **given):
    return FleetWorld(1, specs, replace(faults), **given)


def statuses(fleet_world, pool):
    found = fleet_world.fleet.of_pool(pool)
    return [str(one.status) for one in found if one.is_open]


def finished(fleet_world):
    return all(one.done for one in fleet_world.work)


def test_a_burst_grows_the_pool_to_what_it_needs_and_no_further():
    it = world(cpu_pool(max=8))
    for index in range(10):
        it.submit(f"/t{index}")
    it.run_until(lambda: finished(it), 300)
    assert it.cloud.created == {"cpu": 3}  # ten tasks of one processor on hosts of four
    it.run_until(lambda: not it.cloud.present, 300)


def test_a_host_with_running_work_is_never_idle():
    it = world(cpu_pool(idle_s=10.0))
    it.submit("/long", runs_ms=600_000)
    it.run_until(lambda: it.work[0].runs, 60)
    it.run(500)
    assert it.work[0].runs
    assert statuses(it, "cpu") == ["ready"]


def test_what_is_coming_is_not_bought_again():
    slow = CloudFaults(boot_ms=(300_000, 300_001))
    it = world(cpu_pool(), faults=slow)
    for index in range(4):
        it.submit(f"/t{index}", cpu_millis=4000)
    it.run(290)
    assert it.cloud.created == {"cpu": 4}


def test_a_slice_that_boots_slowly_is_not_idle():
    slow = CloudFaults(boot_ms=(500_000, 500_001))
    it = world(cpu_pool(idle_s=10.0), faults=slow)
    it.submit("/t", runs_ms=1_000)
    it.run_until(lambda: finished(it), 600)
    assert it.cloud.created == {"cpu": 1}


def test_a_slice_of_the_buffer_stays_warm():
    it = world(cpu_pool(buffer=2, idle_s=10.0))
    it.run(600)
    assert it.cloud.created == {"cpu": 2}
    assert statuses(it, "cpu") == ["ready", "ready"]


def test_deleting_what_is_not_there_succeeds():
    it = world(cpu_pool(idle_s=10.0))
    it.submit("/t", runs_ms=1_000)
    it.run_until(lambda: finished(it), 100)
    it.cloud.instances.clear()  # somebody has deleted it by hand
    it.run_until(lambda: not statuses(it, "cpu"), 300)


def test_a_slice_with_one_dead_host_is_replaced_whole():
    it = world(tpu_pool())
    it.submit("/gang", runs_ms=120_000, gang=4, device=GANG)
    it.run_until(lambda: it.work[0].runs, 60)
    it.cloud.instances["v5e-0"].dead.add(2)
    it.run_until(lambda: finished(it), 600)
    first = it.fleet.slices[1]
    assert (first.status, first.cause) == (SliceStatus.DELETED, SliceCause.NOT_LISTED)
    assert first.steps[-2].cause is SliceCause.HOST_LOST
    assert it.cloud.created == {"v5e": 2}


def test_one_lost_slice_leaves_others_alone():
    it = world(cpu_pool())
    for index in range(4):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=400_000)
    it.run_until(lambda: all(one.runs for one in it.work), 60)
    it.cloud.instances["cpu-1"].dead.add(0)
    it.run(300)
    given_up = [c for _, c in it.changes if isinstance(c, SliceMoved) and c.status == "deleting"]
    assert [change.number for change in given_up] == [2]


def test_pools_that_share_a_reservation_make_together_what_it_holds():
    one = tpu_pool("v5e-a", chips=32)
    other = tpu_pool("v5e-b", chips=32)
    it = world(one, other)
    for index in range(4):
        it.submit(f"/g{index}", gang=4, device=GANG, runs_ms=600_000)
    it.run(200)
    assert sum(it.cloud.created.values()) == 2  # two slices of sixteen chips
    [unmet] = pools.needed(it.scene, it.pending()).unmet
    assert unmet.pools == {"v5e-a": "reservation_used", "v5e-b": "reservation_used"}


def test_work_without_a_device_makes_no_slice_with_devices():
    it = world(tpu_pool())
    it.submit("/plain")
    it.run(100)
    assert it.cloud.created == {}


def test_a_pool_for_any_work_takes_plain_work_too():
    it = world(tpu_pool(only="any"))
    it.submit("/plain", runs_ms=1_000)
    it.run_until(lambda: finished(it), 100)
    assert it.cloud.created == {"v5e": 1}


def test_small_tasks_share_a_slice():
    it = world(cpu_pool())
    for index in range(16):
        it.submit(f"/t{index}", cpu_millis=250)
    it.run_until(lambda: finished(it), 200)
    assert it.cloud.created == {"cpu": 1}


def test_shrinking_is_as_quick_as_growing():
    it = world(cpu_pool(idle_s=20.0, delete_rate=60))
    for index in range(8):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=30_000)
    it.run_until(lambda: finished(it), 200)
    assert it.run_until(lambda: not it.cloud.present, 200) <= 60


def test_a_pool_without_capacity_passes_the_need_on():
    first = cpu_pool("first", priority=1)
    it = world(first, cpu_pool("second"), quota={"first": 0})
    it.submit("/t", runs_ms=1_000)
    it.run_until(lambda: finished(it), 200)
    assert it.cloud.created == {"second": 1}
    assert it.fleet.pools["first"].growth.cause is SliceCause.EXHAUSTED


def test_a_pool_without_capacity_is_asked_once_at_a_time_and_less_and_less():
    it = world(cpu_pool(), quota={"cpu": 0})
    for index in range(8):
        it.submit(f"/t{index}", cpu_millis=4000)
    it.run(1_000)
    asked = [at for at, c in it.changes if isinstance(c, SliceRequested)]
    later = [at for at in asked if at > asked[0]]
    assert len(asked) - len(later) == 8  # before the first refusal was known
    assert len(later) == len(set(later)) <= 6
    waits = [after - before for before, after in itertools.pairwise(later)]
    assert all(after > before for before, after in itertools.pairwise(waits))
    it.cloud.quota.clear()
    it.run_until(lambda: finished(it), 1_200)


def test_a_refusal_that_no_repeat_mends_pauses_the_pool():
    it = world(cpu_pool(), faults=CloudFaults(refused_chance=1.0))
    it.submit("/t")
    it.run(600)
    assert len(it.fleet.slices) == 1
    assert it.fleet.pools["cpu"].growth.refused == "permission denied"
    [unmet] = pools.needed(it.scene, it.pending()).unmet
    assert unmet.pools == {"cpu": "paused"}
    it.cloud.faults.refused_chance = 0.0
    it.set_pool(cpu_pool())  # whoever mends it sets the pool again
    it.run_until(lambda: finished(it), 200)


def test_three_boots_that_fail_in_a_row_put_the_pool_off():
    it = world(cpu_pool(max=1), faults=CloudFaults(boot_fails=1.0, boot_ms=(1_000, 1_001)))
    it.submit("/t")
    it.run_until(lambda: it.fleet.pools["cpu"].growth.wait_ms > 0, 600)
    assert it.fleet.pools["cpu"].growth.failed_boots == 3
    assert pools.hindrance(it.fleet.pools["cpu"], it.now_ms) == "exhausted"


def test_a_slice_that_dies_soon_after_it_was_ready_puts_the_pool_off():
    it = world(cpu_pool(max=1, boot_timeout_s=600.0))
    it.submit("/t", runs_ms=900_000)
    it.run_until(lambda: it.work[0].runs, 100)
    it.cloud.instances["cpu-0"].status = "preempted"
    it.run_until(lambda: it.fleet.slices[1].status != SliceStatus.READY, 100)
    growth = it.fleet.pools["cpu"].growth
    assert (growth.cause, growth.wait_ms) == (SliceCause.PREEMPTED, it.policy.exhausted_first_ms)


def test_a_slice_that_dies_long_after_it_was_ready_puts_nothing_off():
    it = world(cpu_pool(max=1, boot_timeout_s=60.0))
    it.submit("/t", runs_ms=900_000)
    it.run_until(lambda: it.work[0].runs, 100)
    it.run(120)
    it.cloud.instances["cpu-0"].status = "preempted"
    it.run_until(lambda: it.fleet.slices[1].status != SliceStatus.READY, 100)
    assert it.fleet.pools["cpu"].growth.wait_ms == 0


def test_a_slice_that_never_registers_is_given_up_after_its_boot_timeout():
    never = CloudFaults(boot_ms=(10_000_000, 10_000_001))
    it = world(cpu_pool(boot_timeout_s=100.0, max=1), faults=never)
    it.submit("/t")
    it.run_until(lambda: it.fleet.slices and it.fleet.slices[1].is_over, 300)
    causes = [step.cause for step in it.fleet.slices[1].steps]
    assert causes == [
        SliceCause.NEED,
        SliceCause.ACCEPTED,
        SliceCause.BOOT_TIMEOUT,
        SliceCause.NOT_LISTED,
    ]
    assert "cpu-0-0 has not registered" in it.fleet.slices[1].detail


def test_a_gang_gets_whole_slices_of_one_pool_or_none():
    it = world(tpu_pool("small", max=1), tpu_pool("large", max=4, priority=200))
    work = pools.needed(it.scene, []).new
    assert work == {}
    for index in range(2):
        it.submit(f"/g{index}", gang=4, device=GANG, runs_ms=30_000)
    it.run_until(lambda: finished(it), 200)
    assert it.cloud.created == {"small": 1, "large": 1}


def test_a_gang_larger_than_any_slice_makes_nothing_and_is_told():
    it = world(tpu_pool())
    it.submit("/g", gang=5, device=GANG)
    it.run(100)
    assert it.cloud.created == {}
    [unmet] = pools.needed(it.scene, it.pending()).unmet
    assert unmet.tasks == 5


def test_a_network_split_is_not_a_fleet_of_dead_hosts():
    it = world(cpu_pool(max=10))
    for index in range(10):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=3_000_000)
    it.run_until(lambda: all(one.runs for one in it.work), 100)
    for one in it.cloud.instances.values():
        one.dead.add(0)
    it.run(100)
    assert statuses(it, "cpu").count("ready") == 8  # a fifth was given up
    assert "look lost" in it.fleet.pools["cpu"].growth.stopped
    for one in it.cloud.instances.values():
        one.dead.clear()
    it.run_until(lambda: not it.fleet.pools["cpu"].growth.stopped, 100)
    it.run_until(lambda: statuses(it, "cpu").count("ready") == 10, 200)


def test_a_list_that_lacks_what_runs_ends_a_part_of_it_at_most():
    it = world(cpu_pool(max=10))
    for index in range(10):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=3_000_000)
    it.run_until(lambda: all(one.runs for one in it.work), 100)
    source = ListSource.of(it.fleet.pools["cpu"].spec)
    it.next_list_ms = it.now_ms + 10_000_000
    it.lists_lie = True
    it.run(200)
    for _ in range(3):
        it.sightings.on_list(source, [], began_ms=it.now_ms, fleet=it.fleet, policy=it.policy)
    it.run(20)
    assert statuses(it, "cpu").count("ready") == 8
    assert sum(one.runs for one in it.work) >= 8


def test_max_holds_while_something_is_being_deleted():
    it = world(cpu_pool(max=1, idle_s=1.0, min=0))
    it.submit("/a", runs_ms=1_000)
    it.run_until(lambda: "deleting" in statuses(it, "cpu"), 200)
    it.submit("/b", runs_ms=1_000)
    it.run_until(lambda: finished(it), 300)
    assert it.cloud.most == {"cpu": 1}


def test_a_smaller_max_drains_what_is_idle_and_leaves_what_works():
    it = world(cpu_pool(idle_s=100_000.0))
    for index in range(4):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=20_000 if index else 400_000)
    it.run_until(lambda: sum(one.done for one in it.work) == 3, 200)
    it.set_pool(cpu_pool(max=1, idle_s=100_000.0))
    it.run_until(lambda: len(it.cloud.present) == 1, 100)
    assert it.work[0].runs
    gone = [one for one in it.fleet.slices.values() if one.number > 1]
    assert {one.steps[3].cause for one in gone} == {SliceCause.OVER_MAX}


def test_a_smaller_max_makes_nothing_that_was_requested_before():
    it = world(cpu_pool(max=4))
    for index in range(4):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=400_000)
    it.cloud.faults.down = ((0, it.now_ms + 20_000),)  # no order takes effect
    it.run_until(lambda: len(statuses(it, "cpu")) == 4, 15)
    it.set_pool(cpu_pool(max=2))
    it.run(200)
    assert it.cloud.most == {"cpu": 2}
    causes = [[step.cause for step in one.steps][1] for one in it.fleet.slices.values()][:4]
    assert causes == [*[SliceCause.ACCEPTED] * 2, *[SliceCause.OVER_MAX] * 2]


def test_max_holds_where_orders_are_given_whatever_was_decided():
    it = world(cpu_pool(max=2))
    for slot in range(4):
        apply_change(it.fleet, SliceRequested(slot + 1, "cpu", slot, SliceCause.NEED), it.now_ms)
    orders = pools.orders(it.scene, terminating_timeout_ms=0)
    assert [one.name for one in orders] == ["cpu-0", "cpu-1"]


def test_a_request_that_was_given_no_order_is_not_unanswered():
    it = world(cpu_pool(max=8))
    for index in range(8):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=400_000)
    it.cloud.faults.down = ((0, it.now_ms + 150_000),)  # nor is anything deleted
    it.run_until(lambda: len(statuses(it, "cpu")) == 8, 15)
    it.set_pool(cpu_pool(max=4))
    it.run_until(lambda: statuses(it, "cpu") == ["deleting"] * 4, 100)
    held = [one for one in it.fleet.slices.values() if one.is_over]
    assert [(str(one.status), one.cause) for one in held] == [("failed", SliceCause.OVER_MAX)] * 4
    assert {one.detail for one in held} == {"no order was given: max 4 left no room for it"}
    growth = it.fleet.pools["cpu"].growth
    assert (growth.unanswered, growth.wait_ms) == (0, 0)
    it.run_until(lambda: sum(one.runs for one in it.work) == 4, 400)
    assert it.cloud.most == {"cpu": 4}


def test_a_request_has_the_whole_time_for_its_answer_once_it_is_ordered():
    it = world(cpu_pool(max=1, idle_s=1000.0))
    for slot in range(2):
        apply_change(it.fleet, SliceRequested(slot + 1, "cpu", slot, SliceCause.NEED), it.now_ms)
    it.cloud.faults.down = ((0, it.now_ms + 10_000),)
    waiting = it.fleet.slices[1]
    ordered = ("create", waiting.number)
    waited = it.run_until(
        lambda: ordered in {(sent.order.call, sent.order.number) for sent in it.wires}, 59
    )
    it.cloud.faults.down = ((0, it.now_ms + 1_000_000),)
    lasted = it.run_until(lambda: waiting.is_over, 100)
    assert waited > 10
    assert lasted > it.policy.answer_timeout_ms / 1000
    assert waiting.cause is SliceCause.NO_ANSWER
    assert it.fleet.pools["cpu"].growth.unanswered == 1


def test_a_request_that_no_provisioner_was_given_is_not_unanswered():
    it = world(cpu_pool(max=3))
    it.sightings.obstacle = "provisioner_down"
    for slot in range(3):
        apply_change(it.fleet, SliceRequested(slot + 1, "cpu", slot, SliceCause.NEED), it.now_ms)
    it.now_ms += it.policy.answer_timeout_ms + 1
    for change in pools.steps(it.scene, []):
        it.apply(change)
    ended = [(str(one.status), one.cause, one.detail) for one in it.fleet.slices.values()]
    words = "no order was given: no provisioner was there"
    assert ended == [("failed", SliceCause.NO_ANSWER, words)] * 3
    growth = it.fleet.pools["cpu"].growth
    assert (growth.unanswered, growth.wait_ms) == (0, 0)


def test_slots_of_a_larger_max_count_for_the_smaller_one():
    it = world(cpu_pool(max=4))
    for index in range(4):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=400_000 if index > 1 else 60_000)
    it.run_until(lambda: sum(one.runs for one in it.work) == 4, 100)
    it.set_pool(cpu_pool(max=2))
    it.run_until(lambda: len(it.cloud.present) == 2, 300)
    assert sorted(it.cloud.present) == ["cpu-2", "cpu-3"]
    it.submit("/more", cpu_millis=4000)
    it.run(100)
    assert it.cloud.created == {"cpu": 4}
    [unmet] = pools.needed(it.scene, it.pending()).unmet
    assert unmet.pools == {"cpu": "at_max"}


def test_a_removed_pool_ends_with_its_last_slice():
    it = world(cpu_pool())
    it.submit("/t", runs_ms=100_000)
    it.run_until(lambda: it.work[0].runs, 100)
    it.set_pool(cpu_pool(), removing=True)
    it.run(50)
    assert it.work[0].runs
    it.run_until(lambda: "cpu" not in it.fleet.pools, 500)
    assert not it.cloud.present
    assert not it.fleet.slices


def test_a_paused_pool_neither_grows_nor_shrinks_but_is_mended():
    it = world(cpu_pool(min=2, idle_s=1.0))
    it.run_until(lambda: statuses(it, "cpu") == ["ready", "ready"], 100)
    it.set_pool(cpu_pool(min=0, idle_s=1.0, paused=True))
    it.submit("/t", cpu_millis=4000, runs_ms=1_000)
    it.run(200)
    assert finished(it)
    assert statuses(it, "cpu") == ["ready", "ready"]
    it.cloud.instances["cpu-0"].dead.add(0)
    it.run_until(lambda: statuses(it, "cpu") == ["ready"], 300)


@pytest.mark.parametrize(
    ("given", "gives_up"),
    [
        ({"max": 4, "idle_s": 1.0}, 3),
        ({"max": 4, "idle_s": 1.0, "paused": True}, 0),
        ({"max": 1, "idle_s": 1_000.0}, 2),
        ({"max": 1, "idle_s": 1_000.0, "paused": True}, 0),
    ],
)
def test_a_plan_gives_up_what_the_next_round_gives_up(given, gives_up):
    it = world(cpu_pool(min=3, max=4))
    it.run_until(lambda: statuses(it, "cpu") == ["ready"] * 3, 100)
    it.set_pool(cpu_pool(**given))
    it.now_ms += 2_000
    planned = pools.planned(it.scene, it.pending(), "cpu")
    for change in pools.steps(it.scene, it.pending()):
        it.apply(change)
    assert statuses(it, "cpu").count("draining") == gives_up
    assert planned == (0, gives_up)


@pytest.mark.parametrize("paused", [False, True])
def test_a_plan_of_a_smaller_max_withdraws_what_was_requested(paused):
    it = world(cpu_pool(max=4))
    it.cloud.faults.down = ((0, it.now_ms + 1_000_000),)
    for index in range(4):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=400_000)
    it.run_until(lambda: len(statuses(it, "cpu")) == 4, 15)
    it.set_pool(cpu_pool(max=1, paused=paused))
    assert pools.planned(it.scene, it.pending(), "cpu") == (0, 3)
    for change in pools.steps(it.scene, it.pending()):
        it.apply(change)
    assert sorted(statuses(it, "cpu")) == ["deleting"] * 3 + ["requested"]


def test_a_notice_of_preemption_drains_with_its_deadline():
    faults = CloudFaults(boot_ms=(5_000, 5_001), preempted=1.0, notice=1.0)
    it = world(cpu_pool(max=1), faults=faults)
    it.submit("/t", runs_ms=2_000_000)
    it.run_until(lambda: statuses(it, "cpu") == ["draining"], 1_000)
    one = next(one for one in it.fleet.slices.values() if one.is_open)
    assert one.cause is SliceCause.SPOT_NOTICE
    assert one.deadline_ms == it.cloud.instances["cpu-0"].preempted_ms


def test_an_answer_that_is_lost_is_found_in_the_list():
    it = world(cpu_pool(), faults=CloudFaults(answer_lost=1.0))
    it.submit("/t", runs_ms=1_000)
    it.run_until(lambda: finished(it), 300)
    assert it.cloud.created == {"cpu": 1}


def test_what_is_listed_after_its_request_failed_is_deleted_at_once():
    it = world(cpu_pool(max=1))
    it.submit("/t")
    it.cloud.faults.down = ((it.now_ms, it.now_ms + 100_000),)
    it.run_until(lambda: it.fleet.slices and it.fleet.slices[1].is_over, 200)
    it.cloud.create("cpu-0", 1, "cpu", 1, it.now_ms)  # the provider did what it never answered
    it.cloud.faults.down = ()
    it.run_until(lambda: not it.cloud.present, 100)
    it.work.clear()


def test_a_stranger_is_adopted_where_its_hosts_register():
    it = world(cpu_pool())
    it.cloud.create("cpu-3", 77, "cpu", 1, it.now_ms)
    it.run_until(lambda: statuses(it, "cpu") == ["ready"], 200)
    [one] = it.fleet.slices.values()
    assert (one.name, one.label, one.steps[0].cause) == ("cpu-3", 77, SliceCause.ADOPTED)
    it.run_until(lambda: not it.cloud.present, 300)  # it is idle like any other


@pytest.mark.parametrize("name", ["gone-0", "cpu-0"])
def test_a_stranger_whose_hosts_never_register_is_deleted(name):
    it = world(cpu_pool(boot_timeout_s=1_200.0), faults=CloudFaults(boot_ms=(9_000_000, 9_000_001)))
    it.cloud.create(name, 77, name[:-2], 1, it.now_ms)
    timeout_s = 1_200 if name == "cpu-0" else 900
    it.run(timeout_s - 30)
    assert name in it.cloud.present
    it.run_until(lambda: not it.cloud.present, 100)


@pytest.mark.parametrize("slot", ["²", "01", "9" * 5_000])
def test_a_name_that_no_slice_can_have_is_a_stranger_like_any_other(slot):
    it = world(cpu_pool(max=2))
    it.cloud.create(f"cpu-{slot}", 77, "cpu", 1, it.now_ms)
    it.submit("/t", runs_ms=1_000)
    it.run_until(lambda: finished(it), 200)
    assert it.fleet.of_host(f"cpu-0-{slot}") is None
    it.run_until(lambda: not it.cloud.present, 1_500)
    assert {one.name for one in it.fleet.slices.values()} == {"cpu-0"}


def test_what_has_a_number_that_no_slice_has_is_not_adopted():
    it = world(cpu_pool())
    it.cloud.create("cpu-3", 0, "cpu", 1, it.now_ms)
    it.run(300)
    assert not it.fleet.slices
    it.run_until(lambda: not it.cloud.present, 1_000)


def test_a_slot_that_a_stranger_has_is_not_used():
    slow = CloudFaults(boot_ms=(9_000_000, 9_000_001))
    it = world(cpu_pool(max=2), faults=slow)
    it.cloud.create("cpu-0", 77, "cpu", 1, it.now_ms)
    it.run(30)
    for index in range(2):
        it.submit(f"/t{index}", cpu_millis=4000)
    it.run(60)
    assert [one.name for one in it.fleet.slices.values()] == ["cpu-1"]


def test_two_slices_with_one_name_are_told_apart_by_their_number():
    it = world(cpu_pool())
    source = ListSource.of(it.fleet.pools["cpu"].spec)
    it.submit("/t", runs_ms=500_000)
    it.run_until(lambda: it.work[0].runs, 100)
    it.sightings.on_list(
        source,
        [ListedSlice("cpu-0", label=99)],
        began_ms=it.now_ms,
        fleet=it.fleet,
        policy=it.policy,
    )
    orders = list(pools.orders(it.scene, terminating_timeout_ms=0))
    assert all(order.label == 99 for order in orders if order.call == "delete")


def test_work_that_comes_back_takes_what_was_about_to_go():
    it = world(cpu_pool(idle_s=30.0))
    it.submit("/a", runs_ms=1_000)
    it.run_until(lambda: "draining" in statuses(it, "cpu"), 200)
    it.submit("/b", runs_ms=1_000)
    it.run_until(lambda: finished(it), 100)
    causes = [step.cause for step in it.fleet.slices[1].steps]
    assert SliceCause.DEMAND_BACK in causes
    assert it.cloud.created == {"cpu": 1}


def test_work_that_comes_back_takes_nothing_beyond_a_smaller_max():
    it = world(cpu_pool(max=2, min=2, idle_s=1_000.0))
    it.run_until(lambda: statuses(it, "cpu") == ["ready"] * 2, 100)
    it.set_pool(cpu_pool(max=1, idle_s=1_000.0))
    it.run_until(lambda: "draining" in statuses(it, "cpu"), 10)
    for name in ("/a", "/b"):
        it.submit(name, cpu_millis=4000, runs_ms=200_000)
    it.run_until(lambda: len(it.cloud.present) == 1, 100)
    assert sum(one.runs for one in it.work) == 1
    causes = [step.cause for one in it.fleet.slices.values() for step in one.steps]
    assert SliceCause.DEMAND_BACK not in causes


def test_work_that_comes_back_keeps_no_slice_of_a_pool_that_goes():
    it = world(cpu_pool(idle_s=30.0))
    it.submit("/a", runs_ms=1_000)
    it.run_until(lambda: "draining" in statuses(it, "cpu"), 200)
    it.set_pool(cpu_pool(idle_s=30.0), removing=True)
    it.submit("/b", runs_ms=500_000)
    it.run_until(lambda: "cpu" not in it.fleet.pools, 300)
    assert it.work[1].is_waiting


def test_the_dearest_pool_is_not_made_beyond_the_price_of_all():
    it = world(
        cpu_pool(price=2.0),
        policy=FleetWorld.__init__.__kwdefaults__["policy"]._replace(max_price_per_hour=5.0),
    )
    for index in range(8):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=600_000)
    it.run(100)
    assert it.cloud.created == {"cpu": 2}
    [unmet] = pools.needed(it.scene, it.pending()).unmet
    assert (unmet.tasks, unmet.pools) == (6, {"cpu": "over_price"})


def test_growth_is_bounded_by_its_rate_which_rises_while_it_succeeds():
    it = world(cpu_pool(max=80, create_rate=2))
    for index in range(80):
        it.submit(f"/t{index}", cpu_millis=4000, runs_ms=3_000_000)
    it.run(59)
    assert it.cloud.created == {"cpu": 2}
    it.run(300)
    assert 30 <= it.cloud.created["cpu"] <= 2 * (1 + 2 + 4 + 8 + 8 + 8)


def test_a_slice_costs_from_its_acceptance_to_its_end():
    it = world(cpu_pool(price=3600.0))
    it.submit("/t", runs_ms=1_000)
    it.run_until(lambda: finished(it), 200)
    one = it.fleet.slices[1]
    assert one.cost(one.asked_ms) == 0
    assert one.cost(one.asked_ms + 7_000) == 7.0
    it.run_until(lambda: one.is_over, 200)
    assert one.cost(it.now_ms + 1 << 40) == (one.ended_ms - one.asked_ms) / 1000


def test_each_kind_of_waiting_work_knows_what_will_hold_it():
    it = world(cpu_pool(max=2))
    it.submit("/first", cpu_millis=4000)
    it.run(10)
    it.submit("/small", cpu_millis=1000)
    it.submit("/large", cpu_millis=3000)
    need = pools.needed(it.scene, it.pending())
    assert need.covered == {
        "/first": CoverFrom("cpu", "cpu-0"),
        "/large": CoverFrom("cpu"),
        "/small": CoverFrom("cpu"),
    }
    assert (need.new, need.unmet) == ({"cpu": 1}, [])


def test_records_of_a_fleet_survive_their_encoding():
    it = world(cpu_pool())
    it.submit("/t", runs_ms=1_000)
    it.run_until(lambda: finished(it), 200)
    for one in it.fleet.slices.values():
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=type(one)) == one


def test_what_was_requested_before_a_restore_is_looked_for_before_it_fails():
    """Its request is old, and nobody was silent: this leader has asked nobody yet."""
    it = world(cpu_pool())
    it.submit("/t", runs_ms=500_000)
    it.run_until(lambda: bool(it.fleet.slices), 20)
    backup = msgspec.msgpack.encode([list(it.fleet.pools.values()), list(it.fleet.slices.values())])
    it.run_until(lambda: it.work[0].runs, 100)
    it.run(200)
    it._restore(backup)
    it._lead()
    it.run(100)
    assert it.work[0].runs
    assert statuses(it, "cpu") == ["ready"]


def test_what_a_restored_cluster_has_is_known_by_its_old_number():
    it = world(cpu_pool(max=1))
    backup = msgspec.msgpack.encode([list(it.fleet.pools.values()), []])
    it.submit("/t", runs_ms=3_000_000)
    it.run_until(lambda: it.work[0].runs, 100)
    it._restore(backup)
    it._lead()
    it.sightings.seen.clear()
    it.submit("/more", cpu_millis=4000, runs_ms=1_000)
    it.run(1_200)
    assert it.work[0].runs
    [one] = [one for one in it.fleet.slices.values() if one.is_open]
    assert one.label == 1
    assert it.cloud.created == {"cpu": 1}


def test_what_works_is_not_deleted_for_a_record_of_another_backup():
    """One backup was restored and work placed, then another one, of a time when nobody answered."""
    it = world(cpu_pool())
    it.submit("/t", runs_ms=500_000)
    it.run_until(lambda: it.work[0].runs, 100)
    [one] = it.fleet.slices.values()
    ended = {"status": SliceStatus.FAILED, "cause": SliceCause.NO_ANSWER, "ended_ms": it.now_ms}
    never = msgspec.structs.replace(one, **ended)
    it._restore(msgspec.msgpack.encode([list(it.fleet.pools.values()), [never]]))
    it._lead()
    it.run(100)
    assert it.work[0].runs
    [adopted] = [one for one in it.fleet.slices.values() if one.is_open]
    assert (adopted.label, adopted.cause) == (1, SliceCause.REGISTERED)
    assert it.cloud.created == {"cpu": 1}


def test_older_lists_say_nothing_of_what_was_adopted_with_another_number():
    """After a backup was made its slice was taken away, and another one made in its place."""
    it = world(cpu_pool(max=1))
    it.submit("/t", runs_ms=3_000_000)
    it.run_until(lambda: it.work[0].runs, 100)
    it.run(it.policy.list_lag_ms // 1000)
    backup = msgspec.msgpack.encode([list(it.fleet.pools.values()), list(it.fleet.slices.values())])
    [instance] = it.cloud.instances.values()
    instance.label = it.fleet.next_number
    it.fleet.next_number += 1
    it._restore(backup)
    it._lead()
    [one] = it.fleet.slices.values()
    it.run_until(lambda: one.label == instance.label, 100)
    lists = {"source": ListSource.of(one.spec), "entries": [], "fleet": it.fleet}
    lists |= {"policy": it.policy}
    first_ms = it.now_ms + it.policy.list_lag_ms
    for _ in range(ENOUGH_LISTS):
        it.sightings.on_list(**lists, began_ms=first_ms - 1)
    assert not it.sightings.is_gone(one)
    for _ in range(ENOUGH_LISTS):
        it.sightings.on_list(**lists, began_ms=first_ms)
    assert it.sightings.is_gone(one)
