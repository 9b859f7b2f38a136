"""The mirror applies deltas and requests a snapshot when it cannot."""

from __future__ import annotations

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Delta, Hold, JobRow, Nomination, Queued
from iris_scheduler.mirror.mirror import Mirror
from tests.support.scheduling import Story, worker


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_delta_that_does_not_follow_changes_nothing(version: int) -> None:
    story = Story(worker("a"))
    story.submit("/job")
    before = story.mirror.snapshot()
    assert not story.mirror.apply(Delta(version, 5, after=version - 1, workers=(worker("b"),)))
    assert story.mirror.snapshot() == before


def test_a_commit_of_which_a_draft_was_missed_does_not_follow() -> None:
    mirror = Story(worker("a")).mirror
    version = mirror.version
    draft = Delta(version, 5, after=version, workers=(worker("b"),))
    whole = Delta(version + 1, 5, after=version, drafts=1)
    assert not mirror.apply(whole)
    assert mirror.apply(draft)
    assert not mirror.apply(draft)
    assert not mirror.apply(Delta(version + 1, 5, after=version))
    assert mirror.version == version
    assert mirror.apply(whole)
    assert mirror.apply(Delta(version + 2, 5, after=version + 1))


def test_a_delta_about_a_job_nobody_told_of_does_not_follow() -> None:
    mirror = Story(worker("a")).mirror
    assert not mirror.apply(
        Delta(1, 5, opened=(Hold(AttemptRef(9, 0, 0), "a", True, False, 5),), after=0)
    )
    assert not mirror.apply(Delta(1, 5, queued=(Queued(9, ((0, 1),), 5),), after=0))


def test_an_assigned_task_leaves_the_queue_and_takes_its_promise_along() -> None:
    story = Story(worker("a"))
    row = story.submit("/job", 2)
    story.tell(nominations=(Nomination(row.job, 0, "a"),))
    story.start("/job", {0: "a"})
    assert list(story.mirror.queue) == [(row.job, 1)]
    assert not story.mirror.nominations


def test_an_ended_job_is_remembered_until_nothing_of_it_is_open() -> None:
    story = Story(worker("a", cpu=1))
    story.running("/job", "a")
    row = story.rows["/job"]
    story.tell(gone=(row.job,))
    assert story.mirror.jobs == {row.job: row}
    assert story.mirror.hosts.free()[0].tolist() == [0]
    story.tell(closed=(AttemptRef(row.job, 0, 0),))
    assert story.mirror.jobs == {}
    assert story.mirror.hosts.free()[0].tolist() == [1000]


def test_a_job_keeps_waiting_since_its_first_task_did() -> None:
    story = Story(worker("a"))
    row = story.submit("/job", 2, at_ms=100)
    story.tell(queued=(Queued(row.job, ((0, 1),), 200),))
    assert story.mirror.since_ms == {row.job: 100}


def test_classes_go_with_their_last_job() -> None:
    story = Story(worker("a"))
    one, two = story.submit("/one"), story.submit("/two")
    assert sum(peers.members for peers in story.mirror.peers()) == 1
    story.tell(gone=(one.job,))
    assert sum(peers.members for peers in story.mirror.peers()) == 1
    story.tell(gone=(two.job,))
    assert sum(peers.members for peers in story.mirror.peers()) == 0


def test_an_attempt_on_an_unregistered_worker_counts_once_it_registers() -> None:
    story = Story()
    story.running("/job", "a")
    story.worker(worker("a", cpu=4))
    assert story.mirror.hosts.free()[0].tolist() == [3000]


def test_a_user_holds_what_is_open_until_its_end_is_known() -> None:
    story = Story(worker("a"))
    story.running("/job", ["a", "a"], memory=7)
    assert story.mirror.usage.of("ann") == (2000, 14, 0)
    story.stop(*story.refs("/job"))
    story.end("/job", 0)
    assert story.mirror.usage.of("ann") == (1000, 7, 0)


def test_a_mirror_of_a_snapshot_knows_what_the_snapshot_says() -> None:
    story = Story(worker("a"), worker("b"))
    row: JobRow = story.submit("/job", 4)
    story.start("/job", {0: "a", 2: "b"})
    story.avoid("/job", 1, "a", for_s=1)
    story.tell(nominations=(Nomination(row.job, 3, "b"),))
    story.quota("ann", max_running_cpu=5)
    assert Mirror.of([story.mirror.snapshot()]).snapshot() == story.mirror.snapshot()
