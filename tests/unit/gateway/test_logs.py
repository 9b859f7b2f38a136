"""Task output over HTTP: plain text, JSON lines, and following until the end."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Sequence
from typing import Any

import httpx
import pytest

from iris_bus.contract import Message
from iris_core import subjects
from iris_gateway.streams.logs import LogReader
from tests.support.fake_state import attempt_of
from tests.support.gateway import House, house, listening
from tests.support.memory import Memory
from tests.support.memory_store import MemoryReader, MemoryStreams
from tests.support.pages import fill


async def text(iris: House, path: str, **headers: str) -> str:
    response = await iris.http.get(path, headers=headers)
    assert response.status_code == 200, response.text
    return response.text


@pytest.fixture
async def printed(iris: House) -> House:
    """Two tasks that have printed, the first in two attempts."""
    await iris.submit("/a", replicas=2)
    iris.state.tasks["/a/0"].attempts = [attempt_of(0, "failed"), attempt_of(1)]
    await iris.state.print(1, 0, "first\n", final=True)
    await iris.state.print(1, 1, "other\n", at_ms=5000)
    await iris.state.print(1, 0, "one\ntw", attempt=1)
    await iris.state.print(1, 0, "oops\n", attempt=1, stream="stderr")
    await iris.state.print(1, 0, "o\nend", attempt=1, offset=6, final=True)
    return iris


async def test_a_tasks_output_is_that_of_its_last_attempt_in_whole_lines(printed: House):
    assert await text(printed, "/v1/tasks/%2Fa%2F0/logs") == "one\noops\ntwo\nend\n"


async def test_one_attempt_all_attempts_and_one_stream_can_be_asked_for(printed: House):
    assert await text(printed, "/v1/tasks/j1%2F0/logs?attempt=0") == "first\n"
    assert (
        await text(printed, "/v1/tasks/j1%2F0/logs?attempt=all&stream=stdout")
        == "first\none\ntwo\nend\n"
    )


@pytest.mark.parametrize("at_ms", [2**62, -1])
async def test_output_of_no_time_that_there_is_is_left_out(printed: House, at_ms: int):
    """A worker may label what it likes as a task's output; its page and its lines could not be read
    any more.
    """
    await printed.state.print(1, 0, "labelled\n", attempt=1, at_ms=at_ms, offset=9)
    lines = await text(printed, "/v1/tasks/j1%2F0/logs?format=jsonl")
    assert [json.loads(line)["line"] for line in lines.splitlines()] == [
        "one",
        "oops",
        "two",
        "end",
    ]


async def test_the_last_lines_only(printed: House):
    assert await text(printed, "/v1/tasks/j1%2F0/logs?tail=2") == "two\nend\n"
    assert await text(printed, "/v1/tasks/j1%2F0/logs?tail=0") == ""


async def test_the_last_lines_of_long_output_are_whole_wherever_reading_begins(iris: House):
    await iris.submit("/a")
    offset = 0
    for number in range(1100):  # more messages than the first part of the stream's end that is read
        text_of = f"{number} begins\n{number} ends here, and "  # goes on in the next message
        await iris.state.print(1, 0, text_of, offset=offset)
        offset += len(text_of)
    everything = (await text(iris, "/v1/jobs/j1/logs")).splitlines()
    for count in (1, 2, 998, 999, 1000, 1001, 1100, 1101, 5000):
        last = (await text(iris, f"/v1/jobs/j1/logs?tail={count}")).splitlines()
        assert last == everything[-count - 1 :]  # and the line that has no end yet


async def test_nothing_printed_before_a_time(printed: House):
    assert await text(printed, "/v1/jobs/j1/logs?since=1970-01-01T00:00:05Z") == "1| other\n"


async def test_a_jobs_output_says_which_task_and_attempt_each_line_is_of(printed: House):
    assert await text(printed, "/v1/jobs/%2Fa/logs") == (
        "0| first\n1| other\n0#1| one\n0#1| oops\n0#1| two\n0#1| end\n"
    )


async def test_json_lines_name_each_line_for_ever(printed: House):
    body = await text(printed, "/v1/jobs/j1/logs", accept="application/x-ndjson")
    lines = [json.loads(line) for line in body.splitlines()]
    assert lines[4] == {
        "task": "/a/0",
        "index": 0,
        "attempt": 1,
        "stream": "stdout",
        "at": "1970-01-01T00:00:01Z",
        "offset": 4,
        "line": "two",
    }


async def test_what_was_dropped_is_said(iris: House):
    await iris.submit("/a")
    sent = {"dropped": 12345, "dropped_lines": 87, "limit": "log_attempt_bytes = 100"}
    await iris.state.print(1, 0, "kept\n", **sent)
    notice = "[iris: 12,345 bytes (87 lines) of output dropped here: limit log_attempt_bytes = 100]"
    assert await text(iris, "/v1/tasks/%2Fa%2F0/logs") == f"{notice}\nkept\n"
    [line] = (await iris.http.get("/v1/jobs/j1/logs?format=jsonl")).text.splitlines()
    assert (json.loads(line)["dropped"], json.loads(line)["notice"]) == (12345, notice)


async def test_a_task_is_not_shown_the_output_of_another_on_the_same_subject(iris: House):
    assert subjects.log(1, 1) == subjects.log(1, 0)
    await iris.submit("/a")
    await iris.state.print(1, 1, "theirs\n")
    await iris.state.print(1, 0, "ours\n")
    await iris.state.print(2, 0, "of another job\n")
    assert await text(iris, "/v1/jobs/j1/logs") == "1| theirs\n0| ours\n"
    assert await text(iris, "/v1/tasks/j1%2F0/logs?attempt=all") == "ours\n"


async def test_output_that_is_not_utf8_is_passed_on_as_text_and_worded_as_json(iris: House):
    await iris.submit("/a")
    await iris.state.print(1, 0, "", data=b"\xff\xfe\n")
    assert (await iris.http.get("/v1/tasks/j1%2F0/logs")).content == b"\xff\xfe\n"
    line = (await iris.http.get("/v1/tasks/j1%2F0/logs?format=jsonl")).json()
    assert (line["line"], line["data"]) == ("\ufffd\ufffd", b64encode(b"\xff\xfe").decode())


async def test_a_task_that_printed_nothing_has_no_output(iris: House):
    await iris.submit("/a")
    assert await text(iris, "/v1/tasks/%2Fa%2F0/logs") == ""


async def test_unknown_tasks_and_invalid_options_are_refused(printed: House):
    paths = [
        "/v1/tasks/%2Fa%2F9/logs",
        "/v1/tasks/j1%2F0/logs?attempt=-1",
        "/v1/jobs/j1/logs?attempt=last",
    ]
    paths += ["/v1/tasks/j1%2F0/logs?attempt=0.5", "/v1/tasks/j1%2F0/logs?attempt=allx"]
    paths += [
        "/v1/jobs/j1/logs?tail=x",
        "/v1/jobs/j1/logs?since=yesterday",
        "/v1/jobs/j1/logs?stream=stdin",
    ]
    assert [(await printed.http.get(path)).status_code for path in paths] == [404] + [422] * 7


async def test_an_attempt_that_never_was_is_not_an_empty_one(printed: House):
    response = await printed.http.get("/v1/tasks/j1%2F0/logs?attempt=7")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert response.json()["detail"] == "/a/0 has no attempt 7; its last one is 1"
    assert (
        (await printed.http.get("/v1/tasks/j1%2F1/logs?attempt=0"))
        .json()["detail"]
        .endswith("it has none yet")
    )


async def test_following_a_task_ends_with_its_last_line():
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        iris.state.tasks["/a/0"].attempts = [attempt_of(0)]
        await iris.state.print(1, 0, "before\n")
        async with http.stream("GET", "/v1/tasks/%2Fa%2F0/logs?follow=true") as response:
            pieces = response.aiter_text()
            seen = [await anext(pieces)]
            await iris.state.print(1, 0, "after\n", offset=7)
            seen.append(await anext(pieces))
            await iris.state.tell_task("/a/0", "succeeded")
            await iris.state.print(1, 0, "late", offset=13, final=True)
            seen += [piece async for piece in pieces]
    assert "".join(seen) == "before\nafter\nlate\n"


async def test_following_goes_on_through_a_retry():
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        iris.state.tasks["/a/0"].attempts = [attempt_of(0)]
        await iris.state.print(1, 0, "one\n", final=True)
        async with http.stream("GET", "/v1/tasks/%2Fa%2F0/logs?follow=true") as response:
            pieces = response.aiter_text()
            seen = [await anext(pieces)]
            await iris.state.tell_task("/a/0", "pending")
            await iris.state.print(1, 0, "two\n", attempt=1, final=True)
            seen.append(await anext(pieces))
            await iris.state.tell_task("/a/0", "succeeded", attempt=1)
            seen += [piece async for piece in pieces]
    assert "".join(seen) == "one\ntwo\n"


async def test_a_followed_job_ends_with_an_event_that_says_how():
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a", replicas=2)
        headers = {"accept": "text/event-stream"}
        async with http.stream(
            "GET", "/v1/jobs/%2Fa/logs?follow=true", headers=headers
        ) as response:
            await iris.state.print(1, 1, "x\n", final=True)
            await iris.state.tell_job("/a", "failed")
            async with asyncio.timeout(60):
                body = (await response.aread()).decode()
    events = [event for event in body.split("\n\n") if event and not event.startswith(":")]
    assert [event.partition("data: ")[0] for event in events] == [
        "id: 1\nevent: log\n",
        "id: 1\nevent: end\n",
    ]
    assert events[-1].endswith('{"state":"failed"}')


async def test_a_follower_reads_on_while_lines_arrive_after_the_end(
    monkeypatch: pytest.MonkeyPatch,
):
    """Each silence is shorter than the limit, all of them together are not."""
    monkeypatch.setattr("iris_gateway.streams.logs._SILENT_S", 1.0)
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        await iris.state.print(1, 0, "0\n")
        await iris.state.tell_job("/a", "failed")
        clock, began, count = asyncio.get_running_loop().time, asyncio.get_running_loop().time(), 0
        async with http.stream("GET", "/v1/jobs/%2Fa/logs?follow=true") as response:
            pieces = response.aiter_text()
            seen = [await anext(pieces)]
            while clock() < began + 1.2:
                count += 1
                await iris.state.print(
                    1, 0, f"{count}\n", offset=len("".join(seen)) - 3 * count, final=False
                )
                seen.append(await anext(pieces))
            offset = len("".join(seen)) - 3 * (count + 1)
            await iris.state.print(1, 0, "last\n", offset=offset, final=True)
            seen += [piece async for piece in pieces]
    assert "".join(seen) == "".join(f"0| {number}\n" for number in [*range(count + 1), "last"])


async def test_the_end_says_how_many_outputs_may_still_get_lines():
    async with house() as iris:
        await iris.submit("/a", replicas=2)
        await iris.state.print(1, 0, "one\n")
        await iris.state.print(1, 1, "two\n", final=True)
        headers = {"accept": "text/event-stream"}
        body = (await iris.http.get("/v1/jobs/%2Fa/logs", headers=headers)).text
    assert body.split("\n\n")[-2] == 'id: 2\nevent: end\ndata: {"state":"pending","unfinished":1}'


async def test_a_gateway_that_ends_does_not_say_that_the_job_has():
    """Its reader comes back with the place it has come to; told of an end it would not."""
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        headers = {"accept": "text/event-stream"}
        async with http.stream(
            "GET", "/v1/jobs/%2Fa/logs?follow=true", headers=headers
        ) as response:
            pieces = response.aiter_text()
            await iris.state.print(1, 0, "one\ntw")
            seen = [await anext(pieces)]
            iris.gateway.closing = True
            await iris.gateway.ends.close()
            async with asyncio.timeout(60):
                seen += [piece async for piece in pieces]
    assert "event: end" not in "".join(seen)
    assert '"line":"tw"' not in "".join(seen)


async def test_a_stream_of_lines_is_taken_up_where_its_reader_says(printed: House):
    headers = {"accept": "text/event-stream", "last-event-id": "3"}
    body = (await printed.http.get("/v1/tasks/j1%2F0/logs?attempt=1", headers=headers)).text
    lines = [
        json.loads(line[6:])["line"]
        for line in body.splitlines()
        if line.startswith('data: {"task"')
    ]
    assert lines == ["oops", "o", "end"]


async def test_a_position_beyond_the_stream_of_output_is_refused(printed: House):
    headers = {"accept": "text/event-stream", "last-event-id": "900"}
    answer = await printed.http.get("/v1/tasks/j1%2F0/logs", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (410, "gone")


class DamagedCopy(MemoryStreams):
    """The streams of a server whose copy has lost a message: nothing is delivered from it on."""

    def __init__(self, memory: Memory, lost: int) -> None:
        super().__init__(memory)
        self.lost = lost

    def read(self, stream: str, after: int, *subjects: str, made: str = "") -> MemoryReader:
        reader = super().read(stream, after, *subjects, made=made)
        take = reader.take
        reader.take = lambda limit=2000: [m for m in take(limit) if m.sequence < self.lost]  # type: ignore[method-assign]
        return reader


class CountedReads(MemoryStreams):
    """Streams that count what is read of them."""

    messages = 0

    def read(self, stream: str, after: int, *subjects: str, made: str = "") -> MemoryReader:
        reader = super().read(stream, after, *subjects, made=made)
        take = reader.take

        def counted(limit: int = 2000) -> Sequence[Message]:
            taken = take(limit)
            self.messages += len(taken)
            return taken

        reader.take = counted  # type: ignore[method-assign]
        return reader


async def test_the_last_lines_of_long_output_are_read_from_its_end_only(iris: House):
    await iris.submit("/a")
    for number in range(1600):  # at 64 KiB each, a hundred megabytes
        await iris.state.print(1, 0, "x\n" * 100, offset=200 * number)
    streams = CountedReads(iris.memory)
    iris.gateway.logs = LogReader(streams)
    assert len(await text(iris, "/v1/jobs/j1/logs?tail=2000")) == len("0| x\n") * 2000
    assert streams.messages < 50


class SlowReads(MemoryStreams):
    """Streams of which reading takes several turns of the loop."""

    def read(self, stream: str, after: int, *subjects: str, made: str = "") -> MemoryReader:
        reader = super().read(stream, after, *subjects, made=made)
        batch = reader.batch

        async def slowly(**options: Any) -> Sequence[Message]:
            for _ in range(10):
                await asyncio.sleep(0)
            return await batch(**options)

        reader.batch = slowly  # type: ignore[method-assign]
        return reader


@pytest.mark.parametrize("query", ["since=1h", "tail=1&stream=stderr"])
async def test_a_scan_without_a_match_gives_signs_of_life(
    iris: House, monkeypatch: pytest.MonkeyPatch, query: str
):
    monkeypatch.setattr("iris_gateway.api.work.logs.STILL_HERE_S", 0.0)
    await iris.submit("/a")
    await iris.state.print(1, 0, "x\n", at_ms=1000)
    iris.gateway.logs = LogReader(SlowReads(iris.memory))
    headers = {"accept": "text/event-stream"}
    body = await text(iris, f"/v1/jobs/j1/logs?{query}", **headers)
    *signs, end, _ = body.split("\n\n")
    assert set(signs) == {":"}
    assert "event: end" in end


def lose(iris: House, sequence: int) -> None:
    iris.gateway.logs = LogReader(DamagedCopy(iris.memory, sequence), silent_s=0.05)


async def test_output_of_which_nothing_can_be_read_is_answered_with_a_problem(printed: House):
    lose(printed, 1)
    for media_type in ("text/plain", "application/x-ndjson", "text/event-stream"):
        response = await printed.http.get("/v1/jobs/j1/logs", headers={"accept": media_type})
        assert (response.status_code, response.json()["code"], response.json()["detail"]) == (
            503,
            "unavailable",
            "the output may be incomplete: it cannot be read beyond this place",
        )


async def read_broken(
    http: httpx.AsyncClient,
    path: str,
    media_type: str = "text/plain",
    after: str = "",
    acts: Sequence[Awaitable[int]] = (),
) -> str:
    """The text of a response that breaks off; awaits ``acts`` once it holds exactly ``after``."""
    seen = ""
    try:
        async with http.stream("GET", path, headers={"accept": media_type}) as response:
            async for piece in response.aiter_text():
                seen += piece
                for act in acts if seen == after else ():
                    await act
    except httpx.RemoteProtocolError:
        return seen
    raise AssertionError(f"it ended like a whole one: {seen}")


NOTICE = "[iris: the output may be incomplete: it cannot be read beyond this place]\n"


@pytest.mark.parametrize("follow", ["false", "true"])
async def test_output_that_cannot_be_read_to_its_end_does_not_look_complete(follow: str):
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        await iris.state.print(1, 0, "one\n")
        await iris.state.print(1, 0, "two\n", offset=4)
        lose(iris, 2)
        path = f"/v1/jobs/j1/logs?follow={follow}"
        assert await read_broken(http, path) == f"0| one\n{NOTICE}"
        [line] = (await read_broken(http, path, "application/x-ndjson")).splitlines()
        assert json.loads(line)["line"] == "one"


async def test_followed_output_that_stops_early_ends_with_an_error():
    """The lines before the follower came were whole; what was lost came while it followed."""
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        await iris.state.print(1, 0, "one\n")
        lose(iris, 2)
        ends = (
            iris.state.print(1, 0, "two\n", offset=4, final=True),
            iris.state.tell_job("/a", "failed"),
        )
        seen = await read_broken(http, "/v1/jobs/j1/logs?follow=true", after="0| one\n", acts=ends)
    assert seen == f"0| one\n{NOTICE}"


async def test_a_page_shows_the_readable_lines_and_that_there_may_be_more(iris: House):
    await fill(iris)
    lost = await iris.state.print(1, 0, "lost\n", offset=100)
    lose(iris, lost)
    page = (await iris.http.get("/jobs/%2Fa")).text
    assert ("hello" in page, "lost\n" in page, "the output may be incomplete" in page) == (
        True,
        False,
        True,
    )
