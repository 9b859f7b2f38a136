"""Queue order, preemption and pending reasons with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster_on, environment, expect_worker, until
from tests.support.worker import UNCONFINED

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One host with one core, left as it was found."""
    options = ("--workers", "1", "--worker-cpu", "1")
    data = tmp_path_factory.mktemp("small") / "data"
    expect_worker(data, "tainted")
    with cluster_on(data, *options) as running:
        yield running


@contextmanager
def another_host(cluster: Cluster, data: Path, *settings: str) -> Iterator[None]:
    """A worker process that `iris up` did not start."""
    seed = cluster.credentials("worker", "tainted").nkey_seed
    given = [
        f"nats.url={cluster.nats_url}",
        f"nats.nkey_seed={seed}",
        f"worker.data={data}",
        *settings,
    ]
    given += [f"worker.{key}={value}" for key, value in UNCONFINED.items()]
    command = [
        sys.executable,
        "-m",
        "iris_worker",
        *(word for setting in given for word in ("--set", setting)),
    ]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_production_evicts_batch_and_starts_after_the_victim_has_stopped(
    small: Cluster, tmp_path: Path
) -> None:
    log, ready = tmp_path / "log", tmp_path / "ready"
    victim = small.submit(
        "sh",
        "-c",
        f"trap 'sleep 0.4; echo stopped >> {log}; exit 1' TERM; sleep 1000 & touch {ready}; wait",
        name="victim",
        band="batch",
    )
    until(
        lambda: ready.exists() and next(iter(victim.tasks())).state == "running", "the victim runs"
    )
    urgent = small.submit("sh", "-c", f"echo urgent >> {log}", name="urgent", band="production")
    ended = urgent.wait(60)
    task = next(iter(victim.tasks()))
    small.client.cancel(victim.name)

    assert ended.state == "succeeded"
    assert log.read_text().split()[:2] == ["stopped", "urgent"]
    assert (task.attempts[0].state, task.attempts[0].cause) == ("preempted", "preempted")
    assert (task.preemption_count, task.attempts[0].charged_to, task.attempts[0].initiator) == (
        1,
        "preemption",
        "scheduler",
    )
    assert victim.wait(60).state == "killed"


