import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.client import Client
from iris.client.http.address import Address
from iris.client.http.event_stream import EventStream, ServerEvent, SseParser
from iris.client.http.transport import HttpRequest, Transport
from iris.client.problems import NotFound, Unreachable
from tests.support.answers import Said, answering, events, in_turn, problem

SSE = {"Content-Type": "text/event-stream"}
BODY = (
    b"retry: 1000\n\n"
    b'id: 4\nevent: task.state.running\ndata: {"a": 1}\n\n'
    b": still here\n\n"
    b"id: 9\n\n"
    b"data: x\ndata: y\r\n\r\n"
)


def test_events_have_the_last_id_said_before_their_end():
    assert SseParser().feed(BODY) == [
        ServerEvent("4", "task.state.running", b'{"a": 1}'),
        ServerEvent("9", "message", b"x\ny"),
    ]


@given(st.lists(st.integers(0, len(BODY))))
def test_events_are_the_same_however_the_bytes_are_cut(cuts):
    parser = SseParser()
    places = [0, *sorted(cuts), len(BODY)]
    pieces = [parser.feed(BODY[start:end]) for start, end in pairwise(places)]

    assert [event for piece in pieces for event in piece] == SseParser().feed(BODY)


def test_an_event_that_broke_off_does_not_move_the_place_to_resume_from():
    parser = SseParser()
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b")
    parser.restart()

    assert (parser.last_id, parser.feed(b"\n\n")) == ("1", [])


def stream_of(url, **options):
    return EventStream(Transport(Address(url), **options), HttpRequest("GET", "/v1/events"))


def test_a_lost_stream_is_opened_again_behind_the_last_event():
    bodies = in_turn(
        Said(headers=SSE, body=events(("job", 1), ("job", 2))),
        Said(headers=SSE, body=events(("job", 3), ("end", {}), first=3)),
    )
    with answering(bodies) as server, stream_of(server.url) as stream:
        data = [event.data for event in stream]

    assert data == [b"1", b"2", b"3"]
    assert [request.headers.get("Last-Event-ID") for request in server.requests] == [None, "2"]


def test_lines_that_come_again_after_a_lost_connection_are_passed_over():
    lines = [
        (
            "log",
            {
                "task": "/a/0",
                "index": 0,
                "attempt": 0,
                "stream": "stdout",
                "at": None,
                "offset": at,
                "line": text,
            },
        )
        for at, text in ((0, "one"), (4, "two"), (8, "three"))
    ]
    bodies = in_turn(
        Said(
            headers=SSE, body=events(*lines[:2]).replace(b"id: 1\n", b"").replace(b"id: 2\n", b"")
        ),
        Said(headers=SSE, body=events(*lines, ("end", {}))),
    )
    with answering(bodies) as server, Client(server.url) as client:
        assert [line.line for line in client.logs("/a")] == ["one", "two", "three"]


def test_a_refusal_is_raised_and_not_tried_again():
    with (
        answering(in_turn(problem(404, "not_found", "no such job"))) as server,
        stream_of(server.url) as stream,
    ):
        with pytest.raises(NotFound):
            next(stream)

        assert len(server.requests) == 1


def test_a_gateway_that_is_about_to_restart_is_asked_again():
    bodies = in_turn(
        problem(503, "unavailable", "soon"), Said(headers=SSE, body=events(("job", 1), ("end", {})))
    )
    with answering(bodies) as server, stream_of(server.url) as stream:
        assert [event.data for event in stream] == [b"1"]


def test_nobody_there_is_unreachable_at_once():
    with (
        stream_of("http://127.0.0.1:9") as stream,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"),
    ):
        next(stream)


def test_closing_from_another_thread_wakes_the_reader():
    gate = threading.Event()

    def hold(_):
        gate.wait(10)
        return Said(headers=SSE, body=b"")

    with answering(hold) as server:
        stream = stream_of(server.url)
        reader = threading.Thread(target=list, args=(stream,))
        reader.start()
        while not server.requests:
            reader.join(0.01)
        stream.close()
        gate.set()
        reader.join(10)

        assert not reader.is_alive()


def test_a_stream_ends_by_itself_when_its_time_is_over():
    with answering(lambda _: Said(headers=SSE, body=b": nothing\n\n")) as server:
        transport = Transport(Address(server.url))
        with EventStream(transport, HttpRequest("GET", "/v1/events"), timeout_s=0.2) as stream:
            assert list(stream) == []
