"""Public events: pages of past ones, and streams that resume where they ended."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from iris_bus.contract import Message
from iris_core import subjects
from iris_core.views import events
from iris_gateway.auth.bearer import Keyring, parse_tokens
from iris_gateway.dispatch.sse import stream
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import EVERYTHING, WORDS, Filter, of_run, read_event
from iris_gateway.streams.feed import PIECE, Feed, Lagging
from tests.support.fake_state import refusal
from tests.support.gateway import House, house, listening
from tests.support.rounds import rounds_until

SSE = {"accept": "text/event-stream"}


async def frames(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    """Events as dicts of their fields; greetings and signs of life are left out."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "data" in fields:
                yield fields
            fields = {}


async def some(response: httpx.Response, count: int) -> list[dict[str, str]]:
    found = []
    async with asyncio.timeout(60):
        async for event in frames(response):
            found.append(event)
            if len(found) == count:
                break
    return found


async def ids(iris: House, query: str) -> list[str]:
    return [item["id"] for item in (await iris.http.get(f"/v1/events?{query}")).json()["items"]]


def test_every_subject_of_events_has_its_words():
    assert {f"{prefix}.*" for prefix in WORDS} == set(subjects.EVENTS.subjects)


def test_no_body_has_the_names_that_a_listed_event_has_for_itself():
    """A page puts the fields of the body beside them: a slice's id is `slice_id`."""
    bodies = [
        one
        for one in vars(events).values()
        if isinstance(one, type) and issubclass(one, events.RecordEvent)
    ]
    assert events.SliceEvent in bodies
    assert [one for one in bodies if {"id", "type"} & {*one.__struct_fields__}] == []


async def test_a_page_shows_the_newest_first_with_its_place_and_type(iris: House):
    await iris.state.tell_task("/a/0", "assigned")
    await iris.state.tell_job("/a", "running")
    items = (await iris.http.get("/v1/events")).json()["items"]
    assert [(item["id"], item["type"], item["job"]) for item in items] == [
        ("2", "job.state.running", "/a"),
        ("1", "task.state.assigned", "/a"),
    ]


async def test_pages_meet_without_a_gap_in_both_directions(iris: House):
    for number in range(7):
        await iris.state.tell_job(f"/a{number}", "pending")
    for order, wanted in (("asc", "1234567"), ("desc", "7654321")):
        seen, cursor = "", ""
        while cursor is not None:
            query = f"order={order}&limit=3" + (f"&cursor={cursor}" if cursor else "")
            page = (await iris.http.get(f"/v1/events?{query}")).json()
            seen += "".join(item["id"] for item in page["items"])
            cursor = page["next_cursor"]
        assert seen == wanted


async def test_few_events_of_a_type_are_found_among_many_others(iris: House):
    """The server knows where they are; by reading all, a page ended before them. Dense ones are
    read in parts.
    """
    stored = iris.memory.streams["IRIS_EVENTS"]
    for state, count in (
        ("failed", 2),
        ("running", 30_000),
        ("killed", 5000),
        ("running", 30_000),
        ("failed", 1),
    ):
        for _ in range(count):
            stored.store(f"task.state.{state}", b"{}", {})
    assert await ids(iris, "type=task.state.failed&limit=3") == ["65003", "2", "1"]
    assert await ids(iris, "type=task.state.failed,job&limit=3&order=asc") == ["1", "2", "65003"]
    page = (await iris.http.get("/v1/events?type=task.state.killed&limit=500")).json()
    assert (page["items"][0]["id"], page["items"][-1]["id"], page["next_cursor"]) == (
        "35002",
        "34503",
        "e34503",
    )
    assert await ids(iris, "type=task.state.killed&cursor=e30004") == ["30003"]


async def test_the_events_of_a_deployment_are_found_among_many_of_tasks(iris: House):
    """A deployment that had not changed for 20,000 events of tasks had none."""
    stored, of_it = iris.memory.streams["IRIS_EVENTS"], b'{"deployment":"chat"}'
    stored.store("deployment.state.ready", of_it, {})
    stored.store("route.state.healthy", of_it, {})
    stored.store("route.state.healthy", b'{"deployment":"other"}', {})
    for _ in range(20_500):
        stored.store("task.state.running", b"{}", {})
    assert await ids(iris, "deployment=chat") == ["2", "1"]
    assert await ids(iris, "deployment=chat&order=asc&limit=2") == ["1", "2"]


