"""A cluster of three real NATS servers on loopback, each of which can be killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iris_bus.contract import Connection, Unavailable
from iris_nats import nats_binary
from tests.support.nats_config import free_ports

_START_S = 60.0
_CONFIG = """\
server_name: "{name}"
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{http}"
max_payload: 8388608
jetstream {{ store_dir: {store}, sync_interval: always }}
cluster {{
  name: "iris"
  listen: "127.0.0.1:{route}"
  routes: [{routes}]
  no_advertise: true
}}
"""


@dataclass
class Node:
    """One server of the three."""

    name: str
    directory: Path
    port: int
    http: int
    route: int
    process: subprocess.Popen[bytes] | None = None

    def start(self, routes: str) -> None:
        self.directory.mkdir(exist_ok=True)
        config = self.directory / "nats.conf"
        store = json.dumps(str(self.directory / "store"))
        config.write_text(
            _CONFIG.format(name=self.name, port=self.port, http=self.http, route=self.route, store=store, routes=routes)
        )
        log = (self.directory / "nats.log").open("ab")
        self.process = subprocess.Popen([nats_binary.find(), "-c", str(config)], stdout=log, stderr=log)
        log.close()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def end(self) -> None:
        """Have it write down what it has, and end."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(_START_S)

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/healthz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@dataclass
class NatsCluster:
    """Three servers, every stream on all of them."""

    nodes: list[Node] = field(default_factory=list)

    @classmethod
    def on(cls, directory: Path) -> NatsCluster:
        """Three of them, not started."""
        ports = free_ports(9)
        return cls([Node(f"n{n}", directory / f"n{n}", *ports[3 * n : 3 * n + 3]) for n in range(3)])

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{node.port}" for node in self.nodes)

    def start(self, node: Node) -> None:
        node.start(", ".join(f'"nats-route://127.0.0.1:{other.route}"' for other in self.nodes))

    async def healthy(self) -> None:
        deadline = time.monotonic() + _START_S
        while not all([await asyncio.to_thread(node.healthy) for node in self.nodes]):
            assert time.monotonic() < deadline, "the three servers did not find each other"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def nats_cluster(directory: Path) -> AsyncIterator[NatsCluster]:
    """Three servers for as long as the block lasts."""
    cluster = NatsCluster.on(directory)
    try:
        for node in cluster.nodes:
            cluster.start(node)
        await cluster.healthy()
        yield cluster
    finally:
        cluster.kill()


async def step_down(connection: Connection, stream: str, within_s: float = _START_S) -> None:
    """Have a stream's leader give up its office, and return once there is another."""
    before = await _leader(connection, stream)
    await connection.bus.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", timeout=within_s)
    deadline = time.monotonic() + within_s
    while await _leader(connection, stream) in ("", before):
        assert time.monotonic() < deadline, f"{stream} has no new leader"
        await asyncio.sleep(0.01)


async def _leader(connection: Connection, stream: str) -> str:
    with contextlib.suppress(Unavailable):
        info = await connection.bus.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=2)
        return (json.loads(info.data).get("cluster") or {}).get("leader", "")
    return ""
