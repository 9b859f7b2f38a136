"""How the end of a job is noticed, and what that costs the state service."""

import asyncio

import pytest

from iris_core.codec import to_json
from iris_gateway.streams.completion import ENDS, Completion, position_of
from iris_gateway.streams.feed import Feed
from tests.support.gateway import House
from tests.support.rounds import rounds_until


async def test_only_events_of_a_job_make_its_followers_ask(iris: House):
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        return state

    state, feed = "running", iris.gateway.feed
    async with Completion(feed, 1, "/a", "", ask) as ending:
        assert asked == 1
        for number in range(5):
            await iris.state.tell_job(f"/other-{number}", "succeeded")
            await iris.state.tell_task("/a/0", "running")
            told = 2 * number + 2
            await rounds_until(lambda told=told: feed.newest == told)  # type: ignore[misc]
        assert asked == 1
        state = "succeeded"
        await iris.state.tell_job("/a", "succeeded")
        await ending.arrival.wait()
    assert (asked, ending.state) == (2, "succeeded")


async def test_an_end_between_the_look_and_the_watch_is_noticed(iris: House):
    async def ask() -> str:
        return "succeeded"

    feed = iris.gateway.feed
    since = await position_of(feed)
    await iris.state.tell_job("/a", "succeeded")
    await rounds_until(lambda: feed.newest > since)
    async with Completion(feed, 1, "/a", "", ask, ("running", since)) as ending:
        await ending.arrival.wait()
    assert ending.state == "succeeded"


async def test_tasks_that_end_badly_are_told_of_one_job(iris: House):
    async def ask() -> str:
        return "running"

    feed = iris.gateway.feed
    async with Completion(feed, 1, "/a", "", ask, calls=True) as ending:
        for task, state in (
            ("/a/0", "succeeded"),
            ("/b/1", "killed"),
            ("/a/2", "pending"),
            ("/a/3", "killed"),
        ):
            await iris.state.tell_task(task, state)
        await ending.arrival.wait()
    assert ending.take_bad_ends() == [(3, 0)]


async def test_events_of_another_job_of_the_same_name_are_not_its_own(iris: House):
    """With `if_exists=replace` the next job has the name of one whose results are still read."""
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        return "running" if asked < 2 else "killed"

    feed = iris.gateway.feed
    async with Completion(feed, 1, "/a", "", ask, calls=True) as ending:
        for subject in ("task.state.failed", "job.state.failed"):
            about = {
                "job": "/a",
                "job_id": "j2",
                "task": "/a/7" if subject.startswith("task") else None,
            }
            await iris.state.streams.publish(subject, to_json(about))
        await iris.state.streams.publish(
            "task.state.killed", to_json({"job": "/a", "job_id": "j1", "task": "/a/3"})
        )
        await ending.arrival.wait()
        assert (asked, ending.take_bad_ends()) == (1, [(3, -1)])
        ending.arrival.clear()
        await iris.state.streams.publish("job.state.killed", to_json({"job": "/a", "job_id": "j1"}))
        await ending.arrival.wait()
    assert (asked, ending.state) == (2, "killed")


async def test_an_end_is_noticed_after_the_events_could_not_be_read(
    iris: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("iris_gateway.streams.completion._RETRY_S", 0.0)

    async def ask() -> str:
        return "succeeded"

    feed = Feed(iris.gateway.feed.streams)
    iris.memory.away = True
    async with Completion(feed, 1, "/a", "", ask, ("running", 0)) as ending:
        for _ in range(10):
            await asyncio.sleep(0)
        assert not ending.known
        iris.memory.away = False
        await ending.arrival.wait()
    await feed.close()
    assert ending.state == "succeeded"


async def test_followers_of_a_job_read_ends_only(iris: House):
    """A call that returns has four events and more, of which a map's follower wants none."""

    async def ask() -> str:
        return "succeeded"

    ends = iris.gateway.ends
    async with Completion(ends, 1, "/a", "", ask, ("running", ends.newest), calls=True) as ending:
        for state in ("pending", "assigned", "running", "succeeded", "killed"):
            await iris.state.tell_task("/a/0", state)
        await ending.arrival.wait()
        assert (ends.newest, ending.take_bad_ends()) == (5, [(0, 0)])
        await iris.state.tell_job("/a", "running")
        await iris.state.tell_job("/a", "succeeded")
        await rounds_until(lambda: ending.known)
    assert (ends.newest, ending.state) == (7, "succeeded")
    assert [event.sequence for event in ends._since(0)] == [5, 7]


async def test_an_end_before_a_feed_of_ends_reads_is_asked_for(iris: House):
    """Others that came before may be none of its subjects: it cannot tell how far it would have to
    read.
    """

    async def ask() -> str:
        return "succeeded"

    await iris.state.tell_job("/a", "succeeded")
    await iris.state.tell_task("/b/0", "running")
    ends = Feed(iris.gateway.feed.streams, None, *ENDS)
    async with Completion(ends, 1, "/a", "", ask, ("running", 0)) as ending:
        await ending.arrival.wait()
    await ends.close()
    assert ending.state == "succeeded"
