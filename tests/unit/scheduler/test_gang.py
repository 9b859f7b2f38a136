"""Gangs: placed whole or not at all, on one group, in order, without starvation."""

from __future__ import annotations

from iris_core.placement.reasons import ReasonCode
from iris_core.spec.jobs import Constraint
from iris_core.states import ConstraintOp, WorkerState
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import Story, eq, tpu, worker
from tests.support.slow_scheduler import SlowScheduler


def slices(*names: str, vms: int = 2) -> list[object]:
    return [tpu(name, number) for name in names for number in range(vms)]


def test_all_tasks_land_on_workers_that_share_the_group() -> None:
    story = Story(*slices("s1", "s2"))
    story.gang("/train", 2)
    assert story.cycle() == {"/train/0": "s1-0", "/train/1": "s1-1"}


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    story = Story(tpu("s1", 0), tpu("s2", 0))
    story.gang("/train", 2)
    assert story.cycle() == {}


def test_each_task_has_a_worker_of_its_own() -> None:
    story = Story(tpu("s1", 0, chips=8), tpu("s1", 1, chips=8))
    story.gang("/train", 2)
    assert story.cycle() == {"/train/0": "s1-0", "/train/1": "s1-1"}


def test_tasks_meet_workers_by_numeric_worker_id() -> None:
    story = Story(*(tpu("s1", number) for number in (10, 9, 2, 0)))
    story.gang("/train", 4)
    assert list(story.cycle().values()) == ["s1-0", "s1-2", "s1-9", "s1-10"]


def test_a_worker_without_a_number_comes_last() -> None:
    rack = [
        worker("x", rack="r"),
        worker("y", rack="r", tpu_worker_id="1"),
        worker("z", rack="r", tpu_worker_id="?"),
    ]
    story = Story(*rack)
    story.submit("/gang", 3, group_by="rack")
    assert list(story.cycle().values()) == ["y", "x", "z"]


def test_the_group_with_the_fewest_spare_hosts_is_taken() -> None:
    racks = [
        worker(f"{rack}{number}", rack=rack)
        for rack, size in (("a", 4), ("b", 2), ("c", 3))
        for number in range(size)
    ]
    story = Story(*racks)
    story.submit("/pair", 2, group_by="rack")
    assert list(story.cycle().values()) == ["b0", "b1"]


def test_a_gang_without_accelerators_takes_hosts_with_some_last() -> None:
    racks = [worker(f"plain{number}", rack="z") for number in range(3)]
    racks += [worker(f"tpu{number}", rack="a", chips=4) for number in range(2)]
    story = Story(*racks)
    story.submit("/pair", 2, group_by="rack")
    assert list(story.cycle().values()) == ["plain0", "plain1"]
    story.submit("/other", 2, group_by="rack", constraints=(eq("rack", "a"),))
    assert list(story.cycle().values()) == ["tpu0", "tpu1"]


def test_a_gang_without_accelerators_takes_mixed_hosts_last() -> None:
    hosts = [worker("a-tpu", rack="r", chips=4, tpu_worker_id="0")]
    hosts += [worker(f"b-plain{number}", rack="r", tpu_worker_id=f"{number}") for number in (2, 1)]
    story = Story(*hosts)
    story.submit("/pair", 2, group_by="rack")
    assert list(story.cycle().values()) == ["b-plain1", "b-plain2"]


def test_equal_groups_are_taken_by_name() -> None:
    story = Story(*slices("z", "m", "a"))
    for name in ("/g1", "/g2", "/g3"):
        story.gang(name, 2)
    assert list(story.cycle().values()) == ["a-0", "a-1", "m-0", "m-1", "z-0", "z-1"]


