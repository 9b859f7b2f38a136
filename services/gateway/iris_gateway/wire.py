"""HTTP as bytes: uvicorn's quick parser, with the limit to the head of a request that it lacks.

Not in this room: what is asked for (`front`), and listening (`service`).
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 32 << 10
"""Request line and headers; they are kept in memory until they are whole."""

_READ_BYTES = 1 << 16


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Every read takes a new buffer of the transport's `max_size`; a quarter of asyncio's own is far cheaper."""
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_BYTES
        super().connection_made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        """A head that does not end is refused; the piece it began in may hold the end of another request's body."""
        began = self._in_head
        super().data_received(data)
        if began and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