async def test_a_page_of_events_says_that_it_has_not_searched_all(iris: House):
    stored = iris.memory.streams["IRIS_EVENTS"]
    stored.store("task.state.failed", b'{"worker":"w1"}', {})
    for _ in range(25_000):
        stored.store("task.state.failed", b'{"worker":"w2"}', {})
    page = (await iris.http.get("/events?kind=task&state=failed&worker=w1")).text
    assert (
        "None among the newest events that were searched; the next page searches older ones."
        in page
    )
    assert 'rel="next"' in page
    assert "No such event is kept." not in page


def test_the_subjects_of_a_filter_do_not_overlap():
    """The server refuses a consumer of subjects that do."""
    assert Filter(("task.state", "task.state.failed", "job", "job", "job.state")).subjects == (
        "task.state.>",
        "job.>",
    )
    assert EVERYTHING.subjects == Filter(within="/a", worker="w0").subjects == ()
    assert Filter(deployment="chat").subjects == ("deployment.>", "route.>")
    assert Filter(("job",), deployment="chat").subjects == ("job.>",)


async def test_types_and_a_jobs_tree_can_be_picked_out(iris: House):
    await iris.submit("/a")
    await iris.state.tell_task("/a/0", "running")
    await iris.state.tell_job("/a", "running")
    await iris.state.tell_job("/a/b", "running")
    await iris.state.tell_job("/ab", "running")
    assert await ids(iris, "type=job") == ["4", "3", "2"]
    assert await ids(iris, "type=job.state.running&within=%2Fa") == ["3", "2"]
    assert await ids(iris, "within=j1&order=asc") == ["1", "2", "3"]


async def test_the_events_of_a_job_that_is_not_there_are_not_found(iris: House):
    assert (await iris.http.get("/v1/events?within=%2Fnope")).status_code == 404
    assert (await iris.http.get("/v1/jobs/j9/events")).status_code == 404


async def test_the_events_of_a_deployment_that_is_not_there_are_not_found(iris: House):
    iris.state.scripted["deployment"] = refusal("not_found", "there is no deployment nope")
    for more in ("", "&follow=true"):
        refused = await iris.http.get(f"/v1/events?deployment=nope{more}")
        assert (refused.status_code, refused.json()["detail"]) == (
            404,
            "there is no deployment nope",
        )


def test_events_of_a_run_are_those_of_its_record_and_of_what_was_below_it():
    """Of three runs of a name, each with a child; the last one is an event of an earlier release,
    which tells no id.
    """
    bodies = [
        *(f'{{"job":"/a","job_id":"j{number}"}}' for number in (1, 3, 5)),
        *(f'{{"job":"/a/b","job_id":"j{number}"}}' for number in (2, 4, 6)),
        '{"job":"/ab","job_id":"j2"}',
        '{"job":"/a"}',
    ]
    events = [read_event(Message("job.state.running", body.encode())) for body in bodies]
    runs = [
        of_run(EVERYTHING, "j1", "/a", "ann", "j3"),
        of_run(EVERYTHING, "j3", "/a", "ann", "j5"),
        of_run(EVERYTHING, "j5", "/a", "ann", None),
    ]
    found = [[event.number for event in run.of(events)] for run in (*runs, Filter(within="/a"))]
    assert found == [[1, 2, 0], [3, 4, 0], [5, 6, 0], [1, 3, 5, 2, 4, 6, 0]]


