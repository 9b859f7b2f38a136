"""All streams are lost while workers run tasks: no state service begins from nothing, and a backup
brings all back.
"""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
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
from tests.support.hook import Hook
from tests.support.nats import OpenServer

pytestmark = pytest.mark.integration

ENDS_S = 60
PROGRAM = """#!/bin/sh
case $1 in
    list) echo '{{"slices": []}}' ;;
    create) cat > {asked}.part; mv {asked}.part {asked} ;;
esac
"""
"""Of a pool: it keeps what it was asked for last, and makes nothing."""
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


def epoch_of(state: Member) -> float:
    with urllib.request.urlopen(f"{state.url}/metrics", timeout=10) as answer:
        [line] = [
            line for line in answer.read().decode().splitlines() if line.startswith("iris_epoch ")
        ]
    return float(line.split()[1])


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


def test_what_runs_on_follows_a_backup_of_an_earlier_leader(tmp_path: Path):
    """A worker, a provisioner and a notifier have heard of later leaders than the backup has."""
    program = tmp_path / "cloud"
    program.write_text(PROGRAM.format(asked=tmp_path / "asked"))
    program.chmod(0o755)
    pool = {"provider": "exec", "max": 1, "resources": {"cpu_millis": 1000}}
    pool |= {"options": {"program": "cloud"}, "name": "spare"}
    hook = Hook()
    with cluster(tmp_path) as (server, services, client):
        [state] = services.of("state")
        services.add("provisioner", "provisioner", f"provisioner.programs=cloud={program}")
        services.add("notifier", "notifier", "notifier.allow=127.0.0.0/8")
        client.add_notify_target(
            "ops", webhook=hook.url, secret="sixteen bytes and more", shared=True
        )
        client.replace_pool(pool)
        job, _ = running(client, tmp_path, "kept")
        assert admin("backup", tmp_path / "backup", url=server.url).code == 0
        for number in range(3):
            state.terminate()
            state.start()
            state.ready()
            client.run(["true"], name=f"after-{number}", cpu=0.1).wait(ENDS_S)
        seen = epoch_of(state)
        lose_all_streams(server, state)
        assert admin("restore", tmp_path / "backup", url=server.url).code == 0
        state.start()
        state.ready()
        assert epoch_of(state) > seen

        until(lambda: "ops" in [one.name for one in client.notify_targets()], "it is known", ENDS_S)
        told = client.run(["true"], name="told", cpu=0.1, notify=["ops:ended"])
        assert told.wait(ENDS_S).state == "succeeded", "the worker takes orders"
        (tmp_path / "kept.end").touch()
        assert job.wait(ENDS_S).state == "succeeded"
        assert [len(one.attempts) for one in job.tasks()] == [1]
        until(lambda: hook.jobs("ended") == {"/told"}, "the notifier tells of it", ENDS_S)
        client.replace_pool({**pool, "min": 1})
        until((tmp_path / "asked").exists, "the provisioner takes orders", ENDS_S)
    hook.close()


def test_workers_take_orders_of_a_cluster_that_has_begun_anew_beside_them(tmp_path: Path):
    """They ran nothing when all streams were lost, and nobody has a backup."""
    with cluster(tmp_path) as (server, services, client):
        [state] = services.of("state")
        for _ in range(3):
            state.terminate()
            state.start()
            state.ready()
            assert client.run(["true"], cpu=0.1).wait(ENDS_S).state == "succeeded"
        lose_all_streams(server, state)
        state.start()
        state.ready()
        with Client(services.of("gateway")[0].url, retry_for_s=ENDS_S) as anew:
            assert anew.run(["true"], name="first", cpu=0.1).wait(ENDS_S).state == "succeeded"


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
