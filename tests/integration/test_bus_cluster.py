"""A journal with three replicas whose stream leader is killed under load."""

import asyncio

import pytest

from iris_bus.contract import Publication
from iris_bus.jetstream import connect
from tests.support.nats_config import nats_cluster

pytestmark = pytest.mark.integration


async def leader_of(connection, stream: str) -> str:
    info = await connection._api.call(f"STREAM.INFO.{stream}", None, dict)
    return info["cluster"].get("leader", "")


async def test_the_journal_and_the_events_survive_the_death_of_their_leader(tmp_path):
    async with nats_cluster(tmp_path) as servers:
        urls = ",".join(server.url for server in servers)
        connection = await connect(urls, name="test", replicas=3)
        await connection.streams.ensure()
        journal, publisher = connection.journal(), connection.publisher()
        await publisher.resume()
        enough = asyncio.Event()

        async def write() -> int:
            end = 0
            while not enough.is_set():
                end = await journal.append(b"entry %d" % (end + 1), expected=end)
                publisher.publish([Publication("task.state.running", b"%d" % end, f"{end}-0")])
            return end

        writing = asyncio.create_task(write())
        victim = servers[int((await leader_of(connection, "IRIS_JOURNAL"))[1:])]
        while await journal.end() < 200:
            pass
        victim.kill()
        before = await journal.end()
        while await journal.end() < before + 200:
            pass
        victim.start()
        await victim.until_healthy()
        enough.set()
        end = await writing
        await publisher.drain(30)
        assert [e.data async for e in await journal.replay(0)] == [b"entry %d" % n for n in range(1, end + 1)]
        reader = connection.streams.read("IRIS_EVENTS", 0)
        told: list[bytes] = []
        while len(told) < end:
            told += [m.data for m in await reader.batch(wait=10)]
        await reader.close()
        assert told == [b"%d" % n for n in range(1, end + 1)]
        await connection.close()
