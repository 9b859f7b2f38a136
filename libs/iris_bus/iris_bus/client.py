"""nats-py's client, mended where it harms us and shortened where it costs most. Every use of its private names is here.

Mended: it leaked a socket at each failed attempt to connect; a PONG behind a ping nobody waits for any more ended its
read loop; a flush overtook what it should have flushed. Shortened: a message goes from the socket straight to whoever
subscribed (`intake`), instead of through two buffers, an object, a queue and two tasks; what is sent in one turn of the
loop goes out at its end in one piece, without a task; ready-made protocol lines go straight to that piece.
Out of scope: connecting, and what messages mean. Source: docs/design/nats.md#nats-py-behaviour;
docs/adr/0003-a-thin-layer-on-nats-py.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from iris_bus.intake import divert

log = logging.getLogger(__name__)

Tap = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Called with subject, reply, body and header block of each message, inside the read loop: quick, and never raising."""


class TappedClient(Client):
    """A client whose subscriptions are taps. It must not limit what waits to be sent (``pending_size=0``)."""

    def __init__(self) -> None:
        super().__init__()
        self._taps: dict[int, Tap] = {}
        self._writing = False

    async def tap(self, subject: str, tap: Tap, queue: str = "") -> Subscription:
        """Subscribe. Raises nats.errors.ConnectionClosedError."""
        subscription = await self.subscribe(subject, queue)
        self._taps[subscription._id] = tap
        return subscription

    def untap(self, subscription: Subscription) -> None:
        """No call follows; the subscription itself is ended by its `unsubscribe`."""
        self._taps.pop(subscription._id, None)

    def send_frames(self, frames: bytes) -> None:
        """Have ready-made protocol lines written at the end of this turn of the loop."""
        self._pending.append(frames)
        self._pending_data_size += len(frames)
        self._write_soon()

    @property
    def reading(self) -> bool:
        """Whether the read loop runs; an exception in it ends it while the client still says connected."""
        return self._reading_task is not None and not self._reading_task.done()

    def drop_socket(self) -> None:
        """Close what an attempt to connect left open."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    def _deliver(self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        tap = self._taps.get(number)
        if tap is None:  # it was ended, and this was under way
            return
        try:
            tap(subject, reply, data, headers)
        except Exception:
            log.exception("whoever subscribed to %s raised", subject.decode(errors="replace"))

    def _write_soon(self) -> None:
        if not self._writing:
            self._writing = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._writing = False
        if self._pending and self.is_connected and self._transport is not None:
            frames, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.write(b"".join(frames))

    async def _flush_pending(self, force_flush: bool = False) -> asyncio.Future[None]:
        self._write_soon()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        self._write()
        await super()._send_ping(future)

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        if isinstance(self._transport, TcpTransport) and self._transport._io_writer is not None:
            divert(self._transport._io_writer.transport, self._deliver)

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
