"""What an event costs a gateway depends on who watches its job, not on how many watch others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from iris_gateway.streams.event import Filter
from iris_gateway.streams.feed import Feed
from tests.support.gateway import house
from tests.support.work import calls_of, exponent

FLAT, LINEAR = 0.1, 1.1
EVENTS = 5


async def read_all(watcher: AsyncIterator[object]) -> None:
    async for _ in watcher:
        pass


def filtered_for(watchers: int, *, one_job: bool) -> int:
    """How often events are filtered when some come of the first job, and so many watch: all of them
    that one, or each a job of its own.
    """

    async def watch(events: int) -> None:
        async with house() as iris:
            feed = Feed(iris.gateway.feed.streams, tick_s=60.0)
            wanted = [Filter(within=f"/job-{0 if one_job else n}") for n in range(watchers)]
            seen = [feed.watch(one, 0) for one in wanted]
            for watcher in seen:
                await anext(watcher)
            woken = seen if one_job else seen[:1]
            rest = [asyncio.ensure_future(read_all(one)) for one in seen[len(woken) :]]
            for _ in range(events):
                await iris.state.tell_job("/job-0/child", "running")
                found = await asyncio.gather(*(anext(watcher) for watcher in woken))
                assert all(len(one.events) == 1 for one in found)
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await feed.close()

    def count(events: int) -> int:
        return calls_of(lambda: asyncio.run(watch(events)), Filter.of)

    return count(1 + EVENTS) - count(1)


def test_an_event_costs_nothing_to_those_who_watch_other_jobs() -> None:
    few, many = (filtered_for(watchers, one_job=False) for watchers in (10, 100))
    assert few >= EVENTS
    assert exponent(few, many) < FLAT


def test_an_event_costs_those_who_watch_its_job_no_more_than_once_each() -> None:
    few, many = (filtered_for(watchers, one_job=True) for watchers in (10, 100))
    assert exponent(few, many) < LINEAR
