"""Gangs by levels of the topology: one domain of each required level, as few as possible of each
preferred one.
"""

from __future__ import annotations

from collections import Counter

import pytest

from iris_core.messages.scheduler_state import WorkerRow
from iris_core.placement.reasons import ReasonCode
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import Story, worker


def racks(block: str, **sizes: int) -> list[WorkerRow]:
    """Hosts of one block: so many of each rack."""
    return [
        worker(f"{rack}-{n}", cpu=1, rack=rack, block=block)
        for rack, size in sizes.items()
        for n in range(size)
    ]


def taken(placed: dict[str, str]) -> dict[str, int]:
    """How many tasks each rack has."""
    return dict(Counter(host.split("-")[0] for host in placed.values()))


def test_a_preferred_rack_with_room_has_the_whole_gang() -> None:
    story = Story(*racks("b1", r1=3, r2=4), *racks("b2", r3=6))
    story.submit("/gang", 4, group_by="rack:preferred block")
    assert taken(story.cycle()) == {"r2": 4}


def test_without_such_a_rack_the_block_with_the_fewest_racks_is_taken() -> None:
    story = Story(*racks("b1", r1=2, r2=2, r3=2), *racks("b2", r4=4, r5=4))
    story.submit("/gang", 6, group_by="rack:preferred block")
    assert taken(story.cycle()) == {"r4": 4, "r5": 2}


def test_of_the_last_rack_the_smallest_that_is_enough_is_taken() -> None:
    story = Story(*racks("b1", r1=4, r2=3, r3=1))
    story.submit("/gang", 5, group_by="rack:preferred block")
    assert taken(story.cycle()) == {"r1": 4, "r3": 1}


def test_ranks_of_one_rack_follow_each_other() -> None:
    story = Story(*racks("b1", r1=3, r2=3))
    story.submit("/gang", 6, group_by="rack:preferred block")
    assert [host[:2] for host in story.cycle().values()] == ["r1"] * 3 + ["r2"] * 3


def test_a_gang_waits_while_no_domain_of_a_required_level_has_room() -> None:
    story = Story(*racks("b1", r1=3, r2=2), *racks("b2", r3=4))
    story.submit("/gang", 6, group_by="rack:preferred block")
    assert story.cycle() == {}
    reason = story.reasons["/gang"]
    assert reason.code is ReasonCode.GANG_NEEDS_GROUP
    assert (
        reason.message
        == "needs 6 workers free at once with the same block; the best group, b1, has 5 of 5"
    )


def test_the_reason_names_the_level_without_room_and_what_is_free_outside() -> None:
    story = Story(*racks("b1", r1=3, r2=3), *racks("b2", r3=2))
    story.running("/other", ["r1-0"])
    story.submit("/gang", 4, group_by="rack block:preferred")
    assert story.cycle() == {}
    reason = story.reasons["/gang"]
    assert reason.message == "no rack has 4 free hosts; the best, r2, has 3 of 3; block b1 has 5"
    assert reason.facts["outside"] == [{"key": "block", "best": "b1", "free": 5}]


def test_a_gang_that_only_prefers_is_placed_wherever_there_is_room() -> None:
    story = Story(*racks("b1", r1=2), *racks("b2", r2=2, r3=1), worker("loose", cpu=1))
    story.submit("/gang", 5, group_by="rack:preferred block:preferred")
    assert taken(story.cycle()) == {"r2": 2, "r3": 1, "r1": 2}
    story.submit("/more", 2, group_by="rack:preferred")
    assert story.cycle() == {}
    expected = "needs 2 workers free at once; 1 of 6 are: r1-0, r1-1, r2-0 and 2 more held by /gang"
    assert story.reasons["/more"].message == expected


def test_hosts_without_a_preferred_level_are_each_alone() -> None:
    story = Story(*(worker(f"loose-{n}", cpu=1) for n in range(4)), *racks("b1", r1=1, r2=1))
    story.submit("/gang", 2, group_by="rack:preferred block:preferred")
    assert taken(story.cycle()) == {"r1": 1, "r2": 1}


def test_two_required_levels_are_both_kept() -> None:
    story = Story(
        worker("a", rack="r1", power="p1"),
        worker("b", rack="r1", power="p2"),
        worker("c", power="p1"),
    )
    story.submit("/gang", 2, group_by="rack power")
    assert story.cycle() == {}
    story.worker(worker("c", rack="r1", power="p1"))
    assert story.cycle() == {"/gang/0": "a", "/gang/1": "c"}


