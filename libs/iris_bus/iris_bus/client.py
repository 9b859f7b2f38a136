"""nats-py's client with three bugs worked around.

It leaked a socket at each failed attempt to connect; a PONG for a ping that had timed out ended its read loop; a flush
overtook the messages it should have flushed. `fast_client` makes it faster; no other module uses its private names.
Out of scope: connecting, and what messages mean. Source: docs/design/nats.md#nats-py-behaviour;
docs/adr/0003-a-thin-layer-on-nats-py.md.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import BadHeaderError, BadSubjectError

from iris_bus import wire
from iris_bus.contract import Headers, Publication
from iris_bus.headers import RawHeaders

Tap = Callable[[bytes, bytes, bytes, RawHeaders], None]
"""Called with subject, reply, body and headers of each message in the loop's thread: quick, and never raising."""


class PlainClient(Client):
    """Subscriptions call taps. Sending never suspends, so the client must not limit its buffer (``pending_size=0``)."""

    async def tap(self, subject: str, tap: Tap, queue: str = "") -> Subscription:
        """Subscribe. Raises nats.errors.ConnectionClosedError."""

        async def deliver(message: Msg) -> None:
            tap(message.subject.encode(), message.reply.encode(), message.data, message.headers)

        return await self.subscribe(subject, queue, cb=deliver, pending_msgs_limit=0, pending_bytes_limit=0)

    async def untap(self, subscription: Subscription) -> None:
        """End a subscription. Raises nats.errors.Error when the connection is gone."""
        await subscription.unsubscribe()

    def send(self, subject: str, data: bytes, reply: str, headers: Headers | None) -> None:
        """Write one message to the send buffer. Raises ValueError for a subject or header that breaks the protocol."""
        publishing = self.publish(subject, data, reply, dict(headers) if headers else None)
        try:
            publishing.send(None)
        except StopIteration:
            return
        except BadSubjectError as error:
            raise ValueError(f"not a subject: {subject!r} {reply!r}") from error
        except BadHeaderError as error:
            raise ValueError(f"not one line each: {headers!r}") from error
        raise RuntimeError("this release of nats-py waits in publish")

    def send_chain(self, events: Sequence[Publication], after: int, reply: str) -> None:
        """Send consecutive events after stream sequence ``after``; the acknowledgement of the last goes to ``reply``.

        Raises ValueError as `send` does.
        """
        last = len(events) - 1
        for at, event in enumerate(events):
            headers = wire.chain_headers(after + at, event)
            self.send(event.subject, event.data, reply if at == last else "", headers)

    @property
    def reading(self) -> bool:
        """Whether the read loop runs; an exception ends it while nats-py still reports the client as connected."""
        return self._reading_task is not None and not self._reading_task.done()

    @property
    def has_jetstream(self) -> bool:
        """Whether the connected server stores messages."""
        return bool(self._server_info.get("jetstream"))

    @property
    def is_clustered(self) -> bool:
        """Whether the connected server names a cluster that it belongs to."""
        return bool(self._server_info.get("cluster"))

    @property
    def certificate_expiry_s(self) -> float:
        """When the certificate of the connected server expires (Unix, s); 0 without TLS."""
        writer = self._transport._io_writer if isinstance(self._transport, TcpTransport) else None
        shown = writer.get_extra_info("ssl_object") if writer is not None else None
        expires = (shown.getpeercert() or {}).get("notAfter") if shown is not None else None
        return float(ssl.cert_time_to_seconds(expires)) if expires else 0.0

    def drop_socket(self) -> None:
        """Close the socket of a failed attempt to connect."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        self._write()
        await super()._send_ping(future)

    def _write(self) -> None:
        """Write the whole send buffer to the socket."""
        if self._pending and self.is_connected and self._transport is not None:
            frames, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.write(b"".join(frames))

    async def _connect_to_server(self, s: Srv) -> None:
        self.drop_socket()
        await super()._connect_to_server(s)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pongs_received += 1
            self._pings_outstanding = 0
            return
        await super()._process_pong()
