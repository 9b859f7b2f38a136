"""Preemption: the cheapest sufficient victims, whole gangs only, never without effect, and the
place is reserved.
"""

from __future__ import annotations

from iris_core.messages.scheduler_state import OCCUPIED, Nomination
from iris_core.placement.reasons import ReasonCode
from iris_core.states import WorkerState
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import Story, eq, tpu, worker


def places(nominations: object) -> list[tuple[int, str]]:
    return [(nomination.index, nomination.worker) for nomination in nominations]  # type: ignore[attr-defined]


def test_a_single_task_evicts_one_victim_of_a_lower_band() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/low/0"], [(0, "a")])


def test_nobody_is_evicted_for_the_same_band() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/one", "a")
    story.submit("/two")
    assert story.evict() == ([], ())


def test_batch_never_preempts() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/one", "a", band="batch")
    story.submit("/two", band="batch")
    assert story.evict() == ([], ())


def test_interactive_work_evicts_batch() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/one", "a", band="batch")
    story.submit("/two")
    assert story.evict()[0] == ["/one/0"]


def test_nobody_is_evicted_while_there_is_room() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    assert story.evict() == ([], ())


def test_nobody_is_evicted_for_a_task_that_needs_a_worker_without_attempts() -> None:
    """What one victim leaves is not that: its place would go to others, and the next one after it."""
    story = Story(worker("a", cpu=2))
    story.running("/low", ["a", "a"], band="batch")
    story.submit("/high", band="production")
    story.avoid("/high", 0, OCCUPIED, for_s=30)
    assert story.evict() == ([], ())
    story.wait(31)
    assert len(story.evict()[0]) == 1


def test_no_place_is_kept_for_a_task_that_needs_a_worker_without_attempts() -> None:
    story = Story(worker("a", cpu=2))
    story.running("/low", ["a", "a"], band="batch")
    story.submit("/high", band="production")
    _, nominations = story.evict()
    assert places(nominations) == [(0, "a")]
    [ref, _] = story.refs("/low")
    story.stopped(ref, again=False)
    story.avoid("/high", 0, OCCUPIED, for_s=30)
    story.submit("/other", band="batch")
    assert story.cycle() == {"/other/0": "a"}


def test_the_lowest_band_goes_first() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/mid", "a", band="interactive")
    story.running("/low", "b", band="batch")
    story.submit("/high", band="production")
    assert story.evict()[0] == ["/low/0"]


def test_of_one_band_the_smallest_that_helps_goes() -> None:
    story = Story(worker("a", cpu=4), worker("b", cpu=2), worker("c", cpu=1))
    story.running("/large", "a", cpu=4, band="batch")
    story.running("/fitting", "b", cpu=2, band="batch")
    story.running("/tiny", "c", cpu=1, band="batch")
    story.submit("/high", cpu=2, band="production")
    assert story.evict()[0] == ["/fitting/0"]


def test_of_equal_ones_the_youngest_goes() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/old", "a", band="batch")
    story.wait(10)
    story.running("/young", "b", band="batch")
    story.submit("/high", band="production")
    assert story.evict()[0] == ["/young/0"]


def test_a_single_task_evicts_as_many_of_one_worker_as_it_needs() -> None:
    story = Story(worker("a", cpu=4))
    story.running("/low", ["a"] * 4, band="batch")
    story.submit("/high", cpu=3, band="production")
    victims, nominations = story.evict()
    assert (len(victims), places(nominations)) == (3, [(0, "a")])
    assert story.reasons["/high"].code is ReasonCode.WAITING_FOR_VICTIM
    story.stopped(*[ref for ref in story.refs("/low") if story.held(ref).stopping], again=False)
    assert story.cycle() == {"/high/0": "a"}


def test_one_victim_is_preferred_to_several() -> None:
    story = Story(worker("a", cpu=2), worker("b", cpu=2))
    story.running("/small", ["a", "a"], band="batch")
    story.running("/large", "b", cpu=2, band="interactive")
    story.submit("/high", cpu=2, band="production")
    assert story.evict()[0] == ["/large/0"]


