"""One of three NATS servers is killed and returns under load: no acknowledged submission is
lost.
"""

import asyncio
from pathlib import Path

import pytest

from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from iris_core import subjects
from tests.support.nats_cluster import leader_of, nats_cluster
from tests.support.replicas import replicas

pytestmark = pytest.mark.integration

JOBS = 60


@pytest.mark.soak
async def test_a_server_of_three_is_killed_and_comes_back_under_load(tmp_path: Path):
    async with nats_cluster(tmp_path / "nats") as cluster:
        connection = await connect(cluster.url, name="test", replicas=3)
        await connection.streams.ensure()
        async with replicas(cluster.url, tmp_path, connection, "nats.replicas=3") as group:
            await group.start()
            await group.leader()
            await group.start()
            acknowledged: set[str] = set()

            async def load() -> None:
                for number in range(JOBS):
                    while True:
                        try:
                            answer = await group.submit(
                                f"/a{number}", key=f"k{number}", request=f"r{number}"
                            )
                            break
                        except (Unavailable, TimeoutError):
                            await asyncio.sleep(0.1)
                    assert answer.status in ("created", "replayed"), answer
                    acknowledged.add(f"/a{number}")

            loading = asyncio.create_task(load())
            while len(acknowledged) < JOBS // 4:
                await asyncio.sleep(0.02)
            name = await leader_of(connection, subjects.JOURNAL.name)
            victim = next(node for node in cluster.nodes if node.name == name)
            victim.kill()
            while len(acknowledged) < JOBS // 2:
                await asyncio.sleep(0.02)
            victim.start()
            await loading
            await cluster.healthy()
            await group.leader()
            assert await group.names() == acknowledged == {f"/a{number}" for number in range(JOBS)}
            ids = [tuple(map(int, each.split("."))) for each in await group.events()]
            assert ids == sorted(set(ids))
        await connection.close()
