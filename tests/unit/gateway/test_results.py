"""Results of maps over HTTP: what their stream needs to know of the job."""

from hashlib import sha256

import httpx

from iris_gateway.auth.bearer import parse_tokens
from tests.support.gateway import House, house, listening
from tests.unit.gateway.test_growth import DATA, DIGEST

CALLS = {"runner": DIGEST, "function": DIGEST, "segments": [DIGEST], "firsts": [0], "count": 1}
MAP = {"name": "/m", "command": ["true"], "calls": CALLS}
TOKENS = "\n".join(f"{user} user {sha256(user.encode()).hexdigest()}" for user in ("ann", "bob"))
ANN, BOB = ({"Authorization": f"Bearer {user}"} for user in ("ann", "bob"))


async def mapped(http: httpx.AsyncClient) -> str:
    """Submit a map as ann; the address of its results."""
    await http.put(f"/v1/bundles/{DIGEST}", content=DATA, headers=ANN)
    made = await http.post("/v1/jobs", json=MAP, headers=ANN)
    return f"{made.headers['location']}/results"


async def until_end(iris: House, http: httpx.AsyncClient, results: str) -> str:
    """The last event of the results of a map that ends once they are read."""
    async with http.stream("GET", results, headers=ANN) as response:
        lines = response.aiter_lines()
        await anext(lines)
        await iris.state.tell_job("/m", "succeeded")
        return [line async for line in lines if line.startswith("event: ")][-1]


async def test_results_of_a_map_submitted_just_now_are_followed_without_a_read():
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        assert await until_end(iris, http, await mapped(http)) == "event: end"
        assert [query.what for query in iris.state.queries] == ["job"]  # at its end


async def test_results_of_a_map_submitted_just_now_are_for_its_owner():
    async with house(parse_tokens(TOKENS)) as iris:
        results = await mapped(iris.http)
        assert [(await iris.http.get(results, headers=BOB)).status_code for _ in range(2)] == [403, 403]


async def test_results_of_a_map_deleted_since_its_submission_are_not_found():
    async with house(parse_tokens(TOKENS)) as iris:
        await iris.gateway.feed.wake()
        results = await mapped(iris.http)
        iris.state.jobs.clear()
        now_s = iris.gateway.clock()
        iris.gateway.clock = lambda: now_s + 60.0
        assert (await iris.http.get(results, headers=ANN)).status_code == 404


async def test_a_position_beyond_the_stream_of_results_is_refused():
    """It was answered with the end, as if every result had been read."""
    async with house(parse_tokens(TOKENS)) as iris:
        results = await mapped(iris.http)
        await iris.state.tell_job("/m", "succeeded")
        ahead = await iris.http.get(results, headers={**ANN, "Last-Event-ID": "7"})
        assert (ahead.status_code, ahead.json()["code"]) == (410, "gone")
        assert "position 7 is not in the stream" in ahead.json()["detail"]
