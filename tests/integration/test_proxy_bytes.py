"""The proxy with raw bytes: each rule of the design, and each deviation because of aiohttp.

An exception to the design says so in its comment; docs/access.md lists them.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from iris_service.child import end_with_parent
from tests.support.cluster import until
from tests.support.nats_config import free_ports
from tests.support.proxy import Front, Talk, front, saying

pytestmark = pytest.mark.integration

CLOSE = b"Host: a\r\nConnection: close\r\n"
CODED = b"Transfer-Encoding: chunked\r\n"
CHUNKED = CLOSE + CODED + b"\r\n"
EMPTY = b"0\r\n\r\n"


@pytest.fixture
async def proxy(connection, nats_url, tmp_path):
    async with front(connection, nats_url, tmp_path) as made:
        yield made


def get(
    fields: bytes = CLOSE,
    target: bytes = b"/d/c/",
    method: bytes = b"GET",
    version: bytes = b"HTTP/1.1",
) -> bytes:
    return b"%b %b %b\r\n%b\r\n" % (method, target, version, fields)


def post(fields: bytes, body: bytes = b"") -> bytes:
    return b"POST /d/c/ HTTP/1.1\r\n%b%b" % (fields, body)


REFUSED = {
    "length and coding": (400, post(b"Host: a\r\nContent-Length: 3\r\n%b\r\n" % CODED, EMPTY)),
    "coding and length": (400, post(b"Host: a\r\n%bContent-Length: 3\r\n\r\n" % CODED, EMPTY)),
    "two lengths": (
        400,
        post(b"Host: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", b"abcd"),
    ),
    "a list of lengths": (400, post(b"Host: a\r\nContent-Length: 3, 3\r\n\r\n", b"abc")),
    "a signed length": (400, post(b"Host: a\r\nContent-Length: +3\r\n\r\n", b"abc")),
    "a negative length": (400, post(b"Host: a\r\nContent-Length: -3\r\n\r\n", b"abc")),
    "a second coding": (
        400,
        post(b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"0\r\n\r\n"),
    ),
    "an unknown coding": (
        400,
        post(b"Host: a\r\nTransfer-Encoding: xchunked\r\n\r\n", b"0\r\n\r\n"),
    ),
    "identity": (400, post(b"Host: a\r\nTransfer-Encoding: identity\r\n\r\n", b"abc")),
    "a coding twice": (400, post(b"Host: a\r\n%b%b\r\n" % (CODED, CODED), EMPTY)),
    "a coding in HTTP/1.0": (
        400,
        b"POST /d/c/ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "bare LF": (400, b"GET /d/c/ HTTP/1.1\nHost: a\n\n"),
    "bare LF in a field": (400, get(b"Host: a\nX: 1\r\n")),
    "bare CR in a field": (400, get(b"Host: a\r\nX: a\rb\r\n")),
    "folding": (400, get(b"Host: a\r\nX: 1\r\n 2\r\n")),
    "space before the colon": (400, get(b"Host: a\r\nX : 1\r\n")),
    "NUL in a value": (400, get(b"Host: a\r\nX: \0\r\n")),
    "NUL in a name": (400, get(b"Host: a\r\nX\0: 1\r\n")),
    "a control character": (400, get(b"Host: a\r\nX: a\1b\r\n")),
    "no host": (400, get(b"")),
    "two hosts": (400, get(b"Host: a\r\nHost: b\r\n")),
    "two tokens": (400, get(b"Host: a\r\nAuthorization: a\r\nauthorization: b\r\n")),
    "no host in HTTP/1.0": (400, get(b"", version=b"HTTP/1.0")),
    "HTTP/0.9": (400, b"GET /d/c/\r\n\r\n"),
    "HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"),
    "a head over 64 KiB": (
        431,
        get(CLOSE + b"".join(b"X%d: %b\r\n" % (n, b"a" * 1000) for n in range(70))),
    ),
    "CONNECT": (400, get(target=b"x:1", method=b"CONNECT")),
    # The design wants 414 for this one.
    "a target over 16 KiB": (431, get(target=b"/d/c/" + b"a" * 20_000)),
    "a field over 16 KiB": (431, get(CLOSE + b"X: %b\r\n" % (b"a" * 20_000))),
    "more than 200 fields": (431, get(CLOSE + b"".join(b"X%d: a\r\n" % n for n in range(250)))),
    # HTTP allows these; aiohttp's parser, or this proxy, does not.
    "a method nobody knows": (400, get(method=b"BREW")),
    "a method in lower case": (400, get(method=b"get")),
    "a target with host": (400, get(target=b"http://a/d/c/")),
    "OPTIONS *": (400, get(target=b"*", method=b"OPTIONS")),
    "bytes beyond ASCII in a target": (400, get(target=b"/d/c/\xc3\xa9")),
    # The body is found wrong while the route has its beginning already; it is cut off there.
    "a bad chunk size": (400, post(CHUNKED, b"zz\r\nabc\r\n0\r\n\r\n")),
    "a chunk size in hexadecimal notation": (400, post(CHUNKED, b"0x3\r\nabc\r\n0\r\n\r\n")),
    "bare LF in chunks": (400, post(CHUNKED, b"3\nabc\n0\n\n")),
}


ALLOWED = {
    "chunks": post(CHUNKED, b"3;x=y\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n"),
    "a length": post(CLOSE + b"Content-Length: 3\r\n\r\n", b"abc"),
    "no body": get(method=b"DELETE"),
    "HTTP/1.0": get(version=b"HTTP/1.0"),
    "an escaped target": get(target=b"/d/c/%2F/a//b;p?q=%zz&&r"),
    "an offer of h2c": get(
        b"Host: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
    ),
    "a field named by Connection": get(b"Host: a\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n"),
    "Latin-1": get(CLOSE + b"X: caf\xe9\r\n"),
}


async def test_ambiguous_requests_are_refused_and_never_forwarded(proxy: Front):
    whole: list[tuple[bytes, bytes]] = []

    async def listening(talk: Talk) -> None:
        while True:
            whole.append(await talk.request())
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    await proxy.publish("c", await proxy.route(listening))
    statuses = {}
    for name, (_, data) in REFUSED.items():
        head, _, body = (await proxy.send(data)).partition(b"\r\n\r\n")
        statuses[name] = int(head.split(b" ", 2)[1])
        assert b"\r\nIris-Proxy: 1\r\n" in head, name
        assert json.loads(body)["status"] == statuses[name], name
    assert statuses == {name: status for name, (status, _) in REFUSED.items()}
    assert whole == []


NGINX = """
daemon off; worker_processes 1; pid nginx.pid; error_log error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; keepalive_timeout 0; large_client_header_buffers 4 16k;
  client_header_timeout 1s; client_body_timeout 1s;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  server {{ listen 127.0.0.1:{port}; location /d/c/ {{
    proxy_pass http://{route}/; proxy_http_version 1.1; proxy_request_buffering off;
  }} }}
}}
"""
STRICTER = {
    "bare LF",  # lines may end so
    "bare LF in a field",
    "a control character",
    "no host in HTTP/1.0",
    "HTTP/0.9",
    "more than 200 fields",
    "a method nobody knows",
    "a target with host",
    "bytes beyond ASCII in a target",
    "bare LF in chunks",
}
"""What nginx passes on and this proxy refuses, of `REFUSED`; docs/access.md#the-proxy."""


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def nginx(root: Path, route: str) -> Iterator[int]:
    """A proxy before the same route; its port."""
    [port] = free_ports(1)
    (root / "nginx.conf").write_text(NGINX.format(port=port, route=route))
    command = [
        "nginx",
        "-p",
        f"{root}/",
        "-c",
        str(root / "nginx.conf"),
        "-g",
        f"user {psutil.Process().username()};",
    ]
    process = subprocess.Popen(command, cwd=root, preexec_fn=end_with_parent())  # noqa: PLW1509 - one system call
    try:
        until(lambda: listens(port), "nginx listens")
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.mark.needs("nginx")
async def test_nothing_is_passed_on_that_nginx_refuses(proxy: Front, tmp_path: Path):
    route = await proxy.route(saying(b"ok"))
    await proxy.publish("c", route)
    passed = set()
    with nginx(tmp_path, route.address) as port:
        for name, (_, data) in REFUSED.items():
            talk = Talk(*await asyncio.open_connection("127.0.0.1", port))
            await talk.send(data)
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionError):
                    if (await talk.rest()).startswith((b"HTTP/1.1 200 ", b"ok")):
                        passed.add(name)
            await talk.close()
        for name, data in ALLOWED.items():
            answers = [await proxy.send(data), await sent_to(port, data)]
            assert [answer.split(b" ")[1] for answer in answers] == [b"200", b"200"], name
    assert passed == STRICTER


