"""Three NATS servers of which one or all return corrupted data."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from iris_bus.contract import Unavailable
from iris_bus.jetstream import JetStreamConnection, connect
from iris_bus.journal.journal import JetJournal
from iris_core import subjects
from iris_service.child import DAMAGED
from tests.support import damage
from tests.support.damage import Hurt, admin, lost_by
from tests.support.nats_cluster import NatsCluster, nats_cluster
from tests.support.nats_config import ConfiguredServer
from tests.support.replicas import Replicas, replicas

pytestmark = pytest.mark.integration

NAMES = {f"/job-{number}" for number in range(10)}
POLL_S = 0.05
WAIT_S = 60.0


async def led_by(connection: JetStreamConnection, node: ConfiguredServer) -> None:
    """Have this server lead the journal."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(Unavailable):
                info = await connection._api.call(f"STREAM.INFO.{subjects.JOURNAL.name}", {}, dict)
                if info.get("cluster", {}).get("leader") == node.name:
                    return
                wanted = {"placement": {"preferred": node.name}}
                await connection._api.call(
                    f"STREAM.LEADER.STEPDOWN.{subjects.JOURNAL.name}", wanted, dict
                )
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def worked_cluster(place: Path) -> AsyncIterator[tuple[NatsCluster, JetStreamConnection]]:
    """Servers with the journal of a state service that has admitted jobs, and was stopped."""
    async with nats_cluster(place / "nats") as cluster:
        connection = await connect(cluster.url, name="test", replicas=3)
        await connection.streams.ensure()
        async with replicas(cluster.url, place, connection, "nats.replicas=3") as group:
            await group.start()
            for name in sorted(NAMES):
                assert (await group.submit(name)).status == "created"
        yield cluster, connection
        await connection.close()


async def same_on_all(cluster: NatsCluster) -> None:
    """Return when every server has the whole journal in its files."""
    async with asyncio.timeout(WAIT_S):
        while True:
            copies = [list(damage.journal_in(node.directory)) for node in cluster.nodes]
            if copies[0] and copies[0] == copies[1] == copies[2]:
                return
            await asyncio.sleep(POLL_S)


async def hurt_while_down(
    cluster: NatsCluster, connection: JetStreamConnection, hurt: Hurt, *nodes: ConfiguredServer
) -> None:
    """Stop servers, do harm to their files, and start them again; the first leads the journal
    then.
    """
    await same_on_all(cluster)
    for node in nodes:
        node.end()
    for node in nodes:
        hurt(node.directory)
        node.start()
    await cluster.healthy()
    await led_by(connection, nodes[0])


async def names_of(group: Replicas) -> set[str]:
    """The jobs that a state service knows which has read every command before its newest."""
    await group.start()
    await group.leader()
    assert (await group.submit("/after")).status == "created"
    return await group.names() - {"/after"}


@pytest.mark.parametrize(
    "hurt",
    [
        damage.flip_middle,
        *(
            pytest.param(hurt, marks=pytest.mark.soak)
            for hurt in (damage.flip_last, damage.flip_after_crash, damage.truncate)
        ),
    ],
)
async def test_what_one_server_of_three_has_lost_is_read_from_another(tmp_path: Path, hurt: Hurt):
    async with worked_cluster(tmp_path) as (cluster, connection):
        await hurt_while_down(cluster, connection, hurt, cluster.nodes[0])
        async with replicas(cluster.url, tmp_path, connection, "nats.replicas=3") as group:
            assert await names_of(group) == NAMES
        if hurt is damage.flip_middle:
            verified = await asyncio.to_thread(admin, "verify", url=cluster.url)
            assert (verified.code, "one server cannot read 1 entries" in verified.out) == (
                DAMAGED,
                True,
            ), verified


async def refusal_of(journal: JetJournal) -> str:
    """Why a journal cannot be read now."""
    with pytest.raises(Unavailable) as refused:
        async for _ in await journal.replay(0):
            pass
    return str(refused.value)


async def test_what_two_servers_of_three_have_lost_is_read_from_the_third(tmp_path: Path):
    async with worked_cluster(tmp_path) as (cluster, connection):
        await hurt_while_down(cluster, connection, damage.flip_middle, *cluster.nodes[:2])
        cluster.nodes[2].end()
        journal = JetJournal(connection._link, connection._api, retry_for_s=0.5)
        async with asyncio.timeout(60):
            while "may be on n2, which cannot be asked" not in await refusal_of(journal):
                pass  # the servers are choosing a leader
        cluster.nodes[2].start()
        await cluster.healthy()
        async with replicas(cluster.url, tmp_path, connection, "nats.replicas=3") as group:
            assert await names_of(group) == NAMES


async def test_a_server_that_was_wiped_gets_its_copy_from_the_others(tmp_path: Path):
    async with worked_cluster(tmp_path) as (cluster, _):
        await same_on_all(cluster)
        wiped = cluster.nodes[1]
        wiped.end()
        shutil.rmtree(wiped.directory / "store")
        wiped.start()
        await cluster.healthy()
        await same_on_all(cluster)


async def test_what_all_three_servers_have_lost_is_said_and_repaired(tmp_path: Path):
    async with worked_cluster(tmp_path) as (cluster, connection):
        await hurt_while_down(cluster, connection, damage.flip_middle, *cluster.nodes)
        async with replicas(cluster.url, tmp_path, connection, "nats.replicas=3") as group:
            refusing = await group.start()
            async with asyncio.timeout(WAIT_S):
                assert await refusing.wait() == DAMAGED
            assert "no server can read this message" in group.log()
            repaired = await asyncio.to_thread(
                admin, "repair", "--yes", url=cluster.url, cwd=tmp_path
            )
            assert repaired.code == 0, repaired
            assert "lost: entry" in repaired.out
            assert list(tmp_path.glob("iris-replaced-*"))
            for stream in (subjects.JOURNAL.name, subjects.EVENTS.name):
                assert (await connection._api.retrying(WAIT_S).info(stream)).config[
                    "num_replicas"
                ] == 3
            assert await names_of(group) == NAMES - lost_by(repaired.out)
        await same_on_all(cluster)
