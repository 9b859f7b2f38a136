"""HTTP connections on real sockets: slow request heads, and many connections from one address."""

import asyncio
import socket
from contextlib import asynccontextmanager

import httpx
import pytest

from iris_gateway.service import HttpServer
from iris_gateway.settings import GatewaySettings
from tests.support.gateway import House, house, listening


@asynccontextmanager
async def gateway(**settings):
    async with house(**settings) as iris, listening(iris, **settings) as http:
        yield http


async def connect(http: httpx.AsyncClient, sent: bytes = b"") -> asyncio.StreamReader:
    """A connection on which this is there before the gateway accepts it, however busy the host is."""
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


HEAD = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"
REFUSED = b"POST /nothing HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n"


async def serves(http: httpx.AsyncClient) -> bool:
    """Whether a request that arrives as a whole is answered, and not turned away before it was read."""
    try:
        answer = await ended(await connect(http, HEAD + b"connection: close\r\n\r\n"))
    except ConnectionResetError:
        return False
    return answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"G", HEAD, b"\r\n\r\n", HEAD + b"\r\n" + HEAD])
async def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes):
    async with gateway(head_s=0.05) as http:
        answer = await ended(await connect(http, sent))
        assert b"HTTP/1.1 408 Request Timeout" in answer
        assert await serves(http)


async def test_the_rest_of_a_body_that_was_refused_is_not_waited_for():
    async with gateway(head_s=0.05) as http:
        reader = await connect(http, REFUSED)
        assert await reader.readuntil(b"}") != b""
        connections[0].write(b"x")
        assert (await ended(reader)).startswith(b"HTTP/1.1 408")


async def test_a_crowd_of_slow_heads_is_let_go_and_who_speaks_is_answered():
    async with gateway(head_s=0.2) as http:
        crowd = [await connect(http, HEAD) for _ in range(200)]
        assert await serves(http)
        assert {(await ended(reader))[:12] for reader in crowd} == {b"HTTP/1.1 408"}


async def test_a_body_may_take_longer_than_a_head():
    async with gateway(head_s=0.05) as http:
        head = b"PUT /v1/bundles/%b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n" % (b"0" * 64)
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
