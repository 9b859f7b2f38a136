"""Beyond a full building window each user may still prepare a share of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iris_core.messages.gateway_scheduler import PlanRequest
from iris_core.messages.gateway_state import Caller
from iris_core.placement.reasons import ReasonCode
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import ResourceRequest
from iris_scheduler.preview import preview
from iris_scheduler.settings import SchedulerSettings
from tests.support.random_clusters import workers
from tests.support.scheduling import Story, worker
from tests.support.slow_scheduler import SlowScheduler

PATIENT = SchedulerSettings(gang_reservation_after_s=1e9, task_reservation_after_s=1e9)


def filled(*names: str, window: int = 4, cpu: float = 16, **options: int) -> Story:
    """Hosts whose windows one user fills, whose further tasks wait."""
    names = names or ("a",)
    story = Story(*(worker(name, cpu=cpu, window=window, **options) for name in names))
    story.submit("/eve", 100, user="eve")
    while story.cycle():
        pass
    return story


def starts(story: Story) -> int:
    return len(story.cycle())


def test_another_users_task_starts_while_the_window_is_full() -> None:
    story = filled("a", "b")
    story.submit("/ada", user="ada")
    assert story.cycle() == {"/ada/0": "a"}


def test_who_filled_the_window_gets_no_more() -> None:
    story = filled()
    story.submit("/more", 5, user="eve", cpu=2)
    assert story.cycle() == {}


def test_a_user_alone_in_the_cluster_keeps_the_whole_window() -> None:
    story = filled(window=4)
    assert len(story.refs("/eve")) == 4


def test_the_share_is_an_equal_part_and_one_place_at_least() -> None:
    story = filled(window=4)
    placed = []
    for user in ("ada", "bob", "cyd", "dan", "fay"):
        story.submit(f"/{user}", 9, user=user)
        placed.append(starts(story))
    assert placed == [2, 1, 1, 1, 1]


def test_on_a_host_three_windows_prepare_at_most() -> None:
    story = filled(window=1)
    placed = []
    for user in ("ada", "bob", "cyd"):
        story.submit(f"/{user}", 9, user=user)
        placed.append(starts(story))
    assert placed == [1, 1, 0]


def test_shares_are_given_in_the_order_of_the_queue() -> None:
    story = filled(window=1)
    story.submit("/low", user="ada", band="batch")
    story.submit("/late", 2, user="bob")
    story.submit("/first", user="cyd", band="production")
    assert story.cycle() == {"/first/0": "a", "/late/0": "a"}


def test_open_attempts_are_limited_beyond_the_window_too() -> None:
    story = filled(window=4, attempts=5)
    story.submit("/ada", 2, user="ada")
    assert story.cycle() == {"/ada/0": "a"}


def test_a_gang_may_have_a_place_in_each_full_window() -> None:
    story = filled("a", "b", window=2, rack=1)
    story.submit("/gang", 2, user="ada", group_by="rack")
    assert story.cycle() == {"/gang/0": "a", "/gang/1": "b"}


def test_a_gang_is_not_split_between_shares() -> None:
    story = filled("a", "b", window=1, rack=1)
    story.submit("/before", 1, user="ada")
    assert starts(story) == 1
    story.submit("/gang", 2, user="ada", group_by="rack")
    assert story.cycle() == {}


def test_a_task_starts_on_the_host_that_is_reserved_for_it() -> None:
    """It waited for cores; when they are free the window is full of another user's tasks."""
    story = Story(worker("a", cpu=8, window=2))
    story.running("/holder", ["a"] * 2, cpu=3, user="bob")
    story.submit("/ada", cpu=4, user="ada")
    story.submit("/eve", 9, cpu=0.001, user="eve")
    story.cycle()
    story.wait(60)
    assert story.cycle() == {}
    assert story.reasons["/ada"].code is ReasonCode.HOST_RESERVED
    story.end("/holder", 0)
    assert story.cycle() == {"/ada/0": "a"}


def test_a_task_that_avoids_the_other_host_starts_beyond_the_window() -> None:
    story = Story(worker("a", window=1), worker("b"))
    story.submit("/eve", 9, user="eve", cpu=0.001)
    story.start("/eve", {0: "a"})
    story.submit("/ada", user="ada")
    story.avoid("/ada", 0, "b", for_s=60)
    assert story.cycle()["/ada/0"] == "a"


def test_quotas_hold_beyond_the_window() -> None:
    story = filled(window=4)
    story.quota("ada", max_running_cpu=1000)
    story.submit("/ada", 2, user="ada")
    story.submit("/bob", 1, user="bob")
    assert list(story.cycle()) == ["/ada/0", "/bob/0"]


def test_the_reason_names_who_fills_the_windows() -> None:
    story = filled("a", "b", window=2)
    story.submit("/more", user="eve", cpu=2)
    story.cycle()
    reason = story.reasons["/more"]
    assert reason.code is ReasonCode.BUILDING_WINDOW_FULL
    assert reason.facts == {"workers": 2, "user": "eve"}
    assert reason.message.endswith("most of those that prepare are eve's")


def test_a_dry_run_tells_who_starts_beyond_the_window() -> None:
    story = filled()

    def asked(user: str) -> str:
        resources = ResourceRequest(1000, 0, 0, None)
        spec = JobSpec(name="/dry", command=("true",), resources=resources, user=user)
        request = PlanRequest(spec, Caller(user), 0)
        found = preview(story.mirror, story.cache, request, story.now_ms, story.settings)
        return found.verdict

    assert (asked("ada"), asked("eve")) == ("now", "not_now")


@st.composite
def small_jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Jobs of many users that mostly ask for less than a host has."""
    return [
        {
            "replicas": draw(st.integers(1, 3)),
            "cpu": draw(st.sampled_from([0.001, 0.001, 1])),
            "user": draw(st.sampled_from(["ada", "bob", "cyd", "dan", "eve", "eve"])),
            "band": draw(st.sampled_from(["production", "interactive", "batch"])),
            "group_by": draw(st.sampled_from(["", "", "", "rack", "rack:preferred"])),
        }
        for _ in range(draw(st.integers(1, 6)))
    ]


@given(workers(), st.lists(small_jobs(), min_size=2, max_size=4), st.integers(0, 9))
def test_the_plan_is_that_of_the_slow_scheduler(rows, arriving, avoided) -> None:
    story = Story(*rows, settings=PATIENT)
    for turn, jobs in enumerate(arriving):
        for number, job in enumerate(jobs):
            story.submit(f"/{turn}-{number}", **job)
        story.avoid(f"/{turn}-0", 0, f"w{avoided}", for_s=5)
        made = story.look().plan
        placed = {
            (placement.job, index): made.workers[at]
            for placement in made.placements
            for index, at in zip(placement.indexes, placement.workers, strict=True)
        }
        assert placed == SlowScheduler(story.mirror.snapshot(), story.now_ms).plan()
        story.cycle()
        story.wait(1)
