"""One of three NATS servers stands still for longer than the others wait for it, again and again: no
state service ends, and all that was submitted is there.

Another server each time: the one that leads the journal or the events, or that a state service is
connected to.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from iris_bus.contract import Connection
from iris_bus.jetstream import connect
from tests.support.nats_cluster import NatsCluster, leader_of, nats_cluster
from tests.support.nats_config import ConfiguredServer
from tests.support.replicas import Replica, Replicas, replicas
from tests.support.suspend import suspended

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(1800)]

ROUNDS = 10
STANDS_S = 25.0
"""Longer than an append waits for its answer, and than servers take to elect leaders."""
PAUSE_S = 0.05


def connected_to(replica: Replica, cluster: NatsCluster) -> ConfiguredServer | None:
    """The server that a state service has a connection to."""
    by_port = {int(node.url.rpartition(":")[2]): node for node in cluster.nodes}
    for one in psutil.Process(replica.pid).net_connections("tcp"):
        if one.status == psutil.CONN_ESTABLISHED and one.raddr and one.raddr.port in by_port:
            return by_port[one.raddr.port]
    return None


async def victims(
    connection: Connection, group: Replicas, cluster: NatsCluster
) -> AsyncIterator[tuple[str, ConfiguredServer]]:
    """Which server is next, and why."""
    for why in itertools.cycle(("journal", "leader", "events", "standby")):
        leader, _ = await group.leader()
        [standby] = [each for each in group.running if each is not leader]
        stream = "IRIS_EVENTS" if why == "events" else "IRIS_JOURNAL"
        name = await leader_of(connection, stream)
        [leads] = [node for node in cluster.nodes if node.name == name]
        service = {"leader": leader, "standby": standby}.get(why)
        yield why, (connected_to(service, cluster) if service is not None else None) or leads


async def submit(group: Replicas, names: list[str], enough: asyncio.Event) -> None:
    for number in itertools.count():
        if enough.is_set():
            return
        assert (await group.submit(f"/a{number}")).status == "created"
        names.append(f"/a{number}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(enough.wait(), PAUSE_S)


async def test_no_state_service_ends_by_a_server_that_stands_still(tmp_path: Path):
    async with nats_cluster(tmp_path) as cluster:
        connection = await connect(cluster.url, name="test", replicas=3)
        await connection.streams.ensure()
        async with replicas(cluster.url, tmp_path, connection, "nats.replicas=3") as group:
            await group.start()
            await group.start()
            names, enough = list[str](), asyncio.Event()
            work = asyncio.create_task(submit(group, names, enough))
            every = victims(connection, group, cluster)
            for _ in range(ROUNDS):
                why, server = await anext(every)
                assert server.process is not None
                with suspended([server.process.pid]):
                    await asyncio.wait([work], timeout=STANDS_S)
                before = len(names)
                async with asyncio.timeout(60):
                    while len(names) < before + 20 and not work.done():
                        await asyncio.sleep(PAUSE_S)
                assert not work.done(), f"{why}: {work}"
                ended = [each.returncode for each in group.running]
                assert ended == [None, None], f"{why}: {group.log()}"
            enough.set()
            await work
            assert await group.names() == set(names)
        await connection.close()
