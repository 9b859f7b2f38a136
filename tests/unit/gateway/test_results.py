"""Results of maps over HTTP: what their stream needs to know of the job."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from hashlib import sha256

import httpx
import pytest

from iris_bus.contract import Streams
from iris_core import subjects
from iris_core.codec import pack
from iris_core.messages.gateway_worker import CallResult, CallResults
from iris_core.states import Cause
from iris_core.views.jobs import StoredView
from iris_gateway.api.work import results as result_endpoint
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.streams import results as result_streams
from iris_gateway.streams.feed import Lagging
from iris_gateway.streams.results import NewResults
from tests.support.fake_state import attempt_of
from tests.support.gateway import House, house, listening
from tests.support.memory import Memory
from tests.support.rounds import rounds_until
from tests.unit.gateway.test_growth import DATA, DIGEST

CALLS = {"runner": DIGEST, "function": DIGEST, "segments": [DIGEST], "firsts": [0], "count": 1}
MAP = {"name": "/m", "command": ["true"], "calls": CALLS}
TOKENS = "\n".join(f"{user} user {sha256(user.encode()).hexdigest()}" for user in ("ann", "bob"))
ANN, BOB = ({"Authorization": f"Bearer {user}"} for user in ("ann", "bob"))


async def mapped(http: httpx.AsyncClient, name: str = "/m", calls: int = 1) -> str:
    """Submit a map as ann; the address of its results."""
    await http.put(f"/v1/bundles/{DIGEST}", content=DATA, headers=ANN)
    job = {**MAP, "name": name, "calls": {**CALLS, "count": calls}}
    made = await http.post("/v1/jobs", json=job, headers=ANN)
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
        asked = [
            query.what for query in iris.state.queries if query.what != "quota"
        ]  # of an upload
        assert asked == ["job"]  # at its end


async def test_results_that_are_cut_off_are_one_line_of_the_log(caplog):
    caplog.set_level(logging.INFO)
    gateway = house(parse_tokens(TOKENS), query_timeout_s=0.1)
    async with gateway as iris, listening(iris) as http:
        results = await mapped(http)
        job = int(results.split("/")[-2][1:])
        async with http.stream("GET", results, headers=ANN) as response:
            lines = response.aiter_lines()
            await anext(lines)
            await iris.state.stop()  # whose attempts these are cannot be asked
            found = CallResults(job, (CallResult(0, 0, "value", b"1", Cause.EXITED),))
            state = iris.memory.connect("w0").streams
            await state.publish(subjects.results("w0", job), pack(found))
            with pytest.raises(httpx.RemoteProtocolError):
                assert [line async for line in lines]
    assert f"GET {results} of ann" in caplog.text
    assert "cut off: unavailable the state service cannot be reached" in caplog.text
    assert "ASGI" not in caplog.text


async def test_results_of_a_map_submitted_just_now_are_for_its_owner():
    async with house(parse_tokens(TOKENS)) as iris:
        results = await mapped(iris.http)
        assert [(await iris.http.get(results, headers=BOB)).status_code for _ in range(2)] == [
            403,
            403,
        ]


async def test_results_of_a_map_deleted_since_its_submission_are_not_found():
    async with house(parse_tokens(TOKENS)) as iris:
        await iris.gateway.ends.wake()
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


async def test_results_that_are_not_kept_any_more_are_gone():
    """They were answered with the end, as of a map that returned nothing."""
    async with house(parse_tokens(TOKENS)) as iris:
        results = await mapped(iris.http)
        await iris.state.tell_job("/m", "succeeded")
        now_s = iris.gateway.clock()
        iris.gateway.clock = lambda: now_s + 60.0
        gone = await iris.http.get(results, headers=ANN)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")
        assert "are not kept any more" in gone.json()["detail"]


async def test_results_deleted_to_make_room_are_gone_with_that_reason():
    async with house(parse_tokens(TOKENS)) as iris:
        results = await ended_map(iris, calls=1, evicted=100)
        gone = await iris.http.get(results, headers=ANN)
        assert gone.status_code == 410
        assert "to make room, ann held most; iris rerun j1" in gone.json()["detail"]


async def test_of_results_that_are_partly_deleted_the_missing_ones_are_named():
    async with house(parse_tokens(TOKENS)) as iris:
        results = await ended_map(iris, calls=5, evicted=100)
        await store(iris.state.streams, 1, index=2)
        await store(iris.state.streams, 1, index=4)
        end = (await iris.http.get(results, headers=ANN)).text.rpartition("data: ")[2]
        assert json.loads(end) == {
            "state": "succeeded",
            "missing": "0,1,3",
            "why": "they were deleted to make room, ann held most",
        }


async def test_where_all_results_are_there_none_is_missing():
    async with house(parse_tokens(TOKENS)) as iris:
        results = await ended_map(iris, calls=1)
        await store(iris.state.streams, 1)
        end = (await iris.http.get(results, headers=ANN)).text.rpartition("data: ")[2]
        assert json.loads(end) == {"state": "succeeded", "missing": "", "why": ""}


async def ended_map(iris: House, calls: int, evicted: int = 0) -> str:
    """A map that has ended a while ago; the address of its results."""
    results = await mapped(iris.http, calls=calls)
    await iris.state.tell_job("/m", "succeeded")
    job = iris.state.jobs["/m"]
    job.task_counts = {"succeeded": calls}
    job.evicted = StoredView(result_bytes=evicted)
    now_s = iris.gateway.clock()
    iris.gateway.clock = lambda: now_s + 60.0
    return results


async def test_a_job_that_is_no_map_has_no_results_that_could_be_gone():
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        job = {"name": "/m", "command": ["true"]}
        made = await http.post("/v1/jobs", json=job, headers=ANN)
        await iris.state.tell_job("/m", "succeeded")
        results = await http.get(f"{made.headers['location']}/results", headers=ANN)
        assert results.status_code == 200
        assert "event: end" in results.text


async def store(
    streams: Streams, job: int, data: bytes = b"", worker: str = "w0", index: int = 0
) -> int:
    """Store a result of a map, as a worker does; its sequence."""
    result = CallResult(index, 0, "value", data, Cause.EXITED, 0)
    return await streams.publish(subjects.results(worker, job), pack(CallResults(job, (result,))))


def readers(memory: Memory) -> int:
    """How many readers of results are open."""
    return len(memory.streams[subjects.RESULTS.name].readers)


async def ids_of(response: httpx.Response) -> AsyncIterator[int]:
    """The sequences of the events of a stream, behind its greeting."""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            yield int(line.removeprefix("id: "))


async def test_maps_submitted_one_after_another_share_a_reader_of_results():
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        await until_end(iris, http, await mapped(http))
        results = await mapped(http, "/n")
        async with http.stream("GET", results, headers=ANN) as response:
            lines = response.aiter_lines()
            await anext(lines)
            stored = [await store(iris.state.streams, 2), await store(iris.state.streams, 2)]
            while await anext(lines) != f"id: {stored[-1]}":
                pass
            await rounds_until(
                lambda: readers(iris.memory) == 1
            )  # that of the map before is closed meanwhile
            await iris.state.tell_job("/n", "succeeded")
            assert [line async for line in lines if line.startswith("event: ")][-1] == "event: end"


async def test_results_from_before_their_follower_and_behind_a_break_are_read():
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        await until_end(iris, http, await mapped(http))
        results = await mapped(http, "/n")
        first, second = [await store(iris.state.streams, 2) for _ in range(2)]
        for after, wanted in ((0, first), (first, second)):
            async with http.stream(
                "GET", results, headers={**ANN, "Last-Event-ID": str(after)}
            ) as response:
                assert await anext(ids_of(response)) == wanted


async def test_a_follower_that_takes_no_results_is_cut_off_and_continues(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(result_streams, "INBOX_BYTES", 100)
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        await until_end(iris, http, await mapped(http))
        results = await mapped(http, "/n")
        async with http.stream("GET", results, headers=ANN) as response:
            lines = response.aiter_lines()
            await anext(lines)
            stored = await store(iris.state.streams, 2, b"x" * 200)
            assert [line async for line in lines if line.startswith("event: ")] == []
        async with http.stream("GET", results, headers=ANN) as response:
            assert await anext(ids_of(response)) == stored


async def test_results_of_a_worker_that_ran_no_call_are_refused(caplog: pytest.LogCaptureFixture):
    """Whoever has the key of a worker could otherwise have any client unpickle anything."""
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        results = await mapped(http)
        forged, own = (
            await store(iris.state.streams, 1, worker="w1"),
            await store(iris.state.streams, 1),
        )
        more = [await store(iris.state.streams, 1, worker=worker) for worker in ("w1", "w0")]
        await iris.state.tell_job("/m", "succeeded")
        async with http.stream("GET", results, headers=ANN) as response:
            assert [number async for number in ids_of(response)] == [own, more[1]]
        assert [query.what for query in iris.state.queries].count("attempts") == 3  # of w0 once
        assert "results of j1 refused: none of its calls ran on w1" in caplog.text
        assert forged < own


async def test_a_result_waits_until_its_attempt_is_known(monkeypatch: pytest.MonkeyPatch):
    """A follower of the state service may be behind; and nothing is passed on of an attempt that
    there never was.
    """
    monkeypatch.setattr(result_endpoint, "_LOOK_AGAIN_S", 0.001)
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        results = await mapped(http)
        iris.state.pages["attempts"] = {"items": []}
        stored = await store(iris.state.streams, 1)
        async with http.stream("GET", results, headers=ANN) as response:
            ids = ids_of(response)
            waiting = asyncio.ensure_future(anext(ids))
            await rounds_until(
                lambda: [query.what for query in iris.state.queries].count("attempts") > 2
            )
            del iris.state.pages["attempts"]
            assert await waiting == stored
        iris.state.pages["attempts"] = {"items": []}
        await iris.state.tell_job("/m", "succeeded")
        async with http.stream("GET", results, headers=ANN) as response:
            assert [number async for number in ids_of(response)] == []


async def reading(memory: Memory, rest_s: float = 10.0) -> NewResults:
    """New results, which are being read."""
    new = NewResults(memory.connect().streams, rest_s)
    new.wake()
    await rounds_until(lambda: new.position is not None)
    return new


async def test_a_map_whose_results_may_have_passed_has_no_inbox(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(result_streams, "_UNCLAIMED", 1)
    memory = Memory()
    streams = memory.connect().streams
    await store(streams, 1)
    new = await reading(memory)
    since = [new.position]
    for job in (2, 3):
        since.append(await store(streams, job))
        await rounds_until(lambda: new.position == since[-1])

    def has_inbox(job: int, since: int) -> bool:
        with new.following(job, since) as inbox:
            return inbox is not None

    assert since == [1, 2, 3]
    assert not any(has_inbox(job, at) for job, at in ((4, 0), (4, 1), (3, 3)))
    assert has_inbox(4, 2)
    assert has_inbox(4, 3)
    new.close()


async def test_new_results_are_read_until_they_have_no_follower():
    memory = Memory()
    new = await reading(memory, rest_s=0.0)
    with new.following(1, 0) as inbox:
        for _ in range(10):
            await asyncio.sleep(0)
        assert (inbox is not None, readers(memory)) == (True, 1)
    await rounds_until(lambda: new.position is None)
    new.wake()
    await rounds_until(lambda: new.position is not None)
    new.close()


async def test_followers_are_cut_off_where_reading_ends():
    new = await reading(Memory())
    with new.following(1, 0) as inbox:
        assert inbox is not None
        new.close()
        with pytest.raises(Lagging):
            await inbox.batch(wait=5.0)


async def test_results_of_a_large_message_come_in_pieces():
    async with house(parse_tokens(TOKENS)) as iris, listening(iris) as http:
        results = await mapped(http)
        iris.state.pages["attempts"] = {"items": [attempt_of(0)]}
        stored = tuple(CallResult(n, 0, "value", b"x", Cause.EXITED, 0) for n in range(1200))
        data = pack(CallResults(1, stored))
        sequence = await iris.state.streams.publish(subjects.results("w0", 1), data)
        await iris.state.tell_job("/m", "succeeded")
        text = (await http.get(results, headers=ANN)).text
    events = [one.split("\n") for one in text.split("\n\n") if "event: results" in one]
    shown = [json.loads(lines[-1].removeprefix("data: "))["results"] for lines in events]
    assert [len(one) for one in shown] == [500, 500, 200]
    assert [row["index"] for one in shown for row in one] == list(range(1200))
    assert [lines[0] for lines in events] == [*["event: results"] * 2, f"id: {sequence}"]


async def test_an_inbox_gives_as_much_as_is_asked_for():
    memory = Memory()
    streams = memory.connect().streams
    new = NewResults(streams)
    new.wake()
    await rounds_until(lambda: new.position is not None)
    with new.following(1, 0) as inbox:
        assert inbox is not None
        for _ in range(3):
            await store(streams, 1)
        await rounds_until(lambda: new.position == 3)
        taken = [[message.sequence for message in inbox.take(2)] for _ in range(3)]
    new.close()
    assert taken == [[1, 2], [3], []]