def test_events_below_a_job_are_of_its_owner_only():
    bodies = [
        f'{{"job":"{name}","job_id":"j{number}","user":"{user}"}}'
        for number, name, user in (
            (1, "/a", "ann"),
            (2, "/a", "bob"),
            (3, "/a/b", "ann"),
            (4, "/a/b", "bob"),
        )
    ]
    events = [read_event(Message("job.state.running", body.encode())) for body in bodies]
    runs = [
        of_run(EVERYTHING, "j1", "/a", "ann", None),
        of_run(EVERYTHING, "j2", "/a", "bob", None),
    ]
    assert [[event.number for event in run.of(events)] for run in runs] == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    "query",
    [
        "type=worker",
        "type=task.state.*",
        "type=job.state.preempted",
        "type=job.notice",
        "order=up",
        "after=-1",
        "cursor=e",
        "within=a",
    ],
)
async def test_an_invalid_filter_is_refused(iris: House, query: str):
    assert (await iris.http.get(f"/v1/events?{query}")).status_code in (404, 422)


async def test_a_refused_type_names_those_there_are(iris: House):
    [mistake] = (await iris.http.get("/v1/events?type=task.state,task.state.runing")).json()[
        "errors"
    ]
    assert mistake["message"] == "cannot be 'task.state.runing'"
    assert mistake["hint"].startswith(
        "did you mean task.state.running? one or more of task, job, session,"
    )
    assert (
        "queue.state, fleet.slice, project.state, fleet.pool, fleet.orphan, task.notice, job.spec, or of these with "
        "a state, as task.state.running" in mistake["hint"]
    )


async def test_a_page_after_a_position_ends_there_and_is_gone_beyond_the_end(iris: House):
    for number in range(6):
        await iris.state.tell_job(f"/a{number}", "pending")
    assert await ids(iris, "after=4") == ["5", "6"]
    assert await ids(iris, "after=4&order=desc") == ["6", "5"]
    assert await ids(iris, "after=6") == []
    page = (await iris.http.get("/v1/events?after=3&order=desc&limit=2")).json()
    rest = (
        await iris.http.get(f"/v1/events?after=3&order=desc&limit=2&cursor={page['next_cursor']}")
    ).json()
    assert ([item["id"] for item in rest["items"]], rest["next_cursor"]) == (["4"], None)
    for order in ("", "&order=asc", "&order=desc"):
        beyond = await iris.http.get(f"/v1/events?after=7{order}")
        assert (beyond.status_code, beyond.json()["detail"].split(":")[0]) == (
            410,
            "position 7 is not in the stream, which ends at 6",
        )


async def test_a_stream_tells_what_happens_from_now_on():
    async with house() as iris, listening(iris) as http:
        await iris.state.tell_job("/before", "pending")
        await rounds_until(lambda: iris.gateway.feed.newest == 1)
        async with http.stream("GET", "/v1/events", headers=SSE) as response:
            await iris.state.tell_job("/a", "running")
            [event] = await some(response, 1)
    assert (event["id"], event["event"]) == ("2", "job.state.running")
    assert '"job":"/a"' in event["data"]


async def test_a_stream_goes_on_behind_the_last_event_seen():
    async with house() as iris, listening(iris) as http:
        for number in range(5):
            await iris.state.tell_job(f"/a{number}", "pending")
        async with http.stream(
            "GET", "/v1/events", headers={**SSE, "Last-Event-ID": "2"}
        ) as response:
            assert [event["id"] for event in await some(response, 3)] == ["3", "4", "5"]


async def test_what_happened_before_this_gateway_started_is_still_told():
    async with house() as first:
        for number in range(3):
            await first.state.tell_job(f"/a{number}", "pending")
        feed = Feed(first.gateway.feed.streams)
        await feed.wake()
        _, events = await anext(feed.watch(Filter(), 0))
        await feed.close()
    assert [event.sequence for event in events] == [1, 2, 3]


async def test_a_place_that_is_not_kept_or_not_there_yet_is_gone():
    async with house() as iris:
        for number in range(4):
            await iris.state.tell_job(f"/a{number}", "pending")
        await iris.state.streams.trim("IRIS_EVENTS", 3)
        await iris.gateway.feed.close()
        iris.gateway.feed = Feed(iris.gateway.feed.streams)
        await iris.gateway.feed.wake()
        async with listening(iris) as http:
            statuses = [
                (await http.get("/v1/events", headers={**SSE, "Last-Event-ID": place})).status_code
                for place in ("1", "99", "x")
            ]
    assert statuses == [410, 410, 400]


