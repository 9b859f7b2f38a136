"""``python -m benchmarks.http_load ADDRESS PATH CONNECTIONS SECONDS``: sequential requests on each
connection.

Prints how many were answered and how long each took, as JSON. Every answer must have the size of
the first: so the generator need not parse them, and takes little of the machine it shares with what
    it measures.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec


class Load(msgspec.Struct, frozen=True):
    """What came out: times in milliseconds."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class Connection(asyncio.Protocol):
    """One connection with one request under way."""

    def __init__(self, request: bytes, answer_bytes: int, took: list[float]) -> None:
        self._request = request
        self._answer_bytes = answer_bytes
        self._left = answer_bytes
        self._took = took
        self._sent_s = 0.0
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left == 0:
            self._took.append(time.perf_counter() - self._sent_s)
            self._left = self._answer_bytes
            self._send()
        elif self._left < 0:
            self.lost.set_exception(RuntimeError(f"an answer has another size: {data[:200]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_exception(RuntimeError(f"a connection was lost: {exc}"))

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)


async def measure(address: str, path: str, connections: int, seconds: float) -> Load:
    """Raises RuntimeError when an answer is not like the first."""
    host, _, port = address.rpartition(":")
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    size = await _size(host, int(port), request)
    loop, took = asyncio.get_running_loop(), list[float]()
    began = time.perf_counter()
    made = [
        await loop.create_connection(lambda: Connection(request, size, took), host, int(port))
        for _ in range(connections)
    ]
    lost = [protocol.lost for _, protocol in made]
    done, _ = await asyncio.wait(lost, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    spent = time.perf_counter() - began
    for future in done:
        future.result()
    took.sort()
    return Load(len(took), spent, 1000 * took[len(took) // 2], 1000 * took[len(took) * 99 // 100])


async def _size(host: str, port: int, request: bytes) -> int:
    """Bytes of one answer, on a connection that is used again. Raises RuntimeError when it is not
    200.
    """
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(f"not an answer to measure: {head!r}")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    writer.close()
    return len(head) + length


if __name__ == "__main__":
    address, path, connections, seconds = sys.argv[1:]
    load = asyncio.run(measure(address, path, int(connections), float(seconds)))
    sys.stdout.write(msgspec.json.encode(load).decode() + "\n")
