"""Placement of single tasks: first fit in queue order, and each criterion that ranks two
workers.
"""

from __future__ import annotations

from iris_core.messages.scheduler_state import OCCUPIED, Hold
from iris_core.spec.jobs import Constraint
from iris_core.spec.resources import Device
from iris_core.states import ConstraintOp, WorkerState
from tests.support.scheduling import GIB, Story, eq, worker


def test_deeper_jobs_scheduled_before_shallow() -> None:
    story = Story(worker("w1", cpu=2))
    story.submit("/root")
    story.submit("/root/child")
    assert list(story.cycle()) == ["/root/child/0", "/root/0"]


def test_older_root_tree_preferred_at_same_depth() -> None:
    story = Story(worker("w1", cpu=1))
    story.submit("/user-b-job", at_ms=2000)
    story.submit("/user-a-job", at_ms=1000)
    assert story.cycle() == {"/user-a-job/0": "w1"}


def test_child_of_older_tree_beats_root_of_newer_tree() -> None:
    story = Story(worker("w1", cpu=1))
    story.submit("/old-tree", at_ms=1000)
    story.submit("/new-tree", at_ms=2000)
    story.submit("/old-tree/child", at_ms=3000, root_ms=1000)
    assert story.cycle() == {"/old-tree/child/0": "w1"}


def test_fifo_within_same_depth_and_tree() -> None:
    story = Story(worker("w1", cpu=1))
    story.submit("/tree/child-a", at_ms=1000, root_ms=0)
    story.submit("/tree/child-b", at_ms=2000, root_ms=0)
    assert story.cycle() == {"/tree/child-a/0": "w1"}


def test_requeued_task_maintains_priority() -> None:
    story = Story(worker("w1", cpu=1))
    story.submit("/first", at_ms=1000)
    story.submit("/second", at_ms=2000)
    story.cycle()
    story.end("/first", 0, again=True)
    assert story.cycle() == {"/first/0": "w1"}


def test_unrelated_jobs_not_starved() -> None:
    story = Story(worker("w1", cpu=2))
    story.submit("/tree/child", 1, at_ms=1000)
    story.submit("/unrelated", 1, at_ms=2000)
    assert set(story.cycle()) == {"/tree/child/0", "/unrelated/0"}


def test_what_does_not_fit_holds_up_nobody() -> None:
    story = Story(worker("w1", cpu=2))
    story.submit("/large", cpu=3, at_ms=1000)
    story.submit("/small", at_ms=2000)
    assert story.cycle() == {"/small/0": "w1"}


def test_a_higher_band_goes_first_however_deep_the_other() -> None:
    story = Story(worker("w1", cpu=1))
    story.submit("/a/b/c", band="batch")
    story.submit("/late", band="production")
    assert story.cycle() == {"/late/0": "w1"}


def test_a_worker_is_filled_before_the_next_is_used() -> None:
    story = Story(worker("b", cpu=2), worker("a", cpu=2))
    story.submit("/job", 3)
    assert story.cycle() == {"/job/0": "a", "/job/1": "a", "/job/2": "b"}


def test_cpu_work_leaves_accelerators_alone_while_it_can() -> None:
    story = Story(worker("a-gpu", cpu=2, chips=8), worker("z-cpu", cpu=1))
    story.submit("/job", 2)
    assert story.cycle() == {"/job/0": "z-cpu", "/job/1": "a-gpu"}


def test_a_device_job_goes_where_its_kind_and_variant_are() -> None:
    story = Story(
        worker("a", chips=8, device_type="gpu", device_variant="A100"),
        worker("b", chips=8, device_type="gpu", device_variant="H100"),
        worker("c"),
    )
    story.submit("/train", device=Device("gpu", "H100", 8))
    assert story.cycle() == {"/train/0": "b"}


