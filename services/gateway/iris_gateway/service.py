"""The gateway's shell: connects, listens, publishes its address, and drains when it is stopped.

Only this module reads the clock; others get `now_ms` and `clock` as arguments. Out of scope:
endpoints (`api`), handling of every request (`middleware`). Source: docs/ARCHITECTURE.md#modules,
    docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from iris_bus.jetstream import JetStreamConnection
from iris_core.access.token_file import BadTokenFile, unusable
from iris_core.subjects import BUNDLES_BUCKET, DISCOVERY_BUCKET, KEYS_BUCKET
from iris_gateway.api import ENDPOINTS
from iris_gateway.auth.bearer import Keyring, parse_tokens
from iris_gateway.auth.login_links import LoginLinks
from iris_gateway.auth.task_tokens import TaskTokens
from iris_gateway.bundles import Bundles
from iris_gateway.commands import Commands
from iris_gateway.dashboard.pages import PAGES
from iris_gateway.dashboard.responses import refusal
from iris_gateway.discovery import DiscoveredSets
from iris_gateway.dispatch.middleware import Middleware
from iris_gateway.gateway import Gateway
from iris_gateway.http.heap import shrink_after_bursts
from iris_gateway.http.position import Position
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.http.protocol import Connections, HttpProtocol
from iris_gateway.http.rate_limit import RateLimiter
from iris_gateway.metrics import Metrics
from iris_gateway.processes import Processes
from iris_gateway.queries import Queries
from iris_gateway.record_times import RecordTimes
from iris_gateway.settings import GatewaySettings
from iris_gateway.streams.artifacts import ArtifactReader
from iris_gateway.streams.completion import ENDS
from iris_gateway.streams.feed import Feed
from iris_gateway.streams.live import LivePages
from iris_gateway.streams.logs import LogReader
from iris_gateway.streams.readers import Turns
from iris_gateway.streams.recent_maps import RecentMaps
from iris_gateway.streams.results import ResultReader
from iris_service.certificate import Certificate, read_certificate
from iris_service.listening import (
    listen,
    lower_limit,
    read_networks,
    take_descriptors,
    write_port,
)
from iris_service.run import Service, run_service
from iris_service.settings import BadSetting
from iris_service.telemetry import new_registry
from iris_service.tracing import Tracer

if TYPE_CHECKING:
    from iris_gateway.auth.oidc import Issuer

log = logging.getLogger(__name__)

_TOKENS_LOOK_S = 5.0
_IDLE_S = 75
_ANONYMOUS = 4
"""One address may have this part of all connections, and no more, without a token on any."""
_DATE_S = 1.0
"""The resolution of the date of responses."""


def start() -> None:
    """Run the gateway until it is stopped."""
    run_service("gateway", GatewaySettings, serve)


async def serve(service: Service[GatewaySettings]) -> None:
    """Serve until stopped, then let requests in progress finish."""
    settings = service.settings
    room = take_descriptors()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    certificate = read_certificate("gateway", settings.tls_cert, settings.tls_key)
    service.certificates += [settings.tls_cert] if settings.tls_cert else []
    listening = listen("gateway", *settings.address())
    keyring = read_keyring(settings.token_file)
    connection = await service.connect()
    gateway = assemble(settings, connection, keyring, service.tracer)
    service.tokens = gateway.digest_of_tokens
    service.show_itself(gateway.metrics.registry)
    service.spawn(gateway.discovered.follow())
    service.spawn(gateway.task_tokens.follow())
    service.spawn(gateway.record_times.follow())
    if gateway.issuer is not None:
        service.spawn(gateway.issuer.follow())
    if settings.token_file:
        service.spawn(keep_reading_tokens(gateway, settings.token_file))
    server = HttpServer(gateway, settings, certificate, room)
    if certificate is not None:
        service.spawn(certificate.keep_reading())
    service.spawn(shrink_after_bursts(server.connections))
    serving = service.spawn(server.serve([listening]))
    await server.ready.wait()
    write_port(
        listening,
        settings.port_file or os.environ.get("IRIS_PORT_FILE", ""),
        tls=certificate is not None,
    )
    service.announce()
    await service.stop.wait()
    gateway.closing = True
    await gateway.feed.close()
    await gateway.ends.close()
    gateway.results.new.close()
    gateway.discovered.close()
    gateway.live.close()
    server.should_exit = True
    await serving
    await connection.close()


def assemble(
    settings: GatewaySettings,
    connection: JetStreamConnection,
    keyring: Keyring,
    tracer: Tracer | None = None,
) -> Gateway:
    """The parts of a gateway on one connection."""
    bus = connection.bus
    streams = connection.streams
    position = Position()
    turns = Turns()
    return Gateway(
        bus=bus,
        commands=Commands(
            bus, position, new_id=new_id, now_ms=now_ms, retry_for_s=settings.command_timeout_s
        ),
        queries=Queries(bus, position, retry_for_s=settings.query_timeout_s),
        feed=Feed(streams, position, ring=settings.event_ring, turns=turns),
        ends=Feed(streams, position, *ENDS, ring=settings.event_ring, turns=turns),
        logs=LogReader(streams, turns=turns),
        results=ResultReader(streams, turns),
        recent_maps=RecentMaps(),
        artifacts=ArtifactReader(streams),
        bundles=Bundles(
            connection.blobs(BUNDLES_BUCKET),
            now_ms=now_ms,
            per_user=settings.uploads_per_user,
            held=partial(streams.size, f"OBJ_{BUNDLES_BUCKET}"),
            room_bytes=settings.bundles_bytes,
        ),
        discovered=DiscoveredSets(connection.key_value(DISCOVERY_BUCKET)),
        metrics=Metrics(new_registry()),
        tracer=tracer or Tracer("gateway"),
        keyring=keyring,
        task_tokens=TaskTokens(connection.key_value(KEYS_BUCKET)),
        record_times=RecordTimes(bus, now_ms),
        issuer=open_issuer(settings),
        login_links=LoginLinks(),
        pace=RateLimiter(settings.requests_per_s, settings.request_burst),
        intake=RateLimiter(settings.intake_per_s, settings.intake_burst, "bytes"),
        settings=settings,
        processes=Processes(bus, time.monotonic, lambda: time.time_ns() // 1_000_000),
        live=LivePages(time.monotonic),
        turns=turns,
        now_ms=now_ms,
        clock=time.monotonic,
        new_id=new_id,
        proxy_url=settings.proxy_url.rstrip("/"),
        trusted=read_networks("gateway", settings.trusted),
    )


def open_issuer(settings: GatewaySettings) -> Issuer | None:
    """The issuer of people's tokens, if there is one. Raises BadSetting."""
    terms = settings.issuer()
    if terms is None:
        return None
    from iris_gateway.auth.oidc import Issuer, reader_of

    return Issuer(terms, reader_of(terms.keys), time.monotonic)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return uuid.uuid4().hex