def test_the_worker_that_needs_the_fewest_victims_is_taken() -> None:
    story = Story(worker("a", cpu=3), worker("b", cpu=3))
    story.running("/small", ["a"] * 3, band="batch")
    story.running("/larger", "b", cpu=2, band="batch")
    story.running("/other", "b", band="batch")
    story.submit("/high", cpu=3, band="production")
    assert sorted(story.evict()[0]) == ["/larger/0", "/other/0"]


def test_of_as_many_victims_the_lowest_band_goes() -> None:
    story = Story(worker("a", cpu=2), worker("b", cpu=2))
    story.running("/mid", ["a", "a"], band="interactive")
    story.running("/low", ["b", "b"], band="batch")
    story.submit("/high", cpu=2, band="production")
    assert story.evict()[0] == ["/low/0", "/low/1"]


def test_of_one_worker_the_lowest_band_and_the_youngest_go() -> None:
    story = Story(worker("a", cpu=4))
    story.running("/mid", "a", band="interactive")
    story.running("/old", "a", band="batch")
    story.wait(10)
    story.running("/young", ["a", "a"], band="batch")
    story.submit("/high", cpu=2, band="production")
    assert story.evict()[0] == ["/young/0", "/young/1"]


def test_no_victim_is_taken_that_is_not_needed() -> None:
    story = Story(worker("a", cpu=7, memory=8))
    story.running("/cpu", ["a"] * 4, memory=0, band="batch")
    story.running("/memory", ["a", "a"], memory=4, band="batch")
    story.submit("/high", cpu=3, memory=4, band="production")
    assert sorted(story.evict()[0]) == ["/cpu/0", "/memory/0"]


def test_tasks_of_an_equal_band_are_not_among_several_victims() -> None:
    story = Story(worker("a", cpu=3))
    story.running("/low", "a", band="batch")
    story.running("/same", ["a", "a"], band="production")
    story.submit("/high", cpu=2, band="production")
    assert story.evict() == ([], ())


def test_victims_on_different_workers_are_not_added_up() -> None:
    story = Story(worker("a", cpu=2), worker("b", cpu=2))
    for host in "ab":
        story.running(f"/low-{host}", host, band="batch")
        story.running(f"/same-{host}", host, band="production")
    story.submit("/high", cpu=2, band="production")
    assert story.evict() == ([], ())


def test_a_single_task_evicts_a_gang_only_whole() -> None:
    story = Story(tpu("s1", 0), tpu("s1", 1))
    story.running("/gang", ["s1-0", "s1-1"], cpu=4, band="batch", group_by="tpu-name")
    story.submit("/high", cpu=4, band="production")
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/gang/0", "/gang/1"], [(0, "s1-0")])


def test_a_gang_counts_as_all_of_its_members() -> None:
    story = Story(tpu("s1", 0), tpu("s1", 1), tpu("s1", 2), worker("x"))
    gang = ["s1-0", "s1-1", "s1-2"]
    story.running("/gang", gang, cpu=4, band="batch", group_by="tpu-name")
    story.running("/singles", ["x", "x"], cpu=2, band="batch")
    story.submit("/high", cpu=4, band="production")
    assert story.evict()[0] == ["/singles/0", "/singles/1"]


def test_several_tasks_evict_what_each_needs() -> None:
    story = Story(worker("a", cpu=4), worker("b", cpu=4))
    story.running("/low", ["a"] * 4 + ["b"] * 4, band="batch")
    story.submit("/high", 3, cpu=2, band="production")
    victims, nominations = story.evict()
    assert (len(victims), len(set(victims)), len(nominations)) == (6, 6, 3)
    assert story.evict() == ([], ())


def test_only_workers_the_task_may_use_are_looked_at() -> None:
    story = Story(worker("a", cpu=1, zone="us"), worker("b", cpu=1, zone="eu"))
    story.running("/small", "a", cpu=0.5, band="batch")
    story.running("/right", "b", cpu=1, band="batch")
    story.submit("/high", band="production", constraints=(eq("zone", "eu"),))
    assert story.evict()[0] == ["/right/0"]


def test_each_task_evicts_its_own_victim() -> None:
    story = Story(worker("a", cpu=2))
    story.running("/low", ["a", "a"], band="batch")
    story.submit("/high", 2, band="production")
    victims, nominations = story.evict()
    assert (sorted(victims), places(nominations)) == (["/low/0", "/low/1"], [(0, "a"), (1, "a")])


