"""Users over their quota of running tasks yield to others of their band."""

from __future__ import annotations

from tests.support.scheduling import Story, tpu, worker


def test_tasks_over_the_quota_go_behind_everyone_else_of_the_band() -> None:
    story = Story(worker("w", cpu=3))
    story.quota("ann", max_running_cpu=1000)
    story.running("/running", "w", user="ann")
    story.submit("/deep/ann", user="ann", at_ms=1)
    story.submit("/bob", user="bob", at_ms=2)
    story.submit("/carl", user="carl", at_ms=3)
    assert story.cycle() == {"/bob/0": "w", "/carl/0": "w"}


def test_a_quota_forbids_nothing() -> None:
    story = Story(worker("w", cpu=3))
    story.quota("ann", max_running_cpu=1000)
    story.submit("/job", 3, user="ann")
    assert len(story.cycle()) == 3


def test_what_is_placed_in_a_cycle_counts_at_once() -> None:
    story = Story(worker("w", cpu=3))
    story.quota("ann", max_running_cpu=2000)
    story.submit("/job", 3, user="ann", at_ms=1)
    story.submit("/bob", user="bob", at_ms=2)
    assert list(story.cycle()) == ["/job/0", "/job/1", "/bob/0"]


def test_a_band_below_never_goes_first_because_of_a_quota() -> None:
    story = Story(worker("w", cpu=1))
    story.quota("ann", max_running_cpu=500)
    story.submit("/ann", user="ann")
    story.submit("/bob", user="bob", band="batch")
    assert story.cycle() == {"/ann/0": "w"}


def test_memory_and_accelerators_have_limits_of_their_own() -> None:
    story = Story(tpu("s", 0), worker("w", cpu=1, memory=100))
    story.quota("ann", max_running_memory=50, max_running_accelerators=0)
    story.submit("/ann", user="ann", memory=60, at_ms=1)
    story.submit("/bob", user="bob", memory=60, at_ms=2)
    assert list(story.cycle()) == ["/bob/0", "/ann/0"]


def test_gangs_over_the_quota_give_way_too() -> None:
    story = Story(tpu("s", 0), tpu("s", 1))
    story.quota("ann", max_running_accelerators=4)
    story.gang("/ann", 2, user="ann", at_ms=1)
    story.gang("/bob", 2, user="bob", at_ms=2)
    assert set(story.cycle()) == {"/bob/0", "/bob/1"}


def test_a_limit_of_zero_is_none() -> None:
    story = Story(worker("w", cpu=1))
    story.quota("ann", max_running_cpu=0)
    story.submit("/ann", user="ann", at_ms=1)
    story.submit("/bob", user="bob", at_ms=2)
    assert story.cycle() == {"/ann/0": "w"}


def test_a_task_that_is_looked_at_by_itself_counts_once() -> None:
    story = Story(worker("v"), worker("w", cpu=3))
    story.quota("ann", max_running_cpu=2000)
    story.submit("/apart", user="ann", at_ms=1)
    story.avoid("/apart", 0, "v", for_s=5)
    story.submit("/ann", user="ann", at_ms=2)
    story.submit("/bob", user="bob", at_ms=3)
    assert list(story.cycle()) == ["/apart/0", "/ann/0", "/bob/0"]


def test_users_without_a_quota_have_the_default() -> None:
    story = Story(worker("w", cpu=4))
    story.quota("", max_running_cpu=1000)
    story.quota("bob", max_pending_tasks=9)
    story.submit("/ann", 2, user="ann", at_ms=1)
    story.submit("/bob", 3, user="bob", at_ms=2)
    assert list(story.cycle()) == ["/ann/0", "/bob/0", "/bob/1", "/bob/2"]
