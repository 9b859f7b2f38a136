"""Places without namespaces: each service speaks to NATS through a proxy of its own, which can stop passing bytes on.

A stopped proxy is a black hole: connections stay, and are made, but nothing comes through; nothing is reset. TCP loses
no bytes, so slow is late and not lossy. HTTP from a task to the gateway does not pass here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from pathlib import Path

from tests.chaos.places import Harm, Place, owned

_BYTES = 1 << 16
_LATE_S = 0.3
_LOOK_S = 0.02


class Proxies:
    """The thread all proxies run in, for as long as the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()


class Proxied(Place):
    """One place."""

    def __init__(self, directory: Path, proxies: Proxies) -> None:
        super().__init__(directory)
        self._harm: Harm | None = None
        self._loop = proxies.loop
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def harm(self, how: Harm) -> None:
        self._harm = how

    def mend(self) -> None:
        self._harm = None

    def pids(self) -> set[int]:
        return set(owned(self))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        (self.directory / "port").write_text(str(self._server.sockets[0].getsockname()[1]))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            port = random.choice((self.directory / "nats").read_text().split())
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(port))
            await asyncio.gather(
                self._pass(reader, far_writer, ("cut", "mute")), self._pass(far_reader, writer, ("cut", "deaf"))
            )
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stopped: tuple[str, str]) -> None:
        """One direction, until the sender ends it and that may be told."""
        with contextlib.suppress(OSError):
            data = b"first"
            while data:
                data = await reader.read(_BYTES)
                while self._harm in stopped:
                    await asyncio.sleep(_LOOK_S)
                if self._harm == "slow":
                    await asyncio.sleep(_LATE_S)
                writer.write(data)
                await writer.drain()
        writer.close()
