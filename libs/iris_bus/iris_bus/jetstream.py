"""The contract over NATS JetStream: one call connects and returns the connection, which has
everything else.

    connection = await connect(url, name="state", on_lost=service.fail)
    await connection.streams.ensure()

Out of scope: how each interface is implemented (`core`, `streams`, `reader`, `journal`,
`publisher`, `blobs`, `key_value`), and retries of the process itself. Source:
docs/ARCHITECTURE.md#storage; docs/design/nats.md#nats-py-behaviour.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from iris_bus.connection.connection import Credentials, Link
from iris_bus.connection.core import CoreBus
from iris_bus.connection.requests import Requests
from iris_bus.journal.framing import PART_BYTES
from iris_bus.journal.journal import JetJournal
from iris_bus.streams.api import Api
from iris_bus.streams.blobs import JetBlobs
from iris_bus.streams.key_value import JetKeyValue
from iris_bus.streams.publisher import JetPublisher
from iris_bus.streams.raw import RawStream
from iris_bus.streams.streams import JetStreams
from iris_core.subjects import STREAMS, Stream

log = logging.getLogger(__name__)

Opening = Callable[[], Awaitable[tuple[Link, Requests]]]


class JetStreamConnection:
    """A service's connection to the bus."""

    def __init__(
        self, link: Link, requests: Requests, replicas: int, table: Sequence[Stream], again: Opening
    ) -> None:
        api = Api(requests)
        self._link = link
        self._api = api
        self._again = again
        self._publishers: list[JetPublisher] = []
        self.bus = CoreBus(link, requests)
        self.streams = JetStreams(link, api, replicas=replicas, table=table)

    def journal(self, part_bytes: int = PART_BYTES) -> JetJournal:
        return JetJournal(self._link, self._api, part_bytes=part_bytes)

    def publisher(self) -> JetPublisher:
        """An event publisher; `resume` opens a connection of its own."""
        publisher = JetPublisher(self._open_again)
        self._publishers.append(publisher)
        return publisher

    def blobs(self, bucket: str) -> JetBlobs:
        return JetBlobs(self._link, self._api, bucket)

    def key_value(self, bucket: str) -> JetKeyValue:
        return JetKeyValue(self._link, self._api, bucket)

    def raw(self, stream: str) -> RawStream:
        """A stream for verification, repair and backup."""
        return RawStream(self._link, self._api, stream)

    @property
    def connected(self) -> bool:
        """False while the server is away; calls raise Unavailable then."""
        return self._link.connected

    @property
    def reconnects(self) -> int:
        """How often the connection came back."""
        return self._link.reconnects

    @property
    def certificate_expiry_s(self) -> float:
        """When the certificate of the server expires (Unix, s); 0 without TLS."""
        return self._link.client.certificate_expiry_s

    def on_return(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the connection is established again; by then the subscriptions
        are restored.
        """
        self._link.on_return(callback)

    async def close(self) -> None:
        """Close the publishers, then flush and close the connection. Safe to call twice."""
        for publisher in self._publishers:
            await publisher.close()
        await self._link.close()

    async def _open_again(self) -> tuple[Link, Api]:
        link, requests = await self._again()
        return link, Api(requests)


async def connect(
    url: str,
    *,
    name: str,
    credentials: Credentials | None = None,
    replicas: int = 0,
    table: Sequence[Stream] = STREAMS,
    retry_for_s: float = 30.0,
    on_lost: Callable[[Exception], None] | None = None,
) -> JetStreamConnection:
    """Connect, and wait for a server to answer.

    Args:
        url: one server or several separated by commas.
        name: name of the client in the server's monitoring: the service.
        credentials: credentials that the URL does not hold.
        replicas: how many copies the streams have; 0: 1 on one server, 3 on a cluster.
        table: the streams to declare.
        retry_for_s: seconds to wait for a server before giving up.
        on_lost: called when the connection is closed for good; the process must end. By default it
            ends at once.

    Raises Unavailable when no server answers in time or authentication fails.
    """
    opens = partial(
        _open,
        url,
        credentials=credentials or Credentials(),
        retry_for_s=retry_for_s,
        on_lost=on_lost or _end_process,
    )
    link, requests = await opens(name)
    # a second connection of one process has another name: whoever counts processes counts names
    return JetStreamConnection(
        link, requests, replicas, table, again=partial(opens, f"{name} events")
    )


async def _open(
    url: str,
    name: str,
    credentials: Credentials,
    retry_for_s: float,
    on_lost: Callable[[Exception], None],
) -> tuple[Link, Requests]:
    link = Link(on_lost)
    await link.open([server.strip() for server in url.split(",")], name, credentials, retry_for_s)
    requests = Requests(link)
    await requests.start()
    return link, requests


def _end_process(error: Exception) -> None:
    """End the process: the service cannot work without its connection."""
    log.critical("%s", error)
    os._exit(70)
