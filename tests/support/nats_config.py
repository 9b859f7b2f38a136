"""NATS servers with a test's own configuration, such as restricted users."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from iris_nats import nats_binary

_END_S = 60.0


class ConfiguredServer:
    """One `nats-server` on a configuration text that listens on ``port`` and ``http``, named after
    its directory.
    """

    def __init__(
        self, directory: Path, config: str, port: int, http: int, scheme: str = "nats"
    ) -> None:
        self.directory = directory
        self.name = directory.name
        self.url = f"{scheme}://127.0.0.1:{port}"
        self._health = f"http://127.0.0.1:{http}/healthz"
        self._config = directory / "nats.conf"
        directory.mkdir(parents=True, exist_ok=True)
        self._config.write_text(config)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.directory / "nats.log").open("ab") as log:
            self.process = subprocess.Popen(
                [nats_binary.find(), "-c", self._config], stdout=log, stderr=log
            )

    def add(self, config: str) -> None:
        """Add lines to its configuration, for its next start."""
        with self._config.open("a") as file:
            file.write(config)

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self._health, timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def until_healthy(self, seconds: float = 100.0) -> None:
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(self.healthy):
            assert time.monotonic() < deadline, f"{self.url} is not healthy after {seconds} s"
            await asyncio.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """Have it write down what it has, and end."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(_END_S)


def free_ports(count: int) -> list[int]:
    """Ports that only servers which are told of them get while this process runs: they are bound,
    and do not listen.
    """
    return [_kept(_bound(0)) for _ in range(count)]


def row_of_free_ports(count: int) -> int:
    """The first of so many `free_ports`, above those of coordinators and below those of
    connections; a random one, because tests beside this take some too.
    """
    every = range(30_000, 32_760, count)
    for first in random.sample(every, len(every)):
        with contextlib.suppress(OSError), contextlib.ExitStack() as row:
            bound = [row.enter_context(_bound(port)) for port in range(first, first + count)]
            row.pop_all()
            return min(map(_kept, bound))
    raise LookupError(f"no {count} free ports in a row")


def _kept(bound: socket.socket) -> int:
    """Keep its port until this process ends."""
    port = int(bound.getsockname()[1])
    bound.detach()
    return port


def _bound(port: int) -> socket.socket:
    """Raises OSError when the port is taken or reserved."""
    bound = socket.socket()
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        raise
    bound.setsockopt(
        socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
    )  # only now: bind would pass over a reservation
    return bound


@asynccontextmanager
async def configured_nats(directory: Path, config: str) -> AsyncIterator[ConfiguredServer]:
    """A server with ``config`` added to its listeners and store."""
    port, http = free_ports(2)
    listeners = f'listen: "127.0.0.1:{port}"\nhttp: "127.0.0.1:{http}"\nmax_payload: 8MB\n'
    store = (
        f"jetstream {{ store_dir: {json.dumps(str(directory / 'store'))}, max_file_store: 1TB }}\n"
    )
    server = ConfiguredServer(directory, listeners + store + config, port, http)
    server.start()
    try:
        await server.until_healthy()
        yield server
    finally:
        server.kill()
