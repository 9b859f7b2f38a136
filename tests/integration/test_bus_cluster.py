"""A journal with three replicas whose stream leader is killed under load."""

import asyncio
from dataclasses import replace

import pytest

from iris_bus.connection.connection import Credentials, Link
from iris_bus.contract import Publication
from iris_bus.jetstream import connect
from iris_core.subjects import STORES, STREAMS
from tests.support.nats_cluster import leader_of, nats_cluster

pytestmark = pytest.mark.integration


async def test_the_journal_and_the_events_survive_the_death_of_their_leader(tmp_path):
    async with nats_cluster(tmp_path) as cluster:
        connection = await connect(cluster.url, name="test", replicas=3)
        await connection.streams.ensure()
        journal, publisher = connection.journal(), connection.publisher()
        await publisher.resume()
        enough, end = asyncio.Event(), 0

        async def write() -> None:
            nonlocal end
            while not enough.is_set():
                end = await journal.append(b"entry %d" % (end + 1), expected=end)
                publisher.publish([Publication("task.state.running", b"%d" % end, f"{end}-0")])

        async def written(count: int) -> None:
            before = end
            while end < before + count and not writing.done():
                await asyncio.sleep(0.01)

        writing = asyncio.create_task(write())
        victim = cluster.nodes[int((await leader_of(connection, "IRIS_JOURNAL"))[1:])]
        await written(100)
        victim.kill()
        await written(100)
        victim.start()
        await victim.until_healthy()
        enough.set()
        await writing
        await publisher.drain(30)
        assert [e.data async for e in await journal.replay(0)] == [
            b"entry %d" % n for n in range(1, end + 1)
        ]
        reader = connection.streams.read("IRIS_EVENTS", 0)
        told: list[bytes] = []
        while len(told) < end:
            told += [m.data for m in await reader.batch(wait=10)]
        await reader.close()
        assert told == [b"%d" % n for n in range(1, end + 1)]
        await connection.close()


async def test_no_service_lowers_what_a_cluster_has_and_a_command_does(tmp_path, caplog):
    async with nats_cluster(tmp_path) as cluster:
        longer = tuple(replace(stream, max_age_s=2 * stream.max_age_s) for stream in STREAMS)
        first = await connect(cluster.url, name="state", table=longer)
        await first.streams.ensure()
        second = await connect(cluster.url, name="state", replicas=1)
        await second.streams.ensure()
        found = {
            (one.stream, one.key, one.found, one.wanted)
            for one in await second.streams.compare()
            if one.lowers
        }
        assert {one for one in found if one[1] == "num_replicas"} == {
            (store, "num_replicas", 3, 1) for store in STORES
        }
        assert {stream for stream, key, *_ in found if key == "max_age"} == {
            "IRIS_EVENTS",
            "IRIS_LOGS",
            "IRIS_ARTIFACTS",
            "IRIS_RESULTS",
        }
        assert "IRIS_JOURNAL: num_replicas is 3, the settings say 1; it stays" in caplog.text
        async with asyncio.timeout(60):
            while (standing := await first.streams.standing("IRIS_JOURNAL")).current < 3:
                await asyncio.sleep(0.05)
        assert (standing.wanted, standing.declared, sorted(standing.servers)) == (
            3,
            3,
            ["n0", "n1", "n2"],
        )
        await second.streams.apply()
        assert await second.streams.compare() == []
        assert (await first.streams.standing("IRIS_JOURNAL")).declared == 1
        for connection in (first, second):
            await connection.close()


async def test_an_address_that_no_server_has_any_more_is_forgotten(tmp_path):
    """As those of containers, which have a new one after each restart."""
    gone, new = "127.0.0.1:1", "127.0.0.1:2"
    async with nats_cluster(tmp_path) as cluster:
        *servers, moving = cluster.nodes
        moving.kill()
        moving.add(f'client_advertise: "{gone}"\n')
        moving.start()
        await moving.until_healthy()
        link = Link(lambda _: None)
        await link.open([server.url for server in servers], "test", Credentials(), 30)

        async def until(address: str, *, known: bool) -> None:
            async with asyncio.timeout(60):
                while (address in {one.netloc for one in link.client.discovered_servers}) != known:
                    await asyncio.sleep(0.02)

        await until(gone, known=True)
        moving.kill()
        moving.add(f'client_advertise: "{new}"\n')
        moving.start()
        await until(new, known=True)
        await until(gone, known=False)
        assert {one.geturl() for one in link.client.servers} >= {server.url for server in servers}
        await link.close()