def test_room_left_by_a_large_victim_is_used_before_another_goes() -> None:
    story = Story(worker("a", cpu=4), worker("b", cpu=1))
    story.running("/large", "a", cpu=4, band="batch")
    story.running("/small", "b", cpu=1, band="interactive")
    story.submit("/high", 3, band="production")
    assert story.evict()[0] == ["/large/0"]


def test_what_is_stopping_anyway_is_waited_for() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/ending", "a", band="batch")
    story.running("/low", "b", band="batch")
    story.stop(*story.refs("/ending"))
    story.submit("/high", band="production")
    assert story.evict() == ([], ())


def test_an_evicted_attempt_is_not_evicted_again() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    story.evict()
    assert story.evict() == ([], ())


def test_the_preemptor_starts_when_the_victim_has_stopped() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    story.evict()
    assert story.reasons["/high"].code is ReasonCode.WAITING_FOR_VICTIM
    assert story.cycle() == {}
    story.stopped(*story.refs("/low"))
    assert story.cycle() == {"/high/0": "a"}


def test_a_promised_place_is_kept_from_everybody_else() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", at_ms=2)
    story.evict()
    story.submit("/higher", band="production", at_ms=3, constraints=(eq("nowhere", "x"),))
    story.submit("/rival", at_ms=1)
    story.stopped(*story.refs("/low"))
    assert story.cycle() == {"/high/0": "a"}


def test_a_promised_place_is_used_though_its_group_is_kept_for_a_gang() -> None:
    rack = [worker(name, 4, rack="r0") for name in ("a", "b")]
    story = Story(*rack, settings=SchedulerSettings(gang_reservation_after_s=0))
    story.running("/low", ["a", "b"], cpu=4, band="batch")
    story.submit("/high", cpu=4, band="production")
    victims, _ = story.evict()
    story.gang("/gang", 2, device=None, group_by="rack", cpu=3, band="production")
    story.wait(1)
    story.stopped(*story.refs("/low"), again=False)
    assert (victims, story.cycle()) == (["/low/0"], {"/high/0": "a"})
    story.end("/high", 0)
    assert story.cycle() == {"/gang/0": "a", "/gang/1": "b"}


def test_room_beyond_a_promise_is_for_everybody() -> None:
    story = Story(worker("a", cpu=5))
    story.running("/low", "a", cpu=4, band="batch")
    story.submit("/high", cpu=3, band="production")
    story.evict()
    story.submit("/other", 2, band="batch")
    assert story.cycle() == {"/other/0": "a"}
    story.stopped(*story.refs("/low"), again=False)
    assert story.cycle() == {"/high/0": "a", "/other/1": "a"}


def test_a_promise_on_a_worker_that_is_lost_is_worth_nothing() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/low", ["a", "b"], band="batch")
    story.submit("/high", band="production")
    story.evict()
    nominated = story.mirror.nominations[story.rows["/high"].job, 0]
    story.tell(
        closed=tuple(ref for ref in story.refs("/low") if story.held(ref).worker == nominated),
        lost_workers=(nominated,),
    )
    assert len(story.evict()[0]) == 1


def test_a_promise_that_was_given_back_frees_the_place() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    high = story.submit("/high")
    story.evict()
    story.tell(gone=(high.job,))
    story.stopped(*story.refs("/low"))
    assert story.cycle() == {"/low/0": "a"}


# ── gangs ─────────────────────────────────────────────────────────────────────────────────────────


def two_slices() -> Story:
    return Story(*(tpu(name, number, cpu=4) for name in ("s1", "s2") for number in (0, 1)))


def test_a_gang_evicts_a_whole_session_of_one_group() -> None:
    story = two_slices()
    story.running("/one", ["s1-0", "s1-1"], cpu=4, band="batch", group_by="tpu-name")
    story.running("/two", ["s2-0", "s2-1"], cpu=4, band="interactive", group_by="tpu-name")
    story.gang("/high", 2, band="production")
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/one/0", "/one/1"], [(0, "s1-0"), (1, "s1-1")])