async def sent_to(port: int, data: bytes) -> bytes:
    talk = Talk(*await asyncio.open_connection("127.0.0.1", port))
    await talk.send(data)
    async with asyncio.timeout(60):
        answer = await talk.rest()
    await talk.close()
    return answer


async def test_what_is_allowed_reaches_the_route_framed_anew(proxy: Front):
    heard: list[tuple[bytes, bytes]] = []

    async def echo(talk: Talk) -> None:
        while True:
            heard.append(await talk.request())
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def sent(data: bytes) -> tuple[list[bytes], bytes]:
        """The lines and the body the route gets, without what the proxy always adds."""
        heard.clear()
        answer = await proxy.send(data)
        assert answer.startswith(b"HTTP/1.1 200 OK"), answer
        [(head, body)] = heard
        return [
            line for line in head.split(b"\r\n") if line and not line.startswith(b"X-Forwarded-")
        ], body

    await proxy.publish("c", await proxy.route(echo))
    start, host = b"POST / HTTP/1.1", b"Host: a"
    chunks = b"Transfer-Encoding: chunked"
    assert await sent(post(CHUNKED, b"3;x=y\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n")) == (
        [start, host, chunks],
        b"abc",
    )
    assert await sent(post(CLOSE + b"Content-Length: 3\r\n\r\n", b"abc")) == (
        [start, host, b"Content-Length: 3"],
        b"abc",
    )
    assert await sent(get(method=b"DELETE")) == (
        [b"DELETE / HTTP/1.1", host, b"Content-Length: 0"],
        b"",
    )
    assert await sent(get(target=b"/d/c/%2F/../a//b;p[]{}|\\?q=%zz&&r")) == (
        [b"GET /%2F/../a//b;p[]{}|\\?q=%zz&&r HTTP/1.1", host],
        b"",
    )
    assert await sent(get(target=b"/d/c/?")) == ([b"GET /? HTTP/1.1", host], b"")
    h2c = b"Host: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
    assert await sent(get(h2c)) == ([b"GET / HTTP/1.1", host], b"")
    assert await sent(get(b"Host: a\r\nConnection: close, Host\r\n")) == (
        [b"GET / HTTP/1.1", host],
        b"",
    )
    # Names of well-known fields come out in their usual case, and Latin-1 as UTF-8.
    odd = CLOSE + b"user-AGENT: u\r\nx-OwN: caf\xe9\r\n"
    assert await sent(get(odd)) == (
        [b"GET / HTTP/1.1", host, b"User-Agent: u", b"x-OwN: caf\xc3\xa9"],
        b"",
    )


