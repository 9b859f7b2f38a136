"""Requests as large as they may be, many at once: nobody's message grows over what the server takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from tests.support.cluster import Cluster, cluster_on, start, stop, until
from tests.support.nats_config import configured_nats

pytestmark = pytest.mark.integration

LARGE_BATCH = 120
MANY = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on(tmp_path / "data", "--workers", "1") as running:
        yield running


def submitted(url: str, bodies: list[dict[str, Any]]) -> list[int]:
    """The status of each, asked for all at once."""

    async def ask() -> list[int]:
        async with httpx.AsyncClient(
            base_url=url, timeout=60, limits=httpx.Limits(max_connections=LARGE_BATCH)
        ) as client:
            return [answer.status_code for answer in await asyncio.gather(*(one(client, body) for body in bodies))]

    async def one(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
        """Try again as clients do: when the state service is behind, and when this process was too slow to send."""
        for _ in range(20):
            try:
                answer = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": body["name"]})
            except httpx.TransportError:
                continue
            if answer.status_code not in (408, 503):
                return answer
        raise TimeoutError(body["name"])

    return asyncio.run(ask())


def test_a_crowd_of_large_submissions_ends_nobody_and_is_there_after_a_restart(tmp_path: Path):
    cluster = start(tmp_path / "data", "--workers", "0")
    try:
        before = cluster.pids("state"), cluster.pids("gateway")
        env = {"PADDING": "x" * 240_000}
        bodies = [{"name": f"/large-{n}", "command": ["true"], "env": env} for n in range(LARGE_BATCH)]
        assert set(submitted(cluster.url, bodies)) <= {200, 201}
        assert (cluster.pids("state"), cluster.pids("gateway")) == before
    finally:
        stop(cluster)
    with cluster_on(tmp_path / "data", "--workers", "0") as again:
        found = [again.client.job(f"/large-{n}") for n in range(LARGE_BATCH)]
        assert {job.state for job in found} == {"pending"}


def test_a_scheduler_that_starts_anew_learns_of_many_jobs_with_large_constraints(cluster: Cluster):
    elsewhere = [{"key": "zone", "op": "in", "values": [f"{v:x>250}" for v in range(1000)]}]
    bodies = [{"name": f"/picky-{n}", "command": ["true"], "constraints": elsewhere} for n in range(MANY)]
    assert set(submitted(cluster.url, bodies)) <= {200, 201}
    before = cluster.pids("state")
    cluster.kill("scheduler")
    job = cluster.submit("true", name="small")
    assert job.wait(60).state == "succeeded"
    until(lambda: cluster.client.job(f"/picky-{MANY - 1}").view.pending_reason.code == "no_match", "it says why")
    assert cluster.pids("state") == before


async def test_a_server_that_takes_too_little_is_refused_by_name(tmp_path: Path):
    async with configured_nats(tmp_path / "nats", "max_payload: 1MB") as server:
        with pytest.raises(Unavailable, match="takes messages of 1048576 bytes, Iris needs at least 4194304"):
            await connect(server.url, name="test")
