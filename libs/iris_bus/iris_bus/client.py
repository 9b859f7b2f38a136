"""nats-py's client, mended where it harms us and shortened where it costs most. Every use of its private names is here.

Mended: it leaked a socket at each failed attempt to connect; a PONG behind a ping nobody waits for any more ended its
read loop. Shortened: a message goes from the parser straight to whoever subscribed, instead of through an object, a
queue and a task of nats-py's, which drops what is too much; ready-made protocol lines go straight to the buffer.
Not in this room: connecting, and what messages mean. Source: nats.md section 3.2; docs/adr/0003.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription

log = logging.getLogger(__name__)

Tap = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Called with subject, reply, body and header block of each message, inside the read loop: quick, and never raising."""


class TappedClient(Client):
    """A client whose subscriptions are taps."""

    def __init__(self) -> None:
        super().__init__()
        self._taps: dict[int, Tap] = {}

    async def tap(self, subject: str, tap: Tap, queue: str = "") -> Subscription:
        """Subscribe. Raises nats.errors.ConnectionClosedError."""
        subscription = await self.subscribe(subject, queue)
        self._taps[subscription._id] = tap
        return subscription

    def untap(self, subscription: Subscription) -> None:
        """No call follows; the subscription itself is ended by its `unsubscribe`."""
        self._taps.pop(subscription._id, None)

    def send_frames(self, frames: bytes) -> None:
        """Hand ready-made protocol lines to the buffer, which must not be limited (``pending_size=0``)."""
        for step in (self._send_command(frames), self._flush_pending()):
            with contextlib.suppress(StopIteration):
                step.send(None)
                raise AssertionError("nats-py's buffer suspended though nothing is limited")

    @property
    def reading(self) -> bool:
        """Whether the read loop runs; an exception in it ends it while the client still says connected."""
        return self._reading_task is not None and not self._reading_task.done()

    def drop_socket(self) -> None:
        """Close what an attempt to connect left open."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        tap = self._taps.get(sid)
        if tap is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            tap(subject, reply, data, headers)
        except Exception:
            log.exception("whoever subscribed to %s raised", subject.decode(errors="replace"))

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
