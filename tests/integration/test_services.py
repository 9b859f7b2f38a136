"""Real HTTP servers as deployments: probed, kept, scaled, updated, rolled back, also across a kill
-9 of the leader.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from iris import AsyncClient, Conflict, Deployment, DeploymentFailed
from tests.chaos.server import ill_file
from tests.support.cluster import Cluster, cluster_on, is_served, until
from tests.support.load import CONNECTIONS, Load, load_on

pytestmark = pytest.mark.integration

SERVE = Path(__file__).parents[2] / "examples" / "serve"
PROBED = Path(__file__).parents[1] / "chaos" / "server.py"
HOLDING = """
import http.server, os, pathlib, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while self.path == "/held" and pathlib.Path(sys.argv[1]).exists():
            time.sleep(0.02)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("", int(os.environ["IRIS_PORT_HTTP"])), Handler).serve_forever()
"""
QUICK: dict[str, Any] = {
    "cpu": 0.1,
    "probe_interval": "0.2s",
    "start_timeout": "90s",
    "progress_deadline": "100s",
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


def deployed(cluster: Cluster, name: str, replicas: int, **times: str) -> Deployment:
    """The model server, ready."""
    made = cluster.client.deploy(
        server("v1"), name, workdir=SERVE, replicas=replicas, **{**QUICK, **times}
    )
    made.wait_ready(60)
    until(lambda: is_served(cluster, name), "the proxy knows")
    return made


def ask(cluster: Cluster, name: str, path: str = "") -> dict[str, Any]:
    """What one of its routes answers through the proxy."""
    with urllib.request.urlopen(
        f"{cluster.file['proxy_url']}/d/{name}/{path}", timeout=60
    ) as answer:
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


def test_a_killed_copy_is_replaced_once_and_the_wanted_number_is_kept(cluster: Cluster):
    chat = deployed(cluster, "kept", 3)
    pids: set[int] = set()
    until(lambda: pids.add(ask(cluster, "kept")["pid"]) or len(pids) == 3, "each route answers")
    os.kill(pids.pop(), signal.SIGKILL)
    cluster.kill("state")
    until(lambda: "r1-4" in live(chat), "another route is there")
    chat.wait_ready(60)
    assert len(list(chat.routes())) == 4
    for replicas in (10, 1):
        chat.scale(replicas)
        cluster.kill("state")
        chat.wait_ready(120)
        until(lambda wanted=replicas: len(live(chat)) == wanted, f"{replicas} routes are left")
    chat.delete()
    until(lambda: chat.refresh().status == "destroyed", "it is destroyed")


def test_an_update_fails_no_request_and_an_unhealthy_one_rolls_back(cluster: Cluster):
    chat = deployed(cluster, "updated", 2, settle="2s")
    with asking(cluster, "updated") as failures:
        assert chat.update(server("v2")).revision == 2
        until(lambda: 2 in live(chat).values(), "the update is under way")
        cluster.kill("state")
        chat.wait_ready(60)
        until(lambda: set(live(chat).values()) == {2}, "the old routes are gone")
        until(lambda: ask(cluster, "updated")["version"] == ["v2"], "the proxy knows")
        chat.update(["sleep", "1000"], start_timeout="1s", progress_deadline="8s")
        cluster.kill("state")
        with pytest.raises(DeploymentFailed, match="revision 2 is kept"):
            chat.wait_ready(60)
        until(
            lambda: chat.refresh() and chat.is_ready and set(live(chat).values()) == {2},
            "it is back",
        )
        assert chat.rollback(1).revision == 1
        chat.wait_ready(60)
        assert failures == []
    chat.delete()


def test_a_crashing_service_is_reported_and_not_restarted_endlessly(cluster: Cluster):
    chat = cluster.client.deploy(["sh", "-c", "exit 3"], "crashing", replicas=3, **QUICK)
    told = until(
        lambda: [one for one in chat.refresh().conditions if one.code == "back_off"],
        "its owner is told",
    )
    assert "exit code 3" in told[0].message
    assert len(list(chat.routes())) <= 3
    cluster.kill("state")
    why = cluster.iris("deploy", "why", "crashing")
    assert (why.code, "exit code 3" in why.out) == (0, True)
    chat.delete()


def statuses(found: Deployment) -> dict[str, str]:
    """The status of each route that has not ended, by id."""
    return {route.id: route.status for route in found.routes() if route.id in live(found)}


def running(cluster: Cluster, name: str) -> list[str]:
    """The jobs of its routes that run."""
    jobs = (job["name"] for job in cluster.client.pages("/v1/jobs", dict, {"state": "running"}))
    return [job for job in jobs if job.startswith(f"/{name}/")]


def serving(cluster: Cluster, name: str) -> set[str]:
    """The jobs of the routes that answer ten requests; none while the proxy refuses."""
    try:
        return {ask(cluster, name)["job"] for _ in range(10)}
    except urllib.error.HTTPError:
        return set()


def test_a_route_with_a_failing_probe_gets_no_requests_and_is_replaced(
    cluster: Cluster, tmp_path: Path
):
    ill = [ill_file(tmp_path, f"/ill/r1-{number}") for number in (1, 2)]
    for file in ill:
        file.touch()
    options = {**QUICK, "probe_failures": 2, "probe_grace": "10s", "replicas": 2}
    chat = cluster.client.deploy(
        [sys.executable, str(PROBED), "v1", str(tmp_path)], "ill", **options
    )
    until(lambda: len(running(cluster, "ill")) == 2, "the processes run")
    assert serving(cluster, "ill") == set()
    for file in ill:
        file.unlink()
    until(lambda: len(serving(cluster, "ill")) == 2, "both serve")
    ill[0].touch()
    until(lambda: serving(cluster, "ill") == {"/ill/r1-2"}, "it is out of discovery")
    assert statuses(chat) == {"r1-1": "unhealthy", "r1-2": "healthy"}
    ill[0].unlink()
    until(
        lambda: len(serving(cluster, "ill")) == 2, "it recovers within its grace, and serves again"
    )
    ill[0].touch()
    until(lambda: serving(cluster, "ill") == {"/ill/r1-2"}, "it is out of discovery again")
    cluster.kill("state")
    until(lambda: statuses(chat) == {"r1-2": "healthy", "r1-3": "healthy"}, "it is replaced")
    until(lambda: serving(cluster, "ill") == {"/ill/r1-2", "/ill/r1-3"}, "the new one serves")
    assert ("ill/r1-1", "RouteEviction") in [(row.entity, row.handler) for row in chat.history()]
    chat.delete()


def test_copies_follow_requests_to_none_and_the_first_request_wakes_one(
    cluster: Cluster, tmp_path: Path
):
    held = tmp_path / "held"
    held.touch()
    times = {"scale_window": "1s", "panic_window": "1s", "stabilization": "3s", "cooldown": "1s"}
    rule = {"min_replicas": 0, "max_replicas": 4, "target_outstanding": 2}
    chat = cluster.client.deploy(
        [sys.executable, "-c", HOLDING, str(held)], "scaled", **QUICK, **times, **rule
    )
    chat.wait_ready(60)

    def ready(routes: int) -> bool:
        seen = chat.refresh()
        return (seen.ready, seen.replicas, seen.status) == (routes, routes, "ready")

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(ask, cluster, "scaled", "held") for _ in range(6)]
        until(lambda: ready(3), "there are as many routes as six requests want", 60)
        with pytest.raises(Conflict, match="follows its scaling rule"):
            chat.scale(1)
        held.unlink()
        assert [answer.result(60) for answer in asking] == [{}] * 6
    until(lambda: ready(0), "none is left when nobody asks", 60)
    until(
        lambda: all(route.status == "terminated" for route in chat.routes()),
        "the last one serves no more",
        60,
    )
    assert ask(cluster, "scaled", "woken") == {}
    reasons = [row.reason for row in chat.history() if row.handler == "AutoscaleDeployment"]
    assert any("outstanding, target 2 a route, over 1 s" in reason for reason in reasons)
    assert "scaled 1 -> 0: no request for 3 s" in reasons
    assert "scaled 0 -> 1: a request has come" in reasons
    chat.delete()
    until(lambda: chat.refresh().status == "destroyed", "it is destroyed", 60)


async def test_asyncio_programs_have_the_same_verbs(cluster: Cluster):
    async with AsyncClient(cluster.url, token=cluster.token) as client:
        chat = await client.deploy(server("v1"), "awaited", workdir=SERVE, **QUICK)
        assert (await chat.wait_ready(60)).ready == 1
        await chat.scale(2)
        assert (await chat.wait_ready(60)).ready == 2
        assert len([route async for route in chat.routes()]) == 2
        assert [
            found.name
            async for found in client.deployments(status="ready")
            if found.name == "awaited"
        ]
        assert (await chat.delete()).status == "destroying"


def loaded(cluster: Cluster, name: str, replicas: int) -> Deployment:
    """The model server, ready, and what it is stopped by as slow as it is in use."""
    times = {**QUICK, "settle": "2s", "min_ready": "1s", "max_surge": 2}
    made = cluster.client.deploy(server("v1"), name, workdir=SERVE, replicas=replicas, **times)
    made.wait_ready(60)
    until(lambda: is_served(cluster, name), "the proxy knows")
    return made


def pids(cluster: Cluster, name: str, count: int) -> list[int]:
    """The processes of a deployment's routes."""
    found: set[int] = set()
    until(lambda: found.add(ask(cluster, name)["pid"]) or len(found) == count, "each route answers")
    return sorted(found)


def settled(chat: Deployment, replicas: int, revision: int) -> None:
    """So many routes of one revision are live, and no others."""
    chat.wait_ready(120)
    until(
        lambda: list(live(chat).values()) == [revision] * replicas,
        f"{replicas} of revision {revision}",
        120,
    )


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
    """Each connection lost at most what it had under way with a killed copy, which may have had its
    effect.
    """
    cut_off = ("502", "IncompleteReadError")
    assert all(any(word in failure for word in cut_off) for failure in load.failures), load.failures
    assert len(load.failures) <= kills * CONNECTIONS


def test_killing_a_copy_and_the_leader_costs_only_requests_under_way(
    cluster: Cluster,
):
    chat = loaded(cluster, "killed", 3)
    with load_on(cluster.file["proxy_url"], "killed") as load:
        until(lambda: load.answered > 10 * CONNECTIONS, "the load is there")
        old = pids(cluster, "killed", 3)
        chat.update(server("v2"))
        until(lambda: 2 in live(chat).values(), "the update is under way")
        os.kill(old[0], signal.SIGKILL)
        cluster.kill("state")
        settled(chat, 3, 2)
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
