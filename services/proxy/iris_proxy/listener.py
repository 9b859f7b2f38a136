"""Listens for clients: aiohttp's low-level server with the limits that it lacks.

aiohttp cancels the handler of a disconnected client. This module adds: a timeout of request heads,
and a limit of connections that are served. Beyond it the one that has been idle for longest gives
way. Where none is idle, on some more the first request is refused, as clients expect it; further
ones are refused at once, because each takes a descriptor. Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from itertools import islice
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from iris_core.limits import HEAD_FIELDS, HEAD_LINE_BYTES, clipped
from iris_proxy.http.refusal import ProxyRefusal, bad_request
from iris_proxy.settings import ProxySettings

_BACKLOG = 4096
_LAST_S = 0.1
_SHOWN = 200
_MORE = 4
"""This part of the limit may wait beyond it for a refusal."""
_GIVES_WAY_S = 1.0
"""How long a connection has been idle that gives way: on a new one a request is on its way."""
_LOOKED_AT = 16
"""Idle connections that are asked to give way: one that has just become so may not yet."""
_TOO_MANY = "Too many headers received"
"""What aiohttp's parser says; the exception has no type of its own."""

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Refuse = Callable[[web.BaseRequest, ProxyRefusal], web.StreamResponse]


class Listener:
    """Serves ``handle`` to all clients.

    Args:
        refuse: answers a request on a connection over the limit, or one that cannot be read.
    """

    def __init__(
        self,
        handle: Handle,
        refuse: Refuse,
        settings: ProxySettings,
    ) -> None:
        self._handle = handle
        self._refuse = refuse
        self._settings = settings
        self._accepting: asyncio.Server | None = None
        self._server: _Server | None = None

    async def start(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        logging.getLogger("aiohttp.server").addFilter(_no_mistake_of_a_client)
        self._server = _Server(self._answer, self._refuse, self._settings)
        loop = asyncio.get_running_loop()
        self._accepting = await loop.create_server(
            self._server, sock=listening, ssl=tls, backlog=_BACKLOG
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(ClientConnection, request.protocol)
        if connection.too_many:
            most = (
                f"this proxy serves {self._settings.max_connections} connections "
                "([proxy] max_connections)"
            )
            return self._refuse(request, ProxyRefusal("overloaded", most, closes=True))
        connection.begin()
        try:
            return await self._handle(request)
        finally:
            connection.rest()

    async def stop(self) -> None:
        """Accept no more connections, close idle ones, and let requests under way finish within
        their time.
        """
        if self._accepting is None or self._server is None:
            return
        self._accepting.close()
        self._server.pre_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_s):
                await self._server.shutdown()
        await self._server.shutdown(_LAST_S)  # what is left is cut off


class ClientConnection(RequestHandler):
    """A client's connection, closed if its first request head, or one that has begun, takes longer
    than ``head_s``.

    Attributes:
        too_many: whether it is over the limit of connections. far_too_many: whether it is closed at
            once.
    """

    def __init__(self, manager: _Server, refuse: Refuse, head_s: float, **options: Any) -> None:
        super().__init__(manager, **options)
        self._refuse = refuse
        self._server = manager
        self.too_many = self.far_too_many = False
        self._head_s = head_s
        self._awaited = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.far_too_many and self.transport is not None:
            self.transport.write(_NO_ROOM)
            self.transport.close()
        else:
            self._expect_head()
            if not self.too_many:
                self.rest()

    def begin(self) -> None:
        """A request is handled from now on."""
        self._server.idle.pop(self, None)

    def rest(self) -> None:
        """No request is handled from now on."""
        if self.transport is not None:
            self._server.idle[self] = self._loop.time()

    def give_way(self) -> bool:
        """Close this connection; False: a request has come, or its answer is still being written."""
        if self._waiter is None or self._waiter.done():
            return False
        self.begin()
        self._server.closing.add(self)
        self.force_close()
        return True

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        body = self._reads_body()
        super().data_received(data)
        if not body and self._request_count == before and self._awaited != before:
            self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.begin()
        self._server.closing.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what aiohttp's parser refuses is one of the proxy."""
        if isinstance(exc, HttpProcessingError) and not request.writer.output_size:
            return self._refuse(request, _unreadable(exc))
        return super().handle_error(request, status, exc, message)

    def _reads_body(self) -> bool:
        if self._messages:
            return not self._messages[-1][1].is_eof()
        return self._current_request is not None and not self._current_request.content.is_eof()

    def _expect_head(self) -> None:
        """Start the timer of the next head, identified by its number on this connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._awaited = self._request_count
        self._timer = self._loop.call_later(self._head_s, self._late)

    def _late(self) -> None:
        if self._request_count == self._awaited and self._waiter is not None:
            self.force_close()


class _Server(web.Server):
    """aiohttp's server with `ClientConnection`.

    Attributes:
        idle: connections on which no request is handled, with since when, the first one first.
        closing: those that give way and are not gone yet.
    """

    def __init__(self, handle: Handle, refuse: Refuse, settings: ProxySettings) -> None:
        super().__init__(handle, handler_cancellation=True)
        self._refuse = refuse
        self._settings = settings
        self.idle: dict[ClientConnection, float] = {}
        self.closing: set[ClientConnection] = set()

    def _make_room(self) -> int:
        """Have idle connections give way; returns how many are served then."""
        now_s = asyncio.get_running_loop().time()
        most = self._settings.max_connections
        for connection, since_s in list(islice(self.idle.items(), _LOOKED_AT)):
            served = len(self._connections) - len(self.closing)
            if served < most or now_s - since_s < _GIVES_WAY_S or connection.give_way():
                break
        return len(self._connections) - len(self.closing)

    def __call__(self) -> RequestHandler:
        connection = ClientConnection(
            self,
            self._refuse,
            self._settings.head_s,
            loop=asyncio.get_running_loop(),
            access_log=None,
            keepalive_timeout=self._settings.idle_s,
            max_line_size=HEAD_LINE_BYTES,
            max_field_size=HEAD_LINE_BYTES,
            max_headers=HEAD_FIELDS,
            auto_decompress=False,
        )
        most = self._settings.max_connections
        served = self._make_room()
        connection.too_many = served >= most
        connection.far_too_many = served >= most + max(1, most // _MORE)
        return connection


def _whole_answer(refusal: ProxyRefusal) -> bytes:
    """A refusal as bytes, for a connection on which there is no request yet."""
    body = refusal.body()
    fields = [*refusal.headers(), ("Content-Length", str(len(body))), ("Connection", "close")]
    lines = [
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}",
        *(f"{name}: {value}" for name, value in fields),
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


_NO_ROOM = _whole_answer(
    ProxyRefusal("overloaded", "this proxy has more connections than [proxy] max_connections")
)


def _unreadable(error: HttpProcessingError) -> ProxyRefusal:
    """The refusal of what the parser refuses; further lines of its message show the request."""
    why = error.message.partition("\n")[0].rstrip(":.")
    if isinstance(error, LineTooLong) or why == _TOO_MANY:
        most = (
            f"a target or a field may have {HEAD_LINE_BYTES} bytes, and a head {HEAD_FIELDS} fields"
        )
        return ProxyRefusal("head_too_large", most, closes=True)
    return bad_request(f"the request is not valid HTTP: {clipped(why, _SHOWN)}")


def _no_mistake_of_a_client(record: logging.LogRecord) -> bool:
    """Whether a record is logged: an unparsable request was answered and is not an error of the
    proxy.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
