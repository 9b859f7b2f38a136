"""Finished jobs are deleted by the time of their end; counts stay right and families stay
together.
"""

import msgspec
import pytest

from iris_core.states import Cause, JobState
from iris_core.units import DAY_MS
from iris_state.decide.retention import weight
from iris_state.records.changes import Answered, JobMoved, JobPruned
from iris_state.snapshots import snapshot
from tests.unit.state.test_snapshot import HOST, Story, done, job, restored


@pytest.fixture
def story() -> Story:
    story = Story()
    story.tell(HOST)
    return story


def finished(story: Story, number: int, name: str, parent: int = 0) -> None:
    story.tell(
        job(number, name, 1, parent),
        *done(number, 0),
        JobMoved(number, JobState.SUCCEEDED, Cause.EXITED),
    )


def forget(
    story: Story, keep_jobs: int = 0, keep_ms: int = 0, now_ms: int = 0, keep_bytes: int = 0
) -> list[int]:
    gone = []
    for change in story.retention.forgettable(keep_jobs, keep_ms, now_ms, keep_bytes):
        story.tell(change)
        gone.append(change.job)
    return gone


def test_all_but_the_newest_are_forgotten(story):
    for number in range(1, 6):
        finished(story, number, f"/j{number}")
    assert forget(story, keep_jobs=2) == [1, 2, 3]
    assert list(story.ledger.jobs) == [4, 5]


def test_what_has_been_over_for_long_is_forgotten(story):
    finished(story, 1, "/old")
    story.at_ms += DAY_MS
    finished(story, 2, "/new")
    assert forget(story, keep_ms=DAY_MS, now_ms=story.at_ms) == [1]


def test_nothing_is_forgotten_when_nothing_is_asked(story):
    finished(story, 1, "/a")
    assert forget(story, now_ms=10**15) == []


def test_a_job_that_lives_is_never_forgotten(story):
    story.tell(job(1, "/lives"))
    finished(story, 2, "/a")
    finished(story, 3, "/b")
    assert forget(story, keep_jobs=1) == [2]


def test_counts_and_keys_stay(story):
    for number in (1, 2):
        finished(story, number, f"/j{number}")
    forget(story, keep_jobs=1)
    totals = story.ledger.totals
    assert (totals.admitted, totals.pruned, totals.jobs, totals.tasks) == (
        2,
        1,
        {"succeeded": 1},
        {"succeeded": 1},
    )
    assert story.ledger.idempotency == {"ann\0k1": 1, "ann\0k2": 2}


def test_a_key_of_a_forgotten_job_survives_a_restart_with_its_time(story):
    for number in (1, 2, 3):
        finished(story, number, f"/j{number}")
    forget(story, keep_jobs=1)
    again = restored(snapshot.cut(story.ledger, 1, story.at_ms))
    assert (again.spent_keys, again.spent_keys.held.bytes) == (
        story.ledger.spent_keys,
        story.ledger.spent_keys.held.bytes,
    )
    assert list(again.spent_keys) == ["ann\0k1", "ann\0k2"]


def test_answers_are_of_the_same_users_after_a_restart(story):
    story.tell(Answered("r1", "created", b"{}", "ann"), Answered("r2", "created", b"{}", "bob"))
    story.tell(Answered("r3", "created", b"{}", "cy"), Answered("r2", "created", b"{...}", "bob"))
    again = restored(snapshot.cut(story.ledger, 1, story.at_ms)).answers
    assert again.users == {"r1": "ann", "r2": "bob", "r3": "cy"}
    assert (again, again.held.bytes, again.held.bytes_of) == (
        story.ledger.answers,
        story.ledger.answers.held.bytes,
        story.ledger.answers.held.bytes_of,
    )


def test_jobs_beyond_the_memory_for_them_are_forgotten(story):
    for number in range(1, 6):
        finished(story, number, f"/j{number}")
    each = story.retention.bytes // 5
    assert forget(story, keep_bytes=2 * each) == [1, 2, 3]
    assert story.retention.bytes == 2 * each


def finished_by(story: Story, user: str, numbers: range) -> None:
    for number in numbers:
        change = msgspec.structs.replace(job(number, f"/j{number}", 1), user=user)
        story.tell(change, *done(number, 0), JobMoved(number, JobState.SUCCEEDED, Cause.EXITED))


@pytest.mark.parametrize("limit", ["keep_jobs", "keep_bytes"])
def test_what_one_user_does_removes_no_job_of_another(story, limit):
    finished_by(story, "ann", range(1, 4))
    each = story.retention.bytes // 3
    most = 10 if limit == "keep_jobs" else 10 * each
    for first in range(4, 204, 20):
        finished_by(story, "bob", range(first, first + 20))
        forget(story, **{limit: most})
    assert [number for number in story.ledger.jobs if number < 4] == [1, 2, 3]
    assert 6 <= len(story.ledger.jobs) - 3 <= 7
    assert max(story.ledger.jobs) == 203


def test_users_who_hold_as_much_lose_as_much(story):
    finished_by(story, "ann", range(1, 21))
    finished_by(story, "bob", range(21, 41))
    assert len(forget(story, keep_jobs=10)) == 30
    assert sorted(story.ledger.jobs) == [*range(16, 21), *range(36, 41)]


def test_a_job_that_is_waited_for_is_passed_over(story):
    finished_by(story, "ann", range(1, 4))
    story.ledger.gates.waiters[1] = {}
    assert forget(story, keep_jobs=1) == [2]


def test_a_replica_that_follows_forgets_what_the_leader_has_forgotten(story):
    for number in range(1, 1001):
        finished(story, number, f"/j{number}")
        if number > 10:
            story.tell(JobPruned(number - 10))
    assert (len(story.ledger.jobs), story.retention.finished) == (10, 10)
    assert story.retention.bytes == sum(
        weight(job, story.ledger.written[job.number]) for job in story.ledger.jobs.values()
    )


def test_a_parent_stays_as_long_as_a_child_is_on_record(story):
    finished(story, 1, "/p")
    story.tell(job(2, "/p/c", 1, parent=1))
    finished(story, 3, "/a")
    assert forget(story, keep_jobs=1) == []
    story.tell(*done(2, 0), JobMoved(2, JobState.SUCCEEDED, Cause.EXITED))
    finished(story, 4, "/b")
    assert forget(story, keep_jobs=1) == [3, 2, 1]


def test_the_name_of_a_forgotten_run_leads_to_the_newest_that_is_left(story):
    finished(story, 1, "/a")
    finished(story, 2, "/a")
    forget(story, keep_jobs=1)
    assert story.ledger.names == {"/a": 2}
