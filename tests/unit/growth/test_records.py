"""What a change of the records costs, as what is kept beside it grows: one row for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.messages.state_worker import Ended
from iris_core.spec.resources import Amount
from iris_core.states import Cause, Initiator, JobState, TaskState
from iris_state.inputs.plans.accept import no_entry
from iris_state.records.changes import (
    Assigned,
    Avoided,
    Closed,
    JobMoved,
    JobPruned,
    Moved,
    WorkerRegistered,
)
from tests.support.work import exponent, work_of
from tests.unit.state.test_snapshot import HOST, Story, done, job

FLAT, LINEAR = 0.1, 1.1
Play = Callable[[int], Callable[[], object]]
"""Makes records of so many kept things; the work of what it returns is counted."""


def with_host() -> Story:
    story = Story()
    story.tell(HOST)
    return story


def finish(story: Story, number: int, name: str, parent: int = 0) -> None:
    moved = JobMoved(number, JobState.SUCCEEDED, Cause.EXITED)
    story.tell(job(number, name, 1, parent), *done(number, 0), moved)


def runs_of_a_name(size: int) -> Story:
    story = with_host()
    for number in range(1, size + 1):
        finish(story, number, "/nightly")
    return story


def a_submission_beside_runs_of_its_name(size: int) -> Callable[[], object]:
    story = runs_of_a_name(size)
    return lambda: story.tell(job(size + 1, "/nightly", 1))


def the_deletion_of_a_run_of_a_name(size: int) -> Callable[[], object]:
    story = runs_of_a_name(size)
    return lambda: story.tell(JobPruned(size // 2))


def the_deletion_of_a_child(size: int) -> Callable[[], object]:
    story = with_host()
    story.tell(job(1, "/parent"))
    for number in range(2, size + 2):
        finish(story, number, f"/parent/child-{number}", parent=1)
    return lambda: story.tell(JobPruned(size // 2))


def an_end_in_a_job_that_has_ended(size: int) -> Callable[[], object]:
    story = with_host()
    story.tell(job(1, "/wide", size))
    for index in range(size):
        story.tell(Assigned(1, index, 0, "w0"), killed(index))
    story.tell(JobMoved(1, JobState.KILLED, Cause.CANCELLED))
    for index in range(size - 2):
        story.tell(Closed(1, index, 0, Ended(Cause.CANCELLED)))
    return lambda: story.tell(Closed(1, size - 2, 0, Ended(Cause.CANCELLED)))


def killed(index: int) -> Moved:
    """A task has ended, and the end of its attempt is not known."""
    state, by = TaskState.KILLED, Initiator.USER
    return Moved(1, index, 0, state, state, Cause.CANCELLED, by, closed=False)


def a_placement_beside_suspects_elsewhere(size: int) -> Callable[[], object]:
    story = with_host()
    for number in range(1, size + 1):
        host = WorkerRegistered(f"s{number}", "i", {}, Amount(4000))
        avoid = Avoided(number, 0, OCCUPIED, story.at_ms + 1_000_000)
        story.tell(host, job(number, f"/suspect-{number}", 1), avoid)
        story.tell(Assigned(number, 0, 0, f"s{number}"))
    story.tell(job(size + 1, "/other", 1))
    ledger = story.ledger
    assert len(ledger.alone) == size
    assert no_entry(ledger, ledger.jobs[size + 1], 0, "s1") == "kept_for_one"
    return lambda: no_entry(ledger, ledger.jobs[size + 1], 0, "w0")


FLAT_ROWS: tuple[Play, ...] = (
    a_submission_beside_runs_of_its_name,
    the_deletion_of_a_run_of_a_name,
    the_deletion_of_a_child,
    an_end_in_a_job_that_has_ended,
    a_placement_beside_suspects_elsewhere,
)


def growth_of(play: Play) -> float:
    return exponent(work_of(play(20)), work_of(play(200)))


@pytest.mark.parametrize("play", FLAT_ROWS, ids=lambda play: play.__name__)
def test_it_costs_the_same_however_much_is_kept(play: Play) -> None:
    assert growth_of(play) < FLAT


def test_a_planted_search_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(story: Story, size: int) -> None:
        for number in range(1, size + 1):
            sum(other == number for other in story.ledger.jobs)

    def play(size: int) -> Callable[[], object]:
        story = runs_of_a_name(size)
        return lambda: search(story, size)

    assert growth_of(play) > LINEAR
