"""Tunnels an accepted websocket: copies bytes unchanged in both directions until either side ends.

Frames are not parsed, so pings, close codes, extensions and fragments stay intact. Backpressure:
each side is read only as fast as the other accepts. Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_writer import StreamWriter

from iris_proxy.upstream.upstream import AHEAD_BYTES, RouteConnection


class _Bytes:
    """Stands in for aiohttp's parser of frames and passes all bytes on unparsed."""

    def __init__(self, protocol: BaseProtocol) -> None:
        self.stream = aiohttp.StreamReader(protocol, AHEAD_BYTES, loop=asyncio.get_running_loop())

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.stream.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        self.stream.feed_eof()


async def tunnel(request: web.BaseRequest, connection: RouteConnection, idle_s: float) -> None:
    """Send the head of the answer, then copy until either side ends or both were silent for
    ``idle_s``.
    """
    request.writer.send_headers()
    route = _Bytes(connection)
    client = _Bytes(request.protocol)
    connection.set_parser(route, route.stream)
    request.protocol.set_parser(client)  # type: ignore[arg-type]
    to_route = StreamWriter(connection, asyncio.get_running_loop())
    with contextlib.suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
        async with asyncio.timeout(idle_s) as timer:
            both = [
                asyncio.create_task(_copy(client.stream, to_route.write, timer, idle_s)),
                asyncio.create_task(_copy(route.stream, request.writer.write, timer, idle_s)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end(both)


async def _copy(
    stream: aiohttp.StreamReader,
    write: Callable[[bytes], Awaitable[Any]],
    timer: asyncio.Timeout,
    idle_s: float,
) -> None:
    chunks: AsyncIterator[bytes] = stream.iter_any()
    async for chunk in chunks:
        timer.reschedule(asyncio.get_running_loop().time() + idle_s)
        await write(chunk)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
