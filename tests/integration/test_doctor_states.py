"""`iris doctor` judges states that a real cluster is brought into, each by the code it has then."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.cli.exit_codes import ExitCode
from iris.client.problems import Rejected
from iris.doctor.collect import processes_that_answer
from iris_bus.connection.keys import Keys
from iris_bus.contract import Full, Unavailable
from iris_bus.jetstream import connect
from iris_nats.nats_process import NatsProcess
from tests.integration.test_doctor import Found, doctor, serving, started_again
from tests.support.certificates import make_certificate
from tests.support.cluster import Cluster, cluster_on, settings, until
from tests.support.fleet import fleet
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration

QUICKLY_LOST = "[state]\nworker_grace_s = 5\n[worker]\nheartbeat_interval_s = 1\n"
ON_LOOPBACK = '[notifier]\nallow = ["127.0.0.0/8"]\n'
PATIENCE_S = 25
"""Doctor has given up a gateway by then; another command waits for longer."""
NOBODY = "http://127.0.0.1:1"


class WithSmallStore(NatsProcess):
    """A server whose store has room for less than the streams reserve."""

    def _render(self) -> None:
        super()._render()
        text = self._config.read_text()
        assert "max_file_store: 1TB" in text
        self._config.write_text(text.replace("max_file_store: 1TB", "max_file_store: 20GB"))


async def test_a_store_too_small_for_what_streams_reserve(tmp_path: Path):
    server = WithSmallStore(tmp_path / "nats")
    with serving(server) as options:
        connection = await connect(server.url, name="test", credentials=server.credentials("admin"))
        with pytest.raises((Full, Unavailable)):
            await connection.streams.ensure()
        await connection.close()
        [told] = (await asyncio.to_thread(doctor, *options))["store_too_small"]
    assert told.startswith(f"NATS server iris-embedded may store {20 << 30} bytes, and ")


def test_a_key_that_the_server_has_not_read(tmp_path: Path):
    server = NatsProcess(tmp_path / "nats")
    with serving(server) as options:
        Keys(server.keys.directory).ensure(["worker-late"])
        [told] = doctor(*options)["key_refused"]
    assert f"the key in {server.keys.directory}/worker-late.seed" in told


def test_a_certificate_that_expires_soon(nats_url: str, tmp_path: Path):
    cert, key = make_certificate(tmp_path)
    with fleet(nats_url, tmp_path) as services:
        services.add("state", "state")
        gateway = services.begin(
            "gateway", "gateway", f"gateway.tls_cert={cert}", f"gateway.tls_key={key}"
        )
        environ = {"IRIS_URL": f"https://localhost:{gateway.port}", "IRIS_CA": cert.read_text()}
        environ["IRIS_DATA"] = str(tmp_path / "none")
        told = until(lambda: doctor(**environ).get("certificate_expires"), "it is told", 60)
    assert f"the certificate {cert} of gateway on " in told[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two workers, which a test may misconfigure."""
    data = tmp_path_factory.mktemp("states") / "data"
    given = settings(data, QUICKLY_LOST + ON_LOOPBACK)
    with cluster_on(data, "--workers", "2", *given) as running:
        yield running


def look(cluster: Cluster, **environ: str) -> dict[str, list[str]]:
    return doctor(**{"IRIS_DATA": str(cluster.data), **environ})


def test_a_gateway_that_is_not_there(cluster: Cluster):
    [told] = look(cluster, IRIS_URL=NOBODY)["gateway_unreachable"]
    assert NOBODY in told


