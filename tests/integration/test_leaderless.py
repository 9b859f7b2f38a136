"""Submissions without a leader: delayed for a short time, refused for longer; none takes effect
twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from iris.client.client import Client
from tests.support.cluster import Cluster, cluster_on, settings
from tests.support.fleet import fleet
from tests.support.suspend import suspended

pytestmark = pytest.mark.integration

HASTY = """
[gateway]
command_timeout_s = 1
"""
WAVE = 8
MANY = 50


def body(name: str) -> dict[str, Any]:
    return {"name": name, "command": ["true"], "resources": {"cpu_millis": 100}}


async def post_patiently(http: httpx.AsyncClient, name: str) -> httpx.Response:
    """Refused, as on a machine where nobody answers within a second, it asks again."""
    async with asyncio.timeout(60):
        while (answer := await post(http, name)).status_code == 503:
            pass
    return answer


async def post(http: httpx.AsyncClient, name: str, key: str = "") -> httpx.Response:
    return await http.post("/v1/jobs", json=body(name), headers={"Idempotency-Key": key or name})


async def names(http: httpx.AsyncClient) -> Counter[str]:
    """How often each name stands in the list of jobs."""
    found: Counter[str] = Counter()
    cursor = None
    while True:
        page = (
            await http.get(
                "/v1/jobs", params={"limit": 500, **({"cursor": cursor} if cursor else {})}
            )
        ).json()
        found.update(item["name"] for item in page["items"])
        cursor = page["next_cursor"]
        if not cursor:
            return found


async def test_a_leader_that_is_killed_is_not_noticed_by_who_submits(nats_url: str, tmp_path: Path):
    with fleet(nats_url, tmp_path) as made:
        states = [made.add("state", f"state-{number}") for number in range(2)]
        gateway = made.add("gateway", "gateway", "gateway.command_timeout_s=50")
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
            first = [await post(http, f"/before-{number}") for number in range(WAVE)]
            during = [
                asyncio.create_task(post(http, f"/during-{number}")) for number in range(WAVE)
            ]
            await asyncio.sleep(0)
            for state in states[:1]:
                assert state.process is not None
                state.process.kill()
            during += [
                asyncio.create_task(post(http, f"/later-{number}")) for number in range(WAVE)
            ]
            answers = [*first, *await asyncio.gather(*during)]
            assert {answer.status_code for answer in answers} == {201}
            assert await names(http) == Counter({answer.json()["name"]: 1 for answer in answers})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    data = tmp_path / "data"
    with cluster_on(data, "--workers", "1", *settings(data, HASTY)) as running:
        yield running


@pytest.fixture
async def http(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=cluster.url, headers=cluster.headers, timeout=60
    ) as client:
        yield client


async def test_who_is_refused_while_nobody_answers_repeats_it_and_has_it_once(
    cluster: Cluster, http: httpx.AsyncClient
):
    assert (await post_patiently(http, "/first")).status_code in {200, 201}
    wanted = [f"/p{number}" for number in range(MANY)]
    with suspended(cluster.pids("state")):
        refused = await asyncio.gather(*(post(http, name) for name in wanted))
        patient = asyncio.create_task(asyncio.to_thread(submit_patiently, cluster))
        assert {(a.status_code, a.headers["content-type"]) for a in refused} == {
            (503, "application/problem+json")
        }
        assert {(a.headers["retry-after"], a.json()["retryable"]) for a in refused} == {("1", True)}
        assert all("may have taken effect" in answer.json()["detail"] for answer in refused)
        assert not patient.done()
    assert (await patient) == "/patient"
    for first in range(0, MANY, WAVE):
        again = await asyncio.gather(
            *(post_patiently(http, name) for name in wanted[first : first + WAVE])
        )
        assert {answer.status_code for answer in again} <= {200, 201}
    assert await names(http) == Counter(dict.fromkeys(("/first", "/patient", *wanted), 1))


def submit_patiently(cluster: Cluster) -> str:
    """As the SDK and the command line do it: refused, they ask again when they are told to."""
    with Client(cluster.url, token=cluster.token) as client:
        client.get("/v1/meta", dict)
        return client.run(["true"], name="patient", cpu=0.1).name