def test_a_gang_evicts_single_tasks_and_keeps_the_free_hosts_too() -> None:
    story = two_slices()
    story.running("/full", ["s1-0", "s1-1"], cpu=4, band="production")
    story.running("/low", "s2-1", cpu=4, band="batch")
    story.gang("/high", 2, band="production")
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/low/0"], [(0, "s2-0"), (1, "s2-1")])
    story.submit("/rival", band="production", cpu=4)
    assert story.cycle() == {}
    story.stopped(*story.refs("/low"), again=False)
    assert story.cycle() == {"/high/0": "s2-0", "/high/1": "s2-1"}


def test_a_gang_evicts_nobody_when_it_would_still_not_fit() -> None:
    story = two_slices()
    story.running("/low", ["s1-0", "s2-0"], cpu=4, band="batch")
    story.running("/equal", ["s1-1", "s2-1"], cpu=4, band="production")
    story.gang("/high", 2, band="production")
    assert story.evict() == ([], ())


def test_a_gang_spares_whoever_is_not_in_its_way() -> None:
    story = Story(*(worker(f"r{number}", cpu=2, rack="r") for number in range(3)))
    story.running("/low", ["r0", "r1", "r2"], cpu=2, band="batch")
    story.submit("/high", 2, cpu=2, band="production", group_by="rack")
    assert len(story.evict()[0]) == 2


def test_a_session_that_reaches_beyond_the_group_is_left_alone() -> None:
    story = Story(
        *(worker(f"{rack}{n}", cpu=1, rack=rack, row="1") for rack in "ab" for n in range(2))
    )
    story.running("/wide", ["a0", "a1", "b0", "b1"], band="batch", group_by="row")
    story.submit("/high", 2, band="production", group_by="rack")
    assert story.evict() == ([], ())


def test_the_group_with_the_fewest_victims_is_freed() -> None:
    story = two_slices()
    story.running("/many", ["s1-0", "s1-0", "s1-1", "s1-1"], cpu=2, band="batch")
    story.running("/few", ["s2-0", "s2-1"], cpu=4, band="batch")
    story.gang("/high", 2, band="production", cpu=4)
    assert story.evict()[0] == ["/few/0", "/few/1"]


def test_a_gang_that_waits_for_its_victims_says_so() -> None:
    story = two_slices()
    story.running("/low", ["s1-0", "s1-1", "s2-0", "s2-1"], cpu=4, band="batch")
    story.gang("/high", 2, band="production")
    story.evict()
    assert story.reasons["/high"].facts == {"workers": ["s1-0", "s1-1"]}


def test_a_promise_of_a_place_that_never_comes_free_is_worth_nothing() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/busy", "a")
    row = story.submit("/high", band="production")
    story.tell(nominations=(Nomination(row.job, 0, "a"),))
    assert story.cycle() == {"/high/0": "b"}


def test_what_is_stopping_is_counted_once() -> None:
    story = Story(worker("a", cpu=2))
    story.running("/low", "a", band="batch")
    story.wait(1)
    story.running("/ending", "a", band="batch")
    story.stop(*story.refs("/ending"))
    story.submit("/high", cpu=2, band="production")
    assert story.evict()[0] == ["/low/0"]


def test_an_unhelped_task_is_helped_once_there_is_a_little_more_room() -> None:
    story = Story(worker("a", cpu=2))
    story.running("/low", "a", band="batch")
    story.running("/same", "a", band="production")
    story.submit("/high", cpu=2, band="production")
    assert story.evict() == ([], ())
    story.end("/same", 0)
    assert story.evict()[0] == ["/low/0"]


def test_a_task_is_helped_by_the_end_of_what_was_placed_beside_others() -> None:
    """In its first cycle what runs was not enough, and what took the rest could not be stopped."""
    story = Story(worker("a", cpu=3))
    story.running("/there", "a", cpu=1, band="batch")
    story.submit("/high", cpu=3, band="production")
    story.submit("/beside", cpu=1)
    assert story.evict() == ([], ())
    assert sorted(story.evict()[0]) == ["/beside/0", "/there/0"]


