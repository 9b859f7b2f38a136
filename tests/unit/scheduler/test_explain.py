"""Every waiting job gets a typed reason that follows what blocks it."""

from __future__ import annotations

from msgspec import structs

from iris_core.placement.reasons import ReasonCode
from iris_core.quota import Quota
from iris_core.spec.jobs import Constraint, Environment, JobSpec
from iris_core.spec.resources import Device
from iris_core.states import ConstraintOp, WorkerState
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import GIB, Story, eq, tpu, worker


def reason(story: Story, name: str) -> tuple[ReasonCode, dict[str, object]]:
    """What a job has been told after one cycle."""
    story.cycle()
    return story.reasons[name].code, story.reasons[name].facts


def test_no_workers() -> None:
    story = Story()
    story.submit("/job")
    assert reason(story, "/job") == (ReasonCode.NO_WORKERS, {})


def test_no_worker_takes_work() -> None:
    story = Story(worker("a", state=WorkerState.DRAINING), worker("b", state=WorkerState.DEGRADED))
    story.submit("/job")
    assert reason(story, "/job") == (
        ReasonCode.NO_WORKERS,
        {"by_state": {"degraded": 1, "draining": 1}},
    )


def test_a_degraded_worker_is_named_with_its_reason() -> None:
    one = structs.replace(
        worker("b", state=WorkerState.DEGRADED), reason="3 starts in a row failed: no space"
    )
    story = Story(worker("a", state=WorkerState.DRAINING), one)
    story.submit("/job")
    story.cycle()
    assert story.reasons["/job"].message.endswith(
        ": 1 degraded, 1 draining; b is degraded: " + one.reason
    )


def test_lost_workers_are_counted_when_there_are_no_others() -> None:
    story = Story(worker("a", state=WorkerState.LOST))
    story.submit("/job")
    assert reason(story, "/job") == (ReasonCode.NO_WORKERS, {"by_state": {"lost": 1}})


def test_each_condition_tells_how_many_workers_it_removes() -> None:
    story = Story(worker("a", zone="us"), worker("b", zone="us", **{"taint:x": 1}), tpu("s", 0))
    story.submit("/job", device=Device("gpu", "H100", 1), constraints=(eq("zone", "eu"),))
    code, facts = reason(story, "/job")
    assert code is ReasonCode.NO_MATCH
    assert facts == {
        "workers": 3,
        "removed_by": {
            "zone eq eu": 3,
            "device-type eq gpu": 3,
            "device-variant eq H100": 3,
            "taint:x not tolerated": 1,
        },
    }


def test_a_job_with_an_image_waits_for_a_host_with_a_container_runtime() -> None:
    spec = JobSpec(name="/job", command=("true",), environment=Environment(image="lab/train:1"))
    story = Story(worker("a"), worker("b"))
    story.submit("/job", constraints=spec.placement)
    code, facts = reason(story, "/job")
    assert code is ReasonCode.NO_MATCH
    assert facts == {"workers": 2, "removed_by": {"has a container runtime, for its image": 2}}


def test_not_enough_of_what_fewest_workers_have() -> None:
    story = Story(
        worker("a", cpu=8, memory=1 * GIB),
        worker("b", cpu=1, memory=8 * GIB),
        worker("c", cpu=2, memory=8 * GIB),
    )
    story.submit("/job", cpu=4, memory=4 * GIB)
    code, facts = reason(story, "/job")
    assert code is ReasonCode.NOT_ENOUGH_CPU
    assert (facts["asked"], facts["best_free"], facts["workers_short"], facts["workers"]) == (
        4000,
        8000,
        2,
        3,
    )


def test_a_task_larger_than_every_worker_is_told_that_it_never_fits() -> None:
    story = Story(worker("a", memory=GIB))
    story.submit("/job", memory=2 * GIB)
    code, facts = reason(story, "/job")
    assert (code, facts["never"]) == (ReasonCode.NOT_ENOUGH_MEMORY, True)


def test_not_enough_chips() -> None:
    story = Story(tpu("s", 0), tpu("s", 1))
    story.running("/busy", ["s-0", "s-1"], device=Device("tpu", "v4-16", 2))
    story.submit("/job", device=Device("tpu", "v4-16", 4))
    code, facts = reason(story, "/job")
    assert (code, facts["best_free"], facts["largest"]) == (ReasonCode.NOT_ENOUGH_CHIPS, 2, 4)


