"""A real model server as a deployment: kept alive, scaled, updated and rolled back."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from iris import AsyncClient, Deployment, DeploymentFailed
from tests.support.cluster import Cluster, cluster_on, until
from tests.support.load import CONNECTIONS, Load, load_on

pytestmark = pytest.mark.integration

SERVE = Path(__file__).parents[2] / "examples" / "serve"
QUICK: dict[str, Any] = {
    "cpu": 0.1,
    "probe_interval": "0.2s",
    "start_timeout": "30s",
    "progress_deadline": "60s",
    "min_ready": "0s",
    "settle": "0.2s",
    "grace": "5s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("services"), "--workers", "2") as running:
        yield running


def server(version: str) -> list[str]:
    return [sys.executable, "server.py", version]


def deployed(cluster: Cluster, name: str, replicas: int) -> Deployment:
    """The model server, ready."""
    made = cluster.client.deploy(server("v1"), name, workdir=SERVE, replicas=replicas, **QUICK)
    made.wait_ready(60)
    return made


def ask(cluster: Cluster, name: str) -> dict[str, Any]:
    """What one of its routes answers through the proxy."""
    with urllib.request.urlopen(f"{cluster.file['proxy_url']}/d/{name}/", timeout=10) as answer:
        return json.loads(answer.read())


def live(found: Deployment) -> dict[str, int]:
    """The revision of each route that has not ended, by id."""
    ended = {"terminating", "terminated", "failed_to_start"}
    return {route.id: route.revision for route in found.routes() if route.status not in ended}


@contextmanager
def asking(cluster: Cluster, name: str) -> Iterator[list[Exception]]:
    """Request after request for as long as the block lasts; the failures."""
    failures: list[Exception] = []
    enough = threading.Event()

    def run() -> None:
        while not enough.is_set():
            try:
                ask(cluster, name)
            except OSError as error:
                failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failures
    finally:
        enough.set()
        thread.join()


def test_a_killed_copy_is_replaced_once_and_as_many_copies_are_kept_as_are_wanted(cluster: Cluster):
    chat = deployed(cluster, "kept", 3)
    pids: set[int] = set()
    until(lambda: pids.add(ask(cluster, "kept")["pid"]) or len(pids) == 3, "each route answers")
    os.kill(pids.pop(), signal.SIGKILL)
    until(lambda: "r1-4" in live(chat), "another route is there")
    chat.wait_ready(60)
    assert len(list(chat.routes())) == 4
    for replicas in (5, 1):
        chat.scale(replicas)
        chat.wait_ready(60)
        until(lambda wanted=replicas: len(live(chat)) == wanted, f"{replicas} routes are left")
    chat.delete()
    until(lambda: chat.refresh().status == "destroyed", "it is destroyed")


def test_an_update_fails_no_request_and_one_that_never_gets_healthy_goes_back(cluster: Cluster):
    chat = deployed(cluster, "updated", 2)
    with asking(cluster, "updated") as failures:
        assert chat.update(server("v2")).revision == 2
        chat.wait_ready(60)
        until(lambda: set(live(chat).values()) == {2}, "the old routes are gone")
        assert ask(cluster, "updated")["version"] == ["v2"]
        chat.update(["sleep", "1000"], start_timeout="1s", progress_deadline="3s")
        with pytest.raises(DeploymentFailed, match="revision 2 is kept"):
            chat.wait_ready(60)
        until(lambda: chat.refresh() and chat.is_ready and set(live(chat).values()) == {2}, "it is back")
        assert chat.rollback(1).revision == 1
        chat.wait_ready(60)
        assert failures == []
    chat.delete()


def test_a_service_that_always_crashes_says_so_and_is_not_started_without_end(cluster: Cluster):
    chat = cluster.client.deploy(["sh", "-c", "exit 3"], "crashing", replicas=3, **QUICK)
    until(lambda: chat.refresh().conditions, "its owner is told")
    [condition] = chat.view.conditions
    assert (condition.code, "exit code 3" in condition.message) == ("back_off", True)
    why = cluster.iris("deploy", "why", "crashing")
    assert (why.code, "exit code 3" in why.out) == (0, True)
    assert len(list(chat.routes())) <= 3
    chat.delete()


async def test_asyncio_programs_have_the_same_verbs(cluster: Cluster):
    async with AsyncClient(cluster.url) as client:
        chat = await client.deploy(server("v1"), "awaited", workdir=SERVE, **QUICK)
        assert (await chat.wait_ready(60)).ready == 1
        await chat.scale(2)
        assert (await chat.wait_ready(60)).ready == 2
        assert len([route async for route in chat.routes()]) == 2
        assert [found.name async for found in client.deployments(status="ready") if found.name == "awaited"]
        assert (await chat.delete()).status == "destroying"


def loaded(cluster: Cluster, name: str, replicas: int) -> Deployment:
    """The model server, ready, and what it is stopped by as slow as it is in use."""
    times = {**QUICK, "settle": "2s", "min_ready": "1s", "max_surge": 2}
    made = cluster.client.deploy(server("v1"), name, workdir=SERVE, replicas=replicas, **times)
    made.wait_ready(60)
    return made


def pids(cluster: Cluster, name: str, count: int) -> list[int]:
    """The processes of a deployment's routes."""
    found: set[int] = set()
    until(lambda: found.add(ask(cluster, name)["pid"]) or len(found) == count, "each route answers")
    return sorted(found)