def test_what_borrows_gives_way_to_a_guarantee_and_runs_again_uncharged(
    small: Cluster, tmp_path: Path
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    small.client.set_project("lender", guarantee={"cpu": 1}, members=["me"])
    small.client.set_project("borrower", members=["me"])
    borrows = small.submit(
        "sh",
        "-c",
        f"trap 'echo stopped >> {log}; exit 1' TERM; "
        f"until [ -e {gate} ]; do sleep 0.05; done; echo again >> {log}",
        name="borrows",
        project="/borrower",
    )
    until(lambda: next(iter(borrows.tasks())).state == "running", "what borrows runs")
    shown = small.client.project("/borrower")
    near = small.submit(
        "sh", "-c", f"echo near >> {log}; touch {gate}", name="near", project="/lender"
    )
    ended = near.wait(60)
    again = borrows.wait(60)
    task = next(iter(borrows.tasks()))
    small.client.remove_project("lender")
    small.client.remove_project("borrower")

    assert shown.borrowed["cpu_millis"] == 1000
    assert (ended.state, again.state) == ("succeeded", "succeeded")
    assert log.read_text().split()[-2:] == ["near", "again"]
    assert (task.attempts[0].state, task.attempts[0].cause) == ("preempted", "reclaimed")
    assert task.attempts[0].error == "reclaimed by /lender for /near"
    assert (task.reclaim_count, task.preemption_count, task.failure_count) == (1, 0, 0)


def test_a_deep_child_goes_before_an_older_root(small: Cluster, tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    parent = small.submit("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done", name="tree")
    until(lambda: parent.refresh().state == "running", "the parent runs")
    older = small.submit("sh", "-c", f"echo older >> {log}", name="older")
    child = small.submit("sh", "-c", f"echo child >> {log}", name="/tree/child")
    queue = [row["job"] for row in small.client.pages("/v1/queue", dict)]
    small.client.run(["true"], name="filler", cpu=0.0).wait(60)
    held = [older.refresh().state, child.refresh().state]
    gate.touch()
    ended = [job.wait(60).state for job in (parent, older)]

    assert queue == ["/tree/child", "/older"]
    assert held == ["pending", "pending"]
    assert ended == ["succeeded", "succeeded"]
    assert child.wait(60).state in ("succeeded", "killed")
    assert log.read_text().split()[0] == "child"


def test_what_is_not_placed_in_time_is_unschedulable(small: Cluster) -> None:
    job = small.submit("true", name="hasty", cpu=64, replicas=2, scheduling_timeout=0.5)
    ended = job.wait(60)

    assert ended.state == "unschedulable"
    assert {task.state for task in job.tasks()} <= {"unschedulable", "killed"}
    assert "within 0.5 s" in (ended.error or "")


def test_a_task_that_runs_too_long_is_killed(small: Cluster) -> None:
    job = small.submit("sleep", "1000", name="slow", timeout=0.5)
    ended = job.wait(60)
    task = next(iter(job.tasks()))

    assert (ended.state, task.state, task.attempts[0].cause) == ("killed", "killed", "timeout")


def test_a_tainted_host_runs_only_what_tolerates_it(small: Cluster, tmp_path: Path) -> None:
    settings = (
        "worker.id=tainted",
        "worker.cpu_millis=4000",
        "worker.attributes=taint:maintenance=yes",
    )
    with another_host(small, tmp_path / "tainted", *settings):
        until(
            lambda: any(w.id == "tainted" and w.state == "healthy" for w in small.client.workers()),
            "it is there",
        )
        repelled = small.submit("true", name="repelled", cpu=2)
        tolerant = small.submit("true", name="tolerant", cpu=2, constraints=["taint:maintenance"])
        ended = tolerant.wait(60)
        reason = until(
            lambda: (
                (r := repelled.refresh().pending_reason) and r.code != "not_yet_looked_at" and r
            ),
            "a reason is told",
        )
        small.client.cancel(repelled.name)

    assert ended.state == "succeeded"
    assert next(iter(tolerant.tasks())).attempts[0].worker == "tainted"
    assert reason.code in ("no_match", "not_enough_cpu")


def test_a_drained_host_gets_nothing_until_it_is_undrained(small: Cluster) -> None:
    worker = "worker-0"
    drained = small.iris("worker", "drain", worker)
    job = small.submit("true", name="patient")
    waiting = until(
        lambda: (r := job.refresh().pending_reason) and r.code != "not_yet_looked_at" and job.state,
        "a reason is told",
    )
    undrained = small.iris("worker", "undrain", worker)

    assert (drained.code, undrained.code, waiting) == (0, 0, "pending")
    assert job.wait(60).state == "succeeded"


def test_the_plan_says_what_the_next_cycle_does(small: Cluster) -> None:
    now = small.iris("plan", "--", "true")
    never = small.iris("plan", "--cpu", "512", "--", "true")
    jobs = [job.name for job in small.client.jobs() if job.state == "pending"]

    assert (now.code, never.code) == (0, 13)
    assert jobs == []


def test_the_owner_of_a_quota_goes_behind_everyone_else(small: Cluster, tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    assert small.iris("quota", "set", "greedy", "--max-running-cpu", "0.5").code == 0
    first = small.submit(
        "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done", name="g1", user="greedy", cpu=1
    )
    until(lambda: first.refresh().state == "running", "it runs")
    second = small.submit("sh", "-c", f"echo greedy >> {log}", name="g2", user="greedy", cpu=1)
    modest = small.submit("sh", "-c", f"echo modest >> {log}", name="m1", user="modest", cpu=1)
    gate.touch()
    ended = [job.wait(60).state for job in (first, second, modest)]

    assert ended == ["succeeded"] * 3
    assert sorted(log.read_text().split()) == ["greedy", "modest"]


def test_no_process_is_left_when_a_subtree_is_cancelled(small: Cluster, tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/grandchild; wait"
    job = small.submit("sh", "-c", script, name="group")
    pid = tmp_path / "grandchild"
    until(lambda: pid.exists() and pid.read_text().strip(), "it runs")
    small.client.cancel(job.name)
    ended = job.wait(60)

    assert ended.state == "killed"
    until(
        lambda: not os.path.exists(f"/proc/{pid.read_text().strip()}"),
        "the grandchild has ended",
        60,
    )
