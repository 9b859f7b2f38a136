"""Sends an answer to a client: the route's head with new framing, and the body as it arrives.

Replaces aiohttp's response class, which adds fields to a head and guesses the content type.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import HttpVersion10, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawResponseMessage, StreamWriter
from multidict import CIMultiDict

from iris_proxy.http.headers import Fields, to_client

_WITHOUT_BODY = frozenset({204, 304})
_CONTINUE = 100


class Reply(web.StreamResponse):
    """The answer to ``request``.

    Args:
        closes: whether the connection ends after it.
    """

    def __init__(self, request: web.BaseRequest, head: RawResponseMessage, *, closes: bool) -> None:
        super().__init__(status=head.code, reason=head.reason)
        assert isinstance(request.writer, StreamWriter)
        self._writer = request.writer
        self._request = request
        self._head = head
        self._keeps = request.keep_alive and not closes

    @property
    def keep_alive(self) -> bool:
        return self._keeps

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """For aiohttp, which asks after the handler: `begin` has done it."""
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """As `prepare`."""

    async def begin(self, added: Fields) -> None:
        """Write the head with fields ``added``, sent with the next bytes. Raises ValueError for
        control characters.
        """
        head = self._head
        fields = CIMultiDict([*to_client(head.headers.items()), *added])
        if head.code == 101:
            self._keeps = False
            fields.extend((("Connection", "Upgrade"), ("Upgrade", "websocket")))
        else:
            self._frame(fields)
        await self._writer.write_headers(_status_line(self._request, head), fields)

    def _frame(self, fields: CIMultiDict[str]) -> None:
        """Set the framing of the body and the Connection field."""
        old = self._request.version == HttpVersion10
        if self._head.code in _WITHOUT_BODY:
            fields.popall("Content-Length", None)
        elif self._request.method != "HEAD" and "Content-Length" not in fields:
            if old:
                self._keeps = False
            else:
                self._writer.enable_chunking()
                fields.add("Transfer-Encoding", "chunked")
        if old and self._keeps:
            fields.add("Connection", "keep-alive")
        elif not self._keeps:
            fields.add("Connection", "close")

    async def copy(self, content: aiohttp.StreamReader, idle_s: float) -> None:
        """Copy the body. Raises TimeoutError when the route sends, or the client reads, nothing
        within the timeout.
        """
        writer = self._writer
        if content.is_eof():
            await writer.write(content.read_nowait(), drain=False)
            writer.set_eof()
            if not self._request.protocol.writing_paused:
                return
        writer.send_headers()
        async with asyncio.timeout(idle_s) as timer:
            async for chunk in content.iter_any():
                timer.reschedule(asyncio.get_running_loop().time() + idle_s)
                await writer.write(chunk)
            writer.set_eof()
            await writer.drain()


async def inform(request: web.BaseRequest, head: RawResponseMessage) -> None:
    """Forward a 1xx answer, except to HTTP/1.0 clients, and except 100, which this proxy sends
    itself.
    """
    if request.version != HttpVersion10 and head.code != _CONTINUE:
        await request.writer.write_headers(
            _status_line(request, head), CIMultiDict(to_client(head.headers.items()))
        )
        request.writer.send_headers()


def _status_line(request: web.BaseRequest, head: RawResponseMessage) -> str:
    return f"HTTP/{request.version.major}.{request.version.minor} {head.code} {head.reason}"
