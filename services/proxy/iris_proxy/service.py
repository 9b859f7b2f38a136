"""The proxy's shell: follows the discovery, listens, publishes its address, and drains when it
stops.

Source: docs/design/serving.md#what-to-build, docs/ARCHITECTURE.md#serving.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from iris_bus.connection.retry import with_retries
from iris_bus.contract import Entry
from iris_bus.follow import follow
from iris_core.access.token_file import parse_tokens, unusable
from iris_core.subjects import DISCOVERY_BUCKET
from iris_proxy import workers
from iris_proxy.last_discovery import LastDiscovery
from iris_proxy.listener import Listener
from iris_proxy.proxy import Proxy, refused
from iris_proxy.reporter import LoadReporter
from iris_proxy.settings import ProxySettings
from iris_service.certificate import read_certificate
from iris_service.listening import listen, lower_limit, take_descriptors, write_port
from iris_service.run import Service
from iris_service.settings import BadSetting

log = logging.getLogger(__name__)

_TOKENS_LOOK_S = 5.0
_DESCRIPTORS = 2
"""Of a request: a connection of its client, and one to a route."""


async def main(service: Service[ProxySettings]) -> None:
    """Run the proxy until it is stopped. Raises BadSetting."""
    settings = service.settings
    if settings.drain_s >= service.run.drain_s:
        raise BadSetting(
            f"[proxy] drain_s = {settings.drain_s:g}: must be less than [run] drain_s, {service.run.drain_s:g}"
        )
    if settings.workers > 1:
        await workers.keep(service)
    else:
        await serve(service)


async def serve(service: Service[ProxySettings]) -> None:
    """Serve requests in this process until it is stopped."""
    settings = service.settings
    room = take_descriptors() // _DESCRIPTORS
    most = lower_limit("[proxy] max_connections", settings.max_connections, room)
    settings = msgspec.structs.replace(settings, max_connections=most)
    proxy = Proxy(settings, asyncio.get_running_loop().time)
    proxy.credentials = replace(proxy.credentials, digests=read_tokens(settings.token_file))
    listener = Listener(proxy.handle, refused, settings)
    certificate = read_certificate("proxy", settings.tls_cert, settings.tls_key)
    service.certificates += [settings.tls_cert] if settings.tls_cert else []
    listening = listen("proxy", *settings.address(), shared=settings.reuse_port)
    last = LastDiscovery(settings.discovery_file)
    known = last.read()
    proxy.update(known or {})
    current = asyncio.Event()
    service.spawn(
        follow_discovery(
            service, proxy, last, current, retry_for_s=0.0 if known is None else math.inf
        )
    )
    if known is not None:
        log.info(
            "serving the last discovery until the bus answers",
            extra={"file": settings.discovery_file},
        )
    else:
        await current.wait()
    if settings.token_file:
        service.spawn(keep_reading_tokens(proxy, settings.token_file))
    if certificate is not None:
        service.spawn(certificate.keep_reading())
    await listener.start(listening, certificate.context if certificate is not None else None)
    await service.serve_metrics(proxy.metrics.registry)
    write_port(
        listening,
        settings.port_file or os.environ.get("IRIS_PORT_FILE", ""),
        tls=certificate is not None,
    )
    await service.stop.wait()
    await listener.stop()
    proxy.close()


async def follow_discovery(
    service: Service[ProxySettings],
    proxy: Proxy,
    last: LastDiscovery,
    current: asyncio.Event,
    retry_for_s: float,
) -> None:
    """Apply every change of the discovery and report the load; while the bus is unreachable the
    last set stays in use.

    Args:
        current: set when the discovery has been read from the bus.
        retry_for_s: how long connecting is repeated. Raises Unavailable after that.
    """
    connection = await with_retries(service.connect, retry_for_s)
    reporter = LoadReporter(proxy, connection.bus)
    service.spawn(reporter.run())

    def take(values: Mapping[str, Entry]) -> None:
        proxy.update(values)
        proxy.current = True
        last.write(values)
        current.set()

    try:
        await follow(connection.key_value(DISCOVERY_BUCKET), take)
    finally:
        reporter.leave()
        await connection.close()


def read_tokens(token_file: str) -> frozenset[bytes]:
    """The digests of Iris' own tokens. Raises BadSetting."""
    if not token_file:
        return frozenset()
    try:
        return frozenset(token.digest for token in parse_tokens(Path(token_file).read_text()))
    except (OSError, ValueError) as error:
        raise BadSetting(f"[proxy] token_file: {unusable(token_file, error)}") from error


async def keep_reading_tokens(proxy: Proxy, token_file: str) -> None:
    """Apply a changed token file; an invalid one is ignored."""
    while True:
        await asyncio.sleep(_TOKENS_LOOK_S)
        try:
            proxy.credentials = replace(proxy.credentials, digests=read_tokens(token_file))
        except BadSetting as error:
            log.warning("%s; the tokens stay as they were", error)
