"""The inbox fills up while nobody reads it: refused in time, taken up again, and everything there once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from iris.client.client import Client
from tests.support.cluster import Cluster, cluster_on, settings

pytestmark = pytest.mark.integration

SMALL = """
[nats]
commands_bytes = 131072
[gateway]
command_timeout_s = 1
"""
WAVE = 8
JOBS = 10 * WAVE
BALLAST = "x" * 4000


def body(number: int) -> dict[str, Any]:
    """About a thirtieth of what the inbox holds."""
    return {"name": f"/p{number}", "command": ["true"], "env": {"BALLAST": BALLAST}, "resources": {"cpu_millis": 100}}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    data = tmp_path / "data"
    with cluster_on(data, "--workers", "1", *settings(data, SMALL)) as running:
        yield running


@pytest.fixture
async def http(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=cluster.url, timeout=20) as client:
        yield client


@contextmanager
def frozen(cluster: Cluster, service: str) -> Iterator[None]:
    """Nobody of a service does anything."""
    pids = cluster.pids(service)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def post(http: httpx.AsyncClient, number: int) -> httpx.Response:
    return await http.post("/v1/jobs", json=body(number), headers={"Idempotency-Key": f"p{number}"})


async def names(http: httpx.AsyncClient) -> Counter[str]:
    """How often each name stands in the list of jobs."""
    found: Counter[str] = Counter()
    cursor = None
    while True:
        page = (await http.get("/v1/jobs", params={"limit": 500, **({"cursor": cursor} if cursor else {})})).json()
        found.update(item["name"] for item in page["items"])
        cursor = page["next_cursor"]
        if not cursor:
            return found


async def test_a_full_inbox_is_refused_in_time_and_read_to_its_end_afterwards(
    cluster: Cluster, http: httpx.AsyncClient
):
    said: dict[int, httpx.Response] = {0: await post(http, 0)}
    with frozen(cluster, "state"):
        for first in range(1, JOBS, WAVE):
            wave = range(first, first + WAVE)
            said |= dict(zip(wave, await asyncio.gather(*(post(http, number) for number in wave)), strict=True))
        patient = asyncio.create_task(asyncio.to_thread(submit_patiently, cluster.url))
        refused = {number: answer for number, answer in said.items() if answer.status_code != 201}
        assert {(a.status_code, a.headers["content-type"]) for a in refused.values()} == {
            (503, "application/problem+json")
        }
        assert {(a.headers["retry-after"], a.json()["retryable"]) for a in refused.values()} == {("1", True)}
        full = {number for number, answer in refused.items() if "inbox is full" in answer.json()["detail"]}
        assert 0 < len(full) < len(refused), f"{len(full)} of {len(refused)} refused for want of room"
    assert (await patient) == "/patient"
    there = await names(http)
    assert there == Counter({f"/p{number}": 1 for number in said.keys() - full} | {"/patient": 1})
    again = await asyncio.to_thread(submit_all, cluster.url, sorted(said))
    assert again == [f"/p{number}" for number in sorted(said)]
    assert await names(http) == Counter({f"/p{number}": 1 for number in said} | {"/patient": 1})
    await asyncio.to_thread(see_them_end, cluster.url, [*again, "/patient"])


def submit_patiently(url: str) -> str:
    """As the SDK and the command line do it: refused, they ask again when they are told to."""
    with Client(url) as client:
        return client.run(["true"], name="patient", cpu=0.1).name


def submit_all(url: str, numbers: list[int]) -> list[str]:
    with Client(url) as client:
        return [
            client.run(
                ["true"], name=f"/p{n}", cpu=0.1, env={"BALLAST": BALLAST}, user="anonymous", idempotency_key=f"p{n}"
            ).name
            for n in numbers
        ]


def see_them_end(url: str, wanted: list[str]) -> None:
    with Client(url) as client:
        ended = {name: client.job(name).wait(60).state for name in wanted}
    assert set(ended.values()) == {"succeeded"}