def test_every_resource_is_counted() -> None:
    story = Story(worker("a", cpu=8, memory=4 * GIB), worker("b", cpu=8, memory=8 * GIB))
    story.submit("/job", 4, memory=3 * GIB)
    assert story.cycle() == {"/job/0": "a", "/job/1": "b", "/job/2": "b"}


def test_a_task_that_requests_nothing_fits_on_a_full_worker() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/busy", "a")
    story.submit("/light", cpu=0)
    assert story.cycle() == {"/light/0": "a"}


def test_constraints_rule_workers_out() -> None:
    story = Story(worker("a", zone="us"), worker("b", zone="eu"), worker("c"))
    story.submit("/job", constraints=(eq("zone", "eu"),))
    assert story.cycle() == {"/job/0": "b"}


def test_a_taint_keeps_others_away() -> None:
    story = Story(worker("a", **{"taint:old": "yes"}), worker("b"))
    story.submit("/plain")
    story.submit("/tolerant", constraints=(Constraint("taint:old", ConstraintOp.EXISTS),))
    assert story.cycle() == {"/plain/0": "b", "/tolerant/0": "a"}


def test_preferences_rank_and_do_not_rule_out() -> None:
    story = Story(worker("a", cpu=1, zone="us"), worker("b", cpu=1, zone="eu"))
    story.submit(
        "/job", 2, constraints=(Constraint("zone", ConstraintOp.EQ, "eu", mode="preferred"),)
    )
    assert story.cycle() == {"/job/0": "b", "/job/1": "a"}


def test_a_worker_brings_up_only_so_many_tasks_at_once() -> None:
    story = Story(worker("a", cpu=100, window=2), worker("b", cpu=100, window=1))
    story.submit("/job", 5)
    assert story.cycle() == {"/job/0": "a", "/job/1": "a", "/job/2": "b"}
    story.tell(
        moved=tuple(
            story.held(ref).__class__(ref, "a", False, False, 0) for ref in story.refs("/job")[:2]
        )
    )
    assert story.cycle() == {"/job/3": "a", "/job/4": "a"}


def test_draining_degraded_and_lost_workers_get_nothing_new() -> None:
    story = Story(
        worker("a", state=WorkerState.DRAINING),
        worker("b", state=WorkerState.DEGRADED),
        worker("c", state=WorkerState.LOST),
        worker("d"),
    )
    story.submit("/job")
    assert story.cycle() == {"/job/0": "d"}


def test_a_worker_that_is_healthy_again_is_used_at_once() -> None:
    story = Story(worker("a", state=WorkerState.DRAINING))
    story.submit("/job")
    assert story.cycle() == {}
    story.worker(worker("a"))
    assert story.cycle() == {"/job/0": "a"}


def test_an_attempt_that_is_told_to_stop_still_holds_its_room() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/old", "a")
    story.stop(*story.refs("/old"))
    story.submit("/new")
    assert story.cycle() == {}
    story.stopped(*story.refs("/old"), again=False)
    assert story.cycle() == {"/new/0": "a"}


def test_a_task_is_kept_off_a_worker_that_could_not_bring_it_up() -> None:
    story = Story(worker("a"), worker("b"))
    story.submit("/job", 2)
    story.avoid("/job", 0, "a", for_s=5)
    assert story.cycle() == {"/job/0": "b", "/job/1": "a"}


def test_a_worker_to_avoid_is_taken_last_once_the_delay_is_over() -> None:
    story = Story(worker("a"), worker("b", cpu=1))
    story.submit("/job", 2)
    story.avoid("/job", 0, "a", for_s=5)
    story.avoid("/job", 1, "a", for_s=5)
    story.wait(6)
    assert story.cycle() == {"/job/0": "b", "/job/1": "a"}


def test_suspects_are_placed_alone_and_nothing_beside_them() -> None:
    story = Story(worker("a", cpu=4), worker("b", cpu=4), worker("c", cpu=4))
    story.running("/busy", "a")
    story.submit("/suspect", 2)
    for index in (0, 1):
        story.avoid("/suspect", index, OCCUPIED, for_s=300)
    story.submit("/other", 4)
    assert story.cycle() == {"/suspect/0": "b", "/suspect/1": "c"} | {
        f"/other/{index}": "a" for index in range(3)
    }


