"""A full or read-only disk of the NATS server: submissions are refused, no acknowledged one is
lost.

Only the server's part of the data directory lies on that disk, so every service can still write its
log.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from iris.client.problems import TryAgain
from tests.support.cluster import Cluster, cluster_on, settings, start, until
from tests.support.disk import MakeDisk, make_disk
from tests.support.disk_cluster import Acknowledged, bury, on_disk
from tests.support.records import jobs_of, ledger_of
from tests.support.suspend import suspended

__all__ = ["make_disk"]

pytestmark = [pytest.mark.integration, pytest.mark.soak]

IMPATIENT = "[gateway]\ncommand_timeout_s = 1.5\n"
RESTARTS = 3
"""What may be started again, at most, because of one trouble: the bus and its one writer, and a try
in between.
"""


def refused(load: Acknowledged) -> TryAgain:
    """The first refusal from now on."""
    before = len(load.problems)
    until(lambda: len(load.problems) > before, "a submission is refused", 60)
    problem = load.problems[before]
    assert isinstance(problem, TryAgain)
    return problem


def restarts(data: Path) -> int:
    return (data / "log" / "supervisor.log").read_text().count(" ended with ")


def until_idle(cluster: Cluster) -> None:
    """Return once no service is busy for a fifth of a second; one that turns in circles while it
    waits always is.
    """
    until(lambda: is_idle(cluster), "no service turns in circles while it waits", 60)


def is_idle(cluster: Cluster) -> bool:
    try:
        services = [
            psutil.Process(pid)
            for name in ("state", "scheduler", "gateway", "worker")
            for pid in cluster.pids(name)
        ]
        for service in services:
            service.cpu_percent()
        return all(service.cpu_percent(0.2) < 50 for service in services)
    except (psutil.Error, OSError, ValueError):  # it is being started again
        return False


def assert_all_there(cluster: Cluster, names: list[str]) -> None:
    ledger = asyncio.run(ledger_of(cluster.nats_url, cluster.credentials()))
    assert set(names) <= jobs_of(ledger)
    for name in names:
        assert cluster.client.job(name).wait(60).state == "succeeded"


def test_a_full_disk_refuses_and_goes_on_by_itself_once_there_is_room(
    make_disk: MakeDisk, tmp_path: Path
):
    disk = make_disk("disk", 64)
    data = on_disk(tmp_path / "data", disk.path)
    with cluster_on(data, "--workers", "1", *settings(data, IMPATIENT)) as cluster:
        with Acknowledged(cluster) as load:
            load.more(50)
            disk.fill()
            problem = refused(load)
            until_idle(cluster)
            disk.make_room()
            load.more(50)
        assert (problem.status, problem.code, problem.retry_after_s) == (503, "unavailable", 1)
        assert restarts(data) <= RESTARTS, restarts(data)
        assert_all_there(cluster, load.names)


def test_a_read_only_store_refuses_and_is_complete_once_repaired(
    make_disk: MakeDisk, tmp_path: Path
):
    disk = make_disk("disk", 64)
    data = on_disk(tmp_path / "data", disk.path)
    cluster = start(data, "--workers", "1", *settings(data, IMPATIENT))
    try:
        with Acknowledged(cluster) as load:
            load.more(50)
            with suspended(
                cluster.pids("nats")
            ):  # a sync under way may be reported as done and be lost
                disk.make_read_only()
            problem = refused(load)
            until_idle(cluster)
    finally:
        bury(cluster)
    disk.repair()
    with cluster_on(data, "--workers", "1") as cluster:
        assert_all_there(cluster, load.names)
    assert (problem.status, problem.code, problem.retry_after_s) == (503, "unavailable", 1)
    assert restarts(data) <= RESTARTS, restarts(data)


def test_a_repaired_disk_takes_data_while_another_process_holds_it(make_disk: MakeDisk):
    """Any container or network namespace that starts beside the test above is such a process."""
    disk = make_disk("disk", 64)
    with subprocess.Popen(["unshare", "--mount", "cat"], stdin=subprocess.PIPE) as holder:
        until(
            lambda: os.readlink(f"/proc/{holder.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"),
            "it holds it",
        )
        disk.make_read_only()
        disk.repair()
        (disk.path / "new").write_text("taken")
