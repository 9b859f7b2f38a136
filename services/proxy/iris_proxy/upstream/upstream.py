"""Connections to one route, and one request on one of them.

Parsing, framing and flow control are aiohttp's (`ResponseHandler` and `StreamWriter`); its session,
which adds cookies, redirects, decompression and retries, is not used. The newest idle connection is
used first; one on which unexpected bytes arrive is closed. Source:
docs/design/serving.md#proxy-rules, docs/adr/0025-the-proxy-is-a-process-on-aiohttp.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage, StreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from iris_core.limits import HEAD_FIELDS, HEAD_LINE_BYTES
from iris_core.spec.serving import ProxyPolicy
from iris_proxy.http.headers import Fields
from iris_proxy.http.refusal import ProxyRefusal
from iris_proxy.routes.retry import Failure

AHEAD_BYTES = 64 << 10

Informational = Callable[[RawResponseMessage], Awaitable[None]]


class NoAnswer(Exception):
    """An attempt ended without an answer."""

    def __init__(self, failure: Failure, status: int, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.status = status


class RouteConnection(ResponseHandler):
    """A connection to a route, with one timer for all its requests.

    A timer that fires early is rearmed, so no request creates a timer.

    Attributes:
        reused: whether it carried a request before the current one and has been idle since.
        heard: whether bytes of the current answer have arrived.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_idle_end: Callable[[RouteConnection], None]
    ) -> None:
        super().__init__(loop)
        self.reused = self.heard = False
        self._on_idle_end = on_idle_end
        self._idle = self._answered = False
        self._due_s: float | None = None
        self._watch: asyncio.TimerHandle | None = None

    def expect_answer(self, within_s: float) -> None:
        """Fail the request if its answer has not begun by this deadline."""
        if not self._answered:
            self._be_done_in(within_s)

    def answered(self) -> None:
        """Note that the head of the answer has arrived."""
        self._answered = True
        self._due_s = None

    def rest(self, for_s: float) -> None:
        """Make it idle; it is closed after that time, or when bytes arrive."""
        self.reused = self._idle = True
        self._be_done_in(for_s)

    def wake(self) -> None:
        """Use it for a request."""
        self.heard = self._idle = self._answered = False
        self._due_s = None

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self._idle:
            self.close()
        else:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._idle:
            self._on_idle_end(self)
        super().connection_lost(exc)

    def _be_done_in(self, seconds: float) -> None:
        self._due_s = self._loop.time() + seconds
        if self._watch is None or self._watch.when() > self._due_s:
            self._set_timer(self._due_s)

    def _set_timer(self, when_s: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(when_s, self._look)

    def _look(self) -> None:
        self._watch = None
        if self._due_s is None:
            return
        if self._loop.time() < self._due_s:
            self._set_timer(self._due_s)
        elif self._idle:
            self.close()
        else:
            self.set_exception(TimeoutError())


class RouteAnswer:
    """A route's answer, whose body is still arriving.

    Attributes:
        head: as the route wrote it. content: the body. connection: the one it arrives on.
    """

    def __init__(
        self,
        upstream: Upstream,
        connection: RouteConnection,
        upload: asyncio.Task[None] | None,
        head: RawResponseMessage,
        content: aiohttp.StreamReader,
    ) -> None:
        self.head = head
        self.content = content
        self.connection = connection
        self._upload = upload
        self._upstream = upstream

    def close(self) -> None:
        """Keep the connection if the request ended on both sides, else close it."""
        sent = self._upload is None or self._upload.done()
        if self._upload is not None and not sent:
            self._upload.cancel()
        self._upstream.release(self.connection, sent)


class Upstream:
    """The connections of one route.

    Args:
        address: ``host:port``.
        idle_s: how long an idle connection is kept.
    """

    def __init__(self, address: str, idle_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._origin = (host.strip("[]"), int(port))
        self._idle_s = idle_s
        self._idle: list[RouteConnection] = []
        self._closed = False

    async def request(
        self,
        method: str,
        target: str,
        fields: Fields,
        body: AsyncIterator[bytes] | None,
        policy: ProxyPolicy,
        *,
        chunked: bool,
        fresh: bool,
        informational: Informational,
    ) -> RouteAnswer:
        """Send a request and return the head of its answer; calls ``informational`` with each 1xx
        before it.

        Args:
            body: its exceptions are raised here. chunked: ``fields`` hold no length.
            fresh: use a new connection.

        Raises NoAnswer.
        """
        connection = None if fresh else self._take()
        if connection is None:
            connection = await self._connect(policy.connect_s)
        upload: asyncio.Task[None] | None = None
        try:
            writer = await _begin(connection, method, target, fields, chunked=chunked)
            if body is None:
                writer.set_eof()
                connection.expect_answer(policy.first_byte_s)
            else:
                upload = asyncio.create_task(_send(body, writer, connection, policy))
            head, content = await connection.read()
            while 100 <= head.code < 200 and head.code != 101:
                await informational(head)
                head, content = await connection.read()
            if head.code < 100:
                raise ValueError(f"{head.code} is no status")
            connection.answered()
            return RouteAnswer(self, connection, upload, head, content=content)
        except BaseException as error:
            if upload is not None:
                upload.cancel()
            self.release(connection, sent=False)
            if (refused := _no_answer(error, connection)) is not None:
                raise refused from error
            raise

    def release(self, connection: RouteConnection, sent: bool) -> None:
        """End a request; ``sent``: all of it was sent, so the connection may be reused."""
        if sent and not self._closed and connection.is_connected() and not connection.should_close:
            self._idle.append(connection)
            connection.rest(self._idle_s)
        else:
            connection.close()

    def close(self) -> None:
        """Close idle connections now, the others when their request ends."""
        self._closed = True
        for connection in tuple(self._idle):
            connection.close()

    def _take(self) -> RouteConnection | None:
        """The most recently used connection that is still usable."""
        while self._idle:
            connection = self._idle.pop()
            connection.wake()
            if connection.is_connected() and not connection.should_close:
                return connection
            connection.close()
        return None

    async def _connect(self, within_s: float) -> RouteConnection:
        """Raises NoAnswer."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within_s):
                _, made = await loop.create_connection(
                    lambda: RouteConnection(loop, self._forget), *self._origin
                )
                return made
        except TimeoutError as error:
            detail = f"the route took no connection within {within_s:g} s"
            raise NoAnswer(Failure.NOT_CONNECTED, 502, detail) from error
        except OSError as error:
            raise NoAnswer(
                Failure.NOT_CONNECTED, 502, f"the route refused the connection: {error}"
            ) from error

    def _forget(self, connection: RouteConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)


async def _begin(
    connection: RouteConnection, method: str, target: str, fields: Fields, *, chunked: bool
) -> StreamWriter:
    """Prepare for the answer and write the request's head, which is sent with the first part of the
    body.
    """
    connection.set_response_params(
        skip_payload=method == "HEAD",
        read_until_eof=True,
        auto_decompress=False,
        read_bufsize=AHEAD_BYTES,
        max_line_size=HEAD_LINE_BYTES,
        max_field_size=HEAD_LINE_BYTES,
        max_headers=HEAD_FIELDS,
    )
    writer = StreamWriter(connection, asyncio.get_running_loop())
    if chunked:
        writer.enable_chunking()
        fields = [*fields, ("Transfer-Encoding", "chunked")]
    await writer.write_headers(f"{method} {target} HTTP/1.1", CIMultiDict(fields))
    return writer


async def _send(
    body: AsyncIterator[bytes],
    writer: StreamWriter,
    connection: RouteConnection,
    policy: ProxyPolicy,
) -> None:
    """Send a body; an error is raised to the waiter for the answer."""
    try:
        async for chunk in body:
            await writer.write(chunk, drain=False)
            if connection.writing_paused:
                async with asyncio.timeout(policy.idle_s):
                    await writer.drain()
        writer.set_eof()
        connection.expect_answer(policy.first_byte_s)
    except (ProxyRefusal, OSError, aiohttp.ClientError) as error:
        connection.set_exception(error)


def _closed(connection: RouteConnection) -> Failure:
    """The failure of a request whose connection was closed."""
    if connection.heard:
        return Failure.BROKEN
    return Failure.REUSED_CLOSED if connection.reused else Failure.NEW_CLOSED


def _no_answer(error: BaseException, connection: RouteConnection) -> NoAnswer | None:
    """The NoAnswer for an error while waiting for an answer; None if the route did not cause it."""
    match error:
        case TimeoutError():
            return NoAnswer(Failure.BROKEN, 504, "the route did not answer in time")
        case aiohttp.ServerDisconnectedError() | ConnectionError() | OSError():
            return NoAnswer(
                _closed(connection), 502, "the route closed the connection without an answer"
            )
        case aiohttp.ClientError() | HttpProcessingError() | ValueError():
            return NoAnswer(Failure.BROKEN, 502, f"the route's answer cannot be read: {error}")
    return None