def is_news(record: logging.LogRecord) -> bool:
    """False for the traceback of a response that was cut off: its one line is in the log already."""
    return not (record.exc_info and isinstance(record.exc_info[1], ProblemResponse))


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers; it reports when it listens, and wakes once a second
    where that wakes ten times, to see whether it should exit.
    """

    def __init__(
        self,
        gateway: Gateway,
        settings: GatewaySettings,
        certificate: Certificate | None = None,
        room: int = 0,
    ) -> None:
        """``room``: for so many connections there are descriptors; 0: not known."""
        per_address = settings.connections_per_address
        if room:
            setting = "[gateway] connections_per_address"
            per_address = lower_limit(setting, per_address, room)
        self.ready = asyncio.Event()
        self._exit = asyncio.Event()
        self.connections = Connections(
            settings.head_s,
            per_address,
            settings.unread_s,
            count=lambda code: gateway.metrics.refused.labels(code).inc(),
            most_open=room,
            anonymous_per_address=room // _ANONYMOUS,
        )
        logging.getLogger("uvicorn.error").addFilter(is_news)
        config = uvicorn.Config(
            Middleware(gateway, (*ENDPOINTS, *PAGES), refusal),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=4096,
            http=cast(Any, partial(HttpProtocol, self.connections)),
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=max(1, round(settings.drain_s)),
        )
        config.load()
        config.ssl = certificate.context if certificate is not None else None
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        """Set to end it, in the thread of its loop."""
        return self._exit.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if value:
            self._exit.set()

    async def main_loop(self) -> None:
        """Renew the date of responses until it should exit."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_S):
                    await self._exit.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the service handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def read_keyring(token_file: str) -> Keyring:
    """The keyring of the token file. Raises BadSetting."""
    if not token_file:
        return Keyring()
    try:
        return parse_tokens(Path(token_file).read_text())
    except (OSError, UnicodeDecodeError, BadTokenFile) as error:
        raise BadSetting(f"[gateway] token_file: {unusable(token_file, error)}") from error


async def keep_reading_tokens(gateway: Gateway, token_file: str) -> None:
    """Reload the token file when it changes; an invalid file changes nothing."""
    while True:
        await asyncio.sleep(_TOKENS_LOOK_S)
        try:
            keyring = read_keyring(token_file)
        except BadSetting as error:
            log.warning("%s; the tokens stay as they were", error)
            continue
        if keyring != gateway.keyring:
            log.info("the token file has changed: %d tokens", len(keyring.tokens))
            gateway.keyring = keyring
