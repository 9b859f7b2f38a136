"""`iris doctor` finds each misconfiguration that is planted for real, and none in a healthy
cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import psutil
import pytest

from iris import Client
from iris_bus.contract import Full, Unavailable
from iris_bus.jetstream import connect
from iris_bus.servers.bus_facts import ClientName
from iris_bus.streams.declarations import config_of
from iris_bus.streams.diagnosis import diagnose
from iris_core import subjects
from iris_core.codec import to_json
from iris_nats.nats_process import NatsProcess
from iris_service.version import VERSION
from tests.support.cluster import Cluster, iris, settings, start, stop, until
from tests.support.disk import MakeDisk, make_disk
from tests.support.nats_cluster import nats_cluster
from tests.support.suspend import suspend

__all__ = ["make_disk"]

pytestmark = pytest.mark.integration

TOKEN = "open sesame"
Found = dict[str, list[str]]


def doctor(*words: object, **environ: str) -> Found:
    """What is wrong, by the code of the problem."""
    done = iris("doctor", "--json", *words, **environ)
    assert done.err == ""
    said = json.loads(done.out)
    assert done.code == (1 if said["problems"] else 0)
    found: Found = {}
    for problem in said["problems"]:
        found.setdefault(problem["code"], []).append(problem["what"])
    return found


# ── NATS servers ──────────────────────────────────────────────────────────────────────────────────


class WithoutJetStream(NatsProcess):
    """A server that stores nothing."""

    def _render(self) -> None:
        super()._render()
        head, _, rest = self._config.read_text().partition("jetstream {")
        accounts = rest.partition("}\n")[2].replace("    jetstream: enabled\n", "")
        self._config.write_text(head + accounts)


class WithAccountsLacking(NatsProcess):
    """A server whose accounts were written by a release without some of the subjects."""

    def __init__(self, directory: Path, subjects: str) -> None:
        super().__init__(directory)
        self._lacking = subjects

    def _accounts(self) -> str:
        return super()._accounts().replace(self._lacking, "")


@contextmanager
def serving(server: NatsProcess) -> Iterator[tuple[object, ...]]:
    """The options with which to look at a running server."""
    config = server.directory.parent / "iris.toml"
    server.start()
    config.write_text(f"[nats]\nnkey_seed = {json.dumps(server.credentials('admin').nkey_seed)}\n")
    try:
        yield "--nats", server.url, "--config", config
    finally:
        server.stop()


def test_a_server_as_it_should_be_has_no_problem(tmp_path: Path):
    with serving(NatsProcess(tmp_path / "nats", ["w0"])) as options:
        assert doctor(*options) == {}


def test_a_server_without_jetstream(tmp_path: Path):
    server = WithoutJetStream(tmp_path / "nats")
    with serving(server) as options:
        assert doctor(*options) == {
            "no_jetstream": [
                f"the NATS server at {server.url} stores nothing: JetStream is off, there or for the account"
            ]
        }


def test_a_server_that_does_not_sync(tmp_path: Path):
    with serving(NatsProcess(tmp_path / "nats", sync="30s")) as options:
        assert doctor(*options) == {
            "no_sync": [
                "NATS server iris-embedded syncs its store to disk every 30 s, not before it confirms"
            ]
        }


@pytest.mark.parametrize(
    ("subjects", "told"),
    [
        (
            ', "iris.state.command.project", "iris.state.ping"',
            "gateway may not publish to iris.state.command.project, iris.state.ping",
        ),
        (', "$SYS.REQ.USER.INFO"', "gateway may not publish to $SYS.REQ.USER.INFO"),
    ],
)
def test_keys_that_lack_subjects(tmp_path: Path, subjects: str, told: str):
    with serving(WithAccountsLacking(tmp_path / "nats", subjects)) as options:
        found = doctor(*options)
        assert (found.keys(), told in found["missing_permission"]) == ({"missing_permission"}, True)


async def test_a_journal_in_memory(tmp_path: Path):
    server = NatsProcess(tmp_path / "nats")
    with serving(server) as options:
        connection = await connect(server.url, name="test", credentials=server.credentials("admin"))
        journal = {**config_of(subjects.JOURNAL, 1), "storage": "memory"}
        await connection.bus.request(
            f"$JS.API.STREAM.CREATE.{journal['name']}", to_json(journal), timeout=30
        )
        await connection.streams.ensure()
        await connection.close()
        assert await asyncio.to_thread(doctor, *options) == {
            "memory_storage": ["IRIS_JOURNAL is kept in the memory of the NATS servers"]
        }


async def test_a_leader_with_its_two_connections_is_one_process(tmp_path: Path):
    server = NatsProcess(tmp_path / "nats")
    with serving(server):
        credentials = server.credentials("state")
        name = str(ClientName("state", "0.1.0", "iris"))
        leader = await connect(server.url, name=name, credentials=credentials)
        await leader.streams.ensure()
        await leader.publisher().resume()
        keys = Path(credentials.nkey_seed).parent
        found = await diagnose(server.url, server.credentials("admin"), keys)
        await leader.close()
    assert [process.service for process in found.processes] == ["state"]


async def test_a_process_that_has_connected_anew_is_one(tmp_path: Path):
    """Its connection before is there until the server notices."""
    server = NatsProcess(tmp_path / "nats")
    with serving(server):
        credentials = server.credentials("state")
        first, second = "a" * 12, "b" * 12
        names = [str(ClientName("state", "0.1.0", "iris", id_)) for id_ in (first, first, second)]
        links = [await connect(server.url, name=name, credentials=credentials) for name in names]
        keys = Path(credentials.nkey_seed).parent
        found = await diagnose(server.url, server.credentials("admin"), keys)
        for link in links:
            await link.close()
    assert sorted(process.process for process in found.processes) == [first, second]


async def test_one_of_three_servers_down(tmp_path: Path):
    async with nats_cluster(tmp_path) as cluster:
        url = cluster.url
        connection = await connect(url, name="test", replicas=3)
        await connection.streams.ensure()
        await connection.close()
        await asyncio.to_thread(
            until, lambda: doctor("--nats", url) == {}, "every server knows the others", 60
        )
        cluster.nodes[1].kill()

        def told() -> bool:
            found = doctor("--nats", url)
            down = found.get("server_down") == ["n1 of the NATS servers does not answer the others"]
            return down and found.keys() <= {"server_down", "server_behind", "under_replicated"}

        await asyncio.to_thread(until, told, "it tells which is down", 60)


async def test_a_full_disk(tmp_path: Path, make_disk: MakeDisk):
    disk = make_disk("disk", 64)
    server = NatsProcess(disk.path / "nats")
    with serving(server) as options:
        connection = await connect(server.url, name="test", credentials=server.credentials("admin"))
        await connection.streams.ensure()
        disk.fill()
        with pytest.raises((Full, Unavailable)):
            await connection.streams.publish("iris.journal", bytes(1 << 20), timeout=2)
        found = await asyncio.to_thread(doctor, *options, "--data", disk.path)
        await connection.close()
    assert [what.partition(":")[0] for what in found["disk_full"]] == [
        f"0 MiB are free for {disk.path}",
        "NATS server iris-embedded cannot store",
    ]


# ── a cluster ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that wants tokens, with two workers."""
    data = tmp_path_factory.mktemp("doctor") / "data"
    data.mkdir()
    tokens = data / "tokens"
    tokens.write_text(f"ann admin {sha256(TOKEN.encode()).hexdigest()}\n")
    made = start(
        data,
        "--workers",
        "2",
        *settings(data, f"[gateway]\ntoken_file = {json.dumps(str(tokens))}\n"),
    )
    with Client(made.url, token=TOKEN) as ann:  # `iris up` has no token to ask with
        until(
            lambda: sum(worker.state == "healthy" for worker in ann.workers()) == 2,
            "both workers are healthy",
        )
    until(lambda: "no_scheduler" not in look(made), "its scheduler answers")
    yield made
    stop(made)


