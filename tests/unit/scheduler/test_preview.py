"""The dry run of a submission: now, after whom, not now, or never."""

from __future__ import annotations

from typing import Any

import pytest

from iris_core.errors import Invalid
from iris_core.limits import PLACED_AT_ONCE
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.messages.gateway_state import Caller
from iris_core.placement.reasons import ReasonCode
from iris_core.spec.jobs import Coscheduling, Environment, JobSpec, Level
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import WorkerState
from iris_scheduler.preview import preview
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import Story, eq, tpu, tpus, worker


def ask(
    story: Story, name: str = "/what-if", cpu: float = 1, device: Device | None = None, **spec: Any
) -> PlanPreview:
    resources = ResourceRequest(int(cpu * 1000), device=device)
    request = PlanRequest(
        JobSpec(name=name, command=("true",), resources=resources, **spec), Caller("ann"), 0
    )
    return preview(story.mirror, story.cache, request, story.now_ms, story.settings)


def test_now_and_where() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    said = ask(story, replicas=2)
    assert (said.verdict, said.placements, said.reason) == ("now", ((0, "a"), (1, "b")), None)


def test_a_part_of_a_job_is_placed_under_its_indexes() -> None:
    said = ask(Story(worker("a", cpu=1), worker("b", cpu=1)), replicas=6, indexes="1,4")
    assert (said.verdict, said.placements) == ("now", ((1, "a"), (4, "b")))


def test_an_image_is_placed_where_a_container_runtime_is() -> None:
    story = Story(worker("a"), worker("b", **{"container-runtime": "docker"}))
    said = ask(story, environment=Environment(image="lab/train:1"))
    assert (said.verdict, said.placements) == ("now", ((0, "b"),))


def test_after_preempting_whom() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    said = ask(story, band="production")
    assert (said.verdict, said.victims) == ("after_preemption", ("/low/0",))


def test_not_now_and_why() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/busy", "a")
    said = ask(story)
    assert said.verdict == "not_now"
    assert said.reason is not None
    assert said.reason.code is ReasonCode.NOT_ENOUGH_CPU


def test_never_because_no_worker_is_that_large() -> None:
    assert ask(Story(worker("a", cpu=1)), cpu=2).verdict == "never"


def test_never_because_no_worker_matches() -> None:
    assert ask(Story(worker("a")), constraints=(eq("zone", "eu"),)).verdict == "never"


def test_never_because_no_slice_is_that_large() -> None:
    story = Story(tpu("s", 0, variant="v4-32"), tpu("s", 1, variant="v4-32"))
    said = ask(story, replicas=4, device=tpus("v4-32"), coscheduling=Coscheduling("tpu-name"))
    assert said.verdict == "never"


def test_a_job_that_could_not_be_submitted_is_refused() -> None:
    with pytest.raises(Invalid):
        ask(Story(worker("a")), replicas=0)


def test_a_draining_worker_may_come_back() -> None:
    story = Story(worker("a", state=WorkerState.DRAINING))
    assert ask(story).verdict == "not_now"


def test_how_many_come_before_it() -> None:
    story = Story(worker("a", cpu=1))
    story.submit("/first", 3, cpu=2)
    assert ask(story, cpu=2).ahead == 3


def test_a_child_stands_where_its_tree_is_as_old_as_its_root() -> None:
    story = Story(worker("a", cpu=0.5))
    story.submit("/old", cpu=1, at_ms=10)
    story.submit("/old/child", cpu=1, at_ms=500, root_ms=10)
    story.submit("/young/child", cpu=1, at_ms=400, root_ms=400)
    assert ask(story, name="/old/new").ahead == 1


def test_nothing_is_different_afterwards() -> None:
    story = Story(worker("a"))
    story.submit("/waiting", cpu=9)
    before, look = story.mirror.snapshot(), story.look()
    ask(story)
    assert (story.mirror.snapshot(), story.look().plan) == (before, look.plan)


def test_a_pause_of_a_job_that_is_gone_is_nobody_elses() -> None:
    story = Story(worker("a", cpu=1))
    refused = story.submit("/refused").job
    story.cache.refuse(refused, "the room was gone", story.now_ms, story.settings)
    story.tell(gone=(refused,))
    assert ask(story).verdict == "now"


def test_a_limited_job_starts_now_with_as_many_tasks_as_it_may_run() -> None:
    said = ask(Story(worker("a", cpu=4)), replicas=9, max_parallel=2)
    assert (said.verdict, len(said.placements)) == ("now", 2)
    assert said.reason is not None
    assert said.reason.code is ReasonCode.ARRAY_LIMIT


def test_over_how_many_domains_of_each_level_a_gang_would_be() -> None:
    story = Story(worker("a", rack="r1", block="b"), worker("b", rack="r2", block="b"))
    gang = Coscheduling((Level("rack", "preferred"), Level("block")))
    said = ask(story, replicas=2, coscheduling=gang)
    assert (said.verdict, said.levels) == ("now", (("rack", 2), ("block", 1)))


def test_a_dry_run_looks_beyond_a_full_plan() -> None:
    many = PLACED_AT_ONCE + 1
    story = Story(worker("w1", cpu=many, window=many, attempts=many))
    story.submit("/many", PLACED_AT_ONCE)
    assert ask(story).verdict == "now"


def test_who_would_be_kept_off_a_reserved_host_is_told_until_when() -> None:
    story = Story(worker("a", cpu=4), settings=SchedulerSettings(task_reservation_after_s=10))
    story.running("/limited", ["a"] * 3, timeout_s=100)
    story.submit("/large", cpu=4)
    story.wait(11)
    for _ in range(2):  # the reason of the large one is new, then known
        found = ask(story).reason
        assert found is not None
        assert found.message == (
            "a, which has room for it, is kept for /large, which has waited longer, and waits for "
            "/limited/0, /limited/1, /limited/2 there to end, "
            "at the latest at 1970-01-01 00:18:20 UTC"
        )
        assert found.facts == {
            "job": "/large",
            "worker": "a",
            "tasks": ["/limited/0", "/limited/1", "/limited/2"],
            "until_ms": 1_100_000,
        }
        story.cycle()
