"""A whole local cluster for a test: real NATS, services and workers, started and stopped by
`iris`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris import Client, Job
from iris.client.http.address import read_token
from iris_bus.connection.connection import Credentials
from iris_core.access.roles import login
from iris_core.views.jobs import TaskView
from iris_nats.nats_process import OBSERVER, keys_of
from iris_service.child import end_with_parent
from iris_worker.launcher.templates.memory_library import kernel_refusal
from iris_worker.launcher.templates.reuse import DIFFERS
from tests.support import warm
from tests.support.needs import needs
from tests.support.worker import forget_tokens

IRIS = (sys.executable, "-m", "iris.cli")
START_S = 120
STOP_S = 120
_LOOK_S = 0.02
Up = subprocess.Popen[bytes] | warm.Fork


@dataclass
class Ended:
    """How one command line ended."""

    code: int
    out: str
    err: str


class Cluster:
    """A cluster that is up: run command lines on it, find its processes, end some of them."""

    def __init__(self, data: Path, up: Up) -> None:
        self.data = data
        self.up = up
        self.url: str = self.file["url"]
        self.token = read_token(self.file["token_file"])
        """That of the cluster's owner; empty with ``--no-auth``."""
        self.client = Client(self.url, token=self.token)

    @property
    def environ(self) -> dict[str, str]:
        return {**environment(), "IRIS_URL": self.url, "IRIS_DATA": str(self.data)}

    @property
    def headers(self) -> dict[str, str]:
        """With which other programs than `iris` ask the gateway."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def file(self) -> dict[str, Any]:
        """``cluster.json`` as it is now."""
        return json.loads((self.data / "cluster.json").read_text())

    @property
    def nats_url(self) -> str:
        return str(self.file["nats_url"])

    def credentials(self, role: str = "admin", name: str = "") -> Credentials:
        """With which to reach the cluster's NATS server."""
        return Credentials(str(keys_of(self.data / "nats").path(login(role, name).label)))

    def iris(self, *words: object, timeout: float = 120, **environ: str) -> Ended:
        """Run `iris` to its end."""
        return iris(
            *words,
            timeout=timeout,
            **{"IRIS_URL": self.url, "IRIS_DATA": str(self.data), **environ},
        )

    def submit(self, *command: str, **options: Any) -> Job:
        """Submit through the SDK."""
        return self.client.run(command, **options)

    @property
    def host_cpu(self) -> float:
        """The cores of the smallest host."""
        return min(host.total["cpu_millis"] for host in self.client.workers()) / 1000

    def preempt(self, name: str, place: Path) -> None:
        """Have a more urgent job take all hosts at a time, and end. ``place``: a directory for its
        file.
        """
        hosts, go = len(list(self.client.workers())), place / f"{name}-go"
        command = ["sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done"]
        urgent = self.client.run(
            command, name=name, band="production", cpu=self.host_cpu, replicas=hosts
        )
        until(lambda: urgent.refresh().task_counts == {"running": hosts}, "it has all hosts", 120)
        go.touch()
        assert urgent.wait(60).state == "succeeded"

    def tasks(self, job: Job) -> list[TaskView]:
        return list(job.tasks())

    def pids(self, service: str) -> list[int]:
        return self.file["pids"].get(service, [])

    def pid_of_worker(self, worker: str) -> int:
        """The process of the worker of that id."""
        for pid in self.pids("worker"):
            with contextlib.suppress(psutil.NoSuchProcess):  # another worker that has just ended
                if f"worker.id={worker}" in psutil.Process(pid).cmdline():
                    return pid
        raise LookupError(worker)

    def kill(self, service: str) -> None:
        """kill -9 of every process of a service, and wait until it runs again under another
        number.
        """
        before = self.pids(service)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until(
            lambda: self.pids(service) and not set(self.pids(service)) & set(before),
            f"{service} runs again",
        )

    def kill_worker(self, worker: str) -> None:
        """kill -9 of one worker, which stays dead."""
        os.kill(self.pid_of_worker(worker), signal.SIGKILL)

    def processes(self) -> list[str]:
        """Every process on this machine that belongs to the cluster, tasks included, as command
        lines.
        """
        return [
            " ".join(process.info["cmdline"])
            for process in psutil.process_iter(["cmdline"])
            if self.owns(process)
        ]

    def owns(self, process: psutil.Process) -> bool:
        return owns(self.data, process)


