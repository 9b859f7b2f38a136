"""A deployment scaled by rule on a whole cluster: its routes follow the requests."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from iris import Conflict, Deployment
from tests.support.cluster import Cluster, cluster_on, until

pytestmark = pytest.mark.integration

SERVICE = """
import http.server, os, pathlib, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while self.path == "/held" and pathlib.Path(sys.argv[1]).exists():
            time.sleep(0.02)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["IRIS_JOB"].encode())

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("", int(os.environ["IRIS_PORT_HTTP"])), Handler).serve_forever()
"""
QUICK: dict[str, Any] = {
    "cpu": 0.1,
    "probe_interval": "0.2s",
    "min_ready": "0s",
    "settle": "0.2s",
    "grace": "5s",
    "scale_window": "1s",
    "panic_window": "1s",
    "stabilization": "3s",
    "cooldown": "1s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("scaling"), "--workers", "2") as running:
        yield running


def fetch(cluster: Cluster, path: str) -> str:
    """The job of the route that has answered."""
    with urllib.request.urlopen(f"{cluster.file['proxy_url']}/d/chat/{path}", timeout=60) as answer:
        return answer.read().decode()


def ready(chat: Deployment, routes: int) -> bool:
    seen = chat.refresh()
    return (seen.ready, seen.replicas, seen.status) == (routes, routes, "ready")


def decided(chat: Deployment) -> list[str]:
    return [row.reason for row in chat.history() if row.handler == "AutoscaleDeployment"]


def test_copies_follow_the_requests_down_to_none_and_the_first_one_wakes_it(cluster: Cluster, tmp_path: Path):
    held = tmp_path / "held"
    held.touch()
    command = [sys.executable, "-c", SERVICE, str(held)]
    chat = cluster.client.deploy(command, "chat", min_replicas=0, max_replicas=4, target_outstanding=2, **QUICK)
    chat.wait_ready(60)
    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(fetch, cluster, "held") for _ in range(6)]
        until(lambda: ready(chat, 3), "there are as many routes as six requests want", 60)
        with pytest.raises(Conflict, match="follows its scaling rule"):
            chat.scale(1)
        held.unlink()
        assert all(answer.result(60).startswith("/chat/r1-") for answer in asking)
    until(lambda: ready(chat, 0), "none is left when nobody asks", 60)
    assert fetch(cluster, "woken").startswith("/chat/r1-")
    reasons = decided(chat)
    assert any("outstanding, target 2 a route, over 1 s" in reason for reason in reasons)
    assert "scaled 1 -> 0: no request for 3 s" in reasons
    assert "scaled 0 -> 1: a request has come" in reasons
    chat.delete()
    until(lambda: chat.refresh().status == "destroyed", "it is destroyed", 60)
