"""Many requests of the largest size at once: no message exceeds the limit of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from iris_core.codec import to_json
from iris_core.limits import SPEC_BYTES
from iris_core.units import show_bytes
from tests.support.cluster import Cluster, cluster_on, start, stop, until
from tests.support.nats_config import configured_nats

pytestmark = pytest.mark.integration

LARGE_BATCH = 120
MANY = 60
REVISIONS = 12
"""More than are kept."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on(tmp_path / "data", "--workers", "1") as running:
        yield running


def submitted(cluster: Cluster, bodies: list[dict[str, Any]]) -> list[int]:
    """The status of each, asked for all at once."""

    async def ask() -> list[int]:
        async with httpx.AsyncClient(
            base_url=cluster.url,
            headers=cluster.headers,
            timeout=60,
            limits=httpx.Limits(max_connections=LARGE_BATCH),
        ) as client:
            return [
                answer.status_code
                for answer in await asyncio.gather(*(one(client, body) for body in bodies))
            ]

    async def one(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
        """Try again as clients do: when the state service is behind, and when this process was too
        slow to send.
        """
        for _ in range(20):
            try:
                answer = await client.post(
                    "/v1/jobs", json=body, headers={"Idempotency-Key": body["name"]}
                )
            except httpx.TransportError:
                continue
            if answer.status_code not in (408, 503):
                return answer
        raise TimeoutError(body["name"])

    return asyncio.run(ask())


def test_a_crowd_of_large_submissions_survives_a_restart(tmp_path: Path):
    cluster = start(tmp_path / "data", "--workers", "0")
    try:
        before = cluster.pids("state"), cluster.pids("gateway")
        env = {"PADDING": "x" * 240_000}
        bodies = [
            {"name": f"/large-{n}", "command": ["true"], "env": env} for n in range(LARGE_BATCH)
        ]
        assert set(submitted(cluster, bodies)) <= {200, 201}
        assert (cluster.pids("state"), cluster.pids("gateway")) == before
    finally:
        stop(cluster)
    with cluster_on(tmp_path / "data", "--workers", "0") as again:
        found = [again.client.job(f"/large-{n}") for n in range(LARGE_BATCH)]
        assert {job.state for job in found} == {"pending"}


def test_a_new_scheduler_learns_of_many_jobs_with_large_constraints(cluster: Cluster):
    elsewhere = [{"key": "zone", "op": "in", "values": [f"{v:x>250}" for v in range(1000)]}]
    bodies = [
        {"name": f"/picky-{n}", "command": ["true"], "constraints": elsewhere} for n in range(MANY)
    ]
    assert set(submitted(cluster, bodies)) <= {200, 201}
    before = cluster.pids("state")
    cluster.kill("scheduler")
    job = cluster.submit("true", name="small")
    assert job.wait(60).state == "succeeded"
    reason = lambda: cluster.client.job(f"/picky-{MANY - 1}").view.pending_reason  # noqa: E731
    until(lambda: (why := reason()) and why.code == "no_match", "it says why")
    assert cluster.pids("state") == before


async def test_a_server_that_takes_too_little_is_refused_by_name(tmp_path: Path):
    async with configured_nats(tmp_path / "nats", "max_payload: 1MB") as server:
        with pytest.raises(
            Unavailable, match="takes messages of 1048576 bytes, Iris needs at least 4194304"
        ):
            await connect(server.url, name="test")


def test_a_deployment_refuses_patches_over_the_limit_with_their_sizes(cluster: Cluster):
    pids = cluster.pids("state")
    chat = cluster.client.deploy(["sleep", "1000"], "chat", replicas=0)
    room = SPEC_BYTES - len(to_json(chat.view.spec))
    for turn in range(REVISIONS):
        answer = patched(cluster, large(room - 1000, f"{turn}-"))
        assert answer.status_code == 200, answer.text[:1000]
    assert chat.refresh().revision == 1 + REVISIONS
    [first] = patched(cluster, large(room - 10, "more-")).json()["errors"]
    assert (first["code"], f"the limit is {SPEC_BYTES}" in first["message"]) == ("too_large", True)
    refused = patched(cluster, large(SPEC_BYTES + 1, "beyond-"))
    assert (refused.status_code, show_bytes(SPEC_BYTES) in refused.json()["detail"]) == (413, True)
    earlier = chat.view.revisions[0]
    assert chat.rollback(earlier).revision == earlier
    assert chat.scale(1).replicas == 1
    assert [found.revision for found in cluster.client.deployments()] == [earlier]
    assert cluster.pids("state") == pids
    cluster.kill("state")
    assert chat.refresh().revision == earlier
    waits = lambda: [route for route in chat.why()["routes"] if route.get("pending_reason")]  # noqa: E731
    until(waits, "its route waits for a host of that zone")


def large(size: int, mark: str) -> bytes:
    """A patch of so many bytes that makes another revision."""
    values = [f"{number:x>250}" for number in range(size // 253 - 2)]
    per_constraint = 1000
    groups = [values[at : at + per_constraint] for at in range(0, len(values), per_constraint)]
    constraints = [
        {"key": f"zone-{at}", "op": "in", "values": group} for at, group in enumerate(groups)
    ]
    least = len(to_json({"template": {"constraints": constraints, "env": {"PADDING": mark}}}))
    return to_json(
        {"template": {"constraints": constraints, "env": {"PADDING": mark + "x" * (size - least)}}}
    )


def patched(cluster: Cluster, body: bytes) -> httpx.Response:
    headers = {"Content-Type": "application/json", **cluster.headers}
    return httpx.patch(
        f"{cluster.url}/v1/deployments/chat", content=body, headers=headers, timeout=60
    )
