"""The listening side: aiohttp's low-level server, with the limits it leaves to others.

aiohttp cancels the handler of a client that has left, when asked to. A connection whose first request does not arrive
in time is closed. Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from iris_proxy.settings import ProxySettings
from iris_proxy.upstream import FIELDS, LINE_BYTES

_BACKLOG = 4096


class Listener:
    """Serves ``handle`` to whoever connects."""

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], settings: ProxySettings
    ) -> None:
        self._handle = handle
        self._settings = settings
        self._accepting: asyncio.Server | None = None
        self._server: _Server | None = None

    async def start(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        logging.getLogger("aiohttp.server").addFilter(_no_mistake_of_a_client)
        self._server = _Server(self._handle, self._settings)
        loop = asyncio.get_running_loop()
        self._accepting = await loop.create_server(self._server, sock=listening, ssl=tls, backlog=_BACKLOG)

    async def stop(self) -> None:
        """Accept nothing more, close idle connections, and give requests under way their time."""
        if self._accepting is None or self._server is None:
            return
        self._accepting.close()
        self._server.pre_shutdown()
        await self._server.shutdown(self._settings.drain_s)


class _Server(web.Server):
    """aiohttp's server, and a time by which the first request of a connection must have arrived."""

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], settings: ProxySettings
    ) -> None:
        super().__init__(
            handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=settings.idle_s,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            max_headers=FIELDS,
            auto_decompress=False,
        )
        self._head_s = settings.head_s
        self._timers: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._timers[handler] = asyncio.get_running_loop().call_later(self._head_s, self._late, handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if timer := self._timers.pop(handler, None):
            timer.cancel()

    def _late(self, handler: RequestHandler) -> None:
        del self._timers[handler]
        if not handler._request_count:
            handler.force_close()


def _no_mistake_of_a_client(record: logging.LogRecord) -> bool:
    """Whether a record is worth a line: a request that cannot be parsed was answered, and is no error of ours."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
