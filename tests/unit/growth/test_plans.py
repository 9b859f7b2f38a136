"""The work of a plan grows with what has changed, not with what waits."""

from __future__ import annotations

import msgspec

from iris_core.messages.scheduler_state import Avoid, JobRow, Queued
from tests.support.scheduling import Story, worker
from tests.support.work import exponent, work_of

FLAT = 0.1


def full_host() -> Story:
    """One host whose cores are all in use."""
    story = Story(worker("a", cpu=4, window=10_000))
    story.running("/holder", ["a"] * 4)
    story.submit("/pattern")
    return story


def submit(story: Story, count: int, tasks: int = 1, **options: int) -> list[JobRow]:
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
