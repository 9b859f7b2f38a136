"""A command that nobody can read: what is behind it goes on, and it can be seen."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import nats
import pytest

from tests.support.cluster import cluster_on

pytestmark = pytest.mark.integration


async def put(url: str, data: bytes) -> None:
    client = await nats.connect(url)
    await client.jetstream().publish("iris.cmd.submit", data)
    await client.close()


def test_a_poison_command_blocks_nobody_and_the_doctor_tells(tmp_path: Path) -> None:
    with cluster_on(tmp_path / "data", "--workers", "1") as cluster:
        before = cluster.iris("doctor").out
        asyncio.run(put(cluster.file["nats_url"], b"\xc1 is no message"))
        behind = cluster.iris("run", "--", "true")
        after = cluster.iris("doctor").out
        letters = urllib.request.urlopen(f"{cluster.url}/v1/dead-letters", timeout=5).read()

    assert behind.code == 0
    assert ("dead letters: 0 " in before, "dead letters: 1 " in after) == (True, True)
    assert b'"total":1' in letters
