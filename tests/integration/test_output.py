"""Task output is kept across leader changes and unreachable servers, in large amounts, within the
disk quota.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris import Client
from iris_bus.jetstream import connect
from iris_core import subjects
from iris_core.messages.message import AttemptRef
from iris_nats.nats_process import NatsProcess
from tests.support.cluster import cluster_on, settings
from tests.support.cluster import until as until_now
from tests.support.nats_cluster import NatsCluster, nats_cluster, step_down
from tests.support.state import FakeState, template
from tests.support.suspend import suspend
from tests.support.worker import WorkerProcess, until

pytestmark = pytest.mark.integration

MB = 1_000_000
PRINTS = "n=0; while ! test -e {go}; do n=$((n + 1)); echo line $n; echo error $n >&2; sleep 0.05; done; echo $n > {file}"


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[NatsCluster]:
    async with nats_cluster(tmp_path) as servers:
        yield servers


@pytest.mark.soak
async def test_no_line_is_lost_when_the_log_stream_changes_its_leader(
    three: NatsCluster, tmp_path: Path
):
    connection = await connect(three.url, name="test", replicas=3)
    await connection.streams.ensure()
    state = await FakeState(connection, "w0").start()
    go = tmp_path / "go"
    refs = [AttemptRef(1, index, 0) for index in range(8)]
    async with WorkerProcess(three.url, tmp_path / "w0"):
        await state.registration()
        work = template(
            "sh",
            "-c",
            PRINTS.format(go=go, file=f"{tmp_path}/$IRIS_TASK_INDEX"),
            replicas=len(refs),
        )
        await state.tell([work], run=refs)
        for _ in range(8):
            before = await connection.streams.end(subjects.LOGS.name)
            await step_down(connection, subjects.LOGS.name)
            async with asyncio.timeout(60):
                while await connection.streams.end(subjects.LOGS.name) < before + 40:
                    await asyncio.sleep(0.01)
        go.touch()
        for ref in refs:
            await state.ended(ref)
            printed = int((tmp_path / str(ref.index)).read_text())
            for stream, word in (("stdout", "line"), ("stderr", "error")):
                expected = "".join(f"{word} {n}\n" for n in range(1, printed + 1)).encode()
                assert await state.output(ref, stream) == expected
    await connection.close()


async def test_an_end_waits_for_its_output_as_long_as_the_bus_is_silent(
    own_nats: NatsProcess, tmp_path: Path
):
    connection = await connect(own_nats.url, name="test")
    await connection.streams.ensure()
    state = await FakeState(connection, "w0").start()
    go, log = tmp_path / "go", tmp_path / "log"
    async with WorkerProcess(
        own_nats.url, tmp_path / "w0", log=log, log_timeout_s=0.5, report_timeout_s=0.5
    ):
        await state.registration()
        ref = await state.run(
            "sh", "-c", f"echo before; while ! test -e {go}; do sleep 0.01; done; echo after"
        )
        await state.printed(ref, b"before\n")
        suspend(own_nats.pid)
        go.touch()
        await until(lambda: log.read_text().count("could not be stored") >= 3)
        os.kill(own_nats.pid, signal.SIGCONT)
        ended = await state.ended(ref)
        assert await state.output(ref) == b"before\nafter\n"
        assert ended.dropped_bytes == 0
    await connection.close()


async def test_a_hundred_megabytes_in_one_go_are_kept(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0"):
        await state.registration()
        ref = await state.run("sh", "-c", f"yes 123456789 | head -c {100 * MB}")
        ended = await state.ended(ref)
        assert await state.output(ref) == b"123456789\n" * (10 * MB)
        assert ended.dropped_bytes == 0


async def test_what_is_dropped_is_said_in_the_output_and_on_the_attempt(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", log_attempt_bytes=MB):
        await state.registration()
        ref = await state.run("sh", "-c", f"yes 123456789 | head -c {3 * MB}")
        ended = await state.ended(ref)
        last = (await state.chunks(ref))[-1]
        assert ended.dropped_bytes == last.dropped == 3 * MB - MB - len(last.data)
        assert (last.dropped_lines, last.limit) == (
            last.dropped // 10,
            "log_attempt_bytes = 1,000,000",
        )


def test_what_is_dropped_is_said_to_people(tmp_path: Path):
    data = tmp_path / "data"
    with cluster_on(data, *settings(data, f"[worker]\nlog_attempt_bytes = {MB}\n")) as cluster:
        job = cluster.submit("sh", "-c", f"yes 123456789 | head -c {3 * MB}", name="flood")
        assert job.wait(60).state == "succeeded"
        [attempt] = cluster.tasks(job)[0].attempts
        out = cluster.iris("logs", "flood/0").out
        asked = urllib.request.Request(f"{cluster.url}/tasks/%2Fflood%2F0", headers=cluster.headers)
        page = urllib.request.urlopen(asked, timeout=60).read().decode()
    dropped, limit = attempt.output_dropped_bytes, "limit log_attempt_bytes = 1,000,000"
    notice = (
        f"[iris: {dropped:,} bytes ({dropped // 10:,} lines) of output dropped here: {limit}]\n"
    )
    assert MB < dropped < 2 * MB
    assert out.count(notice) == 1
    assert len(out) == 3 * MB - dropped + len(notice)
    assert f"{dropped:,} bytes of its output were dropped" in page


async def test_a_flood_holds_no_more_of_the_disk_than_the_limit(
    state: FakeState, nats_url: str, tmp_path: Path
):
    """A task may print faster than the worker looks, so what is held is looked at each time it has
    stopped printing.
    """
    limits = {"log_attempt_bytes": 20 * MB, "log_bytes_per_s": 0, "log_burst_bytes": MB}
    flood = f"mkfifo go; for i in 1 2 3 4 5 6; do yes | head -c {100 * MB}; read line < go; done"
    async with asyncio.timeout(250), WorkerProcess(nats_url, tmp_path / "w0", **limits):
        await state.registration()
        ref = await state.run("sh", "-c", flood)
        for number in range(1, 7):
            printed, held = 0, math.inf
            while printed < number * 100 * MB or held > 60 * MB:
                await asyncio.sleep(0.005)
                files = [path.stat() for path in (tmp_path / "w0" / "output").glob("*/*")]
                printed, held = (
                    sum(file.st_size for file in files),
                    sum(file.st_blocks * 512 for file in files),
                )
            [go] = (tmp_path / "w0" / "attempts").glob("*/*/go")
            await asyncio.to_thread(go.write_text, "on\n")
        ended = await state.ended(ref)
    assert ended.dropped_bytes == 580 * MB - 32 * 1024


async def test_an_end_does_not_wait_for_ever_for_a_log_stream_that_alone_is_gone(
    state: FakeState, nats_url: str, tmp_path: Path
):
    await state.connection.bus.request(
        f"$JS.API.STREAM.DELETE.{subjects.LOGS.name}", b"", timeout=30
    )
    async with WorkerProcess(nats_url, tmp_path / "w0", log_timeout_s=0.5):
        await state.registration()
        ref = await state.run("sh", "-c", "echo lost; exit 3")
        ended = await state.ended(ref)
    assert (ended.exit_code, ended.dropped_bytes) == (3, len("lost\n"))


@pytest.mark.parametrize(
    ("size", "stream", "said"),
    [
        (4, subjects.RESULTS, "the result cannot be stored now"),
        (300_000, subjects.ARTIFACTS, "of output are being stored"),
    ],
)
async def test_the_end_of_a_call_waits_for_its_result_and_says_so(
    tmp_path: Path, size: int, stream: subjects.Stream, said: str
):
    """It was reported without, and what the call had returned was lost."""
    data, go = tmp_path / "data", tmp_path / "go"
    place = str(go)

    def wait_for_go(_: int) -> str:
        while not os.path.exists(place):
            time.sleep(0.01)
        return "k" * size

    soon = "[worker]\nlog_timeout_s = 0.5\nartifact_timeout_s = 0.5\n"
    with cluster_on(data, "--workers", "1", *settings(data, soon)) as cluster:
        job = cluster.client.map(wait_for_go, [0], name="kept", cpu=0.1).job
        until_now(lambda: job.task(0).state == "running", "it runs", 60)
        connection = await connect(cluster.nats_url, name="test", credentials=cluster.credentials())
        await connection.bus.request(f"$JS.API.STREAM.DELETE.{stream.name}", b"", timeout=30)
        go.touch()
        until_now(lambda: said in (job.task(0).note or ""), "it waits", 60)
        assert job.task(0).state == "running"
        await connection.streams.ensure()
        until_now(lambda: job.refresh().state == "succeeded", "its end is told", 60)
        with Client(cluster.url, token=cluster.token) as other:
            assert other.map_of(job.id).results(60) == ["k" * size]
        await connection.close()


def test_a_call_whose_result_may_not_be_kept_has_failed_and_says_why(tmp_path: Path):
    """It was a success, and its result was nowhere."""

    def much(size: int) -> bytes:
        return os.urandom(size)

    data = tmp_path / "data"
    few = "[worker]\nartifact_bytes = 200000\n"
    with cluster_on(data, "--workers", "1", *settings(data, few)) as cluster:
        made = cluster.client.map(much, [100_000, 300_000], name="much", cpu=0.1)
        until_now(lambda: made.job.refresh().state == "failed", "its end is told", 60)
        assert len(next(iter(made)).result(60)) == 100_000
        task = made.job.task(1)
        assert task.state == "failed"
        assert "what the call returned or raised is not kept" in task.attempts[-1].error
        assert "artifact_bytes" in task.attempts[-1].error
