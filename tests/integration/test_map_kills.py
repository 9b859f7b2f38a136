"""What runs a map is killed while calls wait behind one that runs: each call ends once, and no
result is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import Cluster, cluster_on, settings, until
from tests.support.worker import launchers_of

pytestmark = pytest.mark.integration
WITHIN_S = 60
HELD, CALLS = 15, 40


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one worker with 8 cores."""
    data = tmp_path_factory.mktemp("kills") / "data"
    with cluster_on(
        data, "--workers", "1", *settings(data, "[cluster]\nrestart_workers = true\n")
    ) as running:
        yield running


def launcher(cluster: Cluster) -> psutil.Process:
    [pid] = launchers_of(cluster.data / "workers" / "worker-0")
    return psutil.Process(pid)


def kill_worker(cluster: Cluster, _: int) -> None:
    cluster.kill("worker")


def kill_launcher(cluster: Cluster, _: int) -> None:
    """Its worker ends with it, and the next one starts another."""
    before = cluster.pids("worker")
    launcher(cluster).kill()
    until(
        lambda: cluster.pids("worker") and cluster.pids("worker") != before, "another worker runs"
    )


def kill_templates(cluster: Cluster, held: int) -> None:
    """That of the job, and the bare one that it was made from."""
    killed = 0
    for one in launcher(cluster).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if one.pid != held and "-I" in one.cmdline():
                one.kill()
                killed += 1
    assert killed >= 2


@pytest.mark.parametrize("reuse", [1, 100])
@pytest.mark.parametrize("kill", [kill_worker, kill_launcher, kill_templates])
def test_each_call_ends_once(
    one_host: Cluster, tmp_path: Path, kill: Callable[[Cluster, int], None], reuse: int
):
    gate, runs = tmp_path / "gate", tmp_path / "runs"

    def call(number: int, held: int) -> int:
        import time

        with open(runs, "a") as file:
            file.write(f"{number} {os.environ['IRIS_ATTEMPT']} {os.getpid()}\n")
        while number == held and not os.path.exists(gate):
            time.sleep(0.01)
        return number * number

    def begun() -> list[tuple[int, int, int]]:
        """Number, attempt and process of each call that was begun."""
        lines = runs.read_text().splitlines() if runs.exists() else []
        return [
            (int(number), int(attempt), int(pid)) for number, attempt, pid in map(str.split, lines)
        ]

    name = f"m-{kill.__name__.replace('_', '-')}-{reuse}"
    options = {"cpu": 8, "reuse": reuse, "max_retries_preemption": 100, "name": name}
    mapped = one_host.client.map(call, range(CALLS), kwargs={"held": HELD}, **options)
    [pid] = until(
        lambda: [pid for number, _, pid in begun() if number == HELD],
        "the call that is held runs",
        WITHIN_S,
    )
    kill(one_host, pid)
    gate.touch()
    assert mapped.results(WITHIN_S) == [number * number for number in range(CALLS)]
    mapped.job.wait(WITHIN_S)
    attempts = Counter((number, attempt) for number, attempt, _ in begun())
    assert max(attempts.values()) == 1
    assert {number for number, _ in attempts} == set(range(CALLS))
    if (
        kill is not kill_launcher
    ):  # nobody knows the exit of a process whose parent was killed, so it runs again
        assert len(attempts) == CALLS
    made = one_host.client.get(f"/v1/jobs/{mapped.job.id}/tasks?limit=100", dict)["items"]
    assert {task["state"] for task in made} == {"succeeded"}
    ended = [[one["state"] for one in task["attempts"]].count("succeeded") for task in made]
    assert ended == [1] * CALLS
