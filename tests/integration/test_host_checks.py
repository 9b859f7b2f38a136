"""A host whose check fails gets no tasks, and what fails there is not charged to tasks, with real
processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iris import Job
from tests.support.cluster import Cluster, cluster_on, settings, until

pytestmark = pytest.mark.integration

SCRIPT = """
echo looking at the devices
[ ! -e {where}/$IRIS_WORKER_ID.broken ] || {{ echo GPU 3 is gone >&2; echo; exit 1; }}
"""
QUICK = """
[state]
heartbeat_interval_s = 0.3
avoid_s = 0.1
[worker]
heartbeat_interval_s = 0.3
[worker.check]
command = ["sh", "{where}/check"]
interval_s = 0.3
when = ["start", "after_failure", "before_gang"]
"""
REASON = "host check failed: GPU 3 is gone"


class Host:
    """One of a cluster, whose check can be made to fail."""

    def __init__(self, cluster: Cluster, where: Path, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._broken = where / f"{name}.broken"

    def break_(self) -> None:
        self._broken.touch()

    def repair(self) -> None:
        self._broken.unlink()
        until(lambda: self._state() == ("healthy", ""), "its check passes")

    def is_degraded(self) -> bool:
        return self._state() == ("degraded", REASON)

    def _state(self) -> tuple[str, str]:
        found = self._cluster.client.get(f"/v1/workers/{self.name}", dict)
        return found["state"], found["detail"]


Hosts = tuple[Cluster, Host, Host]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A cluster of two, whose checks have passed once."""
    data, where = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("where")
    (where / "check").write_text(SCRIPT.format(where=where))
    with cluster_on(data, "--workers", "2", *settings(data, QUICK.format(where=where))) as cluster:
        first, second = (Host(cluster, where, name) for name in ("worker-0", "worker-1"))
        until(
            lambda: {host.state for host in cluster.client.workers()} == {"healthy"},
            "both checks have passed",
        )
        yield cluster, first, second


def is_told(job: Job, *words: str) -> bool:
    """Whether the reason why a job waits has these words."""
    reason = job.refresh().pending_reason
    return reason is not None and all(one in reason.message for one in words)


def test_failures_on_a_well_host_are_charged_to_tasks(hosts: Hosts) -> None:
    cluster, *_ = hosts
    job = cluster.submit("false", replicas=100, cpu=1, max_task_failures=1000)
    assert job.wait(120).state == "failed"
    assert {(task.state, task.failure_count, task.preemption_count) for task in job.tasks()} == {
        ("failed", 1, 0)
    }


def test_a_gang_is_not_started_on_a_host_whose_check_fails(hosts: Hosts, tmp_path: Path) -> None:
    cluster, _, second = hosts
    ran = tmp_path / "ran"
    second.break_()
    gang = cluster.submit(
        "sh", "-c", f"echo ran >> {ran}", replicas=2, group_by="arch", cpu=cluster.host_cpu
    )
    until(second.is_degraded, "it was checked before the gang was started")
    assert not ran.exists()
    second.repair()
    assert gang.wait(60).state == "succeeded"


def test_a_host_whose_check_fails_gets_no_tasks(hosts: Hosts, tmp_path: Path) -> None:
    cluster, first, second = hosts
    go = tmp_path / "go"
    running = cluster.submit(
        "sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done", name="running", cpu=0.1
    )
    until(lambda: running.refresh().state == "running", "it runs")
    [at] = [task.worker for task in running.tasks()]
    bad, good = (first, second) if at == first.name else (second, first)
    bad.break_()
    program = f"[ $IRIS_WORKER_ID = {good.name} ]"
    failing = cluster.submit("sh", "-c", program, replicas=8, cpu=0.1, max_retries_preemption=100)
    assert failing.wait(60).state == "succeeded"
    until(bad.is_degraded, "it was checked after a failure")
    assert {task.failure_count for task in failing.tasks()} == {0}
    ended = {
        (one.cause, one.error)
        for task in failing.tasks()
        for one in task.attempts
        if one.worker == bad.name
    }
    assert ended == {("infrastructure", f"{REASON}; the task ended with exit code 1")}

    good.break_()
    assert (
        cluster.submit("false", name="lost", max_retries_preemption=0).wait(60).state
        == "worker_failed"
    )
    until(good.is_degraded, "it was checked after a failure")
    waits = cluster.submit("true", cpu=0.1)
    until(lambda: is_told(waits, "2 degraded; worker-", REASON), "it is told why it waits")
    assert running.refresh().state == "running"
    good.repair()
    assert waits.wait(60).state == "succeeded"
    go.touch()
    assert running.wait(60).state == "succeeded"
    bad.repair()