def test_the_building_window_is_full() -> None:
    story = Story(worker("a", cpu=8, window=1), worker("b", cpu=1, window=1))
    story.submit("/first", 2)
    story.cycle()
    story.submit("/second")
    assert reason(story, "/second") == (
        ReasonCode.BUILDING_WINDOW_FULL,
        {"workers": 1, "user": "ann"},
    )


def test_behind_those_that_came_first() -> None:
    story = Story(worker("a", cpu=2))
    story.submit("/first", 2)
    story.submit("/second")
    assert reason(story, "/second") == (ReasonCode.BEHIND, {"tasks": 2})


def test_once_the_others_run_it_is_room_that_is_missing() -> None:
    story = Story(worker("a", cpu=2))
    story.submit("/first", 2)
    story.submit("/second")
    story.cycle()
    assert reason(story, "/second")[0] is ReasonCode.NOT_ENOUGH_CPU


def test_a_gang_is_told_how_far_the_best_group_is() -> None:
    story = Story(*(tpu(name, number) for name in ("s1", "s2") for number in range(4)))
    story.running("/busy", ["s1-0", "s1-1", "s2-3"], cpu=4)
    story.gang("/gang", 4)
    expected = {"group_by": "tpu-name", "needs": 4, "best_group": "s2", "free": 3, "of": 4}
    expected["held"] = {"s2-3": "held by /busy"}
    assert reason(story, "/gang") == (ReasonCode.GANG_NEEDS_GROUP, expected)


def test_a_gang_without_any_group_waits_and_says_so() -> None:
    story = Story(worker("a"), worker("b"))
    story.submit("/gang", 2, group_by="rack")
    code, facts = reason(story, "/gang")
    assert (code, facts["never"]) == (ReasonCode.GANG_NEEDS_GROUP, True)


def test_over_quota() -> None:
    story = Story(worker("a", cpu=2))
    story.quota("ann", max_running_cpu=1000)
    story.running("/one", "a", user="ann")
    story.submit("/bob", user="bob")
    story.submit("/two", user="ann")
    code, facts = reason(story, "/two")
    assert code is ReasonCode.OVER_QUOTA
    assert facts == {"user": "ann", "resource": "max_running_cpu", "running": 1000, "limit": 1000}


def test_a_delay_is_told_with_its_end() -> None:
    story = Story(worker("a"))
    story.submit("/job")
    story.avoid("/job", 0, "a", for_s=5)
    assert reason(story, "/job") == (ReasonCode.DELAYED, {"until_ms": story.now_ms + 5000})


def test_a_place_kept_for_a_gang_is_named() -> None:
    story = Story(
        tpu("s1", 0), tpu("s1", 1), settings=SchedulerSettings(gang_reservation_after_s=0)
    )
    story.running("/busy", "s1-0", cpu=4)
    story.gang("/gang", 2)
    story.wait(1)
    story.submit("/late", cpu=4)
    assert reason(story, "/late") == (ReasonCode.RESERVED_FOR_GANG, {"gang": "/gang", "workers": 1})


def test_a_refused_job_pauses_and_says_why() -> None:
    story = Story(worker("a"))
    row = story.submit("/job")
    story.cache.refuse(row.job, "no_room", story.now_ms, story.settings)
    code, facts = reason(story, "/job")
    assert (code, facts) == (ReasonCode.DELAYED, {"until_ms": story.now_ms + 50})
    assert story.look().wake_ms == story.now_ms + 50


def test_each_refusal_in_a_row_makes_the_pause_longer() -> None:
    story = Story(worker("a"))
    row = story.submit("/job")
    for _ in range(3):
        story.cache.refuse(row.job, "no_room", story.now_ms, story.settings)
    assert story.cache.backoffs[row.job].until_ms == story.now_ms + 200


def test_a_reason_is_told_once() -> None:
    story = Story(worker("a", cpu=1))
    story.submit("/job", cpu=2)
    story.cycle()
    assert story.look().plan.reasons == ()


def test_a_task_that_waits_anew_is_told_again() -> None:
    story = Story(worker("a", cpu=2))
    story.submit("/job", 2, cpu=2)
    story.cycle()
    story.cycle()
    story.reasons.clear()
    story.tell(closed=(), queued=(), unqueued=())
    story.end("/job", 0, again=True)
    assert story.cycle() == {"/job/0": "a"}
    assert story.reasons["/job"].code is ReasonCode.NOT_ENOUGH_CPU


