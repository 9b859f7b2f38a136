"""A job that is changed while it waits or runs: the mirror moves it, and the next cycle plans with
what it is now.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iris_core.messages.scheduler_state import Queued
from iris_core.states import PriorityBand
from tests.support.scheduling import Story, worker


def change(story: Story, name: str, waiting: int, **fields: Any) -> None:
    """A commit with an amendment of a job of which the first ``waiting`` tasks wait, or the
    others.
    """
    row = story.rows[name] = msgspec.structs.replace(story.rows[name], **fields)
    ranges = story.mirror.queue.ranges(row.job)
    assert sum(stop - start for start, stop in ranges) == waiting
    queued = (Queued(row.job, ranges, row.submitted_ms),) if ranges else ()
    story.tell(
        jobs=(row,),
        unqueued=(Queued(row.job, ((0, row.replicas),), row.submitted_ms),),
        queued=queued,
    )


def test_a_raised_band_goes_first_and_preempts() -> None:
    story = Story(worker("w", cpu=1))
    story.running("/busy", "w")
    story.submit("/a")
    assert story.evict()[0] == []
    change(story, "/a", 1, band=PriorityBand.PRODUCTION)
    assert story.evict()[0] == ["/busy/0"]


def test_a_task_whose_band_is_lowered_becomes_a_victim() -> None:
    story = Story(worker("w", cpu=1))
    story.running("/busy", "w", band="production")
    story.submit("/a", band="production")
    assert story.evict()[0] == []
    change(story, "/busy", 0, band=PriorityBand.BATCH)
    assert story.mirror.held == {
        PriorityBand.PRODUCTION: 0,
        PriorityBand.INTERACTIVE: 0,
        PriorityBand.BATCH: 1,
    }
    assert story.evict()[0] == ["/busy/0"]


def test_a_lower_limit_starts_nothing_until_enough_has_ended() -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/a", 5, max_parallel=3)
    story.cycle()
    change(story, "/a", 2, max_parallel=1)
    story.end("/a", 0)
    story.end("/a", 1)
    assert story.cycle() == {}
    story.end("/a", 2)
    assert list(story.cycle()) == ["/a/3"]


def test_a_raised_limit_starts_what_waited_for_it_at_once() -> None:
    story = Story(worker("w", cpu=8))
    story.submit("/a", 3, max_parallel=1)
    story.cycle()
    change(story, "/a", 2, max_parallel=None)
    assert list(story.cycle()) == ["/a/1", "/a/2"]
