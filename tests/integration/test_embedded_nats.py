"""The embedded server is restarted when it dies, and ends with its owner."""

import asyncio
import math
import os
import signal
import socket
import socketserver
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_bus.jetstream import connect
from iris_core import subjects
from iris_nats import nats_binary
from iris_nats.nats_process import NatsProcess, streams_of
from iris_service.child import StartFailed
from iris_service.lock import DirectoryInUse
from tests.support.cluster import until
from tests.support.nats import OpenServer
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration


async def test_a_killed_server_is_started_again_on_the_same_ports_with_its_data(own_nats):
    before = own_nats.url
    connection = await connect(own_nats.url, name="test")
    await connection.streams.ensure()
    journal = connection.journal()
    stored = await journal.append(b"one", expected=0)
    os.kill(own_nats.pid, signal.SIGKILL)
    again = await journal.append(b"two", expected=1)
    await connection.close()
    assert (stored, again, own_nats.url, own_nats.starts) == (1, 2, before, 2)


async def test_a_second_server_on_the_same_directory_is_refused(own_nats, tmp_path):
    with pytest.raises(DirectoryInUse):
        OpenServer(tmp_path / "nats").start()


def test_nobody_else_gets_the_port_of_a_server_that_was_killed(tmp_path):
    server = OpenServer(tmp_path / "nats")
    server.start()
    server.kill()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", server.port))
    server.start()
    server.stop()


