"""A deployment on a whole cluster: the worker probes it, the state service judges, the proxy serves."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_bus.jetstream import connect
from iris_core import codec, subjects
from iris_core.messages import Caller, DeployCommand
from iris_core.resources import ResourceRequest
from iris_core.serving import DeploymentSpec, RouteTemplate
from iris_core.spec import Probe
from tests.support.cluster import Cluster, cluster_on, until

pytestmark = pytest.mark.integration

SERVICE = """
import http.server, os, pathlib, sys

name = os.environ["IRIS_JOB"]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sick = self.path == "/healthz" and pathlib.Path(sys.argv[1]).exists()
        self.send_response(503 if sick else 200)
        self.end_headers()
        self.wfile.write(name.encode())

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("", int(os.environ["IRIS_PORT_HTTP"])), Handler).serve_forever()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on(tmp_path / "cluster") as running:
        yield running


async def deploy(cluster: Cluster, spec: DeploymentSpec) -> None:
    """Say it to the state service itself."""
    connection = await connect(cluster.nats_url, name="test", credentials=cluster.credentials("gateway"))
    try:
        command = DeployCommand("create", spec.name, Caller("ann"), "r1", 1, spec)
        await connection.bus.request(subjects.CMD_DEPLOY, codec.pack(command), timeout=10)
    finally:
        await connection.close()


def template(sick: Path, probe: Probe) -> RouteTemplate:
    """A service that is healthy while there is no such file."""
    command = ("python3", "-c", SERVICE, str(sick))
    return RouteTemplate(command=command, resources=ResourceRequest(cpu_millis=100), probe=probe)


def fetch(cluster: Cluster, name: str) -> tuple[int, str]:
    """The answer of the proxy."""
    try:
        with urllib.request.urlopen(f"{cluster.file['proxy_url']}/d/{name}/", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_route_serves_once_its_probe_passes_and_no_longer_when_it_fails(cluster: Cluster, tmp_path: Path):
    sick = tmp_path / "sick"
    sick.touch()
    probe = Probe(interval_s=0.5, failures=2, grace_s=600.0)
    asyncio.run(deploy(cluster, DeploymentSpec(name="chat", template=template(sick, probe))))
    until(lambda: cluster.client.get("/v1/jobs?state=running", dict)["items"], "the route's process runs")
    assert fetch(cluster, "chat")[0] == 503
    sick.unlink()
    until(lambda: fetch(cluster, "chat") == (200, "/chat/r1-1"), "it serves")
    sick.touch()
    until(lambda: fetch(cluster, "chat")[0] == 503, "it is out of discovery")
    sick.unlink()
    until(lambda: fetch(cluster, "chat") == (200, "/chat/r1-1"), "it serves again")
