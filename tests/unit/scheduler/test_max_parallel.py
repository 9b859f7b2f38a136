"""A job with ``max_parallel`` has at most so many open attempts; its place in the queue and those
of others stay.
"""

from __future__ import annotations

import pytest

from iris_core.placement.reasons import ReasonCode
from tests.support.scheduling import Story, worker


def test_a_job_starts_as_many_tasks_as_it_may_have() -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/array", 5, max_parallel=2)
    assert list(story.cycle()) == ["/array/0", "/array/1"]
    assert story.cycle() == {}


def test_a_freed_place_goes_to_the_first_task_of_the_job() -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/array", 4, max_parallel=2)
    story.cycle()
    story.end("/array", 0, again=True)
    assert list(story.cycle()) == ["/array/0"]
    story.end("/array", 1)
    assert list(story.cycle()) == ["/array/2"]


def test_an_attempt_that_is_being_stopped_keeps_its_place() -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/array", 3, max_parallel=1)
    story.cycle()
    (running,) = story.refs("/array")
    story.stop(running)
    assert story.cycle() == {}
    story.stopped(running)
    assert list(story.cycle()) == ["/array/0"]


def test_a_job_at_its_limit_does_not_hold_up_its_class() -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/array", 5, max_parallel=1, at_ms=1)
    story.submit("/other", 2, at_ms=2)
    assert list(story.cycle()) == ["/array/0", "/other/0", "/other/1"]


def test_the_first_job_is_not_passed_by_a_later_one_while_it_has_places() -> None:
    story = Story(worker("w", cpu=3))
    story.submit("/array", 5, max_parallel=2, at_ms=1)
    story.submit("/other", 5, at_ms=2)
    assert list(story.cycle()) == ["/array/0", "/array/1", "/other/0"]
    story.end("/array", 1)
    assert list(story.cycle()) == ["/array/2"]


def test_a_task_examined_by_itself_counts() -> None:
    story = Story(worker("v"), worker("w"))
    story.submit("/array", 4, max_parallel=2)
    story.avoid("/array", 0, "v", for_s=5)
    assert list(story.cycle()) == ["/array/0", "/array/1"]
    assert story.cycle() == {}


def test_quota_and_limit_hold_together() -> None:
    story = Story(worker("w", cpu=8))
    story.quota("ann", max_running_cpu=1000)
    story.submit("/array", 5, user="ann", max_parallel=2, at_ms=1)
    story.submit("/bob", user="bob", at_ms=2)
    assert list(story.cycle()) == ["/array/0", "/bob/0", "/array/1"]


def test_a_job_at_its_limit_preempts_nothing() -> None:
    story = Story(worker("w", cpu=2))
    story.submit("/array", 3, max_parallel=1, band="production")
    story.cycle()
    story.running("/batch", "w", band="batch")
    assert story.evict() == ([], ())
    story.submit("/other", band="production")
    assert story.evict()[0] == ["/batch/0"]


def test_a_job_preempts_for_no_more_tasks_than_may_start() -> None:
    story = Story(worker("w", cpu=3))
    story.running("/batch", ["w", "w", "w"], band="batch")
    story.submit("/array", 5, max_parallel=2, band="production")
    victims, nominations = story.evict()
    assert (len(victims), len(nominations)) == (2, 2)
    assert story.evict() == ([], ())


def test_promised_places_count_until_their_tasks_start() -> None:
    story = Story(worker("w", cpu=3))
    story.running("/batch", ["w", "w", "w"], band="batch")
    story.submit("/array", 5, max_parallel=2, band="production")
    victims = story.refs("/batch")[-2:]
    story.cycle()
    story.stopped(*victims, again=False)
    story.worker(worker("w", cpu=8))
    assert list(story.cycle()) == ["/array/0", "/array/1"]
    assert story.cycle() == {}


def test_the_reason_is_the_limit_and_then_what_is_short() -> None:
    story = Story(worker("w", cpu=2))
    story.submit("/array", 4, max_parallel=2)
    story.cycle()
    assert story.reasons["/array"].code is ReasonCode.ARRAY_LIMIT
    assert (
        story.reasons["/array"].message == "its job runs at most 2 tasks at a time (max_parallel)"
    )
    story.running("/other", "w", at_ms=0)
    story.end("/array", 1)
    story.cycle()
    assert story.reasons["/array"].code is ReasonCode.NOT_ENOUGH_CPU


def test_a_limit_that_stands_is_told_once() -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/array", 9, max_parallel=2)
    story.cycle()
    for index in range(3):
        story.end("/array", index)
        assert story.look().plan.reasons == ()
        story.cycle()


@pytest.mark.parametrize("limit", [1, 3])
def test_a_full_snapshot_keeps_the_limit(limit: int) -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/array", 9, max_parallel=limit)
    story.cycle()
    story.mirror = type(story.mirror).of([story.mirror.snapshot()])
    assert story.cycle() == {}
    story.end("/array", 0)
    assert len(story.cycle()) == 1
