"""Serves a process's ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz``.

The page is made in the service's own loop, so a collector may read the service's records without a
lock. Out of scope: which metrics there are; the gateway's own HTTP. Source:
    docs/operating.md#watching.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from iris_service.certificate import expiry_s
from iris_service.observing import FileFact, GuardedRegistry
from iris_service.version import VERSION

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Buckets for durations, from a commit to a build."""

_RETRY_FOR_S = 5.0


def new_registry() -> GuardedRegistry:
    """A separate registry with metrics of the process: memory, descriptors, garbage collections."""
    registry = GuardedRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def gauges(
    name: str, words: str, labels: Sequence[str], values: Mapping[Any, float]
) -> GaugeMetricFamily:
    """One gauge with several values, each under its label, or the tuple of its labels."""
    found = GaugeMetricFamily(name, words, labels=labels)
    for of, value in values.items():
        found.add_metric(of if isinstance(of, tuple) else (of,), value)
    return found


class LinkState(Protocol):
    """As much of a connection as its figures need."""

    @property
    def connected(self) -> bool: ...

    @property
    def reconnects(self) -> int: ...

    @property
    def certificate_expiry_s(self) -> float: ...


class ServiceCollector(Collector):
    """What every process shows of itself: what it is, whether it is connected to NATS, and what may
    run out.

    Args:
        connection: returns it, None before there is one.
        disks: directories. certificates: PEM files.
    """

    def __init__(
        self,
        service: str,
        connection: Callable[[], LinkState | None],
        disks: Sequence[str] = (),
        certificates: Sequence[str] = (),
    ) -> None:
        self._service = service
        self._connection = connection
        self._disks = {path: FileFact(partial(shutil.disk_usage, path)) for path in disks}
        self._certificates = {path: FileFact(partial(expiry_s, path)) for path in certificates}

    def collect(self) -> Iterable[Metric]:
        words = "Always 1; the labels say what this process is."
        labels = ("service", "version")
        yield gauges("iris_service_info", words, labels, {(self._service, VERSION): 1})
        connection = self._connection()
        connected = connection is not None and connection.connected
        yield GaugeMetricFamily(
            "iris_bus_connected", "1 while the process is connected to NATS.", value=connected
        )
        reconnects = connection.reconnects if connection is not None else 0
        yield CounterMetricFamily(
            "iris_bus_reconnects", "Connections to NATS after the first.", value=reconnects
        )
        yield from self._free()
        yield self._expiries(connection)

    def _free(self) -> Iterator[Metric]:
        read = {path: fact.newest() for path, fact in self._disks.items()}
        used = {path: usage for path, usage in read.items() if usage is not None}
        free = {path: one.free for path, one in used.items()}
        size = {path: one.total for path, one in used.items()}
        yield gauges(
            "iris_disk_free_bytes", "Free space of the disk of a directory.", ["path"], free
        )
        yield gauges("iris_disk_size_bytes", "Size of the disk of a directory.", ["path"], size)

    def _expiries(self, connection: LinkState | None) -> Metric:
        words = "When a certificate expires: of a file, or that of the NATS server."
        read = {path: fact.newest() for path, fact in self._certificates.items()}
        found = {path: expires_s for path, expires_s in read.items() if expires_s is not None}
        if connection is not None and (expires_s := connection.certificate_expiry_s):
            found["NATS server"] = expires_s
        return gauges("iris_certificate_expiry_timestamp_seconds", words, ["certificate"], found)


class MetricsServer:
    """A small HTTP server for scrapers and probes.

    Args:
        registry: what ``/metrics`` shows.
        ready: whether ``/readyz`` answers 200; ``/healthz`` does while the event loop runs.

    A request that fails is answered with 500; it ends nothing.
    """

    def __init__(self, registry: GuardedRegistry, ready: Callable[[], bool] = lambda: True) -> None:
        self._registry = registry
        self._ready = ready
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, address: str) -> None:
        """Listen on ``host:port``; port 0 takes a free one, see `port`. Raises OSError,
        ValueError.
        """
        host, _, port = address.rpartition(":")
        self._server = await asyncio.start_server(
            self._serve, host.strip("[]") or "127.0.0.1", int(port)
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_RETRY_FOR_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.decode("latin-1")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a scraper that went away or never spoke
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: str) -> bytes:
        failed = _page(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log\n", "text/plain")
        return self._registry.guard.read("page", lambda: self._answer_of(head), failed)

    def _answer_of(self, head: str) -> bytes:
        lines = head.split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _page(HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/plain")
        status, body, kind = self._page_of(path, lines[1:])
        return _page(status, body, kind, with_body=method == "GET")

    def _page_of(self, path: str, headers: list[str]) -> tuple[HTTPStatus, bytes, str]:
        if path == "/metrics":
            encode, kind = choose_encoder(_header(headers, "accept"))
            return HTTPStatus.OK, encode(self._registry), kind
        if path == "/healthz":
            return HTTPStatus.OK, b"ok\n", "text/plain"
        if path == "/readyz":
            ready = self._registry.guard.read("ready", self._ready, otherwise=False)
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return status, b"ready\n" if ready else b"not ready\n", "text/plain"
        return HTTPStatus.NOT_FOUND, b"try /metrics, /healthz or /readyz\n", "text/plain"


def _page(status: HTTPStatus, body: bytes, kind: str, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


def _header(lines: list[str], name: str) -> str:
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""