async def test_a_watcher_that_falls_behind_the_ring_is_let_go_and_may_come_back():
    async with house(event_ring=4) as iris:
        feed = iris.gateway.feed
        watcher = feed.watch(Filter(), feed.newest)
        await anext(watcher)
        for number in range(20):
            await iris.state.tell_job(f"/a{number}", "pending")
            await rounds_until(lambda wanted=number + 1: feed.newest == wanted)
        with pytest.raises(Lagging):
            await anext(watcher)
        seen = []
        again = feed.watch(Filter(), 0)
        while len(seen) < 20:
            seen += [event.sequence for event in (await anext(again)).events]
        await again.aclose()
    assert seen == list(range(1, 21))


@pytest.mark.parametrize("subjects", [(), ("job.state.*",)], ids=["whole", "some subjects"])
@pytest.mark.parametrize("is_read", [False, True])
async def test_watchers_are_let_go_when_the_stream_was_made_anew(
    subjects: tuple[str, ...], is_read: bool
):
    """As of a gateway that goes on while a backup is restored, also of one that has just begun to
    read.
    """
    async with house() as iris:
        feed = Feed(iris.gateway.feed.streams, None, *subjects, tick_s=0.01)
        if is_read:
            await feed.wake()
        for number in range(5):
            await iris.state.tell_job(f"/a{number}", "pending")
        if is_read:
            await rounds_until(lambda: feed.newest == 5)
        watcher = feed.watch(Filter(), 5)
        await anext(watcher)
        iris.state.streams.make_anew("IRIS_EVENTS")
        with pytest.raises(Lagging):
            [_ async for _ in watcher]
        await iris.state.tell_job("/new", "pending")
        again = feed.watch(Filter(), 0)
        seen: list[int] = []
        while not seen:
            seen += [event.sequence for event in (await anext(again)).events]
        await again.aclose()
        await feed.close()
    assert seen == [1]


async def test_who_watches_a_job_does_not_fall_behind_by_events_of_others():
    async with house(event_ring=4) as iris:
        feed = iris.gateway.feed
        watcher = feed.watch(Filter(within="/mine"), feed.newest)
        await anext(watcher)
        await iris.state.tell_job("/mine/child", "pending")
        await rounds_until(lambda: feed.newest == 1)
        assert [event.job for event in (await anext(watcher)).events] == ["/mine/child"]
        for number in range(20):
            await iris.state.tell_job(f"/a{number}", "pending")
            await rounds_until(lambda wanted=number + 2: feed.newest == wanted)
        await iris.state.tell_job("/mine", "running")
        await rounds_until(lambda: feed.newest == 22)
        found = await anext(watcher)
        assert (found.position, [event.job for event in found.events]) == (22, ["/mine"])
        await watcher.aclose()


async def test_who_watches_a_quiet_job_hears_how_far_others_have_got():
    async with house() as iris:
        feed = Feed(iris.gateway.feed.streams, tick_s=0.01)
        watcher = feed.watch(Filter(within="/mine"), 0)
        await anext(watcher)
        await iris.state.tell_job("/other", "pending")
        async with asyncio.timeout(20):
            while (found := await anext(watcher)).position < 1:
                pass
        await watcher.aclose()
        await feed.close()
    assert (found.position, found.events) == (1, [])


async def test_a_watcher_is_given_few_events_at_once():
    async with house() as iris:
        feed = iris.gateway.feed
        watcher = feed.watch(Filter(), feed.newest)
        await anext(watcher)
        for number in range(3 * PIECE):
            await iris.state.tell_job(f"/a{number}", "pending")
        await rounds_until(lambda: feed.newest == 3 * PIECE)
        assert [len((await anext(watcher)).events) for _ in range(3)] == [PIECE] * 3
        await watcher.aclose()


async def test_the_newest_events_are_bounded_in_bytes_too():
    async with house() as iris:
        feed = Feed(iris.gateway.feed.streams, ring_bytes=10_000)
        await feed.wake()
        for number in range(40):
            await iris.state.tell_job(f"/{number}-{'a' * 900}", "pending")
        await rounds_until(lambda: feed.newest == 40)
        kept = feed.newest - feed.oldest
        watcher = feed.watch(Filter(), 0)  # what is not kept is read from the stream
        seen: list[int] = []
        while len(seen) < 40:
            seen += [event.sequence for event in (await anext(watcher)).events]
        await watcher.aclose()
        await feed.close()
    assert 0 < kept <= 10
    assert seen == list(range(1, 41))


