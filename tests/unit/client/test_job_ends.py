"""The waits of an asynchronous client: one stream tells all of them."""

import asyncio
import threading

import pytest

from iris import AsyncClient, Client, NotAllowed
from iris.client.problems import ClientError
from tests.support.answers import Said, answering, events, in_turn, job_view, problem

SSE = {"Content-Type": "text/event-stream"}
ENDED = {"job": "/a", "job_id": "j1", "state": "succeeded", "previous": "running", "cause": None}
END = ("job.state.succeeded", {**ENDED, "at_ms": 1, "seq": 5})


class Gateway:
    """Answers for one job, which has ended once its events were read ``ends_after`` times."""

    def __init__(self, *streams: Said, ends_after: int = 1) -> None:
        self._streams = list(streams)
        self._ends_after = ends_after
        self.read = 0

    def __call__(self, asked):
        if not asked.path.startswith("/v1/events"):
            state = "succeeded" if self.read >= self._ends_after else "running"
            return Said(body=job_view(id="j1", name="/a", state=state))
        self.read += 1
        return self._streams.pop(0) if len(self._streams) > 1 else self._streams[0]


async def waits(url, count):
    async with AsyncClient(url, token="t", retry_for_s=1) as client:
        jobs = [await client.job("/a") for _ in range(count)]
        return await asyncio.gather(*(job.wait() for job in jobs), return_exceptions=True)


async def test_all_waits_share_one_stream_which_ends_with_them():
    ended, left, opened = threading.Event(), threading.Event(), []

    def quiet_until_the_end():
        yield b"retry: 1000\n\n"
        ended.wait(60)
        yield events(END)
        left.wait(60)

    def answer(asked):
        if asked.path.startswith("/v1/events"):
            opened.append(asked)
            return Said(headers=SSE, body=quiet_until_the_end())
        return Said(body=job_view(id="j1", name="/a", state="succeeded" if ended.is_set() else ""))

    with answering(answer) as server:
        async with AsyncClient(server.url, token="t") as client:
            jobs = [await client.job("/a") for _ in range(90)]
            waiting = asyncio.gather(*(job.wait() for job in jobs))
            while len(server.requests) < 2 * len(jobs) + 1:  # each has read its job once more
                await client.job("/a")
            ended.set()
            views = await waiting
            left.set()

    assert [view.state for view in views] == ["succeeded"] * 90
    assert len(opened) == 1


async def test_a_stream_whose_place_is_gone_begins_anew():
    other = ("job.state.succeeded", {**ENDED, "job": "/b", "job_id": "j2", "at_ms": 1, "seq": 4})
    streams = (Said(headers=SSE, body=events(other)), problem(410, "gone", "position 7"))
    gateway = Gateway(*streams, Said(headers=SSE), ends_after=3)
    with answering(gateway) as server:
        (view,) = await waits(server.url, 1)

    assert (view.state, gateway.read) == ("succeeded", 3)


async def test_who_waits_is_told_that_the_client_is_closed():
    ended = threading.Event()

    def quiet():
        yield b"retry: 1000\n\n"
        ended.wait(60)

    def answer(asked):
        if asked.path.startswith("/v1/events"):
            return Said(headers=SSE, body=quiet())
        return Said(body=job_view(id="j1", name="/a", state="running"))

    with answering(answer) as server:
        client = AsyncClient(server.url, token="t")
        waiting = asyncio.ensure_future((await client.job("/a")).wait())
        while len(server.requests) < 3:  # it has read its job once more, and waits
            await client.job("/a")
        client.close()
        with pytest.raises(ClientError, match="the client is closed"):
            await waiting
        ended.set()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (problem(403, "forbidden", "not yours"), NotAllowed),
        (problem(503, "unavailable", "no leader", retryable=True), ClientError),
    ],
)
async def test_what_ends_the_stream_is_raised_by_each_wait(said, kind):
    gateway = Gateway(said, ends_after=10**9)
    with answering(gateway) as server:
        errors = await waits(server.url, 3)

    assert [isinstance(error, kind) for error in errors] == [True] * 3


def test_an_answer_from_before_the_end_of_a_job_replaces_no_later_one():
    """Threads that share a handle read it at the same time."""
    answers = in_turn(
        Said(body=job_view(id="j1", name="/a", state="succeeded")),
        Said(body=job_view(id="j1", name="/a", state="running")),
    )
    with answering(answers) as server, Client(server.url, token="t") as client:
        job = client.job("/a")
        assert job.refresh().state == "succeeded"
        assert job.state == "succeeded"
