"""A single task that waits long has a host reserved, so that smaller ones do not starve it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from iris_core.messages.scheduler_state import WorkerRow
from iris_core.placement.reasons import ReasonCode
from iris_core.states import WorkerState
from iris_scheduler.cycle.drains import period_at
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import Story, eq, tpu, tpus, worker

SOON = SchedulerSettings(task_reservation_after_s=10)


def crowded(*hosts: WorkerRow, **options: object) -> Story:
    """Hosts of four cores full of small tasks, and a task of three cores that has waited for 11
    s.
    """
    story = Story(*(hosts or (worker("a", cpu=4),)), settings=SOON)
    for row in hosts or (worker("a", cpu=4),):
        story.running(f"/small-{row.worker}", [row.worker] * 4)
    story.submit("/large", cpu=3, **options)
    story.cycle()
    story.wait(11)
    return story


def test_smaller_tasks_do_not_take_what_becomes_free_on_a_reserved_host() -> None:
    story = crowded()
    story.submit("/stream", 100)
    for index in range(2):
        story.end("/small-a", index)
        assert story.cycle() == {}
    story.end("/small-a", 2)
    assert story.cycle() == {"/large/0": "a"}


def test_before_the_delay_smaller_tasks_take_what_becomes_free() -> None:
    story = Story(worker("a", cpu=4), settings=SOON)
    story.running("/small", ["a"] * 4)
    story.submit("/large", cpu=3)
    story.submit("/stream", 100)
    story.end("/small", 0)
    assert story.cycle() == {"/stream/0": "a"}
    assert story.look().wake_ms == story.now_ms + 10_001


def test_the_start_does_not_depend_on_how_many_smaller_tasks_arrive() -> None:
    for arriving in (1, 50):
        story = crowded(worker("a", cpu=4), worker("b", cpu=4))
        at_s, placed = 0, dict[str, str]()
        for at_s in range(40):  # each small task runs for four seconds
            story.submit(f"/stream-{at_s}", arriving)
            if at_s % 4 == 0:
                ending = [ref for name in story.rows for ref in story.refs(name)]
                story.tell(closed=tuple(ending[::2]))
            placed = story.cycle()
            if "/large/0" in placed:
                break
            story.wait(1)
        assert "/large/0" in placed
        assert at_s <= 8


def test_only_one_host_is_reserved_for_each_band_and_kind_of_device() -> None:
    story = crowded(worker("a", cpu=4), worker("b", cpu=4))
    story.submit("/larger", cpu=4)
    story.wait(11)
    story.submit("/stream", 2)
    story.end("/small-a", 0)
    story.end("/small-b", 0)
    assert story.cycle() == {"/stream/0": "b"}


def test_tasks_with_devices_have_a_reservation_of_their_own() -> None:
    story = Story(tpu("s", 0, cpu=4), worker("a", cpu=4), settings=SOON)
    story.running("/cpu", ["a"] * 4)
    story.running("/one-chip", ["s-0"] * 4, device=tpus(count=1))
    story.submit("/large", cpu=3)
    story.submit("/all-chips", device=tpus(count=4))
    story.wait(11)
    story.submit("/stream", 2)
    story.submit("/chips", device=tpus(count=1))
    story.end("/cpu", 0)
    story.end("/one-chip", 0)
    assert story.cycle() == {}
    assert story.reasons["/all-chips"].facts["worker"] == "s-0"
    assert story.reasons["/large"].facts["worker"] == "a"


def test_tasks_before_it_in_the_queue_pass_a_reservation() -> None:
    story = crowded()
    story.submit("/parent/child", root_ms=1)
    story.end("/small-a", 0)
    assert story.cycle() == {"/parent/child/0": "a"}


def test_a_higher_band_passes_a_reservation_and_a_lower_one_does_not() -> None:
    story = crowded()
    story.submit("/batch", band="batch")
    story.end("/small-a", 0)
    assert story.cycle() == {}
    story.submit("/production", band="production")
    assert story.cycle() == {"/production/0": "a"}


def test_what_surely_ends_before_is_placed_on_a_reserved_host() -> None:
    story = Story(worker("a", cpu=4), settings=SOON)
    story.running("/limited", ["a"] * 3, timeout_s=100)
    story.submit("/large", cpu=4)
    story.wait(11)
    story.submit("/too-long", timeout_s=90)
    story.submit("/short", timeout_s=89)
    assert story.cycle() == {"/short/0": "a"}


def test_the_host_that_is_free_first_is_reserved() -> None:
    story = Story(worker("a", cpu=4), worker("b", cpu=4), settings=SOON)
    story.running("/late", ["a"] * 4, timeout_s=1000)
    story.running("/early", ["b"] * 4, timeout_s=100)
    story.submit("/large", cpu=3)
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].facts["worker"] == "b"


def test_the_host_where_the_fewest_must_end_is_reserved() -> None:
    story = crowded(worker("a", cpu=4), worker("b", cpu=4))
    story.end("/small-b", 0)
    story.cycle()
    assert story.reasons["/large"].facts["worker"] == "b"


def test_another_host_that_is_free_before_is_taken() -> None:
    story = crowded(worker("a", cpu=4), worker("b", cpu=4))
    story.submit("/stream", 100)
    assert story.cycle() == {}
    assert story.reasons["/large"].facts["worker"] == "a"
    story.end("/small-b", 0, 1, 2)
    assert story.cycle() == {"/large/0": "b"}


def test_the_reservation_leaves_a_host_that_does_not_become_free() -> None:
    """On one host runs something that goes on, on the other what ends."""
    story = Story(worker("a", cpu=4), worker("b", cpu=4), settings=SOON)
    story.running("/for-ever", ["a", "a"])
    story.running("/small", ["b"] * 4)
    story.submit("/large", cpu=3)
    story.submit("/stream", 100)
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].facts["worker"] == "a"
    story.wait(15)
    story.end("/small", 0, 1)
    assert list(story.cycle().values()) == ["b", "b"]
    assert story.reasons["/large"].facts["worker"] == "a"
    story.end("/small", 2)
    assert story.cycle() == {"/stream/2": "a", "/stream/3": "a"}
    assert story.reasons["/large"].facts["worker"] == "b"
    assert story.reasons["/large"].facts["tasks"] == ["/stream/0", "/stream/1"]


def test_who_has_a_reservation_is_told_the_host_and_what_it_waits_for() -> None:
    story = crowded(timeout_s=5)
    story.cycle()
    reason = story.reasons["/large"]
    assert (reason.code, reason.facts) == (
        ReasonCode.HOST_RESERVED,
        {
            "worker": "a",
            "tasks": ["/small-a/0", "/small-a/1", "/small-a/2"],
            "until_ms": None,
        },
    )
    assert reason.message == (
        "a is reserved for it and waits for /small-a/0, /small-a/1, /small-a/2 there to end; "
        "not all of them have a time limit"
    )


def test_who_has_a_reservation_is_told_the_latest_time() -> None:
    story = Story(worker("a", cpu=2), settings=SOON)
    story.running("/limited", ["a"] * 2, timeout_s=100)
    story.submit("/large", cpu=2)
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].facts["until_ms"] == story.now_ms - 11_000 + 100_000


def test_who_is_kept_off_a_reserved_host_is_told_for_whom() -> None:
    story = crowded()
    story.end("/small-a", 0)
    story.submit("/late")
    story.cycle()
    assert story.reasons["/late"].facts == {"job": "/large", "worker": "a"}
    assert story.reasons["/late"].code is ReasonCode.RESERVED_FOR_TASK


def test_the_reason_of_who_has_lost_its_reservation_is_told_anew() -> None:
    story = crowded()
    story.cycle()
    assert story.reasons["/large"].code is ReasonCode.HOST_RESERVED
    story.submit("/parent/child", cpu=3, root_ms=1)
    story.wait(11)
    story.cycle()
    assert story.reasons["/parent/child"].code is ReasonCode.HOST_RESERVED
    assert story.reasons["/large"].code is ReasonCode.NOT_ENOUGH_CPU


def test_no_host_is_reserved_where_nothing_is_smaller() -> None:
    story = Story(worker("a", cpu=4), settings=SOON)
    story.running("/same", "a", cpu=3)
    story.submit("/large", cpu=3)
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].code is ReasonCode.NOT_ENOUGH_CPU


def test_a_job_that_fits_on_no_host_does_not_stand_in_the_way() -> None:
    story = crowded()
    story.submit("/parent/too-large", cpu=100, root_ms=1)
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].code is ReasonCode.HOST_RESERVED


def test_a_host_that_the_task_may_not_use_is_not_reserved() -> None:
    story = Story(worker("a", cpu=4), worker("b", cpu=4, zone="eu"), settings=SOON)
    story.running("/small", ["a"] * 4 + ["b"] * 4)
    story.submit("/large", cpu=3, constraints=(eq("zone", "eu"),))
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].facts["worker"] == "b"


def test_a_task_without_devices_waits_for_a_host_without_devices() -> None:
    story = Story(tpu("s", 0, cpu=4), worker("a", cpu=4), settings=SOON)
    story.running("/on-tpu", ["s-0"] * 2)
    story.running("/small", ["a"] * 4)
    story.submit("/large", cpu=3)
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].facts["worker"] == "a"


def test_the_reservation_leaves_a_host_that_drains() -> None:
    story = crowded(worker("a", cpu=4), worker("b", cpu=4))
    story.cycle()
    story.worker(worker("a", cpu=4, state=WorkerState.DRAINING))
    story.cycle()
    assert story.reasons["/large"].facts["worker"] == "b"


def test_gangs_behind_it_do_not_take_what_becomes_free_on_its_host() -> None:
    story = Story(worker("a", cpu=4, rack="r"), worker("b", cpu=4, rack="r"), settings=SOON)
    story.running("/small", ["a"] * 4 + ["b"] * 4)
    story.submit("/large", cpu=3)
    story.wait(11)
    story.submit("/gang", 2, group_by="rack")
    story.end("/small", 0, 4)
    assert story.cycle() == {}
    story.end("/small", 1, 2)
    assert story.cycle() == {"/large/0": "a"}
    story.end("/large", 0)
    assert story.cycle() == {"/gang/0": "a", "/gang/1": "b"}


def test_a_task_may_preempt_on_the_host_that_is_reserved_for_it() -> None:
    story = Story(worker("a", cpu=4), settings=SOON)
    story.running("/same", ["a"] * 2)
    story.running("/batch", ["a"] * 2, band="batch")
    story.submit("/large", cpu=3)
    story.submit("/other", cpu=1)
    story.wait(11)
    assert story.evict()[0] == []
    story.end("/same", 0)
    victims, nominations = story.evict()
    assert (sorted(victims), nominations[0].worker) == (["/batch/0", "/batch/1"], "a")
    assert story.names[nominations[0].job] == "/large"


def parent_beside(*hosts: WorkerRow) -> Story:
    """A task of four cores that has waited for 11 s, and on a reserved host a parent whose child,
    in a lower band, waits as long.
    """
    story = Story(*(hosts or (worker("a", cpu=4),)), settings=SOON)
    story.running("/parent", "a")
    for row in hosts:
        story.running(f"/small-{row.worker}", [row.worker] * (3 if row.worker == "a" else 4))
    story.submit("/large", cpu=4)
    story.submit("/parent/child", band="batch", root_ms=1)
    return story


def test_a_child_in_a_lower_band_starts_where_its_parent_waits_for_it() -> None:
    story = parent_beside(worker("a", cpu=4))
    story.cycle()
    story.wait(5)
    story.end("/small-a", 0, 1, 2)
    story.wait(6)
    assert story.cycle() == {"/parent/child/0": "a"}
    story.end("/parent", 0)
    story.end("/parent/child", 0)
    assert story.cycle() == {"/large/0": "a"}


def test_no_host_waits_for_a_task_of_another_user_because_of_a_name() -> None:
    story = Story(worker("a", cpu=4), settings=SOON)
    story.running("/parent", ["a"] * 4, user="ben")
    story.submit("/large", cpu=4)
    story.submit("/parent/child", band="batch", root_ms=1)
    story.wait(11)
    story.cycle()
    assert story.reasons["/large"].code is ReasonCode.HOST_RESERVED


def test_a_host_is_reserved_beside_a_parent_that_need_not_end() -> None:
    story = Story(worker("a", cpu=4), settings=SOON)
    story.running("/parent", "a")
    story.running("/small", ["a"] * 3)
    story.submit("/large", cpu=3)
    story.submit("/parent/child", band="batch", root_ms=1)
    story.wait(11)
    story.end("/small", 0)
    assert story.cycle() == {}
    assert story.reasons["/large"].facts["tasks"] == ["/small/1", "/small/2"]


def test_the_reservation_leaves_a_host_where_a_parent_waits_for_its_child() -> None:
    story = parent_beside(worker("a", cpu=4), worker("b", cpu=4))
    story.wait(11)
    story.end("/small-a", 0, 1)
    assert story.cycle() == {"/parent/child/0": "a"}
    assert story.reasons["/large"].facts["worker"] == "b"


def test_a_gang_waits_for_no_group_where_a_parent_waits_for_its_child() -> None:
    rack = [worker("a", cpu=4, rack="r"), worker("b", cpu=4, rack="r")]
    story = Story(*rack, settings=SchedulerSettings(gang_reservation_after_s=10))
    story.running("/parent", ["a", "b"])
    story.submit("/gang", 2, cpu=4, group_by="rack")
    story.wait(11)
    story.submit("/parent/child", band="batch", root_ms=1)
    assert story.cycle() == {}
    story.wait(11)
    assert story.cycle() == {"/parent/child/0": "a"}


@pytest.mark.parametrize("seed", range(20))
def test_parents_and_large_tasks_end_whatever_waits_for_what(seed: int) -> None:
    """Parents end when the child has ended that each submits into some band; large tasks of any
    band wait for whole hosts meanwhile, and small ones arrive; nothing is preempted.
    """
    rng = random.Random(seed)
    hosts = [worker(name, cpu=4) for name in "abc"[: rng.randint(1, 3)]]
    story, bands = Story(*hosts, settings=SOON), ("production", "interactive", "batch")
    whole: dict[str, Any] = {"protect_s": 10_000}
    parents = [f"/parent-{number}" for number in range(4 * len(hosts))]
    for number, parent in enumerate(parents):
        story.running(parent, hosts[number // 4].worker, band=rng.choice(bands), **whole)
    large = [f"/large-{number}" for number in range(3)]
    for name in large:
        story.submit(name, cpu=rng.randint(3, 4), band=rng.choice(bands), **whole)
    began_ms = story.now_ms
    for parent in parents:
        story.submit(f"{parent}/child", band=rng.choice(bands), root_ms=began_ms, **whole)
    story.end(parents.pop(), 0)  # so that one child can begin
    left, running = {*parents, *large}, dict[str, int]()
    for _ in range(200):
        story.submit(f"/small-{story.now_ms}", band=rng.choice(bands), **whole)
        running |= {place.rpartition("/")[0]: story.now_ms for place in story.cycle()}
        story.wait(2)
        for name in [name for name, at_ms in running.items() if story.now_ms - at_ms >= 4000]:
            del running[name]
            story.end(name, 0)
            left.discard(name)
            parent = name.removesuffix("/child")
            if name != parent and parent in left:
                story.end(parent, 0)
                left.discard(parent)
    assert left == set()


@pytest.mark.parametrize(
    ("waited_s", "period"),
    [
        (0, (0, 10, 0)),
        (9, (0, 10, 0)),
        (10, (10, 30, 0)),
        (30, (30, 70, 10)),
        (69, (30, 70, 10)),
        (70, (70, 150, 30)),
    ],
)
def test_each_period_of_a_wait_is_twice_as_long(
    waited_s: int, period: tuple[int, int, int]
) -> None:
    since_ms = 1_000_000
    start_s, end_s, long_s = period
    found = period_at(since_ms, 10_000, since_ms + waited_s * 1000)
    long_ms = since_ms + long_s * 1000 if start_s else 0
    assert found == (since_ms + start_s * 1000, since_ms + end_s * 1000, long_ms)
