"""Parses HTTP with uvicorn's fast parser, and adds limits of a request's head, of connections, and of clients that do
not read.

Out of scope: requests (`middleware`), bodies (`bodies`), and listening (`service`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES = 32 << 10
"""Limit of request line and headers, which are kept in memory until they are complete."""

_READ_BYTES = 1 << 16


@dataclass(slots=True)
class Connections:
    """The open connections and their limits.

    Args:
        head_s: seconds a request's head may take, from the start of the connection or its first byte.
        per_address: open connections of one address, 0: unlimited.
        unread_s: seconds in which a client must read something of what waits for it.

    Attributes:
        open: open connections by address. now: of all addresses. most: highest number at once.
    """

    head_s: float
    per_address: int = 0
    unread_s: float = 30.0
    open: Counter[str] = field(default_factory=Counter)
    now: int = 0
    most: int = 0

    def enter(self, address: str) -> bool:
        """Count one more connection; False when the address has too many."""
        self.open[address] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        return not self.per_address or self.open[address] <= self.per_address

    def leave(self, address: str) -> None:
        self.open[address] -= 1
        self.now -= 1
        if not self.open[address]:
            del self.open[address]


class HttpProtocol(HttpToolsProtocol):
    """One connection. A head that does not arrive in time ends it; waiting for it costs only a timer."""

    _in_head = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    _unread_timer: asyncio.TimerHandle | None = None

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        self._address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Each read allocates a buffer of the transport's `max_size`; a quarter of asyncio's default is far cheaper."""
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_BYTES
        super().connection_made(cast(asyncio.Transport, transport))
        self._address = self.client[0] if self.client else ""
        if self._connections.enter(self._address):
            self._expect_head()
        else:
            self._turn_away(b"429 Too Many Requests", b"This address has too many connections.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self._address)
        self._head_is_here()
        self._stop_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads too little: nothing more is written until it has read, and it must read something."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def _expect_reading(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(self._connections.unread_s, self._look_whether_read)

    def _look_whether_read(self) -> None:
        if self.transport.get_write_buffer_size() >= self._unread_bytes:
            self.transport.abort()
        else:
            self._expect_reading()

    def _stop_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def data_received(self, data: bytes) -> None:
        """A head that is too long is refused; data after it may be the end of a previous body."""
        if self.transport.is_closing():
            return
        began = self._in_head
        super().data_received(data)
        if self._in_head or not self._answering:  # also after a refused body, or empty lines
            self._expect_head()
        if began and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_is_here()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._connections.head_s, self._head_is_late)

    def _head_is_here(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        if self._answering:
            self.transport.close()  # nothing may be written into the midst of a response
        else:
            self._turn_away(b"408 Request Timeout", b"The head of the request did not arrive in time.")

    @property
    def _answering(self) -> bool:
        """Whether a request is in progress."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _turn_away(self, status: bytes, why: bytes) -> None:
        head = b"HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nretry-after: 1\r\n" % (
            status,
            len(why),
        )
        self.transport.write(head + b"connection: close\r\n\r\n" + why)
        self.transport.close()
