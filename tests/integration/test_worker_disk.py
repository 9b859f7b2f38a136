"""The disk of a host fails or is full while tasks run there, with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iris import Job
from tests.support.cluster import Cluster, cluster_on, settings, until
from tests.support.disk import Disk, MakeDisk, make_disk

__all__ = ["make_disk"]

pytestmark = [pytest.mark.integration, pytest.mark.soak]

QUICK = """
[state]
heartbeat_interval_s = 0.3
[worker]
heartbeat_interval_s = 0.3
"""


@pytest.fixture
def disk(make_disk: MakeDisk) -> Disk:
    return make_disk("disk", 160)


@pytest.fixture
def cluster(tmp_path: Path, disk: Disk) -> Iterator[Cluster]:
    """Two hosts, the second of which has its data on a disk of its own."""
    data = tmp_path / "data"
    options = ("--workers", "2", *settings(data, QUICK))
    (data / "workers").mkdir()
    (data / "workers" / "worker-1").symlink_to(disk.path)
    with cluster_on(data, *options) as running:
        yield running


def on_both(cluster: Cluster, go: Path) -> Job:
    """A job that has a task on each host, which writes a file when it may go on."""
    script = f"until [ -e {go} ]; do sleep 0.02; done; head -c 1000000 /dev/zero > file"
    job = cluster.submit("sh", "-ec", script, replicas=2, cpu=cluster.host_cpu)
    until(lambda: job.refresh().task_counts == {"running": 2}, "one runs on each host")
    return job


def test_a_failure_on_a_disk_that_fails_is_that_of_its_host(
    cluster: Cluster, disk: Disk, tmp_path: Path
) -> None:
    job = on_both(cluster, go := tmp_path / "go")
    disk.make_read_only()
    go.touch()
    assert job.wait(60).state == "succeeded"
    tasks = list(job.tasks())
    assert {task.worker for task in tasks} == {"worker-0"}
    assert sorted(task.preemption_count for task in tasks) == [0, 1]
    assert [task.failure_count for task in tasks] == [0, 0]


def test_a_failure_on_a_full_disk_says_that_it_is_full(
    cluster: Cluster, disk: Disk, tmp_path: Path
) -> None:
    job = on_both(cluster, go := tmp_path / "go")
    disk.fill()
    go.touch()
    assert job.wait(60).state == "failed"
    assert "exit code 1; on its host: disk full: 0 MiB free" in str(job.refresh().error)
    disk.make_room()
