"""Readers that are slow, or that read much: what is held for them is bounded in bytes."""

import http.client
from urllib.parse import urlsplit

import psutil
import pytest

from iris_bus.jetstream import JetStreamConnection
from iris_core.subjects import LOGS, log, output
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration

MIB = 1 << 20


async def test_a_reader_whose_user_takes_nothing_requests_no_more(connection: JetStreamConnection):
    for _ in range(48):
        await connection.streams.publish(output("w", 1, 0), b"x" * MIB)
    reader = connection.streams.read(LOGS.name, 0, log(1, 0))
    try:
        found = list(await reader.batch(limit=1, wait=60))
        for _ in range(50):  # each answer comes behind what the server had sent before
            await connection.bus.flush()
        held = list(reader.take(1000))
        assert len(held) <= 20  # 4 MiB that wait, and what two requests of 8 MiB bring
        found += held
        while len(found) < 48:
            found += await reader.batch(wait=60)
        assert [message.sequence for message in found] == list(range(1, 49))
    finally:
        await reader.close()


async def test_many_readers_whose_users_take_nothing_hold_little_together(
    connection: JetStreamConnection,
):
    for _ in range(24):
        await connection.streams.publish(output("w", 1, 0), b"x" * MIB)
    readers = [connection.streams.read(LOGS.name, 0, log(1, 0)) for _ in range(24)]
    try:
        found = [list(await reader.batch(limit=1, wait=60)) for reader in readers]
        for _ in range(50):
            await connection.bus.flush()
        held = [list(reader.take(1000)) for reader in readers]
        assert sum(map(len, held)) <= 64 + len(readers)  # without the limit 24 times 6
        assert all(held)  # who comes back finds something at once
        for reader, first, more in zip(readers, found, held, strict=True):
            first += more
            while len(first) < 24:
                first += await reader.batch(wait=60)
            assert [message.sequence for message in first] == list(range(1, 25))
            assert await reader.finished()
    finally:
        for reader in readers:
            await reader.close()


@pytest.mark.timeout(400)
def test_a_flood_of_short_lines_takes_no_gateway(cluster: Cluster):
    """Some readers that stop reading, and one that reads all of it."""
    size = 24 * MIB
    job = cluster.submit("sh", "-c", f"yes | head -c {size}", cpu=0.1)
    assert job.wait(300).state == "succeeded"
    gateway = psutil.Process(cluster.pids("gateway")[0])
    before = gateway.memory_info().rss
    path = f"/v1/jobs/{job.id}/logs"
    forms = ("text", "jsonl", "sse")
    stopped = [begun(cluster, f"{path}?format={form}") for form in forms]
    largest = read = 0
    whole = begun(cluster, path)
    answer = whole.getresponse()
    while piece := answer.read1(1 << 16):
        read += len(piece)
        largest = max(largest, gateway.memory_info().rss)
    for each in (*stopped, whole):
        each.close()
    assert read == size // 2 * len("0| y\n")
    assert largest - before < 120 * MIB  # four readers; an object for each line would be 1.5 GB


def begun(cluster: Cluster, path: str) -> http.client.HTTPConnection:
    """A request whose answer nobody has read yet."""
    where = urlsplit(cluster.url)
    connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=120)
    connection.request("GET", path, headers=cluster.headers)
    return connection
