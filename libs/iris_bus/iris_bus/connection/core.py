"""The `Bus` contract over core NATS: publish, request, subscribe. Nothing is stored.

Source: contract.py; docs/design/nats.md#costs.
"""

from __future__ import annotations

import contextlib

from iris_bus.connection import headers as header_block
from iris_bus.connection.connection import Link
from iris_bus.connection.headers import RawHeaders
from iris_bus.connection.nats_py import Subscription as NatsSubscription
from iris_bus.connection.requests import Requests
from iris_bus.contract import Callback, Headers, Message, Unavailable


class CoreSubscription:
    """A running subscription."""

    def __init__(self, link: Link, callback: Callback, subject: str) -> None:
        self._link = link
        self._callback = callback
        self._subject = subject
        self._subscription: NatsSubscription | None = None
        self._open = True

    async def start(self, queue: str) -> None:
        self._subscription = await self._link.subscribe(self._subject, self._received, queue)

    def _received(self, subject: bytes, reply: bytes, data: bytes, headers: RawHeaders) -> None:
        if self._open:
            self._callback(
                Message(subject.decode(), data, header_block.parse(headers), reply.decode())
            )

    async def close(self) -> None:
        self._open = False
        if self._subscription is not None:
            await self._link.unsubscribe(self._subscription)


class CoreBus:
    """Messages that are not stored: publish, request, subscribe."""

    def __init__(self, link: Link, requests: Requests) -> None:
        self._link = link
        self._requests = requests

    def publish(
        self, subject: str, data: bytes, *, reply: str = "", headers: Headers | None = None
    ) -> None:
        """Publish without an acknowledgement; lost while disconnected. Raises Unavailable once the
        connection is closed for good.
        """
        try:
            self._link.send(subject, data, reply, headers)
        except Unavailable:
            if self._link.client.is_closed:
                raise

    async def flush(self) -> None:
        await self._link.flush()

    async def request(
        self, subject: str, data: bytes, *, timeout: float, headers: Headers | None = None
    ) -> Message:
        return await self._requests.request(subject, data, timeout, headers)

    async def subscribe(
        self, subject: str, callback: Callback, *, queue: str = ""
    ) -> CoreSubscription:
        subscription = CoreSubscription(self._link, callback, subject)
        await subscription.start(queue)
        with contextlib.suppress(Unavailable):
            await (
                self._link.flush()
            )  # from here on every message published on the subject is delivered
        return subscription

    def new_inbox(self) -> str:
        return self._link.client.new_inbox()

    async def close(self) -> None:
        await self._link.close()
