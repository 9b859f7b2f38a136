"""`iris port-forward` and `iris notebook`: connections to ports of tasks, through a whole
cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from iris import Client, Job, PortForward
from iris.client.executions import RemotePort
from iris.client.problems import Conflict, NotAllowed
from iris_core.views.jobs import CallerView
from tests.support.cluster import IRIS, Cluster, cluster_on, settings, until
from tests.support.terminal import TerminalCommand

pytestmark = pytest.mark.integration

MIB = 1 << 20
AT_ONCE = 12
SERVER = Path(__file__).with_name("tunnel_server.py").read_text()
"""Answers at IRIS_PORT_WEB what its first line asks for."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("tunnels") / "data"
    with cluster_on(
        data, "--workers", "1", *settings(data, f"[worker]\ntunnels_at_once = {AT_ONCE}\n")
    ) as running:
        yield running


@pytest.fixture(scope="module")
def task(cluster: Cluster) -> Iterator[str]:
    job = serving(cluster)
    yield f"{job.name}/0"
    job.cancel()


def serving(cluster: Cluster, **options: object) -> Job:
    job = cluster.submit(sys.executable, "-c", SERVER, ports=["web"], **options)
    until(lambda: any("listens" in line.line for line in job.logs(follow=False)), "it listens")
    return job


def port_of(cluster: Cluster, task: str) -> int:
    return int(cluster.iris("exec", "-n", task, "--", "sh", "-c", "echo $IRIS_PORT_WEB").out)


@contextlib.contextmanager
def forwarded(cluster: Cluster, task: str) -> Iterator[PortForward]:
    with PortForward(cluster.client, task, port_of(cluster, task)) as forward:
        yield forward


def asked(forward: PortForward, words: str) -> socket.socket:
    line = socket.create_connection(forward.address, timeout=60)
    line.sendall(words.encode() + b"\n")
    return line


def rest(line: socket.socket) -> bytes:
    with line:
        return b"".join(iter(lambda: line.recv(1 << 16), b""))


def memory(cluster: Cluster) -> int:
    """Bytes of the processes that a connection passes, this one included."""
    pids = [os.getpid(), *(pid for name in ("worker", "gateway") for pid in cluster.pids(name))]
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def test_each_direction_arrives_whole_and_may_end_before_the_other(cluster: Cluster, task: str):
    data = os.urandom(3 * MIB)
    with forwarded(cluster, task) as forward:
        line = asked(forward, "digest")
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        assert rest(line).decode() == hashlib.sha256(data).hexdigest()
        line = asked(forward, "end-then-read")
        assert line.recv(100) == b"ends"
        assert line.recv(100) == b""
        line.sendall(b"heard after the end")
        line.close()
        job = cluster.client.job(task.rpartition("/")[0])
        heard = lambda: any("heard after the end" in one.line for one in job.logs(follow=False))  # noqa: E731
        until(heard, "the other half goes on")


def test_many_connections_at_a_time_are_limited_aloud(cluster: Cluster, task: str):
    why: list[str] = []
    port = port_of(cluster, task)
    with PortForward(cluster.client, task, port, on_trouble=why.append) as forward:
        lines = until(lambda: echoing(forward, AT_ONCE), "those of earlier tests are gone")
        assert echoing(forward, 1) == []
        assert any(
            f"this host has {AT_ONCE} connections already, {AT_ONCE} of them yours" in one
            for one in why
        )
        for line in lines:
            line.close()
        until(lambda: echoing(forward, 1), "there is room again")[0].close()


def echoing(forward: PortForward, count: int) -> list[socket.socket]:
    """So many connections at a time, which all answer; none when there is no room for one of
    them.
    """
    with contextlib.ExitStack() as opened, contextlib.suppress(ConnectionError):
        lines = [opened.enter_context(asked(forward, "echo")) for _ in range(count)]
        for number, line in enumerate(lines):
            line.sendall(b"%d" % number)
        if all(line.recv(10) == b"%d" % number for number, line in enumerate(lines)):
            opened.pop_all()
            return lines
    return []


def rest_or_reset(line: socket.socket) -> bytes:
    try:
        return rest(line)
    except ConnectionResetError:
        return b""


def test_one_that_does_not_read_takes_bounded_memory_and_delays_nobody(cluster: Cluster, task: str):
    with forwarded(cluster, task) as forward:
        before = memory(cluster)
        slow = [asked(forward, f"send {200 * MIB}") for _ in range(4)]
        until(lambda: all(line.recv(1, socket.MSG_PEEK) for line in slow), "all have begun")
        line = asked(forward, "echo")
        for number in range(50):
            line.sendall(b"%03d" % number)
            assert line.recv(3) == b"%03d" % number
        assert memory(cluster) - before < 64 * MIB
        for one in (*slow, line):
            one.close()


@pytest.mark.soak
def test_a_gigabyte_passes_in_bounded_memory(cluster: Cluster, task: str):
    with forwarded(cluster, task) as forward:
        before, count = memory(cluster), 0
        with asked(forward, f"send {1024 * MIB}") as line:
            while data := line.recv(1 << 20):
                count += len(data)
        assert count == 1024 * MIB
        assert memory(cluster) - before < 64 * MIB


