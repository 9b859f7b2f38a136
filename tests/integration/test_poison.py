"""A task that kills its worker kills three of them at most; a task adopted by a restarted worker
goes on.
"""

from __future__ import annotations

import pytest

from tests.support.cluster import cluster_on, settings, until

pytestmark = pytest.mark.integration

GIVEN_UP_SOON = """
[state]
missed_heartbeats = 1
worker_grace_s = 5
[worker]
heartbeat_interval_s = 0.5
"""
RESTARTED = """
[cluster]
restart_workers = true
"""


@pytest.mark.soak
def test_a_task_that_kills_three_workers_ends_and_other_work_goes_on(tmp_path):
    data = tmp_path / "data"
    with cluster_on(data, "--workers", "4", *settings(data, GIVEN_UP_SOON)) as cluster:
        bad = cluster.submit("sh", "-c", "kill -9 $PPID", name="bad", max_retries_preemption=100)
        ended = bad.wait(120)
        (task,) = bad.tasks()
        workers = [attempt.worker for attempt in task.attempts]
        left = [worker.id for worker in cluster.client.workers() if worker.state == "healthy"]

        assert (ended.state, [attempt.cause for attempt in task.attempts]) == (
            "worker_failed",
            ["worker_lost"] * 3,
        )
        assert (len(set(workers)), len(left), set(workers) & set(left)) == (3, 1, set())
        assert "3 workers died within 120 s of starting it" in task.error
        assert cluster.submit("true", name="other", replicas=4).wait(60).state == "succeeded"


def test_a_task_that_kills_its_worker_and_lives_goes_on_under_the_next(tmp_path):
    data, shoot, gate = tmp_path / "data", tmp_path / "shoot", tmp_path / "gate"
    until_exists = "until [ -e {} ]; do sleep 0.05; done"
    script = f"{until_exists.format(shoot)}; kill -9 $PPID; {until_exists.format(gate)}; echo done"
    with cluster_on(data, "--workers", "1", *settings(data, RESTARTED)) as cluster:
        job = cluster.submit("sh", "-c", script, name="lives")
        until(
            lambda: [task.state for task in job.tasks()] == ["running"],
            "its worker has it on record",
        )
        before = cluster.pids("worker")
        shoot.touch()
        until(lambda: cluster.pids("worker") not in (before, []), "another worker has started")
        gate.touch()

        assert (job.wait(60).state, [line.line for line in job.logs()]) == ("succeeded", ["done"])
        assert [len(task.attempts) for task in job.tasks()] == [1]
