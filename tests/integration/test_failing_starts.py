"""A host on which every start fails gets no tasks until one works, with real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iris import Job
from tests.support.cluster import Cluster, cluster_on, settings, until

pytestmark = pytest.mark.integration

QUICK = """
[state]
heartbeat_interval_s = 0.3
avoid_s = 0.1
[worker]
heartbeat_interval_s = 0.3
failed_starts_retry_s = 0.3
"""
FAILED = "starts in a row failed: [Errno 20] Not a directory"


class Host:
    """One of a cluster, which can be broken: then nothing has a directory there."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._attempts = cluster.data / "workers" / name / "attempts"
        self._away = self._attempts.with_name("away")

    def break_(self) -> None:
        self._attempts.rename(self._away)
        self._attempts.symlink_to(os.devnull)

    def repair(self) -> None:
        """At once: a trial that found nothing would make a directory."""
        link = self._attempts.with_name("link")
        link.symlink_to(self._away)
        link.replace(self._attempts)

    def is_degraded(self) -> bool:
        found = self._cluster.client.get(f"/v1/workers/{self.name}", dict)
        return found["state"] == "degraded" and FAILED in found["detail"]

    def is_healthy(self) -> bool:
        return bool(
            self._cluster.client.get(f"/v1/workers/{self.name}", dict)["state"] == "healthy"
        )


def is_told(job: Job, *words: str) -> bool:
    """Whether the reason why a job waits has these words."""
    reason = job.refresh().pending_reason
    return reason is not None and all(one in reason.message for one in words)


def test_a_host_on_which_starts_fail_gets_no_tasks(tmp_path: Path) -> None:
    data, go, begun = tmp_path / "data", tmp_path / "go", tmp_path / "begun"
    with cluster_on(data, "--workers", "2", *settings(data, QUICK)) as cluster:
        good, bad = Host(cluster, "worker-0"), Host(cluster, "worker-1")
        bad.break_()
        job = cluster.submit("true", replicas=300, cpu=1, max_retries_preemption=100)
        assert job.wait(120).state == "succeeded"
        until(bad.is_degraded, "it says that starts fail")
        assert sum(task.preemption_count for task in job.tasks()) <= 60
        running = cluster.submit(
            *("sh", "-c", f"touch {begun}; until [ -e {go} ]; do sleep 0.02; done"), name="running"
        )
        until(begun.exists, "its process runs")
        assert [task.worker for task in running.tasks()] == ["worker-0"]

        good.break_()
        waits = cluster.submit("true", replicas=4, cpu=1)
        until(lambda: good.is_degraded() and bad.is_degraded(), "starts fail on both")
        until(
            lambda: is_told(waits, "2 degraded; worker-0 is degraded: ", FAILED),
            "it is told why it waits",
        )
        assert running.refresh().state == "running"
        good.repair()
        assert waits.wait(60).state == "succeeded"
        assert {task.worker for task in waits.tasks()} == {"worker-0"}
        go.touch()
        assert running.wait(60).state == "succeeded"
        bad.repair()
        until(bad.is_healthy, "a trial start has succeeded")


def test_gangs_and_routes_come_up_beside_a_host_on_which_starts_fail(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with cluster_on(data, "--workers", "3", *settings(data, QUICK)) as cluster:
        bad = Host(cluster, "worker-1")
        bad.break_()
        gang = cluster.submit("true", name="gang", replicas=2, group_by="os")
        serve = ["sh", "-c", "exec python3 -m http.server $IRIS_PORT_HTTP"]
        served = cluster.client.deploy(serve, "web", replicas=2, probe_path="/", min_ready=0)
        assert gang.wait(60).state == "succeeded"
        assert "worker-1" not in {task.worker for task in gang.tasks()}
        served.wait_ready(60)
        routes = list(served.routes())
        assert {route.worker for route in routes if route.discovered} == {"worker-0", "worker-2"}
        assert [route.worker for route in routes if not route.discovered] in ([], ["worker-1"])
        bad.repair()
