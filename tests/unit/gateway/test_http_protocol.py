"""HTTP connections on real sockets: slow request heads, and many connections from one address."""

import asyncio
import contextlib
import json
import logging
import socket
from contextlib import asynccontextmanager

import httpx
import pytest
from httptools import HttpParserCallbackError

from iris_core.messages.gateway_state import Answer
from iris_gateway.http.protocol import Connections, refusal
from iris_gateway.service import HttpServer
from iris_gateway.settings import GatewaySettings
from iris_service.listening import listen
from tests.support.gateway import House, house, listening


@asynccontextmanager
async def gateway(**settings):
    async with house(**settings) as iris, listening(iris, **settings) as http:
        yield http


async def connect(http: httpx.AsyncClient, sent: bytes = b"") -> asyncio.StreamReader:
    """A connection on which this is there before the gateway accepts it, however busy the host
    is.
    """
    there = socket.create_connection((http.base_url.host, http.base_url.port))
    there.sendall(sent)
    reader, writer = await asyncio.open_connection(sock=there)
    connections.append(writer)
    return reader


connections: list[asyncio.StreamWriter] = []


@pytest.fixture(autouse=True)
async def hung_up():
    yield
    while connections:
        connections.pop().close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All the gateway says, until it hangs up."""
    async with asyncio.timeout(60):
        return await reader.read()


HEAD_S = 0.5
"""So long a head is waited for: longer than a busy machine pauses."""
HEAD = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"
REFUSED = b"POST /nothing HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n"


async def serves(http: httpx.AsyncClient) -> bool:
    """Whether a request that arrives as a whole is answered, and not turned away before it was
    read.
    """
    try:
        answer = await ended(await connect(http, HEAD + b"connection: close\r\n\r\n"))
    except ConnectionResetError:
        return False
    return answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"G", HEAD, b"\r\n\r\n", HEAD + b"\r\n" + HEAD])
async def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes):
    async with gateway(head_s=HEAD_S) as http:
        answer = await ended(await connect(http, sent))
        assert b"HTTP/1.1 408 Request Timeout" in answer
        assert await serves(http)


async def test_a_connection_on_which_nothing_is_sent_is_closed_and_not_counted():
    async with gateway(head_s=HEAD_S) as http:
        assert await ended(await connect(http)) == b""
        metrics = await ended(
            await connect(http, get(HOST, b"Connection: close", target=b"/metrics"))
        )
    assert metrics.startswith(b"HTTP/1.1 200 ")
    assert b'code="timeout"' not in metrics


async def test_the_rest_of_a_body_that_was_refused_is_not_waited_for():
    async with gateway(head_s=HEAD_S) as http:
        reader = await connect(http, REFUSED)
        assert await reader.readuntil(b"}") != b""
        connections[0].write(b"x")
        assert (await ended(reader)).startswith(b"HTTP/1.1 408")


async def test_who_has_sent_all_of_a_body_that_was_refused_is_told_nothing():
    """It would be the answer to the next request."""
    async with gateway(head_s=HEAD_S) as http:
        reader = await connect(http, REFUSED)
        assert await reader.readuntil(b"}") != b""
        connections[0].write(b"x" * 1000)
        assert await ended(reader) == b""


async def test_a_crowd_of_slow_heads_is_let_go_and_who_speaks_is_answered():
    async with gateway(head_s=HEAD_S) as http:
        crowd = [await connect(http, HEAD) for _ in range(200)]
        assert await serves(http)
        assert {(await ended(reader))[:12] for reader in crowd} == {b"HTTP/1.1 408"}


async def test_a_body_may_take_longer_than_a_head():
    async with gateway(head_s=HEAD_S) as http:
        head = b"PUT /v1/bundles/%b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n" % (
            b"0" * 64
        )
        upload = await connect(http, head + b"connection: close\r\n\r\nx")
        for _ in range(3):
            assert await ended(await connect(http, HEAD))
        connections[0].write(b"x")
        assert (await ended(upload)).startswith(b"HTTP/1.1 422")


async def test_one_address_has_only_so_many_connections():
    async with gateway(connections_per_address=3) as http:
        held = [await connect(http, HEAD) for _ in range(3)]
        async with asyncio.timeout(60):
            answer = await (await connect(http)).read()
        assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"retry-after: 1\r\n" in answer
        connections.pop(0).close()
        async with asyncio.timeout(60):
            while not await serves(http):
                pass
        assert not any(reader.at_eof() for reader in held[1:])


async def test_an_idle_gateway_wakes_once_a_second_and_exits_when_told(iris: House):
    times_s = []

    class Server(HttpServer):
        async def on_tick(self, counter: int) -> bool:
            times_s.append(asyncio.get_running_loop().time())
            self.should_exit = len(times_s) == 2
            return await super().on_tick(counter)

    await Server(iris.gateway, GatewaySettings()).main_loop()
    assert times_s[1] - times_s[0] > 0.9


def get(*fields: bytes, target: bytes = b"/healthz", version: bytes = b"1.1") -> bytes:
    return b"GET %b HTTP/%b\r\n%b\r\n" % (
        target,
        version,
        b"".join(b"%b\r\n" % field for field in fields),
    )


HOST, CHUNKED = b"Host: 127.0.0.1", b"Transfer-Encoding: chunked"
CODINGS = "the only transfer coding is chunked, and only in HTTP/1.1"
UNREADABLE = {
    "no host": (get(), "it has no field Host"),
    "HTTP/0.9": (b"GET /healthz\r\n\r\n", "it has no field Host"),
    "two hosts": (get(HOST, b"hOST: other"), "it has 2 Host fields, at most 1 is allowed"),
    "two tokens": (
        get(HOST, b"Authorization: a", b"Authorization: b"),
        "it has 2 Authorization fields, at most 1 is allowed",
    ),
    "two lengths": (
        get(HOST, b"Content-Length: 1", b"Content-Length: 1"),
        "Duplicate Content-Length",
    ),
    "length and coding": (
        get(HOST, b"Content-Length: 1", CHUNKED),
        "Transfer-Encoding can't be present with Content-Length",
    ),
    "coding and length": (
        get(HOST, CHUNKED, b"Content-Length: 1"),
        "Content-Length can't be present with Transfer-Encoding",
    ),
    "another coding": (get(HOST, b"Transfer-Encoding: gzip, chunked"), CODINGS),
    "two codings": (get(HOST, CHUNKED, CHUNKED), "Invalid `Transfer-Encoding` header value"),
    "two lines of codings": (get(HOST, b"Transfer-Encoding: gzip", CHUNKED), CODINGS),
    "a coding in HTTP/1.0": (get(HOST, CHUNKED, version=b"1.0"), CODINGS),
    "not ASCII": (get(HOST, target=b"/\xff"), "Invalid char in url path"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "Invalid method encountered"),
    "no path": (get(HOST, target=b"http://127.0.0.1"), "its target has no path"),
    "CONNECT": (get(HOST, target=b"x:1").replace(b"GET", b"CONNECT"), "invalid url b'x:1'"),
}
TOO_LARGE = {
    "field x has 17005 bytes, at most 16384 are accepted": get(HOST, b"X: %b" % (b"a" * 17_000)),
    "the target has 17009 bytes, at most 16384 are accepted": get(
        HOST, target=b"/healthz?%b" % (b"a" * 17_000)
    ),
    "the head has 251 fields, at most 200 are accepted": get(
        HOST, *(b"X%d: a" % number for number in range(250))
    ),
    "the head has 70505 bytes, at most 65536 are accepted": get(
        HOST, *(b"X%d: %b" % (number, b"a" * 1000) for number in range(70))
    ),
}


async def problem(http: httpx.AsyncClient, sent: bytes) -> dict[str, object]:
    """The problem document of a refusal, after which the gateway has hung up."""
    reader = await connect(http)
    connections[-1].write(sent)
    head, _, body = (await ended(reader)).partition(b"\r\n\r\n")
    document = json.loads(body)
    assert b"connection: close" in head
    assert b"content-type: application/problem+json" in head
    assert head.startswith(b"HTTP/1.1 %d " % document["status"])
    return document


async def test_a_request_that_could_be_read_in_two_ways_is_malformed():
    async with gateway() as http:
        found = {name: await problem(http, sent) for name, (sent, _) in UNREADABLE.items()}
    why = {
        name: f"the request is not valid HTTP: {detail}" for name, (_, detail) in UNREADABLE.items()
    }
    assert {name: document["detail"] for name, document in found.items()} == why
    assert {document["code"] for document in found.values()} == {"malformed"}


async def test_a_head_that_is_too_large_is_431():
    async with gateway() as http:
        found = [await problem(http, sent) for sent in TOO_LARGE.values()]
    assert [document["detail"] for document in found] == [*TOO_LARGE]
    assert {document["code"] for document in found} == {"head_too_large"}


async def test_a_head_without_an_end_is_not_kept():
    async with gateway(head_s=3600) as http:
        reader = await connect(http, b"GET /healthz HTTP/1.1\r\nX: ")
        connections[-1].write(b"a" * 140_000)
        try:
            answer = await ended(reader)
        except ConnectionResetError:  # it was refused before all of it was read
            return
    assert answer.startswith(b"HTTP/1.1 431 ")


UPLOAD = b"PUT /v1/bundles/%b HTTP/1.1\r\n%b\r\nConnection: close\r\n%b\r\n\r\n" % (
    b"0" * 64,
    HOST,
    CHUNKED,
)


async def test_fields_after_a_body_are_dropped_and_limited():
    async with gateway() as http:
        short = await connect(http, UPLOAD + b"1\r\nx\r\n0\r\nHost: other\r\n\r\n")
        assert (await ended(short)).startswith(b"HTTP/1.1 422 ")
        endless = await connect(http, UPLOAD + b"1\r\nx\r\n0\r\nX: ")
        connections[-1].write(b"a" * 140_000)
        try:
            answer = await ended(endless)
        except ConnectionResetError:  # it was refused before all of it was read
            return
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_chunk_of_a_body_may_be_longer_than_a_head():
    async with gateway() as http:
        reader = await connect(http, UPLOAD + b"%x\r\n" % 200_000)
        connections[-1].write(b"a" * 200_000 + b"\r\n0\r\n\r\n")
        assert (await ended(reader)).startswith(b"HTTP/1.1 422 ")


def test_what_the_gateway_itself_raises_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture):
    error = HttpParserCallbackError("the user callback failed")
    error.__context__ = RuntimeError("secret")
    assert (refusal(error).code, "secret" in refusal(error).detail) == ("internal", False)
    assert "RuntimeError: secret" in caplog.text


async def test_a_large_head_and_one_of_http_1_0_without_host_are_answered():
    async with gateway() as http:
        large = get(
            HOST,
            b"Connection: close",
            *(b"X%d: %b" % (number, b"a" * 15_000) for number in range(4)),
        )
        assert (await ended(await connect(http, large))).startswith(b"HTTP/1.1 200 ")
        assert (await ended(await connect(http, get(version=b"1.0")))).startswith(b"HTTP/1.1 200 ")


async def test_what_follows_a_request_is_not_answered_in_its_place():
    async with gateway() as http:
        assert (
            await ended(await connect(http, get(HOST, target=b"/v1/jobs") + b"\0\r\n\r\n")) == b""
        )
        assert 'code="malformed"' not in (await http.get("/metrics")).text


async def test_malformed_requests_are_logged_once_with_an_address_and_counted(
    caplog: pytest.LogCaptureFixture,
):
    async with gateway() as http:
        for _ in range(3):
            await problem(http, get())
        metrics = (await http.get("/metrics")).text
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == [
        "a client at 127.0.0.1 was refused: the request is not valid HTTP: it has no field Host "
        "(1 since the last such line)"
    ]
    assert 'iris_http_problems_total{code="malformed"} 3.0' in metrics


def test_connections_without_a_token_are_a_part_of_those_of_an_address():
    open_ones = Connections(head_s=1.0, per_address=4, most_open=6, anonymous_per_address=2)
    assert [open_ones.enter("10.0.0.1") for _ in range(2)] == ["", ""]
    assert open_ones.enter("10.0.0.1").endswith("without a token")
    assert open_ones.enter("10.0.0.2") == ""  # others are not affected
    open_ones.leave("10.0.0.1")
    for _ in range(2):
        open_ones.admit("10.0.0.1")
        assert open_ones.enter("10.0.0.1") == ""
    assert open_ones.enter("10.0.0.1") == "this address has too many connections"
    assert open_ones.enter("10.0.0.3") == "this gateway has too many connections"


async def test_an_admitted_request_ends_the_anonymity_of_its_connection():
    async with house() as iris:
        server = HttpServer(iris.gateway, GatewaySettings(), room=8)
        bound = listen("gateway", "127.0.0.1", 0)
        serving = asyncio.create_task(server.serve([bound]))
        await server.ready.wait()
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        anonymous = []
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            for path in ("/healthz", "/v1/jobs"):
                await http.get(path)
                anonymous.append(server.connections.anonymous.total())
        server.should_exit = True
        await serving
    assert anonymous == [1, 0]


def test_the_line_after_a_pause_says_how_many_were_refused(caplog: pytest.LogCaptureFixture):
    connections = Connections(head_s=1.0)
    for now_s in (0.0, 1.0, 9.9, 10.0):
        connections.note("10.0.0.1", "no", now_s)
    assert [record.args for record in caplog.records] == [
        ("10.0.0.1", "no", 1),
        ("10.0.0.1", "no", 3),
    ]


async def test_an_upgrade_that_is_not_supported_is_ignored_and_not_logged(
    caplog: pytest.LogCaptureFixture,
):
    async with gateway() as http:
        upgrade = get(HOST, b"Connection: upgrade, close", b"Upgrade: websocket")
        assert (await ended(await connect(http, upgrade))).startswith(b"HTTP/1.1 200 ")
    assert caplog.records == []


async def test_what_waits_for_clients_that_do_not_read_is_bounded_together():
    """The connection that has not kept up for the longest time is cut off for the others."""
    size, readers = 1 << 20, 6
    async with house() as iris:
        items = b",".join([b'{"name":"%s"}' % (b"a" * 1000)] * (size // 1000))
        iris.state.scripted["jobs"] = Answer("ok", b'{"items":[%s],"next_cursor":null}' % items)
        server = HttpServer(iris.gateway, GatewaySettings())
        server.connections.most_unread_bytes = 3 * size
        bound = listen("gateway", "127.0.0.1", 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        serving = asyncio.create_task(server.serve([bound]))
        await server.ready.wait()
        loop = asyncio.get_running_loop()
        stopped = []
        for _ in range(readers):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.setblocking(False)
            await loop.sock_connect(reader, bound.getsockname())
            await loop.sock_sendall(reader, b"GET /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert await loop.sock_recv(reader, 1) == b"H"
            stopped.append(reader)
        held = server.connections.unread_bytes
        is_whole = [await _reads(reader, size) for reader in stopped]
        for reader in stopped:
            reader.close()
        server.should_exit = True
        await serving
    assert held <= 3 * size
    assert is_whole == [False] * 4 + [True] * 2


async def _reads(reader: socket.socket, size: int) -> bool:
    """Whether so many bytes come before the connection is closed."""
    loop = asyncio.get_running_loop()
    read = 0
    with contextlib.suppress(ConnectionResetError):
        while read < size and (piece := await loop.sock_recv(reader, 1 << 16)):
            read += len(piece)
    return read >= size