def test_a_gang_is_helped_by_the_end_of_a_later_placement() -> None:
    """In its first cycle what runs was not enough, and what took the rest of the room could not be
    stopped yet.
    """
    story = Story(worker("a", cpu=3, rack="r"))
    story.running("/there", "a", cpu=1)
    story.submit("/high", cpu=3, band="production", group_by="rack")
    story.submit("/beside", cpu=1)
    assert story.evict() == ([], ())
    assert sorted(story.evict()[0]) == ["/beside/0", "/there/0"]


def test_a_gang_is_helped_once_a_session_has_nobody_left_beyond_its_group() -> None:
    hosts = [worker(f"a{n}", cpu=1, rack="a", row="1", zone="x") for n in range(2)]
    story = Story(*hosts, worker("b0", cpu=1, rack="b", row="1", zone="y"))
    story.running("/wide", ["a0", "a1", "b0"], band="batch", group_by="row")
    story.submit("/high", 2, band="production", group_by="rack", constraints=(eq("zone", "x"),))
    assert story.evict() == ([], ())
    story.end("/wide", 2)
    assert story.evict()[0] == ["/wide/0", "/wide/1"]


def kept_for_another() -> Story:
    """Hosts are kept for a gang that half of them would not be enough for; a lower band runs on the
    other half.
    """
    rack = [worker(name, cpu=1, rack="r") for name in ("a", "b")]
    story = Story(*rack, settings=SchedulerSettings(gang_reservation_after_s=10))
    story.running("/low", "a")
    story.running("/same", "b", band="production")
    story.submit("/equal", 2, band="production", group_by="rack")
    story.wait(11)
    return story


def test_a_gang_preempts_on_a_host_that_was_reserved_for_another() -> None:
    story = kept_for_another()
    story.submit("/deeper/high", band="production", group_by="rack")
    assert story.evict()[0] == []
    story.wait(11)
    assert story.evict()[0] == ["/low/0"]


def test_a_task_preempts_where_a_host_is_kept_for_nobody_any_more() -> None:
    story = kept_for_another()
    story.submit("/high", band="production")
    assert story.evict()[0] == []
    story.tell(gone=(story.rows["/equal"].job,))
    assert story.evict()[0] == ["/low/0"]


def kept_for_a_lower_band() -> Story:
    """Two racks of two hosts; one host of each is busy. The rack that is free first is kept for a
    gang.
    """
    hosts = [
        worker(f"{rack}{number}", cpu=4, rack=rack, number=number)
        for rack in "xy"
        for number in (0, 1)
    ]
    story = Story(*hosts, settings=SchedulerSettings(gang_reservation_after_s=10))
    story.running("/brief", "x0", cpu=4, timeout_s=1000)
    story.running("/lengthy", "y0", cpu=4, timeout_s=2000)
    story.submit("/gang", 2, cpu=4, group_by="rack")
    story.wait(11)
    story.submit("/other", cpu=4, constraints=(eq("rack", "x"),))
    assert story.cycle() == {}
    return story


def test_a_task_of_a_higher_band_preempts_where_a_host_is_kept_for_a_gang() -> None:
    story = kept_for_a_lower_band()
    story.submit("/high", 2, cpu=4, band="production", constraints=(eq("rack", "x"),))
    assert story.cycle() == {"/high/0": "x1"}
    assert story.mirror.nominations == {(story.rows["/high"].job, 1): "x0"}
    story.stopped(*story.refs("/brief"), again=False)
    assert story.cycle() == {"/high/1": "x0"}


def test_a_gang_of_a_higher_band_preempts_where_hosts_are_kept_for_a_gang() -> None:
    story = kept_for_a_lower_band()
    story.submit(
        "/high", 2, cpu=4, band="production", group_by="rack", constraints=(eq("rack", "x"),)
    )
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/brief/0"], [(0, "x0"), (1, "x1")])


def test_a_gang_displaced_by_a_higher_band_has_another_group_kept_at_once() -> None:
    story = kept_for_a_lower_band()
    story.submit("/high", cpu=4, band="production", constraints=(eq("rack", "x"), eq("number", 0)))
    assert story.evict()[0] == ["/brief/0"]
    story.submit("/late", cpu=4, constraints=(eq("rack", "y"),))
    assert story.cycle() == {"/other/0": "x1"}