def owns(data: Path, process: psutil.Process) -> bool:
    """Whether a process was started with the data directory in its command line or environment."""
    try:
        words = [*process.cmdline(), *process.environ().values()]
        return process.status() != psutil.STATUS_ZOMBIE and any(str(data) in word for word in words)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def iris(*words: object, timeout: float = 120, **environ: str) -> Ended:
    """Run `iris` to its end; without ``IRIS_URL`` it finds no cluster."""
    forks = words[:1] == ("up",)
    done = warm.run(
        "iris.cli", [*map(str, words)], {**environment(), **environ}, timeout, forks=forks
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def environment() -> dict[str, str]:
    """This process' own, without what would point at another cluster; a start that fails says so in
    time.
    """
    foreign = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
    return {**foreign, "IRIS_CLUSTER_READY_S": "100"}


def start(
    data: Path,
    *options: str,
    containers: str = "none",
    restored_calls: str = "",
    fresh: bool = False,
) -> Cluster:
    """A cluster on ``data``, ready to be used; it ends when this process does, however that ends.

    ``containers`` is the runtime of its workers, which they do not look for; ``restored_calls``, if
    any, their setting of that name. ``fresh``: an interpreter is started for each of its processes, as
    users do it.
    """
    data.parent.mkdir(parents=True, exist_ok=True)
    log = data.parent / f"{data.name}-up.log"
    words = ["up", "--data", str(data), "--http", "127.0.0.1:0", *_cores(options), *options]
    environ = {
        **environment(),
        "IRIS_WORKER_CONTAINER_RUNTIME": containers,
        **({"IRIS_WORKER_RESTORED_CALLS": restored_calls} if restored_calls else {}),
    }
    with log.open("wb") as errors:
        if fresh:
            given: dict[str, Any] = {
                "stdin": subprocess.DEVNULL,
                "stderr": errors,
                "preexec_fn": end_with_parent(),
            }
            up: Up = subprocess.Popen([*IRIS, *words], env=environ, **given)
        else:
            up = warm.start("iris.cli", words, environ, stderr=errors.fileno(), forks=True)
    until(
        lambda: b"dashboard" in log.read_bytes() or up.poll() is not None,
        "the cluster is up",
        START_S,
    )
    assert up.poll() is None, log.read_text()
    return Cluster(data, up)


def _cores(options: Sequence[str]) -> tuple[str, ...]:
    """Hosts of tests declare the same cores on every machine, unless a test says how many."""
    return () if "--worker-cpu" in options else ("--worker-cpu", "8")


def stop(cluster: Cluster) -> None:
    """Stop it and see that nothing is left."""
    cluster.client.close()
    done = cluster.iris("down", "--data", cluster.data, timeout=STOP_S)
    cluster.up.wait(STOP_S)
    assert done.code == 0, done.err
    assert cluster.processes() == []
    for data in (cluster.data / "workers").glob("*"):
        forget_tokens(data)


@contextmanager
def cluster_on(
    data: Path,
    *options: str,
    containers: str = "none",
    restored_calls: str = "",
    fresh: bool = False,
) -> Iterator[Cluster]:
    """A cluster for as long as the block lasts."""
    cluster = start(
        data, *options, containers=containers, restored_calls=restored_calls, fresh=fresh
    )
    try:
        yield cluster
    finally:
        stop(cluster)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all stories that leave it as they found it. Where calls of maps run there,
    each has a process of its own: it finds no compiler.
    """
    with cluster_on(tmp_path_factory.mktemp("cluster"), "--tpu", "v4-16x2") as running:
        yield running


@pytest.fixture(scope="session")
@needs("cc")
def restoring_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One whose processes of calls restore their memory, which is then compared with what it
    was.
    """
    data = tmp_path_factory.mktemp("restoring") / "data"
    with cluster_on(data, "--tpu", "v4-16x2", restored_calls="checked") as running:
        kinds = {worker.attributes["fresh-calls"] for worker in running.client.workers()}
        assert kinds == {"memory"} or kernel_refusal(), kinds
        yield running
    differences = _unrestored(data)
    assert not differences, differences


@pytest.fixture(params=["process", pytest.param("memory", marks=pytest.mark.needs("cc"))])
def map_cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of both in turn, for stories of maps."""
    name = {"process": "cluster", "memory": "restoring_cluster"}[request.param]
    found: Cluster = request.getfixturevalue(name)
    return found


def _unrestored(data: Path) -> list[str]:
    """What launchers have logged of calls after which memory was another one."""
    logs = (data / "log").glob("*.log")
    lines = (line for log in logs for line in log.read_text(errors="replace").splitlines())
    return [line for line in lines if DIFFERS in line]


def settings(data: Path, text: str) -> tuple[str, str]:
    """Options that make a cluster read this `iris.toml`."""
    data.mkdir(parents=True, exist_ok=True)
    path = data / "iris.toml"
    path.write_text(text)
    return "--config", str(path)


def until(
    condition: Callable[[], Any], what: str, seconds: float = 60, look_s: float = _LOOK_S
) -> Any:
    """What ``condition`` returns as soon as that is true. Fails when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {seconds:g} s: {what}")
        time.sleep(look_s)


def is_served(cluster: Cluster, deployment: str) -> bool:
    """Whether the proxy has read the routes of a deployment, and one answers."""
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(f"{cluster.file['proxy_url']}/d/{deployment}/", timeout=60).close()
        return True
    return False


Heard = list[dict[str, Any]]


def expect_worker(data: Path, name: str) -> None:
    """Make the key of a worker that `iris up` does not start; the cluster that starts on ``data``
    lets it in.
    """
    keys_of(data / "nats").ensure([login("worker", name).label])


async def heard(
    cluster: Cluster, subject: str, play: Callable[[], Any], enough: Callable[[Heard], bool]
) -> Heard:
    """What a plain NATS subscriber hears on ``subject`` while ``play`` runs, until it has heard
    ``enough``.
    """
    import nats

    events: Heard = []
    done = asyncio.Event()

    async def hear(message: Any) -> None:
        events.append(
            {
                **json.loads(message.data),
                "subject": message.subject,
                "headers": dict(message.headers or {}),
            }
        )
        if enough(events):
            done.set()

    client = await nats.connect(
        cluster.nats_url, nkeys_seed=cluster.credentials("observer", OBSERVER).nkey_seed
    )
    try:
        await client.subscribe(subject, cb=hear)
        await client.flush()
        await asyncio.to_thread(play)
        async with asyncio.timeout(60):
            await done.wait()
        await client.flush()
    finally:
        await client.close()
    return events