SILENT, EVENTS, LONG = 10, 1000, "a" * 8000  # more than systems buffer for a connection


async def test_watchers_that_do_not_read_are_cut_off_and_others_miss_nothing():
    async with (
        house(unread_s=3.0) as iris,
        listening(iris, unread_s=3.0) as http,
        AsyncExitStack() as held,
    ):
        for _ in range(SILENT):
            held.callback((await watching_silently(http)).close)
        await rounds_until(lambda: iris.gateway.watching == SILENT)
        async with http.stream("GET", "/v1/events?type=job", headers=SSE) as reading:
            told = asyncio.create_task(some(reading, EVENTS))
            for number in range(EVENTS):
                await iris.state.tell_job(f"/{LONG}{number}", "pending")
            assert [event["id"] for event in await told] == [str(n) for n in range(1, EVENTS + 1)]
            async with asyncio.timeout(60):
                while iris.gateway.watching > 1:
                    await asyncio.sleep(0.01)


async def watching_silently(http: httpx.AsyncClient) -> socket.socket:
    """A client that asks for events and never reads."""
    made = socket.socket()
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, (http.base_url.host, http.base_url.port))
    head = b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
    await loop.sock_sendall(made, head)
    return made


async def test_two_hundred_watchers_each_miss_nothing():
    async with house() as iris:
        feed = iris.gateway.feed

        async def watch() -> list[int]:
            seen: list[int] = []
            watcher = feed.watch(Filter(types=("job",)), 0)
            while len(seen) < 50:
                seen += [event.sequence for event in (await anext(watcher)).events]
            await watcher.aclose()
            return seen

        watchers = [asyncio.create_task(watch()) for _ in range(200)]
        for number in range(50):
            await iris.state.tell_job(f"/a{number}", "pending")
        assert await asyncio.gather(*watchers) == [list(range(1, 51))] * 200


async def test_a_draining_gateway_ends_its_streams():
    async with (
        house() as iris,
        listening(iris) as http,
        http.stream("GET", "/v1/events", headers=SSE) as response,
    ):
        await iris.gateway.feed.close()
        assert (await response.aread()).startswith(b"retry")


async def test_a_stream_ends_before_it_tells_a_revoked_token_more():
    keyring = parse_tokens(
        f"ada user {sha256(b's-ada').hexdigest()}\nmia user {sha256(b's-mia').hexdigest()}"
    )
    async with (
        house(keyring, token_file="tokens") as iris,
        listening(iris) as http,
        AsyncExitStack() as stack,
    ):
        opened = [
            await stack.enter_async_context(
                http.stream(
                    "GET", "/v1/events", headers={**SSE, "Authorization": f"Bearer s-{who}"}
                )
            )
            for who in ("ada", "mia")
        ]
        iris.gateway.keyring = Keyring(keyring.tokens[1:])
        await iris.state.tell_job("/a", "running")
        assert await some(opened[0], 1) == []
        assert len(await some(opened[1], 1)) == 1


async def test_streams_are_opened_up_to_the_limit_and_freed_afterwards():
    async with house(watchers=1) as iris, listening(iris) as http:
        async with http.stream("GET", "/v1/events", headers=SSE) as response:
            await anext(response.aiter_bytes())
            refused = await http.get("/v1/events", headers=SSE)
        await rounds_until(lambda: iris.gateway.watching == 0)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


async def test_one_users_streams_leave_room_for_anothers():
    async with house(watchers_per_user=1) as iris, listening(iris) as http:
        async with http.stream("GET", "/v1/events", headers=SSE) as response:
            await anext(response.aiter_bytes())
            refused = await http.get("/v1/events", headers=SSE)
            async with http.stream(
                "GET", "/v1/events", headers={**SSE, "X-Iris-User": "bob"}
            ) as other:
                assert other.status_code == 200
        await rounds_until(lambda: not iris.gateway.streams)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