def test_workers_that_lack_a_required_level_are_named_as_missing() -> None:
    story = Story(worker("a", rack="r1"), worker("b", rack="r1"))
    story.submit("/gang", 2, group_by="rack block")
    assert story.cycle() == {}
    expected = "needs 2 workers free at once with the same rack and block; no matching worker has rack and block"
    assert story.reasons["/gang"].message == expected


def test_slices_are_in_one_block_when_they_prefer_it() -> None:
    story = Story(*racks("b1", r1=2), *racks("b2", r2=2, r3=2), *racks("b3", r4=2))
    story.submit("/train", 4, group_by="rack block:preferred", slices=2)
    assert taken(story.cycle()) == {"r2": 2, "r3": 2}


def test_slices_are_in_as_few_blocks_as_there_is_room_for() -> None:
    story = Story(*racks("b1", r1=2), *racks("b2", r2=2, r3=2), *racks("b3", r4=2))
    story.submit("/train", 6, group_by="rack block:preferred", slices=3)
    assert taken(story.cycle()) == {"r1": 2, "r2": 2, "r3": 2}


def test_slices_keep_to_one_block_when_it_is_required() -> None:
    story = Story(*racks("b1", r1=2), *racks("b2", r2=2))
    story.submit("/train", 4, group_by="rack block", slices=2)
    assert story.cycle() == {}
    assert story.reasons["/train"].message.startswith(
        "1 of 2 slices free in block b1, which has most"
    )


def test_of_equal_evictions_the_one_in_a_preferred_rack_is_made() -> None:
    story = Story(*racks("b1", r1=1, r2=2, r3=1))
    for host in ("r1-0", "r2-0", "r2-1", "r3-0"):
        story.running(f"/low-{host}", host, band="batch")
    story.submit("/high", 2, band="production", group_by="rack:preferred block")
    [eviction] = story.look().plan.evictions
    assert {nomination.worker for nomination in eviction.nominations} == {"r2-0", "r2-1"}


def test_a_gang_preempts_beyond_a_preferred_rack_but_not_beyond_its_block() -> None:
    story = Story(*racks("b1", r1=1, r2=2), *racks("b2", r3=1))
    for host in ("r1-0", "r2-0", "r2-1", "r3-0"):
        story.running(f"/low-{host}", host, band="batch")
    story.submit("/high", 3, band="production", group_by="rack:preferred block")
    [eviction] = story.look().plan.evictions
    assert {nomination.worker for nomination in eviction.nominations} == {"r1-0", "r2-0", "r2-1"}


def test_a_gang_that_only_prefers_preempts_across_blocks() -> None:
    story = Story(*racks("b1", r1=2), *racks("b2", r2=2))
    story.running("/low", ["r1-0", "r1-1"], band="batch", group_by="rack")
    story.submit("/high", 3, band="production", group_by="rack:preferred")
    [eviction] = story.look().plan.evictions
    assert len(eviction.victims) == 2
    story.cycle()
    story.stopped(*eviction.victims)
    assert len(story.cycle()) == 3


@pytest.mark.parametrize(
    "group_by", ["rack:preferred", "rack:preferred block:preferred", "rack:preferred block"]
)
def test_hosts_are_reserved_across_racks_for_a_gang_that_starves(group_by: str) -> None:
    story = Story(*racks("b1", r1=2, r2=2), settings=SchedulerSettings(gang_reservation_after_s=10))
    for host in ("r1-0", "r2-0"):
        story.running(f"/first-{host}", host)
    story.submit("/gang", 3, group_by=group_by)
    story.cycle()
    story.wait(11)
    story.submit("/small", 4, band="batch")
    assert (
        list(story.cycle().values()).count("r1-1") + list(story.cycle().values()).count("r2-1") == 0
    )
    story.end("/first-r1-0", 0)
    assert set(story.cycle()) == {"/gang/0", "/gang/1", "/gang/2"}


def test_nominations_hold_across_racks_and_break_with_a_required_block() -> None:
    story = Story(*racks("b1", r1=1, r2=1))
    for host in ("r1-0", "r2-0"):
        story.running(f"/low-{host}", host, band="batch")
    story.submit("/high", 2, band="production", group_by="rack:preferred block")
    story.cycle()
    [_] = {nomination[0] for nomination in story.mirror.nominations}
    story.worker(worker("r2-0", cpu=1, rack="r2", block="b9"))
    for host in ("r1-0", "r2-0"):
        story.end(f"/low-{host}", 0)
    assert story.cycle() == {}