def look(cluster: Cluster, token: str = TOKEN) -> Found:
    """What doctor tells, but for what the workers of tests declare: 8 cores, whatever this machine
    has.
    """
    found = doctor(IRIS_DATA=str(cluster.data), IRIS_TOKEN=token)
    return {kind: told for kind, told in found.items() if kind != "overdeclared"}


@contextmanager
def started_again(pid: int, prelude: str, *more: str, ends: bool = False) -> Iterator[None]:
    """The program of a process of the cluster once more, or instead, behind some lines of
    Python.
    """
    process = psutil.Process(pid)
    command, environ, place = process.cmdline(), process.environ(), process.cwd()
    if ends:
        process.kill()
        process.wait(60)
    at = command.index("-m")
    code = f"import runpy\n{textwrap.dedent(prelude)}\nrunpy.run_module({command[at + 1]!r}, run_name='__main__')"
    words = [*command[:at], "-c", code, *command[at + 2 :], *more]
    twin = subprocess.Popen(
        words, env=environ, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        twin.kill()
        twin.wait(60)


def test_a_healthy_cluster_has_no_problem(cluster: Cluster):
    assert look(cluster) == {}


def test_a_wrong_token_and_a_missing_one(cluster: Cluster):
    refused = f"the gateway at {cluster.url}"
    assert look(cluster, "wrong")["wrong_token"][0].startswith(
        f"{refused} does not accept the token from IRIS_TOKEN"
    )
    assert look(cluster, "")["wrong_token"][0].startswith(
        f"{refused} requires a token, and none was given"
    )


def test_a_host_with_a_wrong_clock_and_an_older_release(cluster: Cluster):
    prelude = """
        import time
        import iris_service.version
        iris_service.version.VERSION, true = "0.0.9", time.time_ns
        time.time_ns = lambda: true() - 60_000_000_000
    """
    with started_again(cluster.pid_of_worker("worker-1"), prelude, ends=True):
        found = until(
            lambda: {*(now := look(cluster))} == {"clock_off", "version_skew"} and now,
            "both are told",
            60,
        )
        [clock], [versions] = found["clock_off"], found["version_skew"]
        assert clock.startswith("the clock of worker worker-1 is 6")
        assert clock.endswith(" s behind the state service's")
        assert versions.startswith(
            f"0.0.9: worker worker-1; {VERSION}: this command, the gateway, worker worker-0, "
        )


def test_a_process_of_another_cluster_in_the_account(cluster: Cluster):
    [pid] = cluster.pids("scheduler")
    with started_again(pid, "", "--set", "run.cluster=staging", "--set", "run.metrics="):
        found = until(lambda: look(cluster).get("two_clusters"), "it is told", 60)
    assert found[0].startswith("processes of 2 clusters share the account: iris (")
    assert found[0].endswith("; staging (scheduler on 127.0.0.1)")


def test_a_gateway_with_another_token_file(cluster: Cluster):
    [pid] = cluster.pids("gateway")
    other = cluster.data / "other-tokens"
    other.write_text(f"ann admin {sha256(TOKEN.encode()).hexdigest()}\nbo user {'b' * 64}\n")
    more = (
        "--set",
        f"gateway.token_file={other}",
        "--set",
        "gateway.http=127.0.0.1:0",
        "--set",
        "run.metrics=",
    )
    with started_again(pid, "", *more):
        found = until(lambda: look(cluster).get("different_tokens"), "it is told", 60)
    assert found[0].startswith("2 gateways accept different tokens: ")


def test_a_cluster_whose_nats_server_stands_still(cluster: Cluster):
    [pid] = cluster.pids("nats")
    suspend(pid)
    try:
        assert {"not_ready", "nats_unreachable"} <= set(look(cluster))
    finally:
        os.kill(pid, signal.SIGCONT)


def gateways_with_wrong_clock(cluster: Cluster) -> list[str]:
    return [
        told
        for told in look(cluster).get("clock_off", [])
        if told.startswith("the clock of gateway on ")
    ]


def test_a_second_gateway_with_a_wrong_clock(cluster: Cluster):
    [pid] = cluster.pids("gateway")
    prelude = """
        import time
        true = time.time_ns
        time.time_ns = lambda: true() + 180_000_000_000
    """
    more = ("--set", "gateway.http=127.0.0.1:0", "--set", "run.metrics=")
    with started_again(pid, prelude, *more):
        until(lambda: gateways_with_wrong_clock(cluster), "it is told", 60)
        [told] = gateways_with_wrong_clock(cluster)
    assert told.endswith(" s ahead of the asked gateway's")


def test_a_token_file_that_others_may_change(cluster: Cluster):
    tokens = cluster.data / "tokens"
    config = cluster.data / "iris.toml"
    config.write_text(f"[gateway]\ntoken_file = {json.dumps(str(tokens))}\n")
    tokens.chmod(0o666)
    environ = {"IRIS_DATA": str(cluster.data), "IRIS_TOKEN": TOKEN, "IRIS_CONFIG": str(config)}
    try:
        assert doctor(**environ)["writable_files"] == [f"others may change {tokens}"]
    finally:
        tokens.chmod(0o644)
        config.unlink()


def test_a_deployment_without_a_proxy(cluster: Cluster):
    [pid] = cluster.pids("proxy")
    environ = {"IRIS_DATA": str(cluster.data), "IRIS_TOKEN": TOKEN}
    assert iris("deploy", "create", "chat", "--port", "http", "--", "true", **environ).code == 0
    suspend(pid)
    try:
        until(lambda: "no_proxy" in look(cluster), "it is told", 60)
    finally:
        os.kill(pid, signal.SIGCONT)
        iris("deploy", "delete", "chat", "--yes", **environ)