def test_a_gateway_that_hangs(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        waited: list[float] = []

        def wait() -> None:
            """Accept, as the kernel does for a process that stands still, and see who gives up."""
            connection, _ = silent.accept()
            with connection:
                begun = time.monotonic()
                while connection.recv(4096):
                    pass
                waited.append(time.monotonic() - begun)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        [told] = doctor(IRIS_URL=url, IRIS_DATA=str(tmp_path))["gateway_unreachable"]
        thread.join(60)
    assert told == f"the gateway at {url} (from IRIS_URL) does not answer: timed out"
    assert waited[0] < PATIENCE_S


def test_a_key_that_others_may_read(cluster: Cluster):
    seed = cluster.data / "nats" / "keys" / "state.seed"
    seed.chmod(0o644)
    try:
        assert look(cluster)["readable_keys"] == [f"others may read {seed}"]
    finally:
        seed.chmod(0o600)


def test_a_worker_that_is_misconfigured_in_many_ways(cluster: Cluster):
    assert "loopback_address" not in look(cluster)
    given = {
        "address": "192.0.2.7",
        "gateway_url": NOBODY,
        "disk_bytes": 1 << 50,
        "cgroups": "false",
        "limit_memory": "off",
    }
    more = [word for key, value in given.items() for word in ("--set", f"worker.{key}={value}")]
    with started_again(cluster.pid_of_worker("worker-1"), "", *more, ends=True):
        codes = {"loopback_address", "gateway_dead", "overdeclared", "limits_off"}
        until(lambda: codes <= look(cluster).keys(), "each is told", 120)
        found = look(cluster, IRIS_TOKEN=cluster.token)
    assert found["loopback_address"] == [
        "worker worker-0: it tells other hosts to reach it at 127.0.0.1"
    ]
    [dead] = found["gateway_dead"]
    assert dead.startswith("worker worker-1: ")
    assert any("disk_bytes is 1125899906842624" in told for told in found["overdeclared"])
    lost = until(lambda: look(cluster).get("worker_lost"), "the ended one is told", 120)
    assert lost == ["1 of 2 hosts is LOST: worker-1"]


def test_a_cluster_whose_workers_take_no_work(cluster: Cluster):
    drained = [worker.id for worker in cluster.client.workers() if worker.state == "healthy"]
    for worker in drained:
        assert cluster.iris("worker", "drain", worker).code == 0
    try:
        until(lambda: "no_healthy_worker" in look(cluster), "it is told", 60)
    finally:
        for worker in drained:
            cluster.iris("worker", "undrain", worker)


def test_a_project_that_nobody_may_submit_to(cluster: Cluster):
    cluster.client.set_project("forgotten", limit={"cpu": 4})
    try:
        told = look(cluster)["project_warning"]
    finally:
        cluster.client.remove_project("forgotten")
    assert "only admins of the cluster submit to it" in told[0]


def test_targets_without_a_notifier(cluster: Cluster, tmp_path: Path):
    """A target is there, whether messages reach it or not."""
    [pid] = cluster.pids("notifier")
    secret = tmp_path / "secret"
    secret.write_text("sixteen bytes and more\n")
    suspend(pid)
    try:
        until(lambda: not answers(cluster, "notifier"), "it answers no more", 60)
        assert "no_notifier" not in look(cluster, IRIS_TOKEN=cluster.token), "nobody is to be told"
        os.kill(pid, signal.SIGCONT)
        words = ("--webhook", NOBODY, "--secret-file", secret)
        added = cluster.iris("notify", "target", "add", "ops", *words)
        assert added.code == ExitCode.TRY_AGAIN, added
        until(lambda: "no_notifier" not in look(cluster, IRIS_TOKEN=cluster.token), "it runs", 60)
        suspend(pid)
        told = until(lambda: look(cluster, IRIS_TOKEN=cluster.token).get("no_notifier"), "told", 60)
        assert told == ["there are targets for messages, and no notifier answers"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert cluster.iris("notify", "target", "rm", "ops").code == 0
    suspend(pid)
    try:
        until(lambda: not answers(cluster, "notifier"), "it answers no more", 60)
        assert "no_notifier" not in look(cluster, IRIS_TOKEN=cluster.token), "it was removed"
    finally:
        os.kill(pid, signal.SIGCONT)


def answers(cluster: Cluster, service: str) -> bool:
    """Whether a process of that service does, as doctor asks."""
    known = processes_that_answer(cluster.client) or []
    return any(process.service == service for process in known)


def is_set(cluster: Cluster, pool: dict[str, object]) -> bool:
    """Whether a pool is not refused for its program."""
    try:
        cluster.client.replace_pool(pool)
    except Rejected as error:
        return "the provisioner has no program" not in str(error)
    return True


def from_elsewhere(cluster: Cluster, directory: Path) -> Found:
    """What doctor finds on a machine without the data of the cluster."""
    config = directory / "elsewhere.toml"
    config.write_text(f"[nats]\nnkey_seed = {json.dumps(cluster.credentials().nkey_seed)}\n")
    options = ("--url", cluster.url, "--nats", cluster.nats_url, "--config", config)
    return doctor(*options, IRIS_DATA=str(directory / "none"), IRIS_TOKEN=cluster.token)


def test_pools_that_wait_for_somebody(tmp_path: Path):
    program = tmp_path / "cloud"
    program.write_text(
        "#!/bin/sh\ntest $1 = list && echo '{\"slices\": []}' && exit 0\n"
        "echo permission denied >&2\nexit 78\n"
    )
    program.chmod(0o755)
    text = f"[provisioner]\nprograms = [{json.dumps(f'cloud={program}')}]\n"
    pool = {"provider": "exec", "max": 1, "resources": {"cpu_millis": 1000}}
    spec = {**pool, "name": "v5e", "min": 1, "options": {"program": "cloud"}}
    file = tmp_path / "v5e.json"
    file.write_text(json.dumps(spec))
    with cluster_on(
        tmp_path / "data", *settings(tmp_path / "data", text), "--pool", str(file)
    ) as cluster:
        until(lambda: "pool_halted" in look(cluster, IRIS_TOKEN=cluster.token), "it is told", 60)
        found = look(cluster, IRIS_TOKEN=cluster.token)
        assert found["pool_halted"] == [
            "pool v5e is paused: its provider refuses: permission denied"
        ]
        assert "unnamed_cluster" not in found  # a cluster on one machine needs no name
        assert from_elsewhere(cluster, tmp_path)["unnamed_cluster"] == [
            "slices of v5e are labelled iris, the name of every cluster that has no other"
        ]
        without = {**pool, "name": "v6e", "options": {"program": "none"}}
        assert not is_set(cluster, without)
        [pid] = cluster.pids("provisioner")
        suspend(pid)
        try:
            until(
                lambda: "no_provisioner" in look(cluster, IRIS_TOKEN=cluster.token),
                "it is told",
                60,
            )
            until(lambda: is_set(cluster, without), "nobody knows which programs there are", 60)
        finally:
            os.kill(pid, signal.SIGCONT)
        lacking = "pool v6e: the provisioner has no program 'none'; it has cloud"
        told = lambda: look(cluster, IRIS_TOKEN=cluster.token).get("pool_warning", [])  # noqa: E731
        until(lambda: lacking in told(), "it is told", 60)