def test_a_server_that_ends_ends_its_connections(cluster: Cluster):
    job = serving(cluster)
    with forwarded(cluster, f"{job.name}/0") as forward:
        line = asked(forward, "echo")
        line.sendall(b"x")
        assert line.recv(1) == b"x"
        job.cancel()
        assert rest_or_reset(line) == b""


def is_known(client: Client) -> bool:
    with contextlib.suppress(NotAllowed):
        return client.get("/v1/whoami", CallerView).user == "mallory"
    return False


def test_only_its_owner_reaches_what_the_task_itself_listens_on(cluster: Cluster, task: str):
    token = cluster.iris(
        "admin", "token", "add", "mallory", "--file", cluster.data / "tokens"
    ).out.split()[-1]
    port = port_of(cluster, task)
    with Client(cluster.url, token=token) as mallory:
        until(lambda: is_known(mallory), "the gateway knows the token")
        with pytest.raises(NotAllowed, match="only its owner or an admin"):
            RemotePort(mallory, task, port)
        own = mallory.run(["sleep", "1000"], name="mallory-s")
        until(lambda: mallory.task(f"{own.name}/0").state == "running", "it runs")
        for other in (port, int(cluster.url.rpartition(":")[2])):
            with pytest.raises(Conflict, match=f"no process of the task listens on port {other}"):
                RemotePort(mallory, f"{own.name}/0", other)
        own.cancel()


def test_the_command_answers_at_a_port_here_until_the_task_ends(cluster: Cluster):
    job = serving(cluster)
    with subprocess.Popen(
        [*IRIS, "port-forward", f"{job.name}/0", "web"],
        env=cluster.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().split()[0].partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall(b"echo\nhello")
            assert line.recv(5) == b"hello"
        job.cancel()
        assert process.wait(60) == 0
    refused = cluster.iris("port-forward", f"{job.name}/0", "80:80:80")
    assert (refused.code, "is not [LOCAL:]REMOTE" in refused.err) == (2, True)


def test_a_named_port_is_that_of_the_attempt_that_runs(cluster: Cluster):
    job = serving(cluster)
    with subprocess.Popen(
        [*IRIS, "port-forward", job.name, "web"],
        env=cluster.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        before = process.stdout.readline().split()
        assert cluster.iris("requeue", f"{job.name}/0").code == 0
        after = process.stdout.readline().split()
        assert (after[0], after[3] != before[3]) == (before[0], True)
        assert int(after[3]) == port_of(cluster, f"{job.name}/0")
        job.cancel()
        assert process.wait(60) == 0


def test_a_notebook_is_used_left_and_ended(cluster: Cluster):
    command = (sys.executable, "-c", SERVER.replace("IRIS_PORT_WEB", "IRIS_PORT_NOTEBOOK"))
    with TerminalCommand(cluster.environ, "notebook", "--name", "nb", "--", *command) as first:
        first.expect("http://127.0.0.1:")
        address, _, token = until_line(first).partition("/?token=")
        assert len(token) == 48
        assert get(int(address), f"token {token}") == b"welcome"
        assert get(int(address), "token wrong") == b"no"
        first.type("\x03")
        first.expect("End /nb?")
        first.type("n\n")
        assert first.end() == 130
    assert cluster.client.task("/nb/0").state == "running"
    with TerminalCommand(cluster.environ, "notebook", "--attach", "nb") as second:
        second.expect("http://127.0.0.1:")
        address, _, again = until_line(second).partition("/?token=")
        assert again == token
        assert get(int(address), f"token {token}") == b"welcome"
        second.process.send_signal(signal.SIGINT)
        second.expect("End /nb?")
        second.type("\n")
        assert second.end() == 130
    assert cluster.client.job("/nb").wait(60).state == "killed"


def test_a_notebook_that_starts_again_is_reached_again(cluster: Cluster):
    command = (sys.executable, "-c", SERVER.replace("IRIS_PORT_WEB", "IRIS_PORT_NOTEBOOK"))
    with TerminalCommand(
        cluster.environ, "notebook", "--name", "nb-again", "--", *command
    ) as shown:
        shown.expect("http://127.0.0.1:")
        _, _, before = until_line(shown).partition("/?token=")
        assert cluster.iris("requeue", "nb-again/0").code == 0
        shown.expect("http://127.0.0.1:")
        address, _, token = until_line(shown).partition("/?token=")
        assert token != before
        assert get(int(address), f"token {token}") == b"welcome"
        cluster.client.job("/nb-again").cancel()
        assert shown.end() == 5


def until_line(shown: TerminalCommand) -> str:
    """What follows up to the end of the line."""
    shown.expect("\r\n", keep=True)
    return shown.seen.partition(b"\r\n")[0].decode()


def get(port: int, words: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(words.encode() + b"\n")
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(1 << 16), b""))


def test_without_jupyter_the_remedy_is_told(cluster: Cluster, tmp_path: Path):
    (tmp_path / "note.txt").write_text("no requirements here")
    ended = cluster.iris(
        "notebook", "--workdir", tmp_path, "-e", "PATH=/usr/bin:/bin", "--name", "none", timeout=120
    )
    assert "has no uv.lock or requirements.txt, so Jupyter must be on the host" in ended.err
    assert (ended.code, "name jupyterlab in the requirements.txt" in ended.err) == (3, True)
