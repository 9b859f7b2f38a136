"""`iris admin nats-config` writes the configuration of a server that accepts each generated key and
no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from iris_bus.connection.connection import Credentials
from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from iris_core import subjects
from iris_nats import nats_binary
from tests.support.certificates import make_certificate
from tests.support.cluster import iris, until
from tests.support.nats_config import ConfiguredServer, free_ports

pytestmark = pytest.mark.integration


def nats_config(out: Path, *options: str) -> list[str]:
    """The files it says it has written."""
    done = iris("admin", "nats-config", "--out", out, *options)
    assert done.code == 0, done.err
    return [str(Path(line).relative_to(out)) for line in done.out.splitlines()]


def key(out: Path, label: str) -> Credentials:
    return Credentials(str(out / "keys" / f"{label}.seed"))


@contextmanager
def serving(out: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server on what was written, and its address."""
    [port] = free_ports(1)
    config = out / "nats.conf"
    config.write_text(config.read_text().replace("0.0.0.0:4222", f"127.0.0.1:{port}"))
    log = out.parent / "server.log"
    server = subprocess.Popen([nats_binary.find(), "-c", config, "-l", log])
    try:
        until(
            lambda: log.exists() and "Server is ready" in log.read_text(), "the server is ready", 60
        )
        yield f"nats://127.0.0.1:{port}", server
    finally:
        server.terminate()
        server.wait(60)


def test_keys_are_made_once_and_the_rest_is_the_same_each_time(tmp_path: Path):
    out = tmp_path / "out"
    first = nats_config(out, "--worker", "w0", "--observer", "billing")
    services = [
        f"keys/{name}.seed"
        for name in (
            *("system", "state", "scheduler", "gateway", "proxy"),
            *("provisioner", "notifier", "admin"),
        )
    ]
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    again = nats_config(out)
    assert first == [
        *services,
        "keys/worker-w0.seed",
        "keys/observer-billing.seed",
        "accounts.conf",
        "nats.conf",
    ]
    assert again == ["accounts.conf"]
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == files
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert not any(
        path.read_text().strip() in (out / "accounts.conf").read_text()
        for path in (out / "keys").iterdir()
    )


def test_certificates_are_named_in_the_configuration(tmp_path: Path):
    nats_config(
        tmp_path / "out",
        "--tls-cert",
        "/tls/server.pem",
        "--tls-key",
        "/tls/server.key",
        "--tls-ca",
        "/ca.pem",
    )
    text = (tmp_path / "out" / "nats.conf").read_text()
    assert (
        'tls {\n  cert_file: "/tls/server.pem"\n  key_file: "/tls/server.key"\n  ca_file: "/ca.pem"\n}'
        in text
    )


ODD = ["smörgås", 'a "b"', "back\\slash\\u00e9", "$HOME", "new\nline", "#;{}[]=:", "a\x01"]


@pytest.mark.parametrize("name", ODD)
def test_a_server_reads_every_path_of_its_configuration_as_it_is(tmp_path: Path, name: str):
    place = tmp_path / name
    place.mkdir()
    cert, key = map(str, make_certificate(place))
    store = str(place / "store")
    nats_config(tmp_path / "out", "--store", store, "--tls-cert", cert, "--tls-key", key)
    done = subprocess.run(
        [nats_binary.find(), "--config", tmp_path / "out" / "nats.conf", "-t"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_each_server_of_a_cluster_has_a_file_that_is_written_once(tmp_path: Path):
    servers = [word for n in (1, 2, 3) for word in ("--server", f"m{n}=10.0.0.{n}")]
    first = nats_config(tmp_path / "out", *servers)
    files = {path: path.read_bytes() for path in tmp_path.rglob("nats*.conf")}
    assert first[-4:] == ["accounts.conf", "nats-m1.conf", "nats-m2.conf", "nats-m3.conf"]
    assert nats_config(tmp_path / "out", *servers, "--worker", "w0") == [
        "keys/worker-w0.seed",
        "accounts.conf",
    ]
    assert nats_config(tmp_path / "out") == ["accounts.conf"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("nats*.conf")} == files
    assert len({re.sub(rb'server_name: "m\d"', b"", text) for text in files.values()}) == 1


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        (["a=h", "b=h"], "three or five servers"),
        (["a=h", "a=i", "b=j"], "three or five servers of different names, not 2"),
        (["a", "b=h", "c=h"], "--server is NAME=HOST"),
        (["../a=h", "b=h", "c=h"], "--server is NAME=HOST"),
    ],
)
def test_servers_that_are_no_cluster_are_refused(tmp_path: Path, servers: list[str], said: str):
    words = [word for server in servers for word in ("--server", server)]
    done = iris("admin", "nats-config", "--out", tmp_path / "out", *words)
    assert (done.code, (tmp_path / "out").exists()) == (2, False)
    assert said in done.err


def run_on_loopback(
    stack: ExitStack, config: Path, client: int, own: int, routes: Sequence[int]
) -> Path:
    """Start a server of a cluster on its ports, with those of its peers, until the stack is closed;
    its log.
    """
    peers = iter(routes)
    text = (
        config.read_text()
        .replace("0.0.0.0:4222", f"127.0.0.1:{client}")
        .replace("0.0.0.0:6222", f"127.0.0.1:{own}")
    )
    config.write_text(
        re.sub("localhost:6222", lambda _: f"localhost:{next(peers)}", text).replace(
            "STORE", f"{own}"
        )
    )
    log = config.with_suffix(".log")
    server = subprocess.Popen([nats_binary.find(), "-c", config, "-l", log])
    stack.callback(server.wait, 20)
    stack.callback(server.kill)
    return log


