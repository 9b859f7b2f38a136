"""How the end of a job is noticed, and what that costs the state service."""

from iris_gateway.streams.completion import Completion
from tests.support.gateway import House
from tests.support.rounds import rounds_until


async def test_only_events_of_a_job_make_its_followers_ask(iris: House):
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        return state

    state, feed = "running", iris.gateway.feed
    async with Completion(feed, "/a", "", ask, state) as ending:
        await rounds_until(lambda: asked)
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
