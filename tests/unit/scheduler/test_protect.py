"""Attempts that their job protects are no victims, and who waits for them is told."""

from __future__ import annotations

from iris_core.placement.reasons import ReasonCode
from tests.support.scheduling import Story, tpu, worker


def test_a_protected_attempt_is_no_victim_until_it_has_run_for_that_long() -> None:
    story = Story(worker("w", cpu=1))
    story.running("/low", "w", band="batch", protect_s=60)
    story.submit("/high", band="production")
    assert story.evict()[0] == []
    story.wait(59)
    assert story.evict()[0] == []
    story.wait(1)
    assert story.evict()[0] == ["/low/0"]


def test_the_next_plan_is_made_when_the_protection_is_over() -> None:
    story = Story(worker("w", cpu=1))
    story.running("/low", "w", band="batch", protect_s=60)
    story.submit("/high", band="production")
    assert story.look().wake_ms == story.now_ms + 60_000


def test_who_waits_for_a_protected_victim_is_told() -> None:
    story = Story(worker("w", cpu=1))
    story.running("/low", "w", band="batch", protect_s=60)
    story.submit("/high", band="production")
    story.cycle()
    reason = story.reasons["/high"]
    assert (reason.code, reason.facts) == (
        ReasonCode.PROTECTED,
        {"jobs": ["/low"], "until_ms": story.now_ms + 60_000},
    )


def test_another_victim_is_taken_at_once() -> None:
    story = Story(worker("v", cpu=1), worker("w", cpu=2))
    story.running("/cheap", "v", band="batch", protect_s=60)
    story.running("/dear", "w", band="batch", cpu=2)
    story.submit("/high", band="production")
    assert story.evict()[0] == ["/dear/0"]


def test_what_no_protected_attempt_would_help_is_told_so() -> None:
    story = Story(worker("v", cpu=1), worker("w", cpu=2))
    story.running("/low", "v", band="batch", protect_s=60)
    story.running("/same", "w", band="production", cpu=2)
    story.submit("/high", band="production", cpu=2)
    story.cycle()
    assert story.reasons["/high"].code is ReasonCode.NOT_ENOUGH_CPU


def test_a_gang_with_one_protected_member_stays_whole() -> None:
    story = Story(tpu("s", 0), tpu("s", 1))
    story.gang("/low", 2, band="batch", protect_s=60)
    story.start("/low", {0: "s-0"}, building=False)
    story.wait(50)
    story.start("/low", {1: "s-1"}, building=False)
    story.wait(20)
    story.gang("/high", 2, band="production")
    assert story.evict()[0] == []
    assert story.reasons["/high"].code is ReasonCode.PROTECTED
    story.wait(40)
    assert story.evict()[0] == ["/low/0", "/low/1"]


def test_a_gang_waits_for_the_last_of_its_protected_victims() -> None:
    story = Story(tpu("s", 0), tpu("s", 1))
    story.running("/first", "s-0", band="batch", protect_s=30)
    story.running("/second", "s-1", band="batch", protect_s=60)
    story.gang("/high", 2, band="production", device=None, cpu=4)
    story.cycle()
    assert story.reasons["/high"].facts == {
        "jobs": ["/first", "/second"],
        "until_ms": story.now_ms + 60_000,
    }


def test_a_task_waits_for_the_last_of_several_protected_victims() -> None:
    story = Story(worker("w", cpu=2))
    story.running("/first", "w", band="batch", protect_s=30)
    story.running("/second", "w", band="batch", protect_s=60)
    story.submit("/high", cpu=2, band="production")
    story.cycle()
    reason = story.reasons["/high"]
    assert (reason.code, reason.facts) == (
        ReasonCode.PROTECTED,
        {"jobs": ["/first", "/second"], "until_ms": story.now_ms + 60_000},
    )
    story.wait(60)
    assert story.evict()[0] == ["/first/0", "/second/0"]
