"""TCP proxies between a service and NATS that can stop forwarding, or drop only a worker's orders.

A stopped proxy is a black hole: connections stay, and are made, but nothing comes through; nothing
is reset. TCP loses no bytes, so slow is late and not lossy. HTTP from a task to the gateway does
not pass here. Where there are no network namespaces a proxy is all that a place has.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.places import Harm, Place, owned

_BYTES = 1 << 16
_LATE_S = 0.3
_LOOK_S = 0.02
_ORDER = re.compile(rb"iris\.worker\.[^.]+\.order")


class Proxies:
    """The thread all proxies run in, for as long as the process.

    Args:
        sealed: what passes is encrypted, so that no message can be told from another.
    """

    def __init__(self, *, sealed: bool = False) -> None:
        self.sealed = sealed
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()


class Proxy:
    """The way to NATS of one place.

    Attributes:
        harm: what it does to all bytes. loses_orders: the worker hears everything but what it is to
            do.
        lost: how many orders that were. sealed: as of `Proxies`; it cannot lose orders then.
    """

    def __init__(self, directory: Path, proxies: Proxies) -> None:
        self.harm: Harm | None = None
        self.loses_orders = False
        self.lost = 0
        self._directory = directory
        self._loop = proxies.loop
        self.sealed = proxies.sealed
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        (self._directory / "port").write_text(str(self._server.sockets[0].getsockname()[1]))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            port = random.choice((self._directory / "nats").read_text().split())
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(port))
            await asyncio.gather(
                self._pass(reader, far_writer, ("cut", "mute"), _Raw()),
                self._pass(
                    far_reader, writer, ("cut", "deaf"), _Raw() if self.sealed else _Messages()
                ),
            )
        writer.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stopped: tuple[str, str],
        pieces: _Raw | _Messages,
    ) -> None:
        """One direction, until the sender ends it and that may be told."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_BYTES):
                while self.harm in stopped:
                    await asyncio.sleep(_LOOK_S)
                if self.harm == "slow":
                    await asyncio.sleep(_LATE_S)
                for subject, piece in pieces.of(data):
                    if self.loses_orders and _ORDER.fullmatch(subject):
                        self.lost += 1
                    else:
                        writer.write(piece)
                await writer.drain()
            while self.harm in stopped:
                await asyncio.sleep(_LOOK_S)
        writer.close()


class _Raw:
    """What a client sends, as it comes."""

    def of(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield b"", data


class _Messages:
    """What a server sends, message by message with its subject. Source: docs.nats.io, NATS client
    protocol.
    """

    def __init__(self) -> None:
        self._held = b""

    def of(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._held += data
        while (end := self._held.find(b"\r\n")) >= 0:
            words = self._held[:end].split()
            is_message = words[0] in (b"MSG", b"HMSG")
            size = end + 2 + (int(words[-1]) + 2 if is_message else 0)
            if len(self._held) < size:
                return
            yield words[1] if is_message else b"", self._held[:size]
            self._held = self._held[size:]


class Proxied(Place):
    """One place that has nothing but its proxy."""

    def __init__(self, directory: Path, proxies: Proxies) -> None:
        super().__init__(directory)
        self.proxy: Proxy = Proxy(self.directory, proxies)

    def harm(self, how: Harm) -> None:
        self.proxy.harm = how

    def mend(self) -> None:
        self.proxy.harm = None

    def pids(self) -> set[int]:
        return set(owned(self))

    def close(self) -> None:
        self.proxy.close()
