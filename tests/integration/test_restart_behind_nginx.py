"""The documented restart of two gateways behind nginx with the file of deploy/: no request fails."""

from __future__ import annotations

import getpass
import signal
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from iris_core.access.roles import login
from iris_nats.nats_process import keys_of
from iris_service.child import end_with_parent
from tests.house.repository import ROOT
from tests.support.certificates import make_certificate
from tests.support.cluster import Cluster, until
from tests.support.nats_config import free_ports

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("nginx"),
]

HEAD = """daemon off; worker_processes 1; pid nginx.pid; error_log error.log;
events { worker_connections 256; }
http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3;
uwsgi_temp_path t4; scgi_temp_path t5; include iris.conf; }
"""
ENOUGH = 40
"""Requests that are answered between two steps."""


class GatewayProcess:
    """One more gateway of a cluster."""

    def __init__(self, cluster: Cluster, where: Path) -> None:
        [port] = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._log = where / f"gateway-{port}.log"
        self._command = [
            *(sys.executable, "-m", "iris_gateway"),
            *("--set", f"gateway.http={self.address}"),
            *("--set", f"gateway.token_file={cluster.data / 'tokens'}"),
            *("--set", f"nats.url={cluster.nats_url}"),
            *(
                "--set",
                f"nats.nkey_seed={keys_of(cluster.data / 'nats').path(login('gateway', '').label)}",
            ),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            given = {"stderr": log, "preexec_fn": end_with_parent()}
            self._process = subprocess.Popen(self._command, **given)
        until(self._is_ready, f"{self.address} is ready", 60)

    def stop(self) -> None:
        """As systemd, Compose and Kubernetes do it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0, self._log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"http://{self.address}/readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def nginx_before(gateways: list[GatewayProcess], directory: Path) -> Iterator[tuple[str, Path]]:
    """nginx with the file of deploy/, its addresses and certificate put in."""
    directory.mkdir()
    cert, key = make_certificate(directory)
    [port] = free_ports(1)
    text = (ROOT / "deploy" / "nginx" / "iris.conf").read_text()
    [example] = [line for line in text.splitlines() if "server 127.0.0.1:8080" in line]
    servers = [example.replace("127.0.0.1:8080", each.address) for each in gateways]
    for given, ours in {
        example: "\n".join(servers),
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/iris/tls/cert.pem": str(cert),
        "/etc/iris/tls/key.pem": str(key),
    }.items():
        text = text.replace(given, ours)
    (directory / "iris.conf").write_text(text)
    (directory / "nginx.conf").write_text(HEAD)
    command = ["nginx", "-p", f"{directory}/", "-c", str(directory / "nginx.conf")]
    command += ["-g", f"user {getpass.getuser()};"]
    serving = subprocess.Popen(command, cwd=directory, preexec_fn=end_with_parent())  # noqa: PLW1509
    try:
        until(lambda: serving.poll() is None and (directory / "nginx.pid").exists(), "nginx serves")
        yield f"https://localhost:{port}", cert
    finally:
        serving.terminate()
        serving.wait(60)


@dataclass
class Requests:
    """Reads and submissions one after another, until told to stop."""

    url: str
    cert: Path
    headers: dict[str, str]
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        trusted = ssl.create_default_context(cafile=str(self.cert))
        with httpx.Client(base_url=self.url, verify=trusted, timeout=60) as http:
            while not self.enough.is_set():
                number += 1
                self._note(http, "GET", "/v1/jobs?limit=1")
                if number % 10 == 0:
                    job = {"name": f"/behind-nginx-{number}", "command": ["true"], "hold": True}
                    self._note(http, "POST", "/v1/jobs", json=job)

    def _note(self, http: httpx.Client, method: str, path: str, **more: object) -> None:
        try:
            status = http.request(method, path, headers=self.headers, **more).status_code  # type: ignore[arg-type]
        except httpx.TransportError:
            status = 0
        self.answers[method, status] += 1

    def until_more(self) -> None:
        """Return when some more are answered."""
        before = self.answers.total()
        until(lambda: self.answers.total() >= before + ENOUGH, "requests are answered", 60)


@pytest.mark.timeout(400)
def test_no_request_fails_while_gateways_behind_nginx_are_restarted(
    cluster: Cluster, tmp_path: Path
):
    gateways = [GatewayProcess(cluster, tmp_path) for _ in range(2)]
    with ExitStack() as stack:
        for gateway in gateways:
            stack.callback(gateway.kill)
            gateway.start()
        url, cert = stack.enter_context(nginx_before(gateways, tmp_path / "nginx"))
        asking = Requests(url, cert, cluster.headers)
        threads = [threading.Thread(target=asking.run, daemon=True)]
        for thread in threads:
            thread.start()
        asking.until_more()
        for gateway in gateways:
            gateway.stop()
            asking.until_more()  # of the other one
            gateway.start()
        asking.until_more()
        asking.enough.set()
        for thread in threads:
            thread.join(60)
        for job in cluster.client.jobs(name_prefix="/behind-nginx-"):
            cluster.client.cancel(job.id)
    assert {status for _, status in asking.answers} <= {200, 201}, (
        asking.answers,
        (tmp_path / "nginx" / "error.log").read_text()[-2000:],
    )