def gang_with_promises() -> Story:
    """A gang is promised a free VM and one whose task is being stopped; a single task has been
    passed over.
    """
    story = Story(tpu("s1", 0, cpu=4), tpu("s1", 1, cpu=4))
    story.running("/low", "s1-1", cpu=4, band="batch")
    story.gang("/high", 2, band="production")
    story.evict()
    story.submit("/late", cpu=4)
    assert story.cycle() == {}
    return story


def test_the_free_host_of_a_gang_is_for_others_once_the_gang_is_gone() -> None:
    story = gang_with_promises()
    story.tell(gone=(story.rows["/high"].job,))
    assert story.cycle() == {"/late/0": "s1-0"}


def test_the_free_host_of_a_gang_is_released_when_another_drains() -> None:
    story = gang_with_promises()
    story.worker(tpu("s1", 1, cpu=4, state=WorkerState.DRAINING))
    assert story.cycle() == {"/late/0": "s1-0"}


def test_promises_of_a_gang_expire_when_its_hosts_are_in_two_groups() -> None:
    story = gang_with_promises()
    story.worker(tpu("s1", 1, cpu=4, tpu_name="s2"))
    story.end("/low", 0)
    assert story.cycle() == {"/late/0": "s1-0"}


def test_promises_of_a_gang_expire_when_its_hosts_are_in_no_group() -> None:
    story = gang_with_promises()
    for number in (0, 1):
        story.worker(
            worker(f"s1-{number}", cpu=4, chips=4, device_type="tpu", device_variant="v4-16")
        )
    story.end("/low", 0)
    assert story.cycle() == {"/late/0": "s1-0"}


def test_who_took_room_beside_a_promise_is_a_victim_at_once() -> None:
    """Its place and what comes free beside it are enough together, and neither was before."""
    story = Story(worker("a", cpu=1, memory=1))
    story.running("/ending", "a", cpu=0, memory=1, band="batch")
    story.stop(*story.refs("/ending"))
    story.submit("/both", cpu=1, memory=1, band="production")
    story.submit("/small", cpu=1)
    assert story.cycle() == {"/small/0": "a"}
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/small/0"], [(0, "a")])


def test_a_promise_holds_when_nothing_helps_the_rest_of_the_job() -> None:
    story = Story(worker("a", cpu=1, zone="us"), worker("b", cpu=1, zone="eu"))
    story.running("/ending", "a", band="batch")
    story.running("/low", "b", band="batch")
    story.stop(*story.refs("/ending"))
    story.submit("/picky", 2, band="production", constraints=(eq("zone", "us"),))
    assert story.evict() == ([], ())
    story.submit("/high", band="production")
    assert story.evict()[0] == ["/low/0"]


# ── places that do not come ───────────────────────────────────────────────────────────────────────


def test_a_task_that_failed_to_start_preempts_on_another_worker_at_once() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/low", ["a", "b"], band="batch")
    story.submit("/high", band="production")
    story.avoid("/high", 0, "b", for_s=60)
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/low/0"], [(0, "a")])


def test_a_task_that_failed_to_start_preempts_there_after_its_delay() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    story.avoid("/high", 0, "a", for_s=60)
    assert story.evict() == ([], ())
    assert story.look().wake_ms == story.now_ms + 60_000
    story.wait(60)
    assert story.evict()[0] == ["/low/0"]


def test_a_gang_that_failed_to_start_preempts_in_another_group_at_once() -> None:
    story = two_slices()
    story.running("/one", ["s1-0", "s1-1"], cpu=4, band="batch", group_by="tpu-name")
    story.running("/two", ["s2-0", "s2-1"], cpu=4, band="batch", group_by="tpu-name")
    story.gang("/high", 2, band="production")
    story.avoid("/high", 1, "s1-1", for_s=60)
    assert story.evict()[0] == ["/two/0", "/two/1"]


def test_a_gang_that_failed_to_start_preempts_there_after_its_delay() -> None:
    story = Story(tpu("s1", 0, cpu=4), tpu("s1", 1, cpu=4))
    story.running("/low", ["s1-0", "s1-1"], cpu=4, band="batch")
    story.gang("/high", 2, band="production")
    story.avoid("/high", 1, "s1-1", for_s=60)
    assert story.evict() == ([], ())
    story.wait(60)
    assert story.evict()[0] == ["/low/0", "/low/1"]


