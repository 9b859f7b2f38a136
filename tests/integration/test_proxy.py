"""Requests through a proxy that these tests share; they write its discovery.

What needs one of its own is in `test_own_proxies`.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from iris_bus.jetstream import connect
from tests.support.nats import OpenServer, emptied
from tests.support.nats_config import free_ports
from tests.support.proxy import Answering, Echo, Front, Held, Route, Talk, front, refusal, saying

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    nats_server: OpenServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Front]:
    connection = await connect(await emptied(nats_server.url), name="test")
    await connection.streams.ensure()
    async with front(connection, nats_server.url, tmp_path_factory.mktemp("proxy")) as made:
        yield made
    await connection.close()


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(shared: Front) -> AsyncIterator[Front]:
    await shared.begin()
    yield shared
    await shared.stop()


def refused_port() -> str:
    """An address nobody listens on."""
    [port] = free_ports(1)
    return f"127.0.0.1:{port}"


# --- what goes through


async def test_a_request_reaches_a_route_with_its_raw_target_and_origin(proxy: Front):
    echo = Echo()
    await proxy.publish("chat", await proxy.route(echo))
    head, _ = await proxy.get(
        "/d/chat/a%2Fb/../c;p=1?q=%20x&y", b"X-Own: 1\r\nX-Forwarded-For: 6.6.6.6\r\n"
    )
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert echo.requests[0][0].decode().split("\r\n")[:-2] == [
        "GET /a%2Fb/../c;p=1?q=%20x&y HTTP/1.1",
        "Host: front",
        "X-Own: 1",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Host: front",
        "X-Forwarded-Prefix: /d/chat",
    ]


async def test_a_page_without_a_slash_at_its_end_is_found_with_it(proxy: Front):
    echo = Echo()
    await proxy.publish("chat", await proxy.route(echo))
    head, _ = await proxy.get("/d/chat?a=/b&c")
    assert head.startswith(b"HTTP/1.1 308 ")
    assert b"\r\nLocation: ./chat/?a=/b&c\r\n" in head
    assert not echo.requests
    head, _ = await proxy.get("/d/chat/?a=/b&c")
    assert head.startswith(b"HTTP/1.1 200 OK")
    head, _ = await proxy.get("/d/chat", b"Upgrade: websocket\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    head, _ = await proxy.get("/d/nothing")
    assert head.startswith(b"HTTP/1.1 404 ")


async def test_the_answer_comes_back_with_its_repeated_fields_in_order(proxy: Front):
    fields = b"Set-Cookie: a=1\r\nX-A: 1\r\nSet-Cookie: b=2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
    await proxy.publish("chat", await proxy.route(saying(b"hello", b"201 Made", fields)))
    head, body = await proxy.get("/d/chat/")
    lines = head.split(b"\r\n")
    assert (lines[0], body) == (b"HTTP/1.1 201 Made", b"hello")
    kept = [line for line in lines if line.startswith((b"Set-Cookie", b"X-", b"Keep"))]
    assert kept == [b"Set-Cookie: a=1", b"X-A: 1", b"Set-Cookie: b=2"]


async def test_connections_to_a_route_are_used_again(proxy: Front):
    route = await proxy.route(saying(b"ok"))
    await proxy.publish("chat", route)
    for _ in range(20):
        await proxy.get("/d/chat/")
    assert route.connections == 1


async def test_requests_are_spread_over_the_routes_that_have_the_fewest(proxy: Front):
    held = asyncio.Event()
    arrived: list[str] = []

    def holding(name: str):
        async def answer(talk: Talk) -> None:
            await talk.request()
            arrived.append(name)
            await held.wait()
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        return answer

    await proxy.publish("chat", *[await proxy.route(holding(name)) for name in "abc"])
    asking = [asyncio.create_task(proxy.get("/d/chat/")) for _ in range(9)]
    async with asyncio.timeout(20):
        while len(arrived) < 9:
            await asyncio.sleep(0.01)
    held.set()
    await asyncio.gather(*asking)
    assert sorted(arrived) == list("aaabbbccc")


# --- when there is nobody to answer


async def test_an_unknown_deployment_is_404_and_one_without_routes_503(proxy: Front):
    await proxy.publish("idle", reason="starting")
    head, body = await proxy.get("/d/nobody/x")
    assert (head.split(b"\r\n")[0], refusal(body)["code"]) == (
        b"HTTP/1.1 404 Not Found",
        "not_found",
    )
    head, body = await proxy.get("/d/idle/x")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 5" in head
    assert b"Iris-Proxy: 1" in head
    assert refusal(body) == {
        "status": 503,
        "code": "starting",
        "detail": "idle has no route that can answer now",
    }


async def test_a_refused_connection_is_tried_elsewhere_for_any_method(proxy: Front):
    echo = Echo()
    await proxy.publish("chat", refused_port(), await proxy.route(echo))
    for n in range(20):
        fields = b"Host: front\r\nConnection: close\r\nContent-Length: 2\r\n"
        answer = await proxy.send(b"POST /d/chat/ HTTP/1.1\r\n%b\r\n%02d" % (fields, n))
        assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert [body for _, body in echo.requests] == [b"%02d" % n for n in range(20)]


async def test_when_every_connection_is_refused_the_answer_is_502(proxy: Front):
    await proxy.publish("chat", refused_port())
    head, body = await proxy.get("/d/chat/")
    assert (head.split(b" ")[1], refusal(body)["code"]) == (b"502", "bad_gateway")


async def closing_after_one(talk: Talk) -> None:
    """Keeps a connection open after an answer, and closes it when the next request comes."""
    await talk.request()
    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await talk.head()


async def test_a_get_on_a_closed_reused_connection_is_sent_on_a_fresh_one(proxy: Front):
    route = await proxy.route(closing_after_one)
    await proxy.publish("chat", route)
    assert [(await proxy.get("/d/chat/"))[1] for _ in range(6)] == [b"ok"] * 6
    assert await proxy.counted("iris_proxy_retries_total") >= 3


def deadly(counted: list[bytes]) -> Answering:
    """A server that one target ends: its connections and its address are gone."""

    async def answer(talk: Talk) -> None:
        while True:
            head, _ = await talk.request()
            counted.append(head)
            if b"/deadly" in head:
                await victims[id(counted)].stop()
                return
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    return answer


victims: dict[int, Route] = {}


@pytest.mark.parametrize("kept", [True, False])
async def test_one_get_that_kills_its_server_kills_exactly_one(proxy: Front, kept: bool):
    heads: list[list[bytes]] = [[], [], []]
    routes = [await proxy.route(deadly(counted)) for counted in heads]
    victims.update({id(counted): route for counted, route in zip(heads, routes, strict=True)})
    await proxy.publish("chat", *routes)
    if kept:
        await asyncio.gather(*(proxy.get("/d/chat/") for _ in range(20)))
    head, body = await proxy.get("/d/chat/deadly")
    assert sum(b"/deadly" in head for counted in heads for head in counted) == 1
    assert (head.split(b" ")[1], refusal(body)["code"]) == (b"502", "bad_gateway")
    assert str(refusal(body)["detail"]).endswith(
        "; it may have begun the request, so no other route gets it"
    )
    answers = [await proxy.get("/d/chat/") for _ in range(20)]
    assert {body for _, body in answers} == {b"ok"}


async def test_where_requests_are_idempotent_another_route_gets_them(proxy: Front):
    async def mute(talk: Talk) -> None:
        await talk.head()

    routes = await proxy.route(mute), await proxy.route(saying(b"ok"))
    await proxy.publish("chat", *routes, retry="idempotent")
    assert {(await proxy.get("/d/chat/"))[1] for _ in range(6)} == {b"ok"}
    answers: set[bytes] = set()
    async with asyncio.timeout(60):
        while len(answers) < 2:  # each goes to one of the two, left to chance
            answers.add((await proxy.get("/d/chat/", method=b"POST"))[0].split(b" ")[1])
    assert answers == {b"200", b"502"}


async def test_an_address_is_ejected_at_its_first_refusal_and_probed_back(proxy: Front):
    back = await proxy.route(saying(b"back"))
    await back.stop()
    await proxy.publish("chat", back, await proxy.route(saying(b"here")))
    assert {(await proxy.get("/d/chat/"))[1] for _ in range(200)} == {b"here"}
    retries = await proxy.counted("iris_proxy_retries_total")
    await back.start()
    async with asyncio.timeout(20):
        while (await proxy.get("/d/chat/"))[1] != b"back":
            pass
    assert retries <= 3  # at its first refusal, and at probes that came too early


@pytest.mark.parametrize("method", [b"PUT", b"DELETE", b"POST", b"PATCH"])
async def test_no_other_method_is_sent_again_once_it_was_sent(proxy: Front, method: bytes):
    route = await proxy.route(closing_after_one)
    await proxy.publish("chat", route)
    await proxy.get("/d/chat/")
    head, _ = await proxy.get("/d/chat/", method=method)
    assert (head.split(b" ")[1], route.connections) == (b"502", 1)


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_a_fresh_connection_that_closes_unanswered_is_502(proxy: Front, method: bytes):
    async def mute(talk: Talk) -> None:
        await talk.head()

    route = await proxy.route(mute)
    await proxy.publish("chat", route)
    head, _ = await proxy.get("/d/chat/", method=method)
    assert (head.split(b" ")[1], route.connections) == (b"502", 1)


@pytest.mark.parametrize("ending", ["closes", "resets"])
async def test_nothing_is_sent_again_after_the_first_byte_of_an_answer(proxy: Front, ending: str):
    async def breaking(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await talk.head()
        await talk.send(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 2")
        if ending == "resets":
            linger = struct.pack("ii", 1, 0)  # so that closing resets the connection
            talk.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )

    route = await proxy.route(breaking)
    await proxy.publish("chat", route)
    await proxy.get("/d/chat/")
    answer = await proxy.send(b"GET /d/chat/ HTTP/1.1\r\nHost: front\r\nConnection: close\r\n\r\n")
    interim, head, _ = answer.split(b"\r\n\r\n")
    assert (interim, head.split(b" ")[1]) == (b"HTTP/1.1 103 Early Hints", b"502")
    assert route.connections == 1


async def test_an_error_of_the_service_is_its_answer_and_not_tried_again(proxy: Front):
    route = await proxy.route(saying(b"broken", b"500 Oops"))
    await proxy.publish("chat", route, await proxy.route(saying(b"broken", b"500 Oops")))
    head, body = await proxy.get("/d/chat/")
    assert (head.split(b"\r\n")[0], body, b"Iris-Proxy" in head) == (
        b"HTTP/1.1 500 Oops",
        b"broken",
        False,
    )
    assert await proxy.counted("iris_proxy_retries_total") == 0


async def test_bytes_that_come_unasked_are_not_taken_for_the_next_answer(proxy: Front):
    unasked = asyncio.Event()

    async def chatty(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
        await unasked.wait()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await talk.request()

    route = await proxy.route(chatty)
    await proxy.publish("chat", route)
    assert (await proxy.get("/d/chat/"))[1] == b"good"
    unasked.set()
    route.answer = saying(b"next")
    await proxy.publish("other", route)  # so that the bytes have arrived
    assert (await proxy.get("/d/chat/"))[1] == b"next"


# --- limits


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\n"])
async def test_a_route_that_does_not_answer_in_time_is_504(proxy: Front, begins: bytes):
    async def mute(talk: Talk) -> None:
        await talk.send(begins)
        await talk.rest()

    await proxy.publish("chat", await proxy.route(mute), first_byte_s=0.1)
    head, body = await proxy.get("/d/chat/")
    assert (head.split(b" ")[1], refusal(body)["code"]) == (b"504", "gateway_timeout")


async def test_all_of_a_request_has_total_s_whatever_it_is_doing(proxy: Front):
    async def dripping(talk: Talk) -> None:
        head = await talk.head()
        if b"/slow" in head:
            await talk.rest()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
        await talk.rest()

    await proxy.publish("chat", await proxy.route(dripping), total_s=2.0)
    head, body = await proxy.get("/d/chat/slow")
    assert (head.split(b" ")[1], refusal(body)["code"]) == (b"504", "gateway_timeout")
    talk = await proxy.connect()
    await talk.send(b"GET /d/chat/ HTTP/1.1\r\nHost: front\r\n\r\n")
    async with asyncio.timeout(20):
        await talk.head()
        with contextlib.suppress(ConnectionError):
            assert await talk.rest() == b"x"
    await talk.close()


async def test_an_upload_ends_when_the_route_takes_nothing_of_it(proxy: Front):
    over = asyncio.Event()

    async def deaf(talk: Talk) -> None:
        talk.writer.transport.pause_reading()
        await over.wait()

    await proxy.publish("chat", await proxy.route(deaf), idle_s=2.0)
    talk = await proxy.connect()
    await talk.send(b"POST /d/chat/ HTTP/1.1\r\nHost: front\r\nContent-Length: 1000000000\r\n\r\n")

    async def upload() -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await talk.send(CHUNK)

    sending = asyncio.create_task(upload())
    async with asyncio.timeout(60):
        assert (await talk.head()).startswith(b"HTTP/1.1 504 ")
        sending.cancel()
    over.set()
    await talk.close()


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_over_the_limit_is_413_and_the_connection_ends(proxy: Front, chunked: bool):
    echo = Echo()
    await proxy.publish("chat", await proxy.route(echo), body_bytes=10)
    framing, body = (
        (b"Transfer-Encoding: chunked", b"b\r\nhello world\r\n0\r\n\r\n")
        if chunked
        else (b"Content-Length: 11", b"hello world")
    )
    answer = await proxy.send(
        b"POST /d/chat/ HTTP/1.1\r\nHost: front\r\n%b\r\n\r\n%b" % (framing, body)
    )
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert echo.requests == []


async def test_requests_beyond_max_outstanding_wait_in_line_and_then_are_refused(proxy: Front):
    go = asyncio.Event()
    under_way = asyncio.Semaphore(0)

    async def slow(talk: Talk) -> None:
        await talk.request()
        under_way.release()
        await go.wait()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    await proxy.publish("chat", await proxy.route(slow), max_outstanding=1, queue_s=20.0)
    first = asyncio.create_task(proxy.get("/d/chat/"))
    await under_way.acquire()
    await proxy.publish("busy", await proxy.route(slow), max_outstanding=1, queue_s=0.05)
    second = asyncio.create_task(proxy.get("/d/chat/"))
    other = asyncio.create_task(proxy.get("/d/busy/"))
    await under_way.acquire()
    head, body = await proxy.get("/d/busy/")
    assert (head.split(b" ")[1], refusal(body)["code"]) == (b"503", "overloaded")
    assert not second.done()
    go.set()
    assert [(await task)[1] for task in (first, second, other)] == [b"ok"] * 3


# --- streams, uploads, clients that leave


async def test_parts_of_a_stream_pass_at_once(proxy: Front):
    heard = asyncio.Event()

    async def streaming(talk: Talk) -> None:
        await talk.request()
        await talk.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await talk.send(b"5\r\ndata1\r\n")
        await heard.wait()
        await talk.send(b"5\r\ndata2\r\n0\r\n\r\n")

    await proxy.publish("chat", await proxy.route(streaming))
    talk = await proxy.connect()
    await talk.send(b"GET /d/chat/ HTTP/1.1\r\nHost: front\r\n\r\n")
    async with asyncio.timeout(20):
        await talk.head()
        assert await talk.reader.readexactly(10) == b"5\r\ndata1\r\n"
        heard.set()
        assert await talk.reader.readexactly(15) == b"5\r\ndata2\r\n0\r\n\r\n"
    await talk.close()


@pytest.mark.parametrize("phase", ["thinking", "streaming", "uploading"])
async def test_a_client_that_leaves_takes_its_request_with_it_at_once(proxy: Front, phase: str):
    reached, gone = asyncio.Event(), asyncio.Event()

    async def route(talk: Talk) -> None:
        await talk.head()
        if phase == "streaming":
            await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        reached.set()
        await talk.rest()
        gone.set()

    await proxy.publish("chat", await proxy.route(route))
    talk = await proxy.connect()
    framing = b"Content-Length: 1000\r\n\r\nx" if phase == "uploading" else b"\r\n"
    await talk.send(b"POST /d/chat/ HTTP/1.1\r\nHost: front\r\n" + framing)
    async with asyncio.timeout(20):
        await reached.wait()
        if phase == "streaming":
            await talk.head()
        await talk.close()
        await gone.wait()


async def test_a_client_that_only_closes_its_writing_side_has_left(proxy: Front):
    reached, gone = asyncio.Event(), asyncio.Event()

    async def thinking(talk: Talk) -> None:
        await talk.head()
        reached.set()
        await talk.rest()
        gone.set()

    await proxy.publish("chat", await proxy.route(thinking))
    talk = await proxy.connect()
    await talk.send(b"GET /d/chat/ HTTP/1.1\r\nHost: front\r\n\r\n")
    async with asyncio.timeout(20):
        await reached.wait()
        talk.writer.write_eof()
        await gone.wait()
    await talk.close()


@pytest.mark.parametrize("framing", [b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_an_answer_that_breaks_off_never_looks_complete(proxy: Front, framing: bytes):
    async def breaking(talk: Talk) -> None:
        await talk.head()
        part = b"5\r\nhello\r\n" if b"chunked" in framing else b"hello"
        await talk.send(b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (framing, part))
        talk.writer.transport.abort()

    await proxy.publish("chat", await proxy.route(breaking))
    talk = await proxy.connect()
    await talk.send(b"GET /d/chat/ HTTP/1.1\r\nHost: front\r\n\r\n")
    async with asyncio.timeout(20):
        try:
            answer = await talk.rest()
        except ConnectionError:
            answer = b""
    assert not answer.endswith(b"0\r\n\r\n")
    await talk.close()


async def test_an_answer_before_the_whole_body_is_delivered_and_both_ends_close(proxy: Front):
    gone = asyncio.Event()

    async def early(talk: Talk) -> None:
        await talk.head()
        await talk.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await talk.rest()
        gone.set()

    await proxy.publish("chat", await proxy.route(early))
    talk = await proxy.connect()
    await talk.send(
        b"POST /d/chat/ HTTP/1.1\r\nHost: front\r\nContent-Length: 1000000\r\n\r\nbeginning"
    )
    async with asyncio.timeout(20):
        head = await talk.head()
        assert head.startswith(b"HTTP/1.1 413 Too Large")
        assert b"Connection: close" in head
        assert await talk.reader.readexactly(2) == b"no"
        await gone.wait()
    await talk.close()


async def test_100_continue_is_said_once_a_route_is_connected(proxy: Front):
    echo = Echo()
    await proxy.publish("chat", await proxy.route(echo))
    talk = await proxy.connect()
    fields = b"Host: front\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n"
    await talk.send(b"POST /d/chat/ HTTP/1.1\r\n%b\r\n" % fields)
    async with asyncio.timeout(20):
        assert await talk.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await talk.send(b"hello")
        assert (await talk.rest()).endswith(b"\r\n\r\nhello")
    assert b"Expect" not in echo.requests[0][0]
    await talk.close()


@pytest.mark.parametrize("who", ["the route", "the client"])
async def test_an_answer_is_cut_off_when_either_side_stands_still(proxy: Front, who: str):
    gone = asyncio.Event()

    async def streaming(talk: Talk) -> None:
        await talk.head()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        if who == "the client":
            for _ in range(10_000):
                await talk.send(CHUNK)
        await talk.rest()

    async def route(talk: Talk) -> None:
        try:
            await streaming(talk)
        finally:
            gone.set()

    await proxy.publish("chat", await proxy.route(route), idle_s=0.3)
    talk = await proxy.connect()
    await talk.send(b"GET /d/chat/ HTTP/1.1\r\nHost: front\r\n\r\n")
    async with asyncio.timeout(20):
        await talk.head()
        talk.writer.transport.pause_reading()
        await gone.wait()
    await talk.close()


async def test_a_cookie_keeps_a_client_on_its_route(proxy: Front):
    await proxy.publish(
        "chat", *[await proxy.route(saying(name)) for name in (b"a", b"b", b"c")], affinity="cookie"
    )
    head, first = await proxy.get("/d/chat/")
    [cookie] = [line for line in head.split(b"\r\n") if line.startswith(b"Set-Cookie: iris_route=")]
    assert cookie.endswith(b"; Path=/d/chat; HttpOnly; SameSite=Lax")
    value = cookie.removeprefix(b"Set-Cookie: ").partition(b";")[0]
    for _ in range(20):
        head, body = await proxy.get("/d/chat/", b"Cookie: %b\r\n" % value)
        assert (body, b"Set-Cookie" in head) == (first, False)


async def test_a_service_sets_its_own_cookies_and_not_the_dashboards(proxy: Front):
    fields = b"Set-Cookie: iris_token=x\r\nSet-Cookie: __Host-iris_token=x; Secure\r\nSet-Cookie: theme=dark\r\n"
    await proxy.publish("chat", await proxy.route(saying(b"ok", fields=fields)))
    head, _ = await proxy.get("/d/chat/")
    assert [line for line in head.split(b"\r\n") if line.startswith(b"Set-Cookie")] == [
        b"Set-Cookie: theme=dark"
    ]


async def test_connect_is_refused(proxy: Front):
    echo = Echo()
    await proxy.publish("chat", await proxy.route(echo))
    head, _ = await proxy.get("/d/chat/", method=b"CONNECT")
    assert (head.split(b" ")[1], echo.requests) == (b"400", [])


SIZE = 100_000_000
CHUNK = b"0123456789abcdef" * 4096


async def test_100_mb_each_way_take_little_memory_though_one_side_is_slow(proxy: Front):
    received = asyncio.get_running_loop().create_future()

    async def both(talk: Talk) -> None:
        await talk.head()
        taken = 0
        while taken < SIZE:
            taken += len(await talk.reader.read(1 << 16))
        received.set_result(taken)
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        for _ in range(SIZE // len(CHUNK) + 1):
            await talk.send(CHUNK)

    await proxy.publish("chat", await proxy.route(both))
    before = proxy.rss_bytes()
    talk = await proxy.connect()
    await talk.send(b"POST /d/chat/ HTTP/1.1\r\nHost: front\r\nContent-Length: %d\r\n\r\n" % SIZE)
    most = sent = 0
    async with asyncio.timeout(120):
        while sent < SIZE:
            await talk.send(CHUNK[: SIZE - sent])
            sent += min(len(CHUNK), SIZE - sent)
            most = max(most, proxy.rss_bytes()) if sent % (len(CHUNK) * 64) == 0 else most
        assert await received == SIZE
        await talk.head()
        got = 0
        while got < SIZE:
            got += len(await talk.reader.read(1 << 16))
            most = max(most, proxy.rss_bytes()) if got % 64 == 0 else most
    await talk.close()
    assert most - before < 20_000_000


# --- websockets


async def test_a_websocket_is_a_tunnel_for_bytes_both_ways(proxy: Front):
    async def upgrading(talk: Talk) -> None:
        head = await talk.head()
        assert b"Upgrade: websocket" in head
        await talk.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\nfirst"
        )
        while data := await talk.reader.read(1 << 16):
            await talk.send(data)

    await proxy.publish("chat", await proxy.route(upgrading))
    talk = await proxy.connect()
    upgrade = b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n"
    await talk.send(b"GET /d/chat/ws HTTP/1.1\r\nHost: front\r\n%b\r\nearly" % upgrade)
    async with asyncio.timeout(60):
        head = await talk.head()
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-WebSocket-Extensions: permessage-deflate" in head
        assert await talk.reader.readexactly(10) == b"firstearly"
        big = CHUNK * 64
        sending = asyncio.create_task(talk.send(big))
        assert await talk.reader.readexactly(len(big)) == big
        await sending
    await talk.close()


async def test_a_websocket_the_service_declines_is_an_ordinary_answer(proxy: Front):
    await proxy.publish("chat", await proxy.route(saying(b"who are you?", b"401 Unauthorized")))
    upgrade = b"Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n"
    talk = await proxy.connect()
    await talk.send(
        b"GET /d/chat/ws HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\n%b\r\n" % upgrade
    )
    async with asyncio.timeout(20):
        head = await talk.head()
        assert head.startswith(b"HTTP/1.1 401 Unauthorized")
        assert await talk.reader.readexactly(12) == b"who are you?"
    await talk.close()


async def test_when_either_end_of_a_websocket_closes_so_does_the_other(proxy: Front):
    gone = asyncio.Event()
    close = asyncio.Event()

    async def upgrading(talk: Talk) -> None:
        await talk.head()
        await talk.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        )
        ended = asyncio.create_task(talk.rest())
        await asyncio.wait(
            {ended, asyncio.create_task(close.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        gone.set()

    await proxy.publish("chat", await proxy.route(upgrading))
    request = b"GET /d/chat/ws HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with asyncio.timeout(20):
        talk = await proxy.connect()
        await talk.send(request)
        await talk.head()
        await talk.close()
        await gone.wait()
        talk = await proxy.connect()
        await talk.send(request)
        await talk.head()
        close.set()
        assert await talk.rest() == b""
        await talk.close()


# --- changes of the set, and the end


async def test_a_route_that_leaves_the_set_gets_nothing_new_and_ends_what_it_has(proxy: Front):
    slow = Held(b"old")
    old, new = await proxy.route(slow), await proxy.route(saying(b"new"))
    await proxy.publish("chat", old)
    first = asyncio.create_task(proxy.get("/d/chat/"))
    await slow.reached.wait()
    await proxy.publish("chat", new)
    assert [(await proxy.get("/d/chat/"))[1] for _ in range(5)] == [b"new"] * 5
    slow.go.set()
    assert ((await first)[1], old.connections) == (b"old", 1)


async def test_idle_connections_to_a_route_that_leaves_are_closed(proxy: Front):
    ended = asyncio.Event()

    async def waiting(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await talk.rest()
        ended.set()

    await proxy.publish("chat", await proxy.route(waiting))
    await proxy.get("/d/chat/")
    await proxy.publish("chat", reason="draining")
    async with asyncio.timeout(20):
        await ended.wait()


async def test_metrics_count_requests_by_status(proxy: Front):
    await proxy.publish("chat", await proxy.route(saying(b"ok")))
    for _ in range(3):
        await proxy.get("/d/chat/")
    assert await proxy.counted('iris_proxy_requests_total{status="200"}') == 3
    assert await proxy.counted("iris_proxy_request_seconds_count") >= 3
