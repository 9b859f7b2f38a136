"""Work of projects over their limit yields to other work of its band. Source:
docs/design/team.md#projects.
"""

from __future__ import annotations

from iris_core.placement.reasons import ReasonCode
from tests.support.scheduling import Story, tpu, worker


def test_work_over_the_limit_of_a_project_above_goes_behind_everyone_else() -> None:
    story = Story(worker("w", cpu=3))
    story.limit("/research", cpu_millis=1000)
    story.running("/running", "w", project="/research/vision")
    story.submit("/nlp", project="/research/nlp", at_ms=1)
    story.submit("/other", user="bob", at_ms=2)
    story.submit("/no-part", user="carl", project="/researchers", at_ms=3)
    assert story.cycle() == {"/other/0": "w", "/no-part/0": "w"}


def test_every_limit_on_the_way_to_the_root_holds() -> None:
    for path in ("/", "/a", "/a/b"):
        story = Story(worker("w", cpu=2))
        story.limit(path, cpu_millis=1000)
        story.running("/running", "w", project="/a/b")
        story.submit("/more", project="/a/b", at_ms=1)
        story.submit("/free", band="batch", project="/c", at_ms=2)
        assert list(story.cycle()) == ["/more/0"], path  # of its band there is nobody else


def test_the_limit_of_the_root_counts_what_is_in_no_project() -> None:
    story = Story(worker("w", cpu=3))
    story.limit("/", cpu_millis=2000)
    story.running("/running", "w")
    story.submit("/job", 2, project="/a", at_ms=1)
    assert story.cycle() == {"/job/0": "w", "/job/1": "w"}


def test_what_is_placed_in_a_cycle_counts_at_once() -> None:
    story = Story(worker("w", cpu=3))
    story.limit("/a", cpu_millis=2000)
    story.submit("/job", 3, project="/a/b", at_ms=1)
    story.submit("/bob", user="bob", at_ms=2)
    assert list(story.cycle()) == ["/job/0", "/job/1", "/bob/0"]


def test_the_quota_of_a_user_holds_inside_a_project() -> None:
    story = Story(worker("w", cpu=3))
    story.limit("/a", cpu_millis=2000)
    story.quota("ann", max_running_cpu=1000)
    story.submit("/job", 2, user="ann", project="/a", at_ms=1)
    story.submit("/bob", 2, user="bob", project="/a", at_ms=2)
    assert list(story.cycle())[:2] == ["/job/0", "/bob/0"]


def test_a_gang_over_the_limit_of_its_project_gives_way_whole() -> None:
    story = Story(tpu("s", 0), tpu("s", 1))
    story.limit("/a", chips=4)
    story.gang("/ann", 2, project="/a", at_ms=1)
    story.gang("/bob", 2, user="bob", at_ms=2)
    assert set(story.cycle()) == {"/bob/0", "/bob/1"}


def test_a_limit_that_is_taken_away_holds_no_longer() -> None:
    story = Story(worker("w", cpu=1))
    story.limit("/a", cpu_millis=500)
    story.limit("/a")
    story.submit("/ann", project="/a", at_ms=1)
    story.submit("/bob", user="bob", at_ms=2)
    assert story.cycle() == {"/ann/0": "w"}


def test_the_reason_names_the_project_its_limit_and_what_is_asked_for() -> None:
    story = Story(worker("w", cpu=2))
    story.limit("/a", cpu_millis=1500)
    story.running("/one", "w", project="/a/b")
    story.submit("/bob", user="bob", at_ms=1)
    story.submit("/two", project="/a/b", at_ms=2)
    made = story.look().plan.reasons
    (reason,) = [one.reason for one in made if one.job == story.rows["/two"].job]
    assert reason.code is ReasonCode.OVER_QUOTA
    assert reason.message == (
        "project /a runs 1 of at most 1.5 of cpu, and a task asks for 1; others of the band go first"
    )
    assert reason.facts == {
        "project": "/a",
        "resource": "cpu_millis",
        "limit": 1500,
        "used": 1000,
        "asked": 1000,
    }