def test_a_promised_task_takes_a_worker_that_is_free_earlier() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/low", "a", band="batch")
    story.running("/equal", "b", band="production")
    story.submit("/high", band="production")
    assert story.evict()[0] == ["/low/0"]
    story.end("/equal", 0)
    assert story.cycle() == {"/high/0": "b"}
    story.submit("/later", band="interactive")
    story.stopped(*story.refs("/low"))
    assert story.cycle() == {"/later/0": "a"}


def test_a_promised_gang_takes_another_group_that_is_free_first() -> None:
    story = two_slices()
    story.running("/low", ["s1-0", "s1-1"], cpu=4, band="batch", group_by="tpu-name")
    story.running("/equal", ["s2-0", "s2-1"], cpu=4, band="production")
    story.gang("/high", 2, band="production")
    story.evict()
    story.end("/equal", 0, 1)
    assert story.cycle() == {"/high/0": "s2-0", "/high/1": "s2-1"}


def test_what_a_promised_task_leaves_is_used_before_another_eviction() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1), worker("c", cpu=1))
    story.running("/low", "a", band="batch")
    story.running("/equal", "b", band="production")
    story.running("/spared", "c", band="interactive")
    story.submit("/high", band="production")
    assert story.evict()[0] == ["/low/0"]
    story.end("/equal", 0)
    story.submit("/second", band="production")
    assert story.evict()[0] == []


def test_a_stop_that_hangs_does_not_hold_up_the_highest_band() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=1))
    story.running("/low", ["a", "b"], band="batch")
    story.submit("/high", band="production")
    first, nominations = story.evict()
    assert story.look().wake_ms == story.now_ms + 15_001
    story.wait(15)
    assert story.evict()[0] == []
    story.wait(1)
    second, nominated = story.evict()
    assert sorted(first + second) == ["/low/0", "/low/1"]
    assert nominated[0].worker != nominations[0].worker


def test_a_stop_that_hangs_does_not_hold_up_a_gang() -> None:
    story = two_slices()
    story.running("/low", ["s1-0", "s1-1", "s2-0", "s2-1"], cpu=4, band="batch")
    story.gang("/high", 2, band="production")
    assert story.evict()[0] == ["/low/0", "/low/1"]
    story.wait(16)
    assert story.evict()[0] == ["/low/2", "/low/3"]
    story.stopped(*story.refs("/low")[2:])
    assert story.cycle() == {"/high/0": "s2-0", "/high/1": "s2-1"}


def test_a_promised_place_that_comes_free_late_is_still_taken() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    story.evict()
    story.wait(60)
    assert story.cycle() == {}
    story.stopped(*story.refs("/low"))
    assert story.cycle() == {"/high/0": "a"}


def test_a_gang_costs_the_work_of_its_members_that_have_finished_too() -> None:
    """One member of /almost holds a host, and both start again when it goes: /alone loses less."""
    story = two_slices()
    story.running("/almost", ["s1-0", "s1-1"], cpu=4, band="batch", group_by="tpu-name")
    story.end("/almost", 0)
    story.running("/alone", "s2-0", cpu=4, band="batch")
    story.gang("/high", 2, band="production", cpu=4)
    assert story.evict()[0] == ["/alone/0"]


def test_within_a_group_the_session_that_loses_most_is_spared() -> None:
    """/almost holds one host and one cpu, and loses three of each; /alone holds and loses two."""
    story = Story(*(worker(f"a{n}", cpu=2, rack="a") for n in range(3)))
    story.running("/almost", ["a0", "a1", "a2"], cpu=1, band="batch", group_by="rack")
    story.end("/almost", 0, 1)
    story.running("/alone", "a1", cpu=2, band="batch")
    story.submit("/high", 2, cpu=2, band="production", group_by="rack")
    assert story.evict()[0] == ["/alone/0"]


def test_a_running_task_is_evicted_where_only_its_place_is_wanting() -> None:
    story = Story(worker("a", cpu=8, attempts=1))
    story.running("/low", "a", band="batch")
    story.submit("/high", band="production")
    victims, nominations = story.evict()
    assert (victims, places(nominations)) == (["/low/0"], [(0, "a")])