def test_a_group_that_shrank_meanwhile_becomes_the_better_choice() -> None:
    sizes = (("a", 5), ("b", 6))
    story = Story(
        *(worker(f"{rack}{n}", cpu=1, rack=rack) for rack, size in sizes for n in range(size))
    )
    story.submit("/pair-1", 2, group_by="rack", at_ms=1)
    story.submit("/four", 4, group_by="rack", at_ms=2, constraints=(eq("rack", "b"),))
    story.submit("/pair-2", 2, group_by="rack", at_ms=3)
    placed = story.cycle()
    assert [placed[f"/pair-1/{index}"] for index in (0, 1)] == ["a0", "a1"]
    assert [placed[f"/pair-2/{index}"] for index in (0, 1)] == ["b4", "b5"]


def test_coscheduled_jobs_respect_priority() -> None:
    story = Story(*slices("s1"))
    story.gang("/root", 2, at_ms=1)
    story.gang("/root/deep", 2, at_ms=2)
    assert set(story.cycle()) == {"/root/deep/0", "/root/deep/1"}


def test_gangs_go_before_single_tasks_of_their_band() -> None:
    story = Story(*slices("s1"))
    story.submit("/early", 2, cpu=4)
    story.wait(1)
    story.gang("/gang", 2)
    assert set(story.cycle()) == {"/gang/0", "/gang/1"}


def test_a_gang_never_goes_before_a_higher_band() -> None:
    story = Story(*slices("s1"))
    story.gang("/gang", 2, at_ms=1)
    story.submit("/urgent", 1, cpu=4, band="production", at_ms=2)
    assert story.cycle() == {"/urgent/0": "s1-0"}


def test_workers_without_the_attribute_are_in_no_group() -> None:
    story = Story(worker("a"), worker("b"))
    story.submit("/gang", 2, group_by="rack")
    assert story.cycle() == {}


def test_a_draining_worker_spoils_its_slice() -> None:
    story = Story(tpu("s1", 0), tpu("s1", 1, state=WorkerState.DRAINING), *slices("s2"))
    story.gang("/train", 2)
    assert list(story.cycle().values()) == ["s2-0", "s2-1"]


def test_a_gang_keeps_off_a_worker_that_could_not_bring_one_of_it_up() -> None:
    story = Story(*slices("s1", "s2"))
    story.gang("/train", 2)
    story.avoid("/train", 1, "s1-1", for_s=5)
    assert list(story.cycle().values()) == ["s2-0", "s2-1"]


def test_a_slice_to_avoid_is_taken_last_once_the_delay_is_over() -> None:
    story = Story(*slices("s1", "s2"))
    story.gang("/one", 2, at_ms=1)
    story.avoid("/one", 1, "s1-1", for_s=5)
    story.wait(6)
    assert list(story.cycle().values()) == ["s2-0", "s2-1"]


# ── timeout ───────────────────────────────────────────────────────────────────────────────────────


def blocked() -> Story:
    """Two slices, each with a VM taken; a gang waits."""
    story = Story(*slices("s1", "s2"))
    story.running("/long", "s1-0", cpu=4)
    story.running("/short", "s2-0", cpu=4, timeout_s=1000)
    story.gang("/gang", 2)
    return story


def test_a_gang_that_waited_too_long_has_the_group_kept_that_is_free_first() -> None:
    story = blocked()
    story.cycle()
    story.wait(301)
    story.submit("/late", 2, cpu=4)
    assert story.cycle() == {"/late/0": "s1-1"}
    story.end("/short", 0)
    assert story.cycle() == {"/gang/0": "s2-0", "/gang/1": "s2-1"}


def test_a_patient_gang_keeps_nothing() -> None:
    story = blocked()
    story.cycle()
    story.wait(300)
    story.submit("/late", 2, cpu=4)
    assert story.cycle() == {"/late/0": "s1-1", "/late/1": "s2-1"}


def test_work_that_ends_before_the_gang_can_start_may_use_its_group() -> None:
    story = blocked()
    story.wait(301)
    story.submit("/lengthy", 2, cpu=4, timeout_s=800)
    assert story.cycle() == {"/lengthy/0": "s1-1"}
    story.submit("/brief", 2, cpu=4, timeout_s=600)
    assert story.cycle() == {"/brief/0": "s2-1"}


