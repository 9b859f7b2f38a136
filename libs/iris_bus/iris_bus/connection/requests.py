"""Requests and answers over one inbox: requests, acknowledged publishes, calls of the JetStream
API.

One wildcard subscription receives every answer; each request is a future and one timer. A lost
connection, a refused subject and a timeout each end a request with an exception of its own.
Out of scope: what answers mean. Source: docs/design/nats.md#nats-py-behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from iris_bus.connection import headers as header_block
from iris_bus.connection.connection import Link
from iris_bus.connection.headers import RawHeaders
from iris_bus.contract import Headers, Message, NoResponders, Unavailable


class Forbidden(Unavailable):
    """This user may not publish to the subject."""


class Requests:
    """Many outstanding requests over one inbox."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._prefix = ""
        self._count = 0
        self._open: dict[str, tuple[asyncio.Future[Message], str]] = {}
        link.on_drop(self._dropped)
        link.on_forbidden(self._forbidden)

    async def start(self) -> None:
        """Subscribe to the inbox of answers."""
        inbox = self._link.client.new_inbox()
        self._prefix = f"{inbox}."
        await self._link.subscribe(f"{inbox}.*", self._answered)

    async def request(
        self, subject: str, data: bytes, timeout: float, headers: Headers | None = None
    ) -> Message:
        """Send one request and return its answer.

        Raises NoResponders when nobody listens, Forbidden, and Unavailable after ``timeout``
        seconds or when the connection is lost on the way; after the last two the request may have
        taken effect.
        """
        self._count += 1
        token = format(self._count, "x")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._open[token] = (future, subject)
        try:
            self._link.send(subject, data, self._prefix + token, headers)
            timer = future.get_loop().call_later(timeout, self._late, token, timeout)
            try:
                answer = await future
            finally:
                timer.cancel()
        finally:
            self._open.pop(token, None)
        if not answer.data and answer.headers.get("Status") == "503":
            raise NoResponders(f"nobody answers on {subject}")
        return answer

    def _answered(self, subject: bytes, reply: bytes, data: bytes, headers: RawHeaders) -> None:
        inbox = subject.decode()
        waiting = self._open.pop(inbox[len(self._prefix) :], None)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_result(Message(inbox, data, header_block.parse(headers), reply.decode()))

    def _late(self, token: str, timeout: float) -> None:
        self._fail(
            token, lambda subject: Unavailable(f"no answer on {subject} within {timeout:g} s")
        )

    def _dropped(self) -> None:
        for token in list(self._open):
            self._fail(
                token, lambda subject: Unavailable(f"connection lost while waiting for {subject}")
            )

    def _forbidden(self, refused: str) -> None:
        for token, (_, subject) in list(self._open.items()):
            if subject.lower() == refused:
                self._fail(token, lambda subject: Forbidden(f"not allowed to publish to {subject}"))

    def _fail(self, token: str, make: Callable[[str], Exception]) -> None:
        waiting = self._open.pop(token, None)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_exception(make(waiting[1]))