def settled(chat: Deployment, replicas: int, revision: int) -> None:
    """So many routes of one revision are live, and no others."""
    chat.wait_ready(120)
    until(lambda: list(live(chat).values()) == [revision] * replicas, f"{replicas} of revision {revision}", 120)


def test_updates_and_scaling_under_load_fail_no_request(cluster: Cluster):
    chat = loaded(cluster, "loaded", 3)
    with load_on(cluster.file["proxy_url"], "loaded") as load:
        chat.update(server("v2"))
        settled(chat, 3, 2)
        for replicas in (6, 1):
            chat.scale(replicas)
            settled(chat, replicas, 2)
    assert (load.failures, load.answered > CONNECTIONS) == ([], True)
    chat.delete()


def replaced(chat: Deployment, killed: int) -> None:
    """A copy is killed, and another one comes."""
    before = set(live(chat))
    os.kill(killed, signal.SIGKILL)
    until(lambda: set(live(chat)) - before, "another route is there", 120)
    chat.wait_ready(120)


def check_cut_off(load: Load, kills: int) -> None:
    """Each connection lost at most what it had under way with a killed copy, which may have had its effect."""
    assert all("502" in failure for failure in load.failures), load.failures
    assert len(load.failures) <= kills * CONNECTIONS


def test_a_copy_that_is_killed_under_load_costs_only_what_it_had_under_way(cluster: Cluster):
    chat = loaded(cluster, "killed", 3)
    with load_on(cluster.file["proxy_url"], "killed") as load:
        until(lambda: load.answered > 10 * CONNECTIONS, "the load is there")
        replaced(chat, pids(cluster, "killed", 3)[0])
    check_cut_off(load, 1)
    chat.delete()


@pytest.mark.soak
def test_two_minutes_of_updates_scaling_and_kills_under_load(cluster: Cluster):
    chat = loaded(cluster, "soaked", 3)
    ends_s, version = time.monotonic() + 120, 1
    while time.monotonic() < ends_s:
        version += 1
        with load_on(cluster.file["proxy_url"], "soaked") as load:
            chat.update(server(f"v{version}"))
            settled(chat, 3, version)
            for replicas in (10, 1, 3):
                chat.scale(replicas)
                settled(chat, replicas, version)
        assert load.failures == []
        with load_on(cluster.file["proxy_url"], "soaked") as load:
            until(lambda load=load: load.answered > 10 * CONNECTIONS, "the load is there")
            replaced(chat, pids(cluster, "soaked", 3)[0])
        check_cut_off(load, 1)
    chat.delete()
