"""What a change of the records costs, as what is kept beside it grows: one row for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import astuple

from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.messages.state_worker import Ended
from iris_core.spec.jobs import JobSpec
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
from iris_state.records.weight import memory_of
from iris_state.snapshots import snapshot
from tests.support.work import exponent, work_of
from tests.unit.state.test_snapshot import HOST, Story, done, job, restored

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


def a_restore(size: int) -> Callable[[], object]:
    data = snapshot.cut(kept_beside_each_other(size).ledger, 1, 1_000)
    return lambda: restored(data)


def a_snapshot(size: int) -> Callable[[], object]:
    story = kept_beside_each_other(size)
    return lambda: snapshot.cut(story.ledger, 1, 1_000)


def the_deletion_of_all_that_is_too_much(size: int) -> Callable[[], object]:
    story = kept_beside_each_other(size)

    def delete() -> None:
        for change in story.retention.forgettable(size // 2, 0, story.at_ms):
            story.tell(change)
        assert len(story.ledger.jobs) == size + 1 - size // 2

    return delete


def kept_beside_each_other(size: int) -> Story:
    """Finished jobs of one name and of others, below one job and none."""
    story = with_host()
    story.tell(job(1, "/parent"))
    for number in range(2, size + 2):
        names = ("/nightly", 0), (f"/job-{number}", 0), (f"/parent/child-{number}", 1)
        finish(story, number, *names[number % 3])
    return story


LINEAR_ROWS: tuple[Play, ...] = (a_restore, a_snapshot, the_deletion_of_all_that_is_too_much)


@pytest.mark.parametrize("play", LINEAR_ROWS, ids=lambda play: play.__name__)
def test_it_costs_what_there_is(play: Play) -> None:
    assert growth_of(play) < LINEAR


def test_empty_fields_of_a_specification_are_not_measured_one_by_one() -> None:
    spec = JobSpec(name="/a", command=("true",), env={"a": "bc"})
    given = [value for value in astuple(spec) if value]
    assert len(given) < len(spec.__struct_fields__) / 2
    memory_of(spec)  # the first time, each type is looked at
    assert work_of(lambda: memory_of(spec)) < 20 * len(given)


def test_a_planted_search_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(story: Story, size: int) -> None:
        for number in range(1, size + 1):
            sum(other == number for other in story.ledger.jobs)

    def play(size: int) -> Callable[[], object]:
        story = runs_of_a_name(size)
        return lambda: search(story, size)

    assert growth_of(play) > LINEAR
