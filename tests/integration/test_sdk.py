"""The Python SDK on a whole cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import iris
import iris_core
import iris_gateway
from iris import AsyncClient
from iris.client.problems import JobFailed, JobKilled, NotFound, WaitTimeout
from iris.testing import LocalCluster, NotStarted
from iris_core.views.events import JobEvent, TaskEvent
from tests.support.cluster import until

pytestmark = pytest.mark.integration

WITHIN_S = 120


def test_a_job_in_hand_is_waited_for_and_its_end_is_raised(cluster):
    good = cluster.submit("true", name="sdk-good")
    bad = cluster.submit("sh", "-c", "exit 3", name="sdk-bad")

    assert good.result(60).state == "succeeded"
    assert bad.wait(60).task_counts == {"failed": 1}
    with pytest.raises(JobFailed, match="/sdk-bad failed"):
        bad.raise_for_state()


def test_waiting_ends_when_its_time_is_over_and_the_job_goes_on(cluster):
    job = cluster.submit("sleep", "1000", name="sdk-long")
    until(lambda: job.refresh().state == "running", "it runs")
    with pytest.raises(WaitTimeout, match="it goes on"):
        job.wait(0.3)

    assert not job.ended
    assert job.cancel("enough").state in {"running", "killed"}
    with pytest.raises(JobKilled):
        job.result(60)


def test_following_yields_each_change_once_and_ends_with_the_job(cluster, tmp_path):
    gate = tmp_path / "gate"
    job = cluster.submit("sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done", name="sdk-follow")
    changes = job.follow()
    gate.touch()
    events = [(type(event), event.state) for event in changes]

    assert events[-2:] == [(TaskEvent, "succeeded"), (JobEvent, "succeeded")]
    assert len(set(events)) == len(events)
    assert job.state == "succeeded"


def test_usage_says_what_a_job_has_held_and_used_and_what_of_it_was_lost(cluster):
    work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    jobs = [
        cluster.submit(
            "sh",
            "-c",
            f"{work}; exit {code}",
            name=f"sdk-used-{code}",
            labels={"project": "usage"},
            cpu=0.5,
        )
        for code in (0, 3)
    ]
    good, bad = (job.wait(60) and job.usage() for job in jobs)

    assert good.useful.cpu_seconds >= good.useful.cpu_used_seconds / 4 > 0
    assert (good.lost, bad.useful.attempts, [*bad.lost]) == ({}, 0, ["failed"])
    [project] = cluster.client.usage(by="label", label="project=usage")
    assert project.total.cpu_seconds == pytest.approx(
        good.total.cpu_seconds + bad.total.cpu_seconds
    )
    assert {row.job for row in cluster.client.usage(by="job", label="project=usage")} == {
        "/sdk-used-0",
        "/sdk-used-3",
    }


def test_what_is_not_there_is_not_found(cluster):
    with pytest.raises(NotFound):
        cluster.client.job("/nobody")


async def test_the_asynchronous_client_has_the_same_names_and_does_the_same(cluster):
    async with AsyncClient(cluster.url, token=cluster.token) as client:
        jobs = await asyncio.gather(
            *(
                client.run(["sh", "-c", "echo $IRIS_TASK_INDEX"], name=f"aio-{number}", replicas=2)
                for number in range(3)
            )
        )
        ends = await asyncio.gather(*(job.result(60) for job in jobs))
        lines = [line.line async for line in jobs[0].logs()]
        tasks = [task.task async for task in jobs[0].tasks()]
        found = await client.job("/aio-1")

    assert {end.state for end in ends} == {"succeeded"}
    assert sorted(lines) == ["0", "1"]
    assert tasks == ["/aio-0/0", "/aio-0/1"]
    assert found.state == "succeeded"


def test_who_follows_sees_a_line_that_has_not_ended(cluster, tmp_path):
    gate = tmp_path / "gate"
    bar = r"printf '\r1%%'; printf 'name? ' >&2; until [ -e GATE ]; do sleep 0.05; done; echo"
    job = cluster.submit("sh", "-c", bar.replace("GATE", str(gate)), name="sdk-unfinished")
    lines = job.logs(unfinished=True)
    first = sorted((next(lines), next(lines)), key=lambda line: line.stream)
    assert [(line.line, line.continued) for line in first] == [("name? ", True), ("\r1%", True)]
    gate.touch()
    assert {(line.line, line.continued) for line in lines} == {("", False)}
    assert sorted(line.line for line in job.logs()) == ["\r1%", "name? "]


def test_a_line_of_any_length_is_whole(cluster):
    words = "import sys; sys.stdout.write('漢' * 100_000 + '\\n')"
    job = cluster.submit(sys.executable, "-c", words, name="sdk-long-line")
    assert [line.line for line in job.logs()] == ["漢" * 100_000]
    assert cluster.iris("logs", job.name).out == "漢" * 100_000 + "\n"


async def test_an_asynchronous_map_is_awaited_item_by_item(cluster):
    async with AsyncClient(cluster.url, token=cluster.token) as client:
        futures = await client.map(len, ["a", "bc"], name="aio-map", cpu=0.1)

        assert await asyncio.gather(*futures) == [1, 2]


async def test_an_asynchronous_wait_can_be_given_up(cluster):
    async with AsyncClient(cluster.url, token=cluster.token) as client:
        job = await client.run(["sleep", "1000"], name="aio-long")
        with pytest.raises(WaitTimeout):
            await job.wait(0.2)
        await job.cancel()

        assert (await job.wait(60)).state == "killed"


async def test_requests_are_answered_beside_any_number_of_quiet_waits(cluster):
    async with AsyncClient(cluster.url, token=cluster.token) as client:
        job = await client.run(["sleep", "1000"], name="aio-waited")
        waits = [asyncio.ensure_future((await client.job(job.id)).wait(WITHIN_S)) for _ in "x" * 99]
        waits += [asyncio.ensure_future(job.wait(WITHIN_S)) for _ in range(901)]
        lines = [asyncio.ensure_future(anext(job.logs())) for _ in range(80)]
        while job.state != "running":  # each is a request beside those that wait
            await job.refresh()
        assert not any(wait.done() for wait in waits)
        (reader,) = [one for one in threading.enumerate() if one.name == "iris-job-ends"]

        await job.cancel()

        assert {view.state for view in await asyncio.gather(*waits)} == {"killed"}
        ends = await asyncio.gather(*lines, return_exceptions=True)
        assert {type(end) for end in ends} == {StopAsyncIteration}
        reader.join(WITHIN_S)
        assert not reader.is_alive()


async def test_events_of_everything_are_streamed_to_an_asynchronous_client(cluster):
    async with AsyncClient(cluster.url, token=cluster.token) as client:
        events = client.events({"type": "job.state", "within": None})
        first = asyncio.ensure_future(anext(events))
        async with asyncio.timeout(60):
            while not first.done():  # the stream begins with what happens once it is open
                await (await client.run(["true"], name="aio-events")).wait(60)
        event = await first
        await events.aclose()

    assert isinstance(event, JobEvent)


def test_a_cluster_for_users_own_tests_leaves_nothing():
    with LocalCluster(workers=1, worker_cpu=2, tpu=["v4-8"]) as local:
        job = local.client.run(["sh", "-c", "echo hi"]).result(60)
        workers = {worker.id: worker.total["cpu_millis"] for worker in local.client.workers()}

    assert job.state == "succeeded"
    assert workers == {"worker-0": 2000, "slice-0-w0": 2000}
    assert not local.data.exists()


def test_a_cluster_that_cannot_start_says_why(tmp_path):
    config = tmp_path / "iris.toml"
    config.write_text("[cluster]\nwrkers = 1\n")
    with (
        pytest.raises(NotStarted, match="did you mean 'workers'"),
        LocalCluster(data=tmp_path / "data", config=config),
    ):
        pass


MAPPER = """
from iris import Client

def half(number):
    print("halving", number)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return {"half": number // 2, "much": "x" * 200_000}

with Client() as client:
    mapped = client.map(half, [2, 3, 4], name="halves", cpu=0.1)
    print([future.exception() or future.result()["half"] for future in mapped])
    print(mapped.job.wait().task_counts)
"""


def test_a_function_is_mapped_over_items_and_each_call_has_its_future(cluster, tmp_path):
    script = tmp_path / "mapper.py"
    script.write_text(MAPPER)
    paths = os.pathsep.join(
        str(Path(module.__file__).parents[1]) for module in (iris, iris_core, iris_gateway)
    )
    environ = {**cluster.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines() == [
        "[1, ValueError('3 is odd'), 2]",
        "{'succeeded': 2, 'failed': 1}",
    ], done.stderr
