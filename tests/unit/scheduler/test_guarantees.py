"""Work within the guarantee of its project goes before work that borrows, and takes back what others
borrow. Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.placement.reasons import ReasonCode
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import Story, tpu, tpus, worker


def evicted(story: Story) -> list[str]:
    """Whom the next plan makes give way to a guarantee; it is carried out."""
    made = story.look().plan
    assert all(eviction.reclaims for eviction in made.evictions)
    story.cycle()
    return story.victims(made)


def refs(story: Story, name: str, *indexes: int) -> list[AttemptRef]:
    return [ref for ref in story.refs(name) if not indexes or ref.index in indexes]


def lent(hosts: int = 4, guarantee: int = 2000, **options: int) -> Story:
    """Hosts of one core, all of which /other uses; /nlp is guaranteed some of them."""
    story = Story(*(worker(f"w{number}", cpu=1) for number in range(hosts)))
    story.guarantee("/nlp", cpu_millis=guarantee)
    for number in range(hosts):
        story.wait(1)
        story.running(f"/old-{number}", f"w{number}", project="/other", **options)
    return story


# ── the order ─────────────────────────────────────────────────────────────────────────────────────


def test_work_within_a_guarantee_goes_before_work_that_borrows():
    story = Story(worker("w", cpu=3))
    story.guarantee("/nlp", cpu_millis=2000)
    story.submit("/first", project="/other", at_ms=1)
    story.submit("/none", at_ms=2)
    story.submit("/nlp", 3, project="/nlp", at_ms=3)
    assert list(story.cycle()) == ["/nlp/0", "/nlp/1", "/first/0"]


def test_what_runs_counts_and_each_guarantee_on_the_way_holds():
    for path in ("/a", "/a/b"):
        story = Story(worker("w", cpu=3))
        story.guarantee("/a", cpu_millis=9000)
        story.guarantee("/a/b", cpu_millis=9000)
        story.guarantee(path, cpu_millis=2000)
        story.running("/one", "w", project="/a/b")
        story.submit("/other", project="/other", at_ms=1)
        story.submit("/two", 2, project="/a/b", at_ms=2)
        assert list(story.cycle()) == ["/two/0", "/other/0"], path


def test_a_guarantee_of_what_a_task_does_not_ask_for_says_nothing_about_it():
    story = Story(worker("w", cpu=1))
    story.guarantee("/nlp", chips=8)
    story.submit("/other", project="/other", at_ms=1)
    story.submit("/nlp", project="/nlp", at_ms=2)
    assert list(story.cycle()) == ["/other/0"]


def test_a_band_goes_before_every_guarantee_of_a_lower_one():
    story = Story(worker("w", cpu=1))
    story.guarantee("/nlp", cpu_millis=1000)
    story.submit("/nlp", project="/nlp", band="batch", at_ms=1)
    story.submit("/other", project="/other", at_ms=2)
    assert list(story.cycle()) == ["/other/0"]


def test_who_is_over_a_quota_is_behind_all_others_also_within_a_guarantee():
    story = Story(worker("w", cpu=4))
    story.guarantee("/nlp", cpu_millis=4000)
    story.quota("ann", max_running_cpu=1000)
    story.submit("/ann", 3, user="ann", project="/nlp", at_ms=1)
    story.submit("/bob", user="bob", project="/other", at_ms=2)
    assert list(story.cycle()) == ["/ann/0", "/bob/0", "/ann/1", "/ann/2"]


def test_a_near_gang_goes_before_a_far_one_and_whole():
    story = Story(*(tpu("s", number) for number in range(4)))
    story.guarantee("/nlp", chips=8)
    story.gang("/far", 2, project="/other", at_ms=1)
    story.gang("/small", 4, project="/nlp", at_ms=2)  # beyond the guarantee
    story.gang("/near", 2, project="/nlp", at_ms=3)
    assert list(story.cycle()) == ["/near/0", "/near/1", "/far/0", "/far/1"]


def test_no_host_is_reserved_for_a_far_task_while_near_ones_wait():
    for guaranteed, placed in ((2000, ["/near/0"]), (0, [])):
        story = Story(worker("w", cpu=2))
        story.guarantee("/nlp", cpu_millis=guaranteed)
        story.running("/held", "w", cpu=1, project="/other")
        story.submit("/large", cpu=2, project="/other")
        story.wait(60)
        story.submit("/near", cpu=1, project="/nlp")
        assert list(story.cycle()) == placed


def test_without_a_guarantee_plans_are_those_of_a_cluster_without_projects():
    def plans(project: str, guaranteed: bool) -> list[object]:
        story = Story(worker("a", cpu=4), worker("b", cpu=4), *(tpu("s", n) for n in range(2)))
        if guaranteed:
            story.guarantee("/x", cpu_millis=0)
        story.quota("ann", max_running_cpu=2000)
        found: list[object] = []
        for number in range(6):
            for user in ("ann", "bob"):
                band = ("interactive", "batch", "production")[number % 3]
                story.submit(f"/{user}-{number}", 2, user=user, band=band, project=project)
            story.gang(f"/gang-{number}", 2, user="bob", project=project)
            story.wait(20)
            made = story.look().plan
            found.append((story.places(made), story.victims(made), made.reasons))
            story.cycle()
        return found

    assert plans("/x/y", guaranteed=True) == plans("", guaranteed=False)


# ── reclaiming ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("band", ["production", "interactive", "batch"])
def test_near_work_takes_back_what_its_band_borrowed_newest_first(band: str):
    story = lent(band=band)
    story.submit("/near", 2, project="/nlp", band=band)
    story.submit("/beyond", project="/nlp", band=band)
    assert evicted(story) == ["/old-3/0", "/old-2/0"]
    assert story.reasons["/near"].code is ReasonCode.WAITING_FOR_VICTIM
    story.gave_way(*refs(story, "/old-3"))
    assert story.cycle() == {"/near/0": "w3"}
    assert evicted(story) == []


def test_what_stops_already_is_waited_for_and_not_taken_twice():
    story = lent()
    story.submit("/near", project="/nlp")
    assert evicted(story) == ["/old-3/0"]
    assert story.look(Cache()).plan.evictions == ()
    story.submit("/more", 2, project="/nlp")
    assert evicted(story) == ["/old-2/0"]


def test_work_of_another_band_is_not_reclaimed():
    story = lent(band="interactive")
    story.submit("/near", project="/nlp", band="batch")
    assert evicted(story) == []
    story = lent(band="batch")
    story.submit("/near", project="/nlp")
    made = story.look().plan
    assert (story.victims(made), [one.reclaims for one in made.evictions]) == (
        ["/old-3/0"],
        [False],
    )


def test_no_project_falls_below_its_own_guarantee():
    story = lent(hosts=4, guarantee=3000)
    story.guarantee("/other", cpu_millis=3000)
    story.submit("/near", 3, project="/nlp")
    assert evicted(story) == ["/old-3/0"]
    story.gave_way(*refs(story, "/old-3"))
    story.cycle()
    assert evicted(story) == []


def test_work_within_a_guarantee_above_its_project_is_not_taken():
    story = lent(hosts=2, guarantee=2000)
    story.guarantee("/other", cpu_millis=1000)
    story.guarantee("/other/x", cpu_millis=0)
    story.end("/old-1", 0)
    story.running("/inner", "w1", project="/other/x")
    story.end("/old-0", 0)
    story.submit("/near", 2, project="/nlp")
    assert story.cycle() == {"/near/0": "w0"}
    assert evicted(story) == []


def test_what_would_borrow_itself_takes_nothing():
    story = lent(hosts=3, guarantee=1000)
    story.end("/old-0", 0)
    story.running("/mine", "w0", project="/nlp")
    story.submit("/near", project="/nlp")
    assert evicted(story) == []


def test_a_project_does_not_reclaim_from_itself():
    story = Story(worker("w", cpu=2))
    story.guarantee("/nlp", cpu_millis=2000, chips=4)
    story.running("/mine", ["w", "w"], project="/nlp")
    story.submit("/near", project="/nlp")
    assert evicted(story) == []


def test_who_is_over_a_limit_or_a_quota_takes_nothing():
    story = lent()
    story.quota("bob", max_running_cpu=500)
    story.submit("/near", project="/nlp", user="bob")
    assert evicted(story) == []


def test_protected_work_is_not_reclaimed_until_it_has_run_for_that_long():
    story = Story(worker("w", cpu=1))
    story.guarantee("/nlp", cpu_millis=1000)
    story.running("/old", "w", project="/other", protect_s=60)
    story.submit("/near", project="/nlp")
    decision = story.look()
    assert decision.plan.evictions == ()
    assert decision.wake_ms == story.now_ms + 60_000
    story.wait(61)
    assert evicted(story) == ["/old/0"]


def test_only_those_are_taken_whose_end_makes_room():
    story = Story(worker("a", cpu=4), worker("b", cpu=1))
    story.guarantee("/nlp", cpu_millis=4000)
    story.running("/large", "a", cpu=3, project="/other")
    story.wait(1)
    story.running("/small", "a", cpu=1, project="/other")
    story.wait(1)
    story.running("/newest", "b", cpu=1, project="/other")
    story.submit("/near", cpu=3, project="/nlp")
    assert evicted(story) == ["/large/0"]  # /small is newer, and not enough, nor needed


def test_several_on_one_worker_give_way_together():
    story = Story(worker("a", cpu=2))
    story.guarantee("/nlp", cpu_millis=2000)
    story.running("/x", ["a", "a"], project="/other")
    story.submit("/near", cpu=2, project="/nlp")
    assert evicted(story) == ["/x/0", "/x/1"]


def test_a_gang_gives_way_whole_or_not_at_all():
    hosts = [tpu("s", number) for number in range(2)]
    story = Story(*hosts)
    story.guarantee("/nlp", chips=4)
    story.gang("/gang", 2, project="/other")
    story.start("/gang", {0: "s-0", 1: "s-1"}, building=False)
    story.submit("/near", project="/nlp", device=tpus())
    assert evicted(story) == ["/gang/0", "/gang/1"]
    kept = Story(*hosts)
    kept.guarantee("/nlp", chips=4)
    kept.guarantee("/other", chips=5)
    kept.gang("/gang", 2, project="/other")
    kept.start("/gang", {0: "s-0", 1: "s-1"}, building=False)
    kept.submit("/near", project="/nlp", device=tpus())
    assert evicted(kept) == []  # without the gang /other would hold less than it is guaranteed


def test_a_near_gang_reclaims_a_group_from_the_newest_that_borrow():
    story = Story(*(tpu(name, number) for name in ("s", "t") for number in range(2)))
    story.guarantee("/nlp", chips=8)
    for number, name in enumerate(("s-0", "s-1", "t-0", "t-1")):
        story.wait(1)
        story.running(f"/old-{number}", name, project="/other", device=tpus())
    story.gang("/near", 2, project="/nlp")
    assert evicted(story) == ["/old-3/0", "/old-2/0"]
    story.gave_way(*refs(story, "/old-3"), *refs(story, "/old-2"))
    assert story.cycle() == {"/near/0": "t-0", "/near/1": "t-1"}


def test_a_near_gang_beyond_what_is_lent_takes_nothing():
    story = Story(*(tpu("s", number) for number in range(2)))
    story.guarantee("/nlp", chips=8)
    story.guarantee("/other", chips=4)
    story.running("/old", ["s-0", "s-1"], project="/other", device=tpus())
    story.gang("/near", 2, project="/nlp")
    assert evicted(story) == []


def test_projects_below_a_full_one_reclaim_from_each_other():
    story = Story(worker("a", cpu=1), worker("b", cpu=1), worker("c", cpu=1))
    story.guarantee("/research", cpu_millis=2000)
    story.guarantee("/research/nlp", cpu_millis=1000)
    story.running("/out", "c", project="/other")
    for place in ("a", "b"):
        story.wait(1)
        story.running(f"/vision-{place}", place, project="/research/vision")
    story.submit("/near", 2, project="/research/nlp")
    assert evicted(story) == ["/vision-b/0"]  # /research keeps what it holds, and takes no more
    story.gave_way(*refs(story, "/vision-b"))
    assert list(story.cycle()) == ["/near/0"]
    assert evicted(story) == []


def test_what_was_reclaimed_makes_nobody_give_way_for_a_while():
    story = lent(hosts=1, guarantee=1000)
    story.submit("/near", project="/nlp")
    assert evicted(story) == ["/old-0/0"]
    story.gave_way(*refs(story, "/old-0"))
    assert list(story.cycle()) == ["/near/0"]
    story.guarantee("/nlp")
    story.guarantee("/other", cpu_millis=1000)
    decision = story.look()
    assert decision.plan.evictions == ()
    settings = SchedulerSettings()
    assert decision.wake_ms == story.now_ms + settings.reclaim_min_ms
    story.wait(settings.reclaim_min_s)
    assert evicted(story) == ["/near/0"]


def test_lower_bands_give_way_first_and_together_with_what_borrows():
    story = Story(worker("a", cpu=2))
    story.guarantee("/nlp", cpu_millis=2000)
    story.running("/low", "a", project="/other", band="batch")
    story.running("/same", "a", project="/other")
    story.submit("/near", cpu=2, project="/nlp")
    assert evicted(story) == ["/low/0", "/same/0"]


def test_nobody_gives_way_to_a_task_that_needs_a_worker_without_attempts():
    story = Story(worker("w", cpu=2))
    story.guarantee("/nlp", cpu_millis=1000)
    story.running("/old", ["w", "w"], project="/other")
    story.submit("/nlp", project="/nlp")
    story.avoid("/nlp", 0, OCCUPIED, for_s=30)
    assert evicted(story) == []
    story.wait(31)
    assert len(evicted(story)) == 1
