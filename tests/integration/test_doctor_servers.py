"""`iris doctor` judges three NATS servers with the accounts of `iris admin nats-config`, and hosts,
that were brought into the state of which it tells.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from iris_bus.connection.connection import Credentials
from iris_bus.jetstream import connect
from iris_core import subjects
from iris_nats import nats_binary
from iris_service.child import end_with_parent
from tests.integration.test_doctor import Found, doctor
from tests.support.certificates import Authority
from tests.support.cluster import iris, until
from tests.support.fleet import fleet
from tests.support.nats_config import ConfiguredServer, configured_nats, free_ports
from tests.support.needs import needs
from tests.support.worker import UNCONFINED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

TOLD_S = 100
NAMES = ("n0", "n1", "n2")
THREE_DAYS_S = 3 * 86_400


# ── NATS servers ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Servers:
    """Three servers, and the directory with their keys."""

    nodes: list[ConfiguredServer]
    directory: Path

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes)

    def key(self, label: str) -> Path:
        return self.directory / "keys" / f"{label}.seed"

    def doctor(self, *nodes: ConfiguredServer, **environ: str) -> Found:
        """What is wrong, as these servers say, or all."""
        url = ",".join(node.url for node in nodes) or self.url
        config = self.directory / "admin.toml"
        config.write_text(f'[nats]\nnkey_seed = "{self.key("admin")}"\n')
        return doctor("--nats", url, "--config", config, **environ)

    async def told(self, what: str, find: Callable[[], Any]) -> Any:
        """What the search finds, once it finds anything."""
        return await asyncio.to_thread(until, find, f"{what} is told", TOLD_S)


def make_servers(directory: Path) -> Servers:
    """Three servers by the files of `iris admin nats-config`, on ports of loopback."""
    made = directory / "cluster"
    words = [word for name in NAMES for word in ("--server", f"{name}=127.0.0.1")]
    assert iris("admin", "nats-config", "--out", made, *words).code == 0
    ports = free_ports(9)
    nodes = []
    for number, name in enumerate(NAMES):
        place = directory / name
        config = (made / f"nats-{name}.conf").read_text()
        [line] = [line for line in config.splitlines() if "routes: [" in line]
        routes = line
        for port in ports[6:]:
            routes = routes.replace("127.0.0.1:6222", f"127.0.0.1:{port}", 1)
        [store] = [line for line in config.splitlines() if "store_dir:" in line]
        for given, ours in {
            line: routes,
            store: f'  store_dir: "{place / "store"}"\n  max_file_store: 1TB',
            "0.0.0.0:4222": f"127.0.0.1:{ports[number]}",
            "0.0.0.0:6222": f"127.0.0.1:{ports[6 + number]}",
        }.items():
            assert given in config
            config = config.replace(given, ours)
        config += f'http: "127.0.0.1:{ports[3 + number]}"\n'
        nodes.append(ConfiguredServer(place, config, ports[number], ports[3 + number]))
        (place / "accounts.conf").write_text((made / "accounts.conf").read_text())
    return Servers(nodes, made)


@asynccontextmanager
async def running(servers: Servers) -> AsyncIterator[Servers]:
    """All of them, those that were started already among them."""
    try:
        for node in servers.nodes:
            if node.process is None:
                node.start()
        for node in servers.nodes:
            await node.until_healthy()
        yield servers
    finally:
        for node in servers.nodes:
            node.kill()


async def note_backup(servers: Servers, at_s: float) -> None:
    """What a backup of that time has left on the servers."""
    credentials = Credentials(str(servers.key("admin")))
    connection = await connect(servers.url, name="test", credentials=credentials)
    at = str(int(at_s * 1000))
    await connection.streams.annotate(subjects.JOURNAL.name, subjects.LAST_BACKUP, at)
    await connection.close()


async def test_three_servers_with_one_state_service_and_no_backup(tmp_path: Path):
    async with running(make_servers(tmp_path)) as servers:
        with fleet(servers.url, tmp_path) as services:
            state = f"nats.nkey_seed={servers.key('state')}"
            services.add("state", "first", state)
            gateway = services.add("gateway", "gateway", f"nats.nkey_seed={servers.key('gateway')}")

            def look() -> Found:
                return servers.doctor(IRIS_URL=gateway.url)

            def both() -> Found:
                found = look()
                return found if {"no_backup", "no_standby"} <= found.keys() else {}

            found = await asyncio.to_thread(until, both, "both are told", TOLD_S)
            assert found["no_backup"] == ["no backup of this cluster has ever been made"]
            [alone] = found["no_standby"]
            assert alone.startswith("there are 3 NATS servers and one state service, on ")

            await asyncio.to_thread(services.add, "state", "second", state)
            seed = {"IRIS_NATS_NKEY_SEED": str(servers.key("admin"))}
            made = tmp_path / "iris.backup"
            done = iris("admin", "backup", made, "--nats", servers.url, **seed)
            assert done.code == 0, done.err
            gone = {"no_backup", "no_standby"}
            await servers.told("neither", lambda: not look().keys() & gone)

            await note_backup(servers, time.time() - THREE_DAYS_S)
            [old] = await servers.told("its age", lambda: look().get("no_backup"))
            assert old.startswith("the last backup was made on ")


async def test_a_server_without_a_majority(tmp_path: Path):
    async with running(make_servers(tmp_path)) as servers:
        first, *others = servers.nodes
        await servers.told("nothing", lambda: not servers.doctor())
        for other in others:
            other.kill()
        [told] = await servers.told(
            "that it is not healthy", lambda: servers.doctor(first).get("server_unhealthy")
        )
        assert told.startswith("NATS server n0 is not healthy: ")


def of_another_version(directory: Path) -> Path:
    """The server of these tests with another number for its version, as long as its own."""
    program = nats_binary.find()
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = shown.stdout.strip().rpartition("v")[2].encode()
    other = version[:-1] + (b"8" if version.endswith(b"9") else b"9")
    made = directory / "nats-server"
    made.write_bytes(program.read_bytes().replace(version, other))
    made.chmod(0o755)
    return made


async def test_servers_of_two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    servers = make_servers(tmp_path)
    with monkeypatch.context() as patched:
        patched.setenv("IRIS_NATS_SERVER", str(of_another_version(tmp_path)))
        servers.nodes[0].start()
    async with running(servers):
        [told] = await servers.told(
            "the difference", lambda: servers.doctor().get("server_version_skew")
        )
    assert told.startswith("the NATS servers are of 2 versions: ")


@pytest.mark.parametrize(
    ("days", "words", "others"),
    [(3, "expires on ", set()), (-1, "expired on ", {"nats_unreachable"}), (90, "", set())],
)
async def test_a_server_whose_certificate_expires(
    tmp_path: Path, days: int, words: str, others: set[str]
):
    authority = Authority(tmp_path)
    cert, key = authority.sign("server", ["127.0.0.1"], timedelta(days=days))
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n'
    config = tmp_path / "iris.toml"
    config.write_text(f'[nats]\ntls_ca = "{authority.cert}"\n')
    async with configured_nats(tmp_path / "nats", tls) as server:
        url = server.url.replace("nats://", "tls://")
        found = await asyncio.to_thread(doctor, "--nats", url, "--config", config)
    told = found.pop("certificate_expires", [])
    address = url.removeprefix("tls://")
    start = f"the certificate of the NATS server at {address} {words}"
    assert [line.startswith(start) for line in told] == [True] * bool(words)
    assert found.keys() == others


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
@needs("mounts")
def noexec(tmp_path: Path) -> Iterator[Path]:
    """A file system from which no program can be run."""
    place = tmp_path / "noexec"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,size=64m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_worker_on_a_file_system_without_programs(nats_url: str, tmp_path: Path, noexec: Path):
    with fleet(nats_url, tmp_path) as services:
        services.add("state", "state")
        gateway = services.add("gateway", "gateway")
        services.add_worker("w0", f"worker.data={noexec}")
        environ = {"IRIS_URL": gateway.url, "IRIS_DATA": str(tmp_path / "none")}
        told = until(lambda: doctor(**environ).get("noexec_data"), "it is told", TOLD_S)
    assert told == [f"worker w0: its data, {noexec}, is on a file system mounted noexec"]


def test_a_worker_whose_check_fails(nats_url: str, tmp_path: Path):
    config = tmp_path / "check.toml"
    config.write_text('[worker.check]\ncommand = ["sh", "-c", "echo GPU 3 is gone; exit 1"]\n')
    with fleet(nats_url, tmp_path) as services:
        services.add("state", "state")
        gateway = services.add("gateway", "gateway")
        environ = {"IRIS_URL": gateway.url, "IRIS_DATA": str(tmp_path / "none")}
        with worker(nats_url, tmp_path / "w0", "", "--config", str(config)):
            told = until(
                lambda: [
                    words
                    for words in doctor(**environ).get("worker_degraded", ())
                    if "GPU" in words
                ],
                "it is told, after the check was made",
                TOLD_S,
            )
    assert told == ["worker w0 is degraded: host check failed: GPU 3 is gone"]


@contextmanager
def worker(nats_url: str, place: Path, prelude: str, *words: str) -> Iterator[None]:
    """A worker of its own interpreter behind some lines of Python, called as its directory is."""
    given = {**UNCONFINED, "id": place.name, "data": str(place), "address": "127.0.0.1"}
    settings = [word for key, value in given.items() for word in ("--set", f"worker.{key}={value}")]
    run = "import runpy\nrunpy.run_module('iris_worker', run_name='__main__')"
    code = f"{textwrap.dedent(prelude)}\n{run}"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
    log = place.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *settings, *words],
            env={**environ, "IRIS_NATS_URL": nats_url},
            stderr=out,
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - forks from the main thread only
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(TOLD_S)


WITHOUT_LANDLOCK = """
    import ctypes
    import errno
    import struct

    # seccomp(2): landlock_create_ruleset(2), 444 on every machine, is not there
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50000 | errno.ENOSYS)]
    lines += [(0x06, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    held = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HP", len(lines), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    assert libc.prctl(22, 2, described, 0, 0) == 0  # a filter
"""
"""What a kernel before Landlock answers."""


@pytest.mark.needs("bwrap")
def test_a_worker_on_a_kernel_that_scopes_no_sockets(nats_url: str, tmp_path: Path):
    with fleet(nats_url, tmp_path) as services:
        services.add("state", "state")
        gateway = services.add("gateway", "gateway")
        environ = {"IRIS_URL": gateway.url, "IRIS_DATA": str(tmp_path / "none")}
        sandbox = ("--set", "worker.sandbox=required")
        with worker(nats_url, tmp_path / "w0", WITHOUT_LANDLOCK, *sandbox):
            told = until(lambda: doctor(**environ).get("unscoped_sockets"), "it is told", TOLD_S)
    [words] = told
    assert words.startswith("worker w0: its tasks reach each other's abstract sockets: ")
    assert words.endswith("this kernel has no Landlock")
