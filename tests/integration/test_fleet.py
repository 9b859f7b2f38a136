"""A pool of processes on a real cluster: it grows for what waits, shrinks when nothing does, and
loses nothing when services are killed meanwhile.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_service.slice_processes import running_hosts
from tests.support.cluster import Cluster, cluster_on, settings, start, stop, until

pytestmark = pytest.mark.integration

QUICK = "[fleet]\ninterval_s = 0.5\nlist_interval_s = 2\n"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose only hosts are those that it makes."""
    config = settings(tmp_path, QUICK)
    pool = "cpu:max=8,idle=3s"
    options = ("--workers", "0", "--pool", pool, *config)
    with cluster_on(tmp_path / "data", *options) as running:
        yield running


def slices(cluster: Cluster) -> Counter[str]:
    return Counter(one.status for one in cluster.client.fleet_slices())


def is_empty(cluster: Cluster) -> bool:
    return not list(cluster.client.fleet_slices()) and not running_hosts(cluster.data / "fleet")


def test_a_burst_makes_hosts_which_go_whatever_is_killed(fleet: Cluster) -> None:
    job = fleet.submit("sh", "-c", "sleep 0.5", name="burst", replicas=60, cpu=1)
    until(lambda: slices(fleet)["ready"] >= 2, "two slices are ready", 60)
    fleet.kill("provisioner")
    until(lambda: job.refresh().task_counts.get("succeeded", 0) >= 5, "some are done", 60)
    fleet.kill("state")
    assert job.wait(120).state == "succeeded"
    assert job.refresh().task_counts == {"succeeded": 60}
    until(lambda: is_empty(fleet), "nothing is left of the fleet", 90)
    most = max(int(one.slice.rpartition("-")[2]) for one in fleet.client.pool_history("cpu"))
    assert most == 7
    again = fleet.submit("true", name="again", replicas=2, cpu=1)
    assert again.wait(60).state == "succeeded"


@pytest.mark.soak
def test_a_large_burst_loses_nothing_whatever_is_killed(
    fleet: Cluster,
) -> None:
    jobs = [fleet.submit("sh", "-c", "sleep 2", name=f"burst-{n}", cpu=1) for n in range(200)]
    done = lambda: sum(job.refresh().state == "succeeded" for job in jobs)  # noqa: E731
    until(lambda: slices(fleet)["ready"] >= 1, "a slice is ready", 120)
    for number, service in enumerate(("provisioner", "state", "scheduler", "nats"), start=1):
        until(lambda number=number: done() >= 25 * number, f"{25 * number} are done", 300)
        fleet.kill(service)
    assert {job.wait(300).state for job in jobs} == {"succeeded"}
    assert {job.refresh().task_counts["succeeded"] for job in jobs} == {1}
    fleet.kill("provisioner")
    until(lambda: is_empty(fleet), "nothing is left of the fleet", 180)
    slots = {int(one.slice.rpartition("-")[2]) for one in fleet.client.pool_history("cpu")}
    assert slots == set(range(8))


def test_a_slice_whose_host_dies_is_replaced_and_its_work_runs_again(fleet: Cluster) -> None:
    job = fleet.submit("sh", "-c", "sleep 6", name="long", cpu=1)
    until(lambda: job.refresh().state == "running", "it runs", 60)
    [host] = running_hosts(fleet.data / "fleet")
    os.killpg(host.pid, signal.SIGKILL)
    assert job.wait(90).state == "succeeded"
    lost = [one.cause for one in fleet.client.pool_history("cpu") if one.to == "deleting"]
    assert "gone" in lost


def test_a_pool_that_is_set_later_gets_keys_and_more_with_a_larger_max(
    fleet: Cluster,
) -> None:
    options = ("--provider", "process", "--cpu", "1", "--attribute", "kind=late")
    said = fleet.iris("pool", "set", "late", *options, "--max", "2")
    assert said.code == 0, said.err
    job = fleet.submit("true", name="first", replicas=2, cpu=1, constraints=["kind=late"])
    assert job.wait(90).state == "succeeded"
    said = fleet.iris("pool", "set", "late", "--max", "4", "--min", "4")
    assert said.code == 0, said.err
    until(lambda: fleet.client.pool("late").slices.ready == 4, "four slices are ready", 90)
    assert not fleet.client.pool("late").warnings


def test_a_gang_whose_slice_is_taken_away_runs_again_on_another(
    fleet: Cluster, tmp_path: Path
) -> None:
    spot = ("--option", "preemption_chance=1", "--option", "preemption_after_s=12")
    said = fleet.iris(
        *("pool", "set", "spot", "--provider", "process", "--hosts", 2, "--cpu", 1, "--max", 1),
        *("--capacity", "spot", "--priority", 1, "--attribute", "kind=g"),
        *(*spot, "--option", "preemption_notice_s=8"),
    )
    assert said.code == 0, said.err
    said = fleet.iris(
        *("pool", "set", "calm", "--provider", "process", "--hosts", 2, "--cpu", 1, "--max", 1),
        *("--priority", 2, "--attribute", "kind=g"),
    )
    assert said.code == 0, said.err
    go = tmp_path / "go"
    script = f"until [ -e {go} ]; do sleep 0.1; done"
    job = fleet.submit("sh", "-c", script, name="gang", replicas=2, cpu=1, group_by="kind")
    until(lambda: job.refresh().task_counts.get("running") == 2, "the gang runs", 90)
    steps = lambda: list(fleet.client.pool_history("spot"))  # noqa: E731
    until(lambda: "spot_notice" in [one.cause for one in steps()], "a notice has come", 90)
    on_calm = lambda: {task.worker for task in job.tasks()} == {"calm-0-0", "calm-0-1"}  # noqa: E731
    until(lambda: job.refresh().task_counts.get("running") == 2 and on_calm(), "it runs again", 90)
    go.touch()
    assert job.wait(60).state == "succeeded"
    ends = [attempt.cause for task in job.tasks() for attempt in task.attempts[:-1]]
    assert set(ends) == {"preempted"}


def test_the_hosts_of_a_fleet_end_with_its_cluster(tmp_path: Path) -> None:
    config = settings(tmp_path, QUICK)
    options = ("--workers", "0", "--pool", "cpu:max=2,min=2", *config)
    cluster = start(tmp_path / "data", *options)
    until(lambda: slices(cluster) == {"ready": 2}, "both slices are ready", 60)
    assert len(running_hosts(cluster.data / "fleet")) == 2
    stop(cluster)
    assert running_hosts(tmp_path / "data" / "fleet") == []
    with cluster_on(tmp_path / "data", *options) as again:
        until(lambda: slices(again)["ready"] == 2, "they are made anew", 90)
