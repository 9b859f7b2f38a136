"""nats-py's client with a direct path for messages, and its bugs worked around.

nats-py takes each message through two buffers, an object, a queue and two tasks. Here `intake`
reads the protocol and calls the subscriber, and what is sent in one turn of the loop goes out at
its end in one write, as lines made by `wire`. The bugs: it leaked a socket at each failed attempt
to connect; a PONG for a ping that had timed out ended its read loop; a flush overtook the messages
it should have flushed; it never forgot an address that a server had announced; it closed a
transport of TLS twice, after which each call of it raises; it waited for ever for one whose handshake had failed;
two attempts to connect again could run
beside each other. No other module uses private names of nats-py. Out of scope: connecting, and what messages mean. Source:
docs/design/nats.md#nats-py-behaviour; docs/adr/0003-a-thin-layer-on-nats-py.md.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from iris_bus.connection import wire
from iris_bus.connection.headers import RawHeaders
from iris_bus.connection.intake import divert
from iris_bus.connection.nats_py import Client, Srv, Subscription, TcpTransport
from iris_bus.contract import Headers, Publication

log = logging.getLogger(__name__)

_RETRY_S = 0.5

Tap = Callable[[bytes, bytes, bytes, RawHeaders], None]
"""Called with subject, reply, body and headers of each message in the loop's thread: quick, and
never raising.
"""


class NatsClient(Client):
    """A client whose messages do not go through nats-py. Sending never suspends."""

    def __init__(self) -> None:
        super().__init__()
        self._taps: dict[int, Tap] = {}
        self._writing = False
        self._reconnecting = asyncio.Lock()
        self._expiry_s = 0.0

    async def tap(self, subject: str, tap: Tap, queue: str = "") -> Subscription:
        """Subscribe. Raises nats.errors.ConnectionClosedError."""
        subscription = await self.subscribe(subject, queue)
        self._taps[subscription._id] = tap
        return subscription

    async def untap(self, subscription: Subscription) -> None:
        """End a subscription. Raises nats.errors.Error when the connection is gone."""
        self._taps.pop(subscription._id, None)
        await subscription.unsubscribe()

    def send(self, subject: str, data: bytes, reply: str, headers: Headers | None) -> None:
        """Write one message to the send buffer. Raises ValueError for a subject or header that
        breaks the protocol.
        """
        self.send_frames(wire.one(subject, data, reply, headers))

    def send_chain(self, events: Sequence[Publication], after: int, reply: str) -> None:
        """Send consecutive events after stream sequence ``after``; the acknowledgement of the last
        goes to ``reply``.

        Raises ValueError as `send` does.
        """
        self.send_frames(wire.chained(events, after, reply))

    def send_frames(self, frames: bytes) -> None:
        """Write encoded protocol lines at the end of this iteration of the loop."""
        self._pending.append(frames)
        self._pending_data_size += len(frames)
        self._write_soon()

    @property
    def reading(self) -> bool:
        """Whether the read loop runs; an exception ends it while nats-py still reports the client
        as connected.
        """
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
        """When the certificate that the server showed last expires (Unix, s); 0 without TLS."""
        return self._expiry_s

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """nats-py's, which notes the certificate at each handshake. Later there may be no transport
        to ask for it.
        """
        context = super().ssl_context
        context.sslobject_class = _noting(self._note_expiry)
        return context

    def _note_expiry(self, expires_s: float) -> None:
        self._expiry_s = expires_s

    def drop_socket(self) -> None:
        """Close the socket of a failed attempt to connect, and forget its transport: closed twice,
        one of TLS raises at each further call.
        """
        transport = self._transport
        self._transport = None
        if transport is not None:
            transport.close()  # type: ignore[no-untyped-call]

    async def _attempt_reconnect(self) -> None:
        """Connect again, one attempt at a time, and try again whatever nats-py raises: the process
        would end by it, or never be connected again.
        """
        async with self._reconnecting:
            while not self.is_closed:
                self._status = Client.RECONNECTING
                try:
                    await super()._attempt_reconnect()
                except Exception:
                    log.exception("nats-py failed while it connected again; trying once more")
                    await asyncio.sleep(_RETRY_S)
                else:
                    return

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """After an attempt to connect nats-py waits for the end of its transport, and that of one
        whose handshake of TLS failed never ends: no other server was tried.
        """
        if status == Client.DISCONNECTED:
            self.drop_socket()
        await super()._close(status, do_cbs)

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        self._write()
        await super()._send_ping(future)

    def _deliver(
        self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        tap = self._taps.get(number)
        if tap is None:  # the subscription was ended while this message was in flight
            return
        try:
            tap(subject, reply, data, headers)
        except Exception:
            log.exception("the subscriber of %s raised", subject.decode(errors="replace"))

    def _write_soon(self) -> None:
        if not self._writing:
            self._writing = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        """Write the whole send buffer to the socket."""
        self._writing = False
        if self._pending and self.is_connected and self._transport is not None:
            frames = self._pending
            self._pending = []
            self._pending_data_size = 0
            self._transport.write(b"".join(frames))

    async def _flush_pending(self, force_flush: bool = False) -> asyncio.Future[None]:
        self._write_soon()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        if isinstance(self._transport, TcpTransport) and self._transport._io_writer is not None:
            divert(self._transport._io_writer.transport, self._deliver)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Know the given servers, and those that the newest list of the connected one names.

        Elsewhere servers may be replaced under new addresses for as long as this process runs, and
        each attempt to reach one that is gone takes up to the timeout of a connection.
        """
        await super()._process_info(info, initial_connection)
        if named := info.get("connect_urls"):
            current = self._current_server
            self._server_pool[:] = [
                one
                for one in self._server_pool
                if not one.discovered or one is current or one.uri.netloc in named
            ]

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


def _noting(note: Callable[[float], None]) -> type[ssl.SSLObject]:
    """A kind of TLS connection that tells ``note`` when the peer's certificate expires (Unix, s; 0:
    not known).
    """

    class Noting(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            expires = str((self.getpeercert() or {}).get("notAfter", ""))
            try:
                note(float(ssl.cert_time_to_seconds(expires)))
            except ValueError:
                note(0.0)

    return Noting
