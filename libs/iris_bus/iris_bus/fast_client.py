"""The client's fast path: a message goes from the socket directly to its subscriber.

nats-py takes each message through two buffers, an object, a queue and two tasks. Here `intake` reads the protocol, and
what is sent in one turn of the loop goes out at its end in one write, as lines made by `wire`.
Out of scope: everything `client` does. Source: docs/adr/0003-a-thin-layer-on-nats-py.md, with what it saves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from iris_bus import wire
from iris_bus.client import PlainClient, Tap
from iris_bus.contract import Headers, Publication
from iris_bus.intake import divert

log = logging.getLogger(__name__)


class FastClient(PlainClient):
    """A client whose messages do not go through nats-py."""

    def __init__(self) -> None:
        super().__init__()
        self._taps: dict[int, Tap] = {}
        self._writing = False

    async def tap(self, subject: str, tap: Tap, queue: str = "") -> Subscription:
        subscription = await self.subscribe(subject, queue)
        self._taps[subscription._id] = tap
        return subscription

    async def untap(self, subscription: Subscription) -> None:
        self._taps.pop(subscription._id, None)
        await subscription.unsubscribe()

    def send(self, subject: str, data: bytes, reply: str, headers: Headers | None) -> None:
        self.send_frames(wire.one(subject, data, reply, headers))

    def send_chain(self, events: Sequence[Publication], after: int, reply: str) -> None:
        self.send_frames(wire.chained(events, after, reply))

    def send_frames(self, frames: bytes) -> None:
        """Write encoded protocol lines at the end of this iteration of the loop."""
        self._pending.append(frames)
        self._pending_data_size += len(frames)
        self._write_soon()

    def _deliver(self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
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
        self._writing = False
        super()._write()

    async def _flush_pending(self, force_flush: bool = False) -> asyncio.Future[None]:
        self._write_soon()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        if isinstance(self._transport, TcpTransport) and self._transport._io_writer is not None:
            divert(self._transport._io_writer.transport, self._deliver)
