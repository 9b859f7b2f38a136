"""Coscheduled jobs with real processes: placed on one slice, started together, ended together."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from iris import Job
from iris_core.views.jobs import TaskView
from tests.support.cluster import Cluster, cluster_on, settings, until
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration

TWO_SLICES = ("--workers", "0", "--tpu", "v4-16x2")
IMPATIENT = """
[state]
order_timeout_s = 2.0
order_retry_s = 0.1
prepare_tries = 2
worker_grace_s = 60.0
"""

SHORT_GRACE = """
[state]
heartbeat_interval_s = 0.5
worker_grace_s = 10.0
[worker]
heartbeat_interval_s = 0.5
"""


def gang(cluster: Cluster, name: str, script: str, **options: Any) -> Job:
    """A job that needs both hosts of one v4-16 slice."""
    options = {"tpu": "v4-16", "cpu": 0.1, **options}
    return cluster.submit("sh", "-c", script, name=name, **options)


def slices(cluster: Cluster, job: Job) -> set[Any]:
    """The slices on which a job's last attempts were."""
    names = {worker.id: worker.attributes["tpu-name"] for worker in cluster.client.workers()}
    return {names[task.attempts[-1].worker] for task in job.tasks()}


def history(cluster: Cluster, job: Job) -> list[tuple[str, str, str]]:
    rows = cluster.client.pages(f"/v1/jobs/{job.id}/history", dict)
    return [(row["handler"], row["result"], row["to"]) for row in rows]


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cluster of two slices that stories leave as they found it."""
    with cluster_on(tmp_path_factory.mktemp("pod") / "data", *TWO_SLICES) as running:
        yield running


def test_a_gang_runs_on_one_slice_by_worker_id_and_knows_its_members(pod: Cluster) -> None:
    job = gang(
        pod, "together", "echo $IRIS_TASK_INDEX $TPU_WORKER_ID $JAX_PROCESS_ID/$JAX_NUM_PROCESSES"
    )
    ended = job.wait(60)
    order = {worker.id: worker.attributes["tpu-worker-id"] for worker in pod.client.workers()}

    assert (ended.state, ended.replicas, len(slices(pod, job))) == ("succeeded", 2, 1)
    assert [order[task.attempts[-1].worker] for task in job.tasks()] == [0, 1]
    assert sorted(line.line for line in job.logs()) == ["0 0 0/2", "1 1 1/2"]


def test_two_gangs_take_a_slice_each_and_the_third_waits_and_says_why(
    pod: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.05; done"
    first, second = gang(pod, "one", script), gang(pod, "two", script)
    until(lambda: {first.refresh().state, second.refresh().state} == {"running"}, "two gangs run")
    third = gang(pod, "three", "true")
    reason = until(
        lambda: (r := third.refresh().pending_reason) and r.code != "not_yet_looked_at" and r,
        "a reason is told",
    )
    gate.touch()
    ended = [job.wait(60).state for job in (first, second, third)]

    assert ended == ["succeeded"] * 3
    assert slices(pod, first).isdisjoint(slices(pod, second))
    assert reason.code == "gang_needs_group"
    assert "2" in reason.message


def test_a_member_that_is_killed_ends_the_gang(pod: Cluster, tmp_path: Path) -> None:
    job = gang(pod, "fragile", f"echo $$ > {tmp_path}/$IRIS_TASK_INDEX; exec sleep 1000")
    pids = [tmp_path / "0", tmp_path / "1"]
    until(lambda: all(pid.exists() and pid.read_text() for pid in pids), "both members run")
    os.kill(int(pids[0].read_text()), signal.SIGKILL)
    ended = job.wait(60)
    culprit, sibling = job.tasks()

    assert ended.state == "failed"
    assert (culprit.state, culprit.attempts[0].signal) == ("failed", signal.SIGKILL)
    assert (sibling.state, sibling.attempts[0].cause) == ("worker_failed", "coscheduled_sibling")
    until(
        lambda: not Path(f"/proc/{int(pids[1].read_text())}").exists(),
        "the sibling's process has ended",
    )


def test_a_member_with_a_retry_left_brings_the_whole_gang_back(
    pod: Cluster, tmp_path: Path
) -> None:
    script = f"""
        echo $IRIS_TASK_INDEX.$IRIS_ATTEMPT >> {tmp_path}/runs
        [ $IRIS_ATTEMPT = 1 ] && exit 0
        [ $IRIS_TASK_INDEX = 1 ] && until grep -q 0.0 {tmp_path}/runs; do sleep 0.05; done
        [ $IRIS_TASK_INDEX = 1 ] && exit 9
        exec sleep 1000"""
    job = gang(pod, "again", script, max_retries_failure=1)
    ended = job.wait(60)
    sibling, culprit = job.tasks()

    assert ended.state == "succeeded"
    assert sorted((tmp_path / "runs").read_text().split()) == ["0.0", "0.1", "1.0", "1.1"]
    assert (culprit.failure_count, culprit.attempts[0].charged_to) == (1, "failure")
    assert (sibling.failure_count, sibling.preemption_count) == (0, 0)
    assert (sibling.attempts[0].cause, sibling.attempts[0].charged_to) == (
        "coscheduled_restart",
        None,
    )
    assert len(slices(pod, job)) == 1


def test_a_gang_succeeds_with_its_leader_and_the_others_are_stopped(
    pod: Cluster, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    waits = f"until [ -s {pid} ]; do sleep 0.05; done"
    script = f"[ $IRIS_TASK_INDEX = 0 ] && {{ {waits}; exit 0; }}; echo $$ > {pid}; exec sleep 1000"
    job = gang(pod, "led", script, success="leader")
    ended = job.wait(60)
    leader, other = job.tasks()

    assert (ended.state, leader.state, other.state) == ("succeeded", "succeeded", "succeeded")
    assert (leader.cause, other.cause, other.attempts[0].charged_to) == (
        "exited",
        "leader_done",
        None,
    )
    until(
        lambda: not Path(f"/proc/{int(pid.read_text())}").exists(), "the other's process has ended"
    )


def test_a_gang_that_no_slice_can_hold_is_accepted_and_waits(pod: Cluster) -> None:
    job = gang(pod, "huge", "true", tpu="v4-64")
    reason = until(
        lambda: (r := job.refresh().pending_reason) and r.code != "not_yet_looked_at" and r,
        "a reason is told",
    )
    pod.client.cancel(job.name)

    assert job.wait(60).state == "killed"
    assert reason.code in ("gang_needs_group", "no_match")


def test_nobody_starts_before_every_member_is_prepared(pod: Cluster, tmp_path: Path) -> None:
    slow = [pod.pid_of_worker(f"slice-{number}-w1") for number in range(2)]
    for pid in slow:
        suspend(pid)
    try:
        job = gang(pod, "barrier", f"echo $IRIS_TASK_INDEX >> {tmp_path}/started")
        first = until(
            lambda: (
                (task := next(iter(job.tasks()))).attempts
                and task.attempts[0].stage == "prepared"
                and task
            ),
            "the quick host is prepared",
        )
        assert (first.state, (tmp_path / "started").exists()) == ("building", False)
    finally:
        for pid in slow:
            os.kill(pid, signal.SIGCONT)
    ended = job.wait(60)

    assert ended.state == "succeeded"
    assert sorted((tmp_path / "started").read_text().split()) == ["0", "1"]
    steps = [to for _, result, to in history(pod, job) if result == "SUCCESS"]
    assert steps == [
        "scheduled",
        "preparing",
        "prepared",
        "creating",
        "running",
        "terminating",
        "terminated",
    ]


def test_a_host_that_never_answers_is_given_up_and_runs_nothing_later(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with cluster_on(data, *TWO_SLICES, *settings(data, IMPATIENT)) as cluster:
        asleep = cluster.pid_of_worker("slice-0-w1")
        suspend(asleep)
        try:
            job = gang(
                cluster, "elsewhere", f"echo $IRIS_WORKER_ID.$IRIS_ATTEMPT >> {tmp_path}/ran"
            )
            ended = job.wait(60)
        finally:
            os.kill(asleep, signal.SIGCONT)
        until(
            lambda: all(not attempt.open for task in job.tasks() for attempt in task.attempts),
            "every end is known",
        )
        results = [
            result for handler, result, _ in history(cluster, job) if handler == "PrepareSessions"
        ]

        assert ended.state == "succeeded"
        assert slices(cluster, job) == {"slice-1"}
        assert ({"NEED_RETRY", "GIVE_UP"} <= set(results), results[-1]) == (True, "SUCCESS")
        assert all(line.startswith("slice-1-w") for line in (tmp_path / "ran").read_text().split())


def test_members_that_were_done_run_again_when_another_loses_its_host(tmp_path: Path) -> None:
    data = tmp_path / "data"
    script = f"""
        echo $IRIS_TASK_INDEX.$IRIS_ATTEMPT >> {tmp_path}/runs
        [ $IRIS_TASK_INDEX.$IRIS_ATTEMPT = 2.0 ] && exec sleep 1000
        exit 0"""

    def exit_of(task: TaskView) -> int | None:
        return task.attempts[-1].exit_code if task.attempts else None

    with cluster_on(data, "--workers", "4", *settings(data, SHORT_GRACE)) as cluster:
        job = cluster.submit(
            "sh", "-c", script, name="three", replicas=3, group_by="hostname", cpu=0.1
        )
        waiting = until(
            lambda: (
                (now := list(job.tasks()))
                and [exit_of(task) for task in now] == [0, 0, None]
                and now[2].state == "running"
                and now
            ),
            "two members are done and the third runs",
        )
        cluster.kill_worker(waiting[2].worker)
        ended = job.wait(60)
        tasks = list(job.tasks())

    assert [(task.state, bool(task.note)) for task in waiting] == [("running", True)] * 2 + [
        ("running", False)
    ]
    assert (ended.state, [task.state for task in tasks]) == ("succeeded", ["succeeded"] * 3)
    assert [task.preemption_count for task in tasks] == [0, 0, 1]
    assert sorted((tmp_path / "runs").read_text().split()) == [
        f"{n}.{again}" for n in range(3) for again in range(2)
    ]
