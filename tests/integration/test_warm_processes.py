"""A process that is forked for a test behaves as one that is started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support import warm
from tests.support.cluster import Cluster, start, until

pytestmark = pytest.mark.integration


@pytest.fixture
def waits(tmp_path: Path) -> list[str]:
    """Of a worker that finds no server."""
    given = ("nats.url=nats://127.0.0.1:1", "nats.retry_for_s=1000", f"worker.data={tmp_path}")
    return [word for setting in given for word in ("--set", setting)]


@pytest.mark.parametrize("words", [["--version"], ["ls", "--no-such-option"], ["run", "--help"]])
def test_a_forked_command_ends_and_writes_as_a_started_one(words: list[str]):
    started = subprocess.run(
        [sys.executable, "-m", "iris.cli", *words], capture_output=True, text=True, check=False
    )
    forked = warm.run("iris.cli", words, os.environ, timeout=60)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


def test_a_forked_process_has_the_environment_and_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iris.toml").write_text("[nats]\nreplicas = 3\n")
    environ = {"PATH": os.environ["PATH"], "IRIS_CONFIG": "iris.toml", "IRIS_WORKER_ID": "one"}
    shown = warm.run("iris_worker", ["--show-config"], environ, timeout=60).stdout
    assert 'id = "one"' in shown
    assert "replicas = 3" in shown
    assert "IRIS_WORKER_ID" not in os.environ


def test_the_signal_that_ended_a_forked_process_is_known(waits: list[str]):
    process = warm.start("iris_worker", waits, os.environ)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert (process.wait(60), process.poll()) == (-signal.SIGKILL, -signal.SIGKILL)


def test_a_forked_process_that_takes_too_long_is_killed(waits: list[str]):
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run("iris_worker", waits, os.environ, timeout=0.1)


def shown(pid: int) -> tuple[list[str], str, dict[str, str], set[str]]:
    """Of a process: the command up to its module, its parent, what a cluster gives it, and the
    files that are open.
    """
    process = psutil.Process(pid)
    given = {key: value for key, value in process.environ().items() if key.startswith("IRIS_")}
    files = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            files.add(os.readlink(entry))
    parent = process.parent()
    assert parent is not None
    return (
        process.cmdline()[:4],
        parent.cmdline()[3],
        given,
        {name for name in files if name.startswith("/")},
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_a_forked_service_is_seen_as_a_started_one(cluster: Cluster, restarted: bool):
    if restarted:
        cluster.kill("scheduler")
    [pid] = cluster.pids("scheduler")
    log = str(cluster.data / "log" / "scheduler.log")
    given = {
        "IRIS_NATS_URL": cluster.nats_url,
        "IRIS_DATA": str(cluster.data),
        "IRIS_CLUSTER_READY_S": "100",
    }
    given["IRIS_WORKER_CONTAINER_RUNTIME"] = "none"
    command = [sys.executable, "-P", "-m", "iris_scheduler"]
    expected = (command, "iris.cluster", given, {os.devnull, log})
    with contextlib.suppress(AssertionError):  # while it begins it reads files now and then
        until(lambda: shown(pid) == expected, "it has nothing else open")
    assert shown(pid) == expected
    assert (os.getpgid(pid), os.getsid(pid)) == (pid, cluster.pids("supervisor")[0])


def test_a_forked_cluster_ends_with_its_supervisor(tmp_path: Path):
    cluster = start(tmp_path / "data", "--workers", "1")
    [supervisor] = cluster.pids("supervisor")
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not cluster.processes(), "every process has ended")
    assert cluster.up.wait(60) == 1
    cluster.client.close()