async def test_a_stream_counts_from_when_it_is_allowed_to_when_it_is_dropped():
    """Two that were asked for at a time were both allowed, since each counted once its first byte
    was sent.
    """
    async with house(watchers_per_user=1) as iris:
        call: Any = SimpleNamespace(
            gateway=iris.gateway, caller=SimpleNamespace(user="ann"), request=None
        )
        allowed = stream(call, frames(httpx.Response(200)))  # type: ignore[arg-type]
        with pytest.raises(ProblemResponse, match="ann has 1 streams open"):
            stream(call, frames(httpx.Response(200)))  # type: ignore[arg-type]
        assert iris.gateway.watching == 1
        del allowed  # its client has gone before it was sent
        gc.collect()
        assert not iris.gateway.streams


async def test_nothing_is_read_without_watchers_and_later_ones_miss_nothing():
    async with house() as iris:
        feed = Feed(iris.gateway.feed.streams, tick_s=0.01, rest_s=0.0)
        await feed.wake()
        await rounds_until(lambda: not feed.reading)
        await iris.state.tell_job("/a", "pending")
        _, events = await anext(feed.watch(Filter(), 0))
        await feed.close()
    assert [event.sequence for event in events] == [1]


async def test_who_comes_while_a_feed_goes_to_rest_is_read_for(monkeypatch: pytest.MonkeyPatch):
    closing = asyncio.Event()

    async def close(_: Any) -> None:
        closing.set()
        await asyncio.sleep(0)

    async with house() as iris:
        feed = Feed(iris.gateway.feed.streams, tick_s=0.01, rest_s=0.0)
        await feed.wake()
        monkeypatch.setattr(type(feed._reader), "close", close)
        await closing.wait()
        watcher = feed.watch(Filter(), 0)
        assert not (await anext(watcher)).events
        await iris.state.tell_job("/a", "pending")
        async with asyncio.timeout(20):
            while not (events := (await anext(watcher)).events):
                pass
        await watcher.aclose()
        await feed.close()
    assert [event.sequence for event in events] == [1]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/a/results", "/changes"])
async def test_a_stream_of_events_that_cannot_be_read_now_is_refused_for_now(
    iris: House, path: str
):
    for feed in (iris.gateway.feed, iris.gateway.ends):
        await feed.close()
    iris.gateway.feed = iris.gateway.ends = Feed(iris.gateway.feed.streams)
    iris.memory.away = True
    response = await iris.http.get(path, headers=SSE)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


async def test_a_gateway_that_is_about_to_end_opens_no_stream(iris: House):
    """It says so, and does not break: who was let go comes back at once."""
    await iris.gateway.feed.close()
    response = await iris.http.get("/v1/events", headers={"accept": "text/event-stream"})
    iris.gateway.closing = True
    again = await iris.http.get("/v1/events", headers={"accept": "text/event-stream"})
    assert [(r.status_code, r.headers["retry-after"]) for r in (response, again)] == [
        (503, "1")
    ] * 2


async def test_amendments_holds_and_notices_are_kinds_of_their_own(iris: House):
    bodies = {
        "job.spec.amended": b'{"job": "/a", "changes": ["held"]}',
        "queue.state.held": b'{"hold": "h1", "state": "held"}',
        "task.notice.drain": b'{"job": "/a", "task": "/a/0", "reason": "drain"}',
        "task.state.failed": b'{"job": "/a", "task": "/a/0"}',
    }
    for subject, body in bodies.items():
        await iris.state.streams.publish(subject, body)
    for kind, wanted in (
        ("job.spec", ["1"]),
        ("queue", ["2"]),
        ("task.notice.drain", ["3"]),
        ("task", ["4", "3"]),
    ):
        assert await ids(iris, f"type={kind}") == wanted


def test_no_event_has_a_member_of_the_item_that_it_is_listed_as():
    """An item of a list is the body of an event with its ``id`` and ``type``."""
    bodies = {
        kind
        for name, kind in vars(events).items()
        if isinstance(kind, type) and name.endswith("Event")
    }
    taken = {"id", "type"}
    assert [kind.__name__ for kind in bodies if taken & {*kind.__struct_fields__}] == []
    assert events.SliceEvent in bodies
