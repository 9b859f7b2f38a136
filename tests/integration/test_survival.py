"""kill -9 of any service during work: nothing is lost or run twice, and every task ends once."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import psutil
import pytest

from tests.support.cluster import Cluster, cluster_on, settings, until

pytestmark = pytest.mark.integration

TASKS = 200
QUICK = """
[state]
heartbeat_interval_s = 0.3
worker_grace_s = 5.0
[worker]
heartbeat_interval_s = 0.3
"""


def terminal_events(cluster: Cluster, job: str) -> collections.Counter[str]:
    """How often each task was told to have ended."""
    query = {"type": "task", "within": job}
    events = cluster.client.pages("/v1/events", dict, query)
    return collections.Counter(
        event["task"] for event in events if event["state"] in ("succeeded", "failed", "killed")
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("survival"), "--workers", "2") as running:
        yield running


@pytest.mark.parametrize("service", ["state", "scheduler", "gateway", "nats"])
def test_a_killed_service_loses_nothing_and_repeats_nothing(cluster, tmp_path, service):
    name, runs = f"/many-{service}", tmp_path / "runs"
    script = f"echo $IRIS_TASK_INDEX >> {runs}; sleep 0.05"
    job = cluster.submit("sh", "-c", script, name=name, replicas=TASKS, cpu=0.5)
    until(lambda: runs.exists() and len(runs.read_text().split()) > TASKS // 10, "some have run")
    cluster.kill(service)
    ended = job.wait(60)

    assert (ended.state, ended.task_counts) == ("succeeded", {"succeeded": TASKS})
    assert sorted(map(int, runs.read_text().split())) == list(range(TASKS))
    until(lambda: len(terminal_events(cluster, name)) == TASKS, "every end was told")
    assert terminal_events(cluster, name) == {f"{name}/{index}": 1 for index in range(TASKS)}
    begun = [[attempt for attempt in task.attempts if attempt.started_at] for task in job.tasks()]
    assert {len(attempts) for attempts in begun} == {
        1
    }  # an order of before may have found nobody who listens


def test_a_dead_host_runs_nothing_and_its_tasks_move_after_the_grace(tmp_path):
    data = tmp_path / "data"
    with cluster_on(data, "--workers", "2", *settings(data, QUICK)) as cluster:
        script = f"echo $$ >> {tmp_path}/pids; [ $IRIS_ATTEMPT -gt 0 ] || sleep 1000"
        job = cluster.submit("sh", "-c", script, name="move")
        pids = tmp_path / "pids"
        until(lambda: pids.exists() and pids.read_text().strip(), "its command has begun")
        until(lambda: next(iter(job.tasks())).state == "running", "state was told that it runs")
        first = next(iter(job.tasks())).worker
        orphan = int(pids.read_text().split()[0])
        cluster.kill_worker(first)
        until(lambda: not psutil.pid_exists(orphan), "what it ran has ended with it", 60)
        ended = job.wait(60)
        task = next(iter(job.tasks()))

        assert ended.state == "succeeded"
        assert [(attempt.cause, attempt.charged_to) for attempt in task.attempts] == [
            ("worker_lost", "preemption"),
            ("exited", None),
        ]
        assert task.attempts[1].worker != first
        assert {worker.id: worker.state for worker in cluster.client.workers()}[first] == "lost"


def test_a_run_that_is_watched_survives_a_restart_of_the_gateway(cluster, tmp_path):
    gate = tmp_path / "gate"
    script = f"echo before; until [ -e {gate} ]; do sleep 0.05; done; echo after"
    job = cluster.submit("sh", "-c", script, name="watched")
    lines = job.logs()
    first = next(lines).line
    cluster.kill("gateway")
    gate.touch()

    assert [first, *(line.line for line in lines)] == ["before", "after"]
    assert job.wait(60).state == "succeeded"
