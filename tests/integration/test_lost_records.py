"""All streams are lost while workers run tasks: no state service begins from nothing, and a backup
brings all back.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from iris import Client
from iris.client.jobs import Job
from iris.doctor.checks import problems
from iris.doctor.facts import ClusterFacts
from iris_bus.connection.connection import Credentials
from iris_bus.streams.diagnosis import diagnose
from iris_service.child import DAMAGED
from tests.support.cluster import until
from tests.support.damage import admin
from tests.support.fleet import Fleet, Member, fleet
from tests.support.nats import OpenServer

pytestmark = pytest.mark.integration

ENDS_S = 60
QUICK = "worker.heartbeat_interval_s=0.3"


@contextmanager
def cluster(place: Path) -> Iterator[tuple[OpenServer, Fleet, Client]]:
    """A server, and one of each service on it."""
    server = OpenServer(place / "nats")
    server.start()
    try:
        with fleet(server.url, place) as services:
            for service in ("state", "scheduler", "gateway"):
                services.add(service, service)
            services.add_worker("w0", QUICK)
            with Client(services.of("gateway")[0].url, retry_for_s=ENDS_S) as client:
                yield server, services, client
    finally:
        server.stop()


def running(client: Client, place: Path, name: str) -> tuple[Job, psutil.Process]:
    """A job whose task runs until its file is there, and the process of that task."""
    pid = place / f"{name}.pid"
    script = f"echo $$ > {pid}; until [ -e {place}/{name}.end ]; do sleep 0.1; done"
    job = client.run(["sh", "-c", script], name=name, cpu=0.1)
    until(
        lambda: pid.exists() and pid.read_text().strip() and job.refresh().state == "running",
        "it runs",
    )
    return job, psutil.Process(int(pid.read_text()))


def lose_all_streams(server: OpenServer, state: Member) -> None:
    state.terminate()
    server.stop()
    shutil.rmtree(server.directory / "store")
    server.start()


def refused(state: Member) -> str:
    """What a state service says that is started and does not lead."""
    begun = state.log.stat().st_size
    state.start()
    assert state.process is not None
    try:
        code = state.process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it goes on: {state.log.read_text()[begun:]}")
    said = state.log.read_text()[begun:]
    assert code == DAMAGED, said
    return said


async def found_by_doctor(url: str) -> dict[str, str]:
    facts = ClusterFacts("", "", 0, bus=await diagnose(url, Credentials(), None))
    return {found.code: found.what for found in problems(facts)}


async def test_lost_records_are_restored_while_the_tasks_of_the_backup_run_on(tmp_path: Path):
    with cluster(tmp_path) as (server, services, client):
        [state] = services.of("state")
        job, task = running(client, tmp_path, "kept")
        assert admin("backup", tmp_path / "backup", url=server.url).code == 0
        lose_all_streams(server, state)

        for _ in range(2):
            said = refused(state)
            assert "worker w0 has task 0 of job j1" in said
            assert "iris admin restore" in said
        assert task.is_running()
        verified = admin("verify", url=server.url)
        assert (verified.code, "iris admin restore" in verified.out) == (DAMAGED, True), verified
        assert (
            "worker w0 has task 0 of job j1" in (await found_by_doctor(server.url))["records_lost"]
        )

        restored = admin("restore", tmp_path / "backup", url=server.url)
        assert restored.code == 0, restored
        state.start()
        state.ready()
        assert (job.refresh().state, task.is_running()) == ("running", True)
        (tmp_path / "kept.end").touch()
        assert job.wait(ENDS_S).state == "succeeded"
        assert [len(one.attempts) for one in job.tasks()] == [1]
        assert "records_lost" not in await found_by_doctor(server.url)


def test_without_a_backup_a_cluster_begins_anew_only_when_told_to(tmp_path: Path):
    with cluster(tmp_path) as (server, services, client):
        [state] = services.of("state")
        _, task = running(client, tmp_path, "lost")
        lose_all_streams(server, state)
        assert "state.begin_anew=true" in refused(state)
        assert task.is_running()

        anew = services.add("state", "anew", "state.begin_anew=true")
        until(
            lambda: not task.is_running() or task.status() == psutil.STATUS_ZOMBIE,
            "it is stopped",
            ENDS_S,
        )
        assert client.run(["true"], name="first", cpu=0.1).wait(ENDS_S).state == "succeeded"
        anew.terminate()
        state.start()
        state.ready()
        assert [one.name for one in client.jobs()] == ["/first"]
