"""The work of a plan grows with what has changed, not with what waits."""

from __future__ import annotations

from typing import Any

import msgspec

from iris_core.messages.scheduler_state import Avoid, JobRow, Queued
from iris_core.spec.resources import ResourceRequest
from iris_scheduler.explain.reasons import reason_of_class
from iris_scheduler.mirror.capacity import fitting, with_room
from iris_scheduler.place.tasks import TaskPlacer
from tests.support.scheduling import Story, worker
from tests.support.work import calls_of, exponent, work_of

FLAT, LINEAR = 0.1, 1.1


def full_host() -> Story:
    """One host whose cores are all in use."""
    story = Story(worker("a", cpu=4, window=10_000))
    story.running("/holder", ["a"] * 4)
    story.submit("/pattern")
    return story


def submit(story: Story, count: int, tasks: int = 1, **options: Any) -> list[JobRow]:
    """Many jobs in one commit, each of so many tasks."""
    story.submit("/first", tasks, **options)
    first = story.rows["/first"]
    rows = [first]
    for number in range(count - 1):
        job, name = first.job + 1 + number, f"/job-{number}"
        row = msgspec.structs.replace(first, job=job, name=name)
        story.rows[name], story.names[job] = row, name
        rows.append(row)
    queued = tuple(Queued(row.job, ((0, tasks),), story.now_ms) for row in rows[1:])
    story.tell(jobs=tuple(rows[1:]), queued=queued)
    return rows


def plan_after_an_end(story: Story) -> int:
    """The work of the second plan after others have been made, and a task ends whose place the
    first in the queue takes.
    """
    for _ in range(3):
        story.cycle()
    return work_of(story.look)


def after_avoids(jobs: int, tasks: int, *, waited_s: float) -> int:
    story = full_host()
    rows = submit(story, jobs, tasks)
    until_ms = story.now_ms + 5000
    story.tell(avoid=tuple(Avoid(row.job, 0, "a", until_ms) for row in rows))
    story.cycle()
    story.wait(waited_s)
    return plan_after_an_end(story)


def test_avoids_that_have_expired_cost_nothing() -> None:
    few, many = (after_avoids(jobs, 1, waited_s=6) for jobs in (30, 300))
    assert exponent(few, many) < FLAT


def test_the_other_tasks_of_a_job_with_an_avoid_are_placed_together() -> None:
    def placing(tasks: int) -> int:
        story = Story(worker("a", cpu=4000, window=20_000), worker("b", cpu=4000, window=20_000))
        story.submit("/wide", tasks)
        story.avoid("/wide", 0, "a", for_s=5)
        work = work_of(story.look)
        assert len(story.cycle()) == tasks
        return work

    few, many = placing(300), placing(3000)
    assert exponent(few, many) < 0.9


def test_a_start_beyond_a_full_window_costs_the_same_however_many_wait() -> None:
    """Tasks of who fills the window are in the class of the other user's, and before it."""

    def placing(jobs: int) -> int:
        story = Story(worker("a", cpu=4000, window=2), worker("b", cpu=4000, window=2))
        submit(story, jobs, user="eve")
        for _ in range(3):
            story.cycle()
        story.submit("/other", user="ada")
        work = work_of(story.look)
        assert story.cycle() == {"/other/0": "a"}
        return work

    few, many = placing(100), placing(1000)
    assert exponent(few, many) < FLAT


def many_sizes(count: int) -> Story:
    """Jobs that each ask for an amount of memory of their own wait for hosts that are full, and one
    task has just ended.
    """
    story = Story(worker("a", cpu=4), worker("b", cpu=4))
    story.running("/holder", ["a"] * 4 + ["b"] * 4)
    rows = [
        msgspec.structs.replace(
            story.rows["/holder"],
            job=100 + number,
            name=f"/job-{number}",
            replicas=1,
            resources=ResourceRequest(1000, (1 << 30) + (number << 20)),
        )
        for number in range(count)
    ]
    for row in rows:
        story.rows[row.name], story.names[row.job] = row, row.name
    queued = tuple(Queued(row.job, ((0, 1),), story.now_ms) for row in rows)
    story.tell(jobs=tuple(rows), queued=queued)
    for _ in range(3):
        story.cycle()
        story.wait(5)
    story.end("/holder", 0)
    return story


def test_an_end_makes_few_of_many_classes_be_examined() -> None:
    examined = (TaskPlacer.place, reason_of_class, fitting, with_room)
    few, many = (calls_of(many_sizes(count).look, *examined) for count in (100, 1000))
    assert exponent(few, many) < FLAT


def test_the_work_of_a_plan_is_linear_in_waiting_classes() -> None:
    few, many = (work_of(many_sizes(count).look) for count in (100, 1000))
    assert exponent(few, many) < LINEAR
    assert many / 1000 < 30


def test_the_place_that_an_end_frees_goes_to_the_first_of_many_classes() -> None:
    story = many_sizes(200)
    assert story.cycle() == {"/job-0/0": "a"}
    story.end("/holder", 5, 6)
    assert story.cycle() == {"/job-1/0": "b", "/job-2/0": "b"}