async def test_servers_of_a_cluster_need_tls_and_the_password_of_the_cluster(tmp_path: Path):
    cert, private = make_certificate(tmp_path)
    options = [word for name in "abc" for word in ("--server", f"{name}=localhost")]
    options += ["--tls-cert", str(cert), "--tls-key", str(private), "--tls-ca", str(cert)]
    for out in ("ours", "theirs"):
        nats_config(tmp_path / out, *options, "--store", str(tmp_path / out / "STORE"))
    ports = free_ports(8)
    clients, routes = ports[:4], ports[4:]
    with ExitStack() as stack:
        for name, client, own in zip("abc", clients, routes, strict=False):
            run_on_loopback(stack, tmp_path / "ours" / f"nats-{name}.conf", client, own, routes)
        credentials = Credentials(key(tmp_path / "ours", "state").nkey_seed, str(cert))
        urls = ",".join(f"tls://localhost:{port}" for port in clients[:3])
        state = await connect(
            urls, name="state", credentials=credentials, replicas=3, retry_for_s=20
        )
        await state.streams.ensure()  # three copies of each stream need three servers
        await state.close()
        log = run_on_loopback(
            stack, tmp_path / "theirs" / "nats-a.conf", clients[3], routes[3], routes
        )
        until(
            lambda: log.exists() and "Authorization Violation" in log.read_text(),
            "the stranger is refused",
            60,
        )


async def test_new_keys_open_the_streams_that_are_there(tmp_path: Path):
    for out in ("lost", "new"):
        nats_config(tmp_path / out, "--store", str(tmp_path / "store"))
        with serving(tmp_path / out) as (url, _):
            state = await connect(
                url, name="state", credentials=key(tmp_path / out, "state"), retry_for_s=10
            )
            await state.streams.ensure()
            sequence = await state.streams.publish("task.state.running", b"{}", timeout=10)
            await state.close()
        (tmp_path / "server.log").unlink()
    assert sequence == 2


async def test_an_added_worker_is_let_in_when_the_server_has_its_account(tmp_path: Path):
    out = tmp_path / "out"
    nats_config(out, "--worker", "w0", "--store", str(tmp_path / "store"))
    with serving(out) as (url, server):
        state = await connect(url, name="state", credentials=key(out, "state"))
        await state.streams.ensure()
        first = await connect(url, name="worker", credentials=key(out, "worker-w0"))
        assert nats_config(out, "--worker", "w.1") == ["keys/worker-w=2E1.seed", "accounts.conf"]
        with pytest.raises(Unavailable, match="does not accept the key"):
            await connect(url, name="worker", credentials=key(out, "worker-w=2E1"), retry_for_s=10)
        log = out.parent / "server.log"
        for time in (
            1,
            2,
        ):  # the first makes the account, the second what it takes from the account of the services
            server.send_signal(signal.SIGHUP)
            until(
                lambda n=time: log.read_text().count("Reloaded server configuration") == n,
                "it has read it",
                60,
            )
        second = await connect(
            url, name="worker", credentials=key(out, "worker-w=2E1"), retry_for_s=10
        )
        for name, worker in (("w0", first), ("w.1", second)):
            await state.bus.subscribe(
                subjects.report(name), lambda message: state.bus.publish(message.reply, b"taken")
            )
            assert (
                await worker.bus.request(subjects.report(name), b"", timeout=30)
            ).data == b"taken"
            assert await worker.streams.publish(
                subjects.output(name, 1, 0), name.encode(), timeout=10
            )
            orders = await worker.bus.subscribe(
                subjects.order(name),
                lambda message, one=worker: one.bus.publish(message.reply, b"mine"),
            )
            assert (await state.bus.request(subjects.order(name), b"", timeout=30)).data == b"mine"
            await orders.close()
        for connection in (state, first, second):
            await connection.close()


@pytest.mark.soak
async def test_three_servers_take_a_new_key_one_after_the_other_as_the_page_says(tmp_path: Path):
    out = tmp_path / "out"
    nats_config(out, *(f"--server={name}=localhost" for name in "abc"), "--store", "STORE")
    ports, monitors, routes = (free_ports(3) for _ in range(3))
    servers = []
    for name, port, monitor, route in zip("abc", ports, monitors, routes, strict=True):
        peers = iter(routes)
        config = (out / f"nats-{name}.conf").read_text().replace("STORE", str(tmp_path / name))
        config = config.replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace(
            "0.0.0.0:6222", f"127.0.0.1:{route}"
        )
        config = re.sub("localhost:6222", lambda _, peers=peers: f"127.0.0.1:{next(peers)}", config)
        servers.append(
            ConfiguredServer(
                tmp_path / name, f'http: "127.0.0.1:{monitor}"\n{config}', port, monitor
            )
        )

    async def restart(server: ConfiguredServer) -> None:
        server.kill()
        shutil.copy(out / "accounts.conf", server.directory)
        server.start()
        await server.until_healthy()

    urls = ",".join(server.url for server in servers)
    try:
        for server in servers:
            shutil.copy(out / "accounts.conf", server.directory)
            server.start()
        shutil.copytree(out / "keys", tmp_path / "host" / "keys")
        old = await connect(
            urls, name="state", credentials=key(tmp_path / "host", "state"), replicas=3
        )
        await old.streams.ensure()
        (out / "keys" / "state.seed").unlink()
        assert nats_config(out) == ["keys/state.seed", "accounts.conf"]
        for server in servers[:2]:
            await restart(server)
        await old.streams.ensure()
        async with asyncio.timeout(60):
            while True:  # as a supervisor starts a process again that the third server refuses
                with contextlib.suppress(Unavailable):
                    new = await connect(
                        urls, name="state", credentials=key(out, "state"), replicas=3
                    )
                    break
        await restart(servers[2])
        await new.streams.ensure()
        await old.close()
        await new.close()
    finally:
        for server in servers:
            server.kill()
