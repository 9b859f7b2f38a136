"""A cluster of three real NATS servers on loopback, each of which can be killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from iris_bus.contract import Connection, Unavailable
from tests.support.nats_config import ConfiguredServer, free_ports

_START_S = 60.0
_CONFIG = """\
server_name: {name}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{http}"
max_payload: 8MB
jetstream {{ store_dir: {store}, sync_interval: always, max_file_store: 1TB }}
cluster {{ name: iris, listen: "127.0.0.1:{route}", routes: [{routes}], no_advertise: {hidden} }}
"""


@dataclass(frozen=True)
class NatsCluster:
    """Three servers, every stream on all of them."""

    nodes: list[ConfiguredServer]

    @classmethod
    def on(
        cls, directory: Path, *, hidden: bool = False, tls: tuple[Path, Path] | None = None
    ) -> NatsCluster:
        """Three of them, not started. ``hidden``: they tell clients no addresses of each other.
        ``tls``: the certificate and the key that they show to clients.
        """
        ports = free_ports(9)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[6:])
        nodes = []
        for n in range(3):
            place, port, http = directory / f"n{n}", ports[n], ports[3 + n]
            facts = {"route": ports[6 + n], "routes": routes, "hidden": str(hidden).lower()}
            store = json.dumps(str(place / "store"))
            config = _CONFIG.format(name=place.name, port=port, http=http, store=store, **facts)
            if tls is not None:
                cert, key = (json.dumps(str(path)) for path in tls)
                config += f"tls {{ cert_file: {cert}, key_file: {key} }}\n"
            nodes.append(
                ConfiguredServer(place, config, port, http, "tls" if tls is not None else "nats")
            )
        return cls(nodes)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes)

    async def healthy(self) -> None:
        for node in self.nodes:
            await node.until_healthy()


@asynccontextmanager
async def nats_cluster(directory: Path) -> AsyncIterator[NatsCluster]:
    """Three servers for as long as the block lasts."""
    cluster = NatsCluster.on(directory)
    try:
        for node in cluster.nodes:
            node.start()
        await cluster.healthy()
        yield cluster
    finally:
        cluster.kill()


async def leader_of(connection: Connection, stream: str) -> str:
    """The server that leads a stream, once one does."""
    deadline = time.monotonic() + _START_S
    while not (leader := await _leader(connection, stream)):
        assert time.monotonic() < deadline, f"nobody leads {stream}"
        await asyncio.sleep(0.05)
    return leader


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