def test_a_change_of_reason_is_told() -> None:
    story = Story(worker("a", cpu=1))
    story.submit("/job", constraints=(Constraint("zone", ConstraintOp.EXISTS),), cpu=2)
    story.cycle()
    story.worker(worker("b", cpu=1, zone="eu"))
    assert reason(story, "/job")[0] is ReasonCode.NOT_ENOUGH_CPU


def test_a_large_class_is_told_a_new_reason_at_most_now_and_then() -> None:
    story = Story(worker("a", cpu=1))
    for number in range(100):
        story.submit(f"/job-{number}", cpu=2)
    assert len(story.look().plan.reasons) == 100
    story.cycle()
    story.worker(worker("b", cpu=2, state=WorkerState.HEALTHY))
    story.running("/other", "b", cpu=1)
    story.running("/more", "b", cpu=0.5)
    decision = story.look()
    assert decision.plan.reasons == ()
    assert decision.wake_ms == story.now_ms + 2000
    story.wait(2)
    assert len(story.look().plan.reasons) == 100


def test_holders_and_lost_hosts_of_the_best_group_are_named() -> None:
    story = Story(*(tpu("slice-0", number, cpu=4) for number in range(4)), tpu("slice-1", 0, cpu=4))
    story.running("/other", ["slice-0-0", "slice-0-1"], cpu=4)
    story.worker(tpu("slice-0", 3, cpu=4, state=WorkerState.LOST))
    story.gang("/gang", 4)
    code, facts = reason(story, "/gang")
    assert code is ReasonCode.GANG_NEEDS_GROUP
    assert facts["held"] == {
        "slice-0-3": "lost",
        "slice-0-0": "held by /other",
        "slice-0-1": "held by /other",
    }
    assert story.reasons["/gang"].message.endswith(
        "the best group, slice-0, has 1 of 3: slice-0-3 lost; slice-0-0, slice-0-1 held by /other"
    )


def test_a_job_whose_own_tasks_took_the_room_is_not_behind_them() -> None:
    story = Story(worker("a", cpu=3))
    story.submit("/wide", 4)
    code, facts = reason(story, "/wide")
    assert (code, facts["best_free"]) == (ReasonCode.NOT_ENOUGH_CPU, 0)


def test_behind_counts_the_tasks_of_others_only() -> None:
    story = Story(worker("a", cpu=4))
    story.submit("/first", 3, at_ms=1)
    story.submit("/wide", 4, at_ms=2)
    assert reason(story, "/wide") == (ReasonCode.BEHIND, {"tasks": 3})


def test_a_stop_that_hangs_is_named() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    story.cycle()
    story.wait(16)
    assert reason(story, "/high")[1]["stuck"] == ["a"]


def test_a_stop_that_hung_and_is_over_is_not_named_while_a_later_one_runs() -> None:
    story = Story(worker("a", cpu=2))
    story.running("/first", "a", band="batch")
    story.running("/second", "a", band="batch")
    story.stop(*story.refs("/first"))
    story.wait(16)
    story.stop(*story.refs("/second"))
    story.end("/first", 0)
    story.submit("/high", band="production", cpu=2)
    assert "stuck" not in reason(story, "/high")[1]


def test_the_first_of_many_gangs_is_explained_when_all_its_hosts_drain() -> None:
    """What the class was told last, that it is behind others, is not a moment old."""
    in_eu = {"group_by": "rack", "constraints": (eq("zone", "eu"),)}
    story = Story(worker("a", cpu=1, rack="a", zone="us"), worker("z", cpu=1, rack="z", zone="eu"))
    for number in range(66):
        story.submit(f"/gang-{number}", **in_eu)
    assert story.cycle() == {"/gang-0/0": "z"}
    story.worker(worker("z", cpu=1, rack="z", zone="eu", state=WorkerState.DRAINING))
    story.submit("/deeper/first", **in_eu)
    story.cycle()
    assert story.reasons["/deeper/first"].code is ReasonCode.NO_WORKERS


def test_a_limit_of_a_group_is_told_with_the_group() -> None:
    story = Story(worker("a", cpu=2))
    limits = Quota("ann", max_running_cpu=1000, sources={"max_running_cpu": "@ml"})
    story.tell(quotas=(limits,))
    story.running("/one", "a", user="ann")
    story.submit("/bob", user="bob")
    story.submit("/two", user="ann")
    story.cycle()
    expected = "ann runs 1 of at most 1 of cpu (limit of @ml); others of the band go first"
    assert story.reasons["/two"].message == expected