def test_a_start_runs_the_program_for_its_version_and_to_serve(tmp_path, monkeypatch):
    said, program = tmp_path / "said", tmp_path / "nats-server"
    program.write_text(f'#!/bin/sh\necho "$*" >>{said}\nexec {nats_binary.find()} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("IRIS_NATS_SERVER", str(program))
    server = OpenServer(tmp_path / "nats")
    server.start()
    server.stop()
    assert said.read_text().splitlines() == ["--version", f"-c {tmp_path}/nats/nats.conf"]


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no timer slack")
def test_the_sleeps_of_a_server_may_last_longer(tmp_path, monkeypatch):
    slack, program = tmp_path / "slack", tmp_path / "nats-server"
    program.write_text(
        f'#!/bin/sh\ncat /proc/self/timerslack_ns >{slack}\nexec {nats_binary.find()} "$@"\n'
    )
    program.chmod(0o700)
    monkeypatch.setenv("IRIS_NATS_SERVER", str(program))
    server = OpenServer(tmp_path / "nats")
    server.start()
    server.stop()
    assert slack.read_text() == "200000\n"


def test_a_refused_configuration_is_told_as_the_server_tells_it(tmp_path):
    class Misconfigured(OpenServer):
        def _accounts(self) -> str:
            return "accounts { A: { users: nobody } }\n"

    server = Misconfigured(tmp_path / "nats")
    with pytest.raises(StartFailed, match=r"refuses its configuration: .*users field") as refused:
        server.start()
    assert (server.pid, "ended while starting" in str(refused.value)) == (0, False)


async def damaged(directory: Path, stream: str) -> NatsProcess:
    """A server that has declared every stream and was killed, one of them unreadable since."""
    server = OpenServer(directory)
    server.start()
    connection = await connect(server.url, name="test")
    await connection.streams.ensure()
    await connection.close()
    server.kill()
    (streams_of(directory) / stream / "meta.inf").write_bytes(b"{")
    return server


async def test_a_derived_stream_that_cannot_be_recovered_is_set_aside(tmp_path):
    server = await damaged(tmp_path / "nats", "IRIS_EVENTS")
    server.start()
    server.stop()
    assert list((tmp_path / "nats").glob("damaged-IRIS_EVENTS-*"))
    assert not (streams_of(tmp_path / "nats") / "IRIS_EVENTS").exists()


async def test_it_is_set_aside_by_the_restart_that_the_server_asks_for_then(tmp_path):
    server = await damaged(tmp_path / "nats", "IRIS_EVENTS")
    server.spawn(0.0)
    until(
        lambda: "IRIS_EVENTS' could not be recovered" in server.why_restart(),
        "it asks for a restart",
    )
    server.kill()
    server.spawn(0.0)
    assert list((tmp_path / "nats").glob("damaged-IRIS_EVENTS-*"))
    server.stop()


class Slow(socketserver.ThreadingTCPServer):
    """A server that says of a stream that it could not be recovered, as a slow one does while it
    makes the stream.
    """

    daemon_threads = True
    stream = "IRIS_LOGS"
    doubts = math.inf
    """How often it says so, before it says that all is well."""


class SlowAnswer(socketserver.StreamRequestHandler):
    """What it says to one who asks."""

    server: Slow

    def handle(self) -> None:
        self.wfile.write(b'INFO {"server_id": "S", "nonce": ""}\r\n')
        for line in self.rfile:
            if line.startswith(b"PUB"):
                self.server.doubts -= 1
                body = b'{"data": {"status": "ok"}}'
                if self.server.doubts >= 0:
                    said = f"JetStream stream 'IRIS > {self.server.stream}' could not be recovered"
                    body = b'{"data": {"status": "unavailable", "error": "%s"}}' % said.encode()
                self.wfile.write(b"MSG _INBOX.health 1 %d\r\n%s\r\n" % (len(body), body))


@pytest.fixture
def slow() -> Iterator[Slow]:
    with Slow(("127.0.0.1", 0), SlowAnswer) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_a_server_is_restarted_for_a_missing_stream_after_several_reports(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "iris_nats.nats_process._GLANCE_S", 60.0
    )  # an answer that comes too late is no report
    made, there = OpenServer(tmp_path / "made"), OpenServer(tmp_path / "there")
    (streams_of(there.directory) / "IRIS_LOGS").mkdir(parents=True)
    for server in (made, there):
        server.prepare()
        server.port = slow.server_address[1]
    (streams_of(made.directory) / "IRIS_LOGS").mkdir(parents=True)
    looks = [[bool(server.why_restart()) for _ in range(4)] for server in (made, there)]
    assert looks == [[False] * 4, [False, False, True, True]]
    for server in (made, there):
        server.stop()


@pytest.mark.parametrize(
    ("stream", "doubts"), [("IRIS_LOGS", 2), (".IRIS_JOURNAL", 10)], ids=["slow", "deleted"]
)
def test_a_start_waits_for_a_stream_that_is_looked_after_just_then(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch, stream: str, doubts: int
):
    program = tmp_path / "nats-server"
    program.write_text(
        f'#!/bin/sh\n[ $1 = -c ] && [ $# = 2 ] && exec sleep 600\nexec {nats_binary.find()} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("IRIS_NATS_SERVER", str(program))
    server = OpenServer(tmp_path / "nats")
    (streams_of(server.directory) / stream).mkdir(parents=True)
    server.port, slow.stream, slow.doubts = slow.server_address[1], stream, doubts
    server.start()
    server.stop()
    assert (server.starts, slow.doubts) == (1, -1)


async def test_a_server_whose_journal_cannot_be_recovered_is_not_left_running(tmp_path):
    server = await damaged(tmp_path / "nats", "IRIS_JOURNAL")
    with pytest.raises(StartFailed, match=r"cannot use its store: .*IRIS_JOURNAL"):
        server.start()
    assert server.pid == 0


async def test_a_running_server_is_told_the_keys_of_more_workers(tmp_path):
    server = NatsProcess(tmp_path / "nats", ["w0"])
    server.start()
    pid = server.pid
    state = await connect(server.url, name="state", credentials=server.credentials("state"))
    await state.bus.subscribe(
        subjects.REPORTS, lambda message: state.bus.publish(message.reply, b"taken")
    )
    assert server.admit(["cpu-0-0"]) == ""
    worker = await connect(
        server.url, name="cpu-0-0", credentials=server.credentials("worker", "cpu-0-0")
    )
    answer = await worker.bus.request(subjects.report("cpu-0-0"), b"here", timeout=30)
    assert answer.data == b"taken"
    await worker.close()
    await state.close()
    assert (server.pid, server.starts) == (pid, 1)
    server.stop()


def test_a_server_that_has_not_read_new_keys_is_told_again(tmp_path):
    server = NatsProcess(tmp_path / "nats", ["w0"])
    server.start()
    suspend(server.pid)
    assert "timed out" in server.admit(["cpu-0-0"])
    os.kill(server.pid, signal.SIGCONT)
    assert server.admit([]) == ""
    server.stop()


def test_its_files_are_for_the_owner_only(tmp_path):
    server = NatsProcess(tmp_path / "nats", ["w0"])
    server.start()
    server.stop()
    keys = list(server.keys.directory.iterdir())
    modes = {
        p.name: p.stat().st_mode & 0o777
        for p in [server.directory, *server.directory.glob("*.conf")]
    }
    assert modes == {"nats": 0o700, "nats.conf": 0o600}
    assert (
        server.keys.directory.stat().st_mode & 0o777,
        {p.stat().st_mode & 0o777 for p in keys},
    ) == (0o700, {0o600})
    assert "worker-w0.seed" in {p.name for p in keys}


def test_the_server_ends_when_its_owner_is_killed(tmp_path):
    program = textwrap.dedent(f"""
        import pathlib, sys, time
        from iris_nats.nats_process import NatsProcess
        server = NatsProcess(pathlib.Path({str(tmp_path)!r}) / "nats")
        server.start()
        print(server.pid, flush=True)
        sys.stdin.read()
    """)
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ},
    )
    assert owner.stdout is not None
    server_pid = int(owner.stdout.readline())
    server = os.pidfd_open(server_pid)
    owner.kill()
    owner.communicate()
    assert _ended(server, 60)


def _ended(process: int, seconds: float) -> bool:
    """Whether the process behind a pidfd ends in time; a pidfd is readable when it has."""

    async def wait() -> bool:
        over = asyncio.Event()
        asyncio.get_running_loop().add_reader(process, over.set)
        try:
            async with asyncio.timeout(seconds):
                await over.wait()
        except TimeoutError:
            return False
        return True

    return asyncio.run(wait())


def test_a_program_named_but_not_there_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("IRIS_NATS_SERVER", str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="IRIS_NATS_SERVER, names no program"):
        OpenServer(tmp_path / "nats").start()