def test_a_higher_band_may_use_what_is_kept_for_a_gang() -> None:
    story = blocked()
    story.wait(301)
    story.submit("/urgent", 2, cpu=4, band="production")
    assert story.cycle() == {"/urgent/0": "s1-1", "/urgent/1": "s2-1"}


def test_the_next_cycle_comes_when_the_reservation_is_due() -> None:
    story = blocked()
    begun = story.now_ms
    assert story.look().wake_ms == begun + 300_001
    story.cycle()
    story.wait(1)
    story.submit("/other", cpu=100)
    assert story.look().wake_ms == begun + 300_001


def test_the_group_is_free_again_when_the_gang_is_gone() -> None:
    story = Story(*slices("s1"), settings=SchedulerSettings(gang_reservation_after_s=0))
    story.running("/long", "s1-0", cpu=4)
    story.gang("/gang", 2)
    story.wait(1)
    story.submit("/late", cpu=4)
    assert story.cycle() == {}
    story.tell(gone=(story.rows["/gang"].job,))
    assert story.cycle() == {"/late/0": "s1-1"}


def test_a_group_that_another_gang_has_just_taken_is_not_kept() -> None:
    story = Story(*slices("s1", "s2"), settings=SchedulerSettings(gang_reservation_after_s=0))
    story.running("/limited", "s2-0", cpu=4, timeout_s=600)
    story.gang("/first", 2)
    story.gang("/patient", 2)
    story.wait(1)
    story.submit("/late", cpu=4)
    assert story.cycle() == {"/first/0": "s1-0", "/first/1": "s1-1"}
    assert story.reasons["/late"].code is ReasonCode.RESERVED_FOR_GANG


def test_a_group_that_another_gang_has_just_taken_for_a_short_time_is_kept() -> None:
    story = Story(*slices("s1", "s2"), settings=SchedulerSettings(gang_reservation_after_s=0))
    story.running("/limited", "s2-0", cpu=4, timeout_s=600)
    story.gang("/first", 2, timeout_s=60)
    story.gang("/patient", 2)
    story.wait(1)
    story.submit("/late", cpu=4)
    assert story.cycle() == {"/first/0": "s1-0", "/first/1": "s1-1", "/late/0": "s2-1"}


def test_the_preferred_group_with_the_fewest_spare_hosts_is_taken() -> None:
    sizes = (("a", 4, "eu"), ("b", 3, "eu"), ("c", 2, "us"))
    story = Story(
        *(
            worker(f"{rack}{n}", rack=rack, zone=zone)
            for rack, size, zone in sizes
            for n in range(size)
        )
    )
    prefer = Constraint("rack", ConstraintOp.IN, None, ("a", "b"), mode="preferred")
    story.submit("/pair", 2, group_by="rack", constraints=(prefer,))
    assert list(story.cycle().values()) == ["b0", "b1"]


def test_a_lost_host_makes_its_group_no_less_preferred() -> None:
    near = Constraint("zone", ConstraintOp.EQ, "eu", mode="preferred")
    hosts = (("a0", "a", "eu"), ("a1", "a", "us"), ("b0", "b", "eu"), ("b1", "b", "us"))
    rows = [worker(name, rack=rack, zone=zone) for name, rack, zone in hosts]
    story = Story(*rows, worker("a2", rack="a", zone="us", state=WorkerState.LOST))
    pair = story.submit("/pair", 2, group_by="rack", constraints=(near,)).job
    assert SlowScheduler(story.mirror.snapshot(), story.now_ms).plan() == {
        (pair, 0): "a0",
        (pair, 1): "a1",
    }
    assert story.cycle() == {"/pair/0": "a0", "/pair/1": "a1"}