async def test_pipelined_requests_are_answered_in_their_order(proxy: Front):
    async def naming(talk: Talk) -> None:
        while True:
            head, _ = await talk.request()
            path = head.split(b" ")[1]
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))

    await proxy.publish("c", await proxy.route(naming))
    data = b"".join(get(b"Host: a\r\n", b"/d/c/%d" % n) for n in range(5)) + get(target=b"/d/c/5")
    answer = await proxy.send(data)
    assert [part.rsplit(b"\r\n\r\n")[1] for part in answer.split(b"HTTP/1.1 200 OK")[1:]] == [
        b"/%d" % n for n in range(6)
    ]


ANSWERS = {
    b"HTTP/1.1 204 No Content\r\n\r\n": 204,
    b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n": 304,
    b"HTTP/1.1 000 None\r\nContent-Length: 2\r\n\r\nab": 502,
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab": 502,
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n%b\r\n%b" % (CODED, EMPTY): 502,
    b"nonsense\r\n\r\n": 502,
    b"HTTP/1.1 200 OK\r\nX: a\1b\r\nContent-Length: 0\r\n\r\n": 502,
    b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n": 502,
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n": 502,
    b"HTTP/1.1 200 O\1K\r\nContent-Length: 0\r\n\r\n": 502,
    b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n": 999,
    b"HTTP/1.1 200 OK\r\nX: %b\r\n\r\n" % (b"a" * 20_000): 502,
}