def test_a_suspect_waits_for_an_empty_worker_and_says_so() -> None:
    story = Story(worker("a", cpu=4))
    story.running("/busy", "a")
    story.submit("/suspect")
    story.avoid("/suspect", 0, OCCUPIED, for_s=300)
    assert story.look().wake_ms == story.now_ms + 300_000
    assert story.cycle() == {}
    assert "so it starts alone" in story.reasons["/suspect"].message
    story.wait(300)
    assert story.cycle() == {"/suspect/0": "a"}


def test_nothing_is_placed_beside_an_attempt_that_is_to_be_alone() -> None:
    story = Story(worker("a", cpu=4))
    story.running("/suspect", "a")
    [ref] = story.refs("/suspect")
    story.tell(
        moved=(Hold(ref, "a", building=False, stopping=False, since_ms=story.now_ms, alone=True),)
    )
    story.submit("/next")
    assert story.cycle() == {}
    story.tell(moved=(Hold(ref, "a", building=False, stopping=False, since_ms=story.now_ms),))
    assert story.cycle() == {"/next/0": "a"}


def test_the_next_cycle_comes_when_a_delay_ends() -> None:
    story = Story(worker("a"))
    story.submit("/job")
    story.avoid("/job", 0, "a", for_s=5)
    assert story.look().wake_ms == story.now_ms + 5000
    assert story.cycle() == {}
    story.wait(5)
    assert story.cycle() == {"/job/0": "a"}


def test_ten_thousand_tasks_are_placed_in_order() -> None:
    story = Story(*(worker(f"w{number:04d}", cpu=8) for number in range(1250)))
    story.submit("/many", 10_000)
    placed = story.cycle()
    assert list(placed) == [f"/many/{index}" for index in range(10_000)]
    assert placed["/many/9999"] == "w1249"


def test_a_worker_is_given_no_more_tasks_than_it_may_have() -> None:
    story = Story(worker("a", cpu=8, attempts=3), worker("b", cpu=2))
    story.running("/old", "a")
    story.submit("/job", 5)
    assert story.cycle() == {"/job/0": "a", "/job/1": "a", "/job/2": "b", "/job/3": "b"}
    story.end("/old", 0)
    assert story.cycle() == {"/job/4": "a"}


def test_preferred_hosts_come_first_also_when_they_have_accelerators() -> None:
    near = Constraint("near", ConstraintOp.EXISTS, mode="preferred")
    hosts = [worker("a", near=1), worker("b"), worker("c", near=1, chips=4), worker("d", chips=4)]
    story = Story(*hosts)
    story.submit("/two", 2, cpu=4, constraints=(near,))
    assert list(story.cycle().values()) == ["a", "c"]


def test_a_full_plan_leaves_the_rest_to_the_next_cycle() -> None:
    story = Story(worker("w1", cpu=6), worker("w2", cpu=6))
    for name, replicas in {"/first": 2, "/second": 2, "/third": 3, "/fourth": 1}.items():
        story.submit(name, replicas)
    story.submit("/large", cpu=7)
    story.most = 4
    assert list(story.cycle()) == ["/first/0", "/first/1", "/second/0", "/second/1"]
    assert not story.reasons
    assert list(story.cycle()) == ["/third/0", "/third/1", "/third/2", "/fourth/0"]
    assert list(story.reasons) == ["/large"]


def test_a_job_larger_than_a_plan_is_placed_alone() -> None:
    story = Story(worker("w1", cpu=6))
    story.submit("/first", 3)
    story.submit("/second")
    story.most = 2
    assert list(story.cycle()) == ["/first/0", "/first/1", "/first/2"]
    assert list(story.cycle()) == ["/second/0"]
