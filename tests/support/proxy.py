"""The proxy as a process on a real bus, scripted routes, and clients that send raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iris_bus.contract import KeyValue
from iris_bus.jetstream import JetStreamConnection
from iris_core import codec
from iris_core.spec.serving import DiscoveredRoute, Discovery, ProxyPolicy
from iris_core.subjects import DISCOVERY_BUCKET
from tests.support import warm
from tests.support.nats_config import free_ports, row_of_free_ports

_READY_S = 60.0
_WORKERS = 2
"""Of a proxy, at most: each serves its metrics on a port of its own, counted up from the first."""
_LOOK_S = 0.02

Answering = Callable[["Talk"], Awaitable[None]]


@dataclass
class Talk:
    """One connection to a route or to the proxy, as bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> bytes:
        """Everything up to the empty line."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Everything until the other side closes."""
        return await self.reader.read()

    async def body(self, head: bytes) -> bytes:
        """The body ``head`` announces by its length or in chunks."""
        low = head.lower()
        if b"transfer-encoding: chunked" in low:
            chunks = []
            while size := int(await self.reader.readline(), 16):
                chunks.append(await self.reader.readexactly(size))
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
            return b"".join(chunks)
        if b"content-length:" in low:
            return await self.reader.readexactly(
                int(low.split(b"content-length:")[1].split(b"\r\n")[0])
            )
        return b""

    async def request(self) -> tuple[bytes, bytes]:
        head = await self.head()
        return head, await self.body(head)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class Route:
    """A server that answers as `answer` says, and remembers who connected."""

    answer: Answering
    port: int = 0
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _talks: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """At a port that nobody else gets while it is stopped."""
        if not self.port:
            [self.port] = free_ports(1)
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=1 << 20
        )

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._talks):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._talks.add(writer)
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):
            await self.answer(Talk(reader, writer))
        self._talks.discard(writer)
        writer.close()


def saying(body: bytes, status: bytes = b"200 OK", fields: bytes = b"") -> Answering:
    """Answers every request on a connection alike."""

    async def answer(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.send(
                b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, fields, len(body), body)
            )

    return answer


@dataclass
class Held:
    """Answers one request of a connection with ``body``, once `go` is set; `reached` is set when
    one has come.
    """

    body: bytes
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, talk: Talk) -> None:
        await talk.request()
        self.reached.set()
        await self.go.wait()
        await talk.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(self.body), self.body)
        )


class Echo:
    """A route that answers with what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, bytes]] = []

    async def __call__(self, talk: Talk) -> None:
        while True:
            head, body = await talk.request()
            self.requests.append((head, body))
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def refusal(body: bytes) -> dict[str, object]:
    return json.loads(body)


class Front:
    """A running proxy and what is in its discovery.

    Attributes:
        heard: requests as routes of `echo` received them.
    """

    def __init__(self, url: str, process: warm.Fork, bucket: KeyValue, metrics: int) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.process = process
        self.metrics_port = metrics
        self._bucket = bucket
        self._version = 0
        self._revisions: dict[str, int] = {}
        self._routes: list[Route] = []
        self._before = ""

    async def begin(self) -> None:
        """Count from here on."""
        self._before = await self.metrics()

    async def counted(self, name: str) -> float:
        """By how much a counter has grown since `begin`, over its labels."""
        return self.metric(await self.metrics(), name) - self.metric(self._before, name)

    async def route(self, answer: Answering) -> Route:
        """A server that is running, not yet in any set."""
        route = Route(answer)
        await route.start()
        self._routes.append(route)
        return route

    async def publish(
        self,
        name: str,
        *routes: Route | str,
        reason: str = "",
        minimum: int | None = None,
        user: str = "",
        **policy: object,
    ) -> None:
        """Write a set, and return when the proxy has taken it up."""
        self._version += 1
        found = tuple(
            DiscoveredRoute(f"r1-{n}", route if isinstance(route, str) else route.address)
            for n, route in enumerate(routes)
        )
        value = Discovery(name, self._version, found, reason, ProxyPolicy(**policy), minimum, user)  # type: ignore[arg-type]
        await self._put(name, value)
        marker = f"marker{self._version}"
        await self._put(marker, Discovery(marker, self._version, reason="draining"))
        async with asyncio.timeout(_READY_S):
            while b"draining" not in (await self.get(f"/d/{marker}/"))[1]:
                await asyncio.sleep(_LOOK_S)

    async def _put(self, name: str, value: Discovery) -> None:
        revision = self._revisions.get(name, 0)
        self._revisions[name] = await self._bucket.put(
            name, codec.to_json(value), expected=revision
        )

    async def connect(self) -> Talk:
        return Talk(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20))

    async def send(self, data: bytes) -> bytes:
        """All that comes back for some bytes until the proxy closes the connection."""
        talk = await self.connect()
        await talk.send(data)
        try:
            async with asyncio.timeout(_READY_S):
                return await talk.rest()
        finally:
            await talk.close()

    async def get(
        self, target: str, fields: bytes = b"", method: bytes = b"GET"
    ) -> tuple[bytes, bytes]:
        """Head and body of the answer to a request without a body."""
        close = b"Host: front\r\nConnection: close\r\n"
        answer = await self.send(
            b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, target.encode(), close, fields)
        )
        head, _, body = answer.partition(b"\r\n\r\n")
        return head, body

    def metric(self, text: str, name: str) -> float:
        """The sum of a counter over its labels."""
        return sum(
            float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)
        )

    async def metrics(self) -> str:
        talk = Talk(*await asyncio.open_connection("127.0.0.1", self.metrics_port))
        await talk.send(b"GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n")
        text = (await talk.rest()).decode()
        await talk.close()
        return text

    def rss_bytes(self) -> int:
        """Resident memory of the proxy, without pages of files."""
        resident, shared = map(
            int, Path(f"/proc/{self.process.pid}/statm").read_text().split()[1:3]
        )
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")

    async def stop(self) -> None:
        """End its routes."""
        while self._routes:
            await self._routes.pop().stop()


@asynccontextmanager
async def front(
    connection: JetStreamConnection, nats_url: str, root: Path, *settings: str
) -> AsyncIterator[Front]:
    """A proxy of one's own."""
    metrics = row_of_free_ports(_WORKERS)
    port_file, log = root / "proxy.url", root / "proxy.log"
    given = (
        "proxy.http=127.0.0.1:0",
        f"proxy.port_file={port_file}",
        f"run.metrics=127.0.0.1:{metrics}",
        *settings,
    )
    environ = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
    with log.open("wb") as out:
        words = [word for each in given for word in ("--set", each)]
        number = out.fileno()
        process = warm.start(
            "iris_proxy", words, environ | {"IRIS_NATS_URL": nats_url}, number, number, forks=True
        )
    try:
        async with asyncio.timeout(_READY_S):
            while not port_file.exists():
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(_LOOK_S)
        made = Front(
            port_file.read_text(), process, connection.key_value(DISCOVERY_BUCKET), metrics
        )
        yield made
        await made.stop()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, _READY_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