async def test_answers_of_every_kind_arrive_or_are_502(proxy: Front):
    async def speaking(talk: Talk) -> None:
        while True:
            head, _ = await talk.request()
            await talk.send(list(ANSWERS)[int(head.split(b" ")[1][1:])])

    await proxy.publish("c", await proxy.route(speaking))
    statuses = {}
    for n, answer in enumerate(ANSWERS):
        head, body = await proxy.get(f"/d/c/{n}")
        statuses[answer] = int(head.split(b" ")[1])
        assert body == b"" or b"bad_gateway" in body
    assert statuses == ANSWERS


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_an_interim_answer_is_passed_on_to_clients_that_know_of_them(
    proxy: Front, version: bytes
):
    async def hinting(talk: Talk) -> None:
        await talk.request()
        await talk.send(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\nKeep-Alive: 1\r\n\r\n"
        )
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    await proxy.publish("c", await proxy.route(hinting))
    *interim, head, body = (await proxy.send(get(version=version))).split(b"\r\n\r\n")
    assert interim == ([b"HTTP/1.1 103 Early Hints\r\nLink: x"] if version == b"HTTP/1.1" else [])
    assert (head.startswith(version + b" 200 OK"), body) == (True, b"ok")


async def test_a_head_goes_through_without_fields_of_ours(proxy: Front):
    await proxy.publish("c", await proxy.route(saying(b"ok", fields=b"X-One: 1\r\n")))
    answer = await proxy.send(get())
    assert (
        answer == b"HTTP/1.1 200 OK\r\nX-One: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    )


async def test_the_answer_to_head_has_the_length_and_no_body(proxy: Front):
    async def heading(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")

    route = await proxy.route(heading)
    await proxy.publish("c", route)
    for _ in range(3):
        head, body = await proxy.get("/d/c/", method=b"HEAD")
        assert (b"Content-Length: 1234" in head, body) == (True, b"")
    assert route.connections == 1


async def test_an_answer_that_ends_with_its_connection_arrives_whole(proxy: Front):
    async def old(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

    await proxy.publish("c", await proxy.route(old))
    talk = await proxy.connect()
    await talk.send(get(b"Host: a\r\n"))
    async with asyncio.timeout(60):
        head = await talk.head()
        assert await talk.body(head) == b"until the end"
    await talk.close()


async def test_a_client_of_http_1_0_gets_an_answer_without_chunks(proxy: Front):
    async def chunked(talk: Talk) -> None:
        await talk.request()
        await talk.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )

    await proxy.publish("c", await proxy.route(chunked))
    answer = await proxy.send(b"GET /d/c/ HTTP/1.0\r\nHost: a\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (body, b"chunked" in head) == (b"hello", False)


async def test_a_connection_whose_first_request_does_not_come_is_closed(
    connection, nats_url, tmp_path
):
    async with front(connection, nats_url, tmp_path, "proxy.head_s=0.1") as proxy:
        talk = await proxy.connect()
        with contextlib.suppress(ConnectionError):  # it was closed before this was sent
            await talk.send(b"GET /d/c/ HTT")
            async with asyncio.timeout(60):
                assert await talk.rest() == b""
        await talk.close()
