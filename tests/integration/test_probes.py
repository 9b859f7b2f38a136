"""A worker process that probes its tasks; the test stands in for the state service."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import HeartbeatMessage, ProbeResult, Stop
from iris_core.spec.jobs import Probe
from iris_core.states import Cause
from tests.support.state import FakeState
from tests.support.worker import WorkerProcess, lives, until

pytestmark = pytest.mark.integration

ADDRESS = "127.0.0.2"
"""What others are given for this host; nothing that listens on 127.0.0.1 can be reached there."""
RARELY_S = 25.0
"""Between heartbeats: what is sent sooner after the last one was sent early."""
SERVICE = """
import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists(sys.argv[2]) else 200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

http.server.HTTPServer((sys.argv[1], int(os.environ["IRIS_PORT_HTTP"])), Handler).serve_forever()
"""
HANGS = 'echo $$ >> "$PIDS"; sleep 1000 & echo $! >> "$PIDS"; wait'

LARGE = """python3 -c 'import os, time
held = b"x" * (1 << 30)
print(os.getpid(), file=open(os.environ["PIDS"], "a"), flush=True)
time.sleep(1000)' & wait"""
"""Its memory is given back, page by page, before it is gone."""


@pytest.fixture
async def worker(state: FakeState, nats_url: str, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    settings = {"address": ADDRESS, "stop_grace_s": 1, "heartbeat_interval_s": RARELY_S}
    async with WorkerProcess(nats_url, tmp_path / "w0", **settings) as process:  # type: ignore[arg-type]
        await state.registration()
        yield process


def results(state: FakeState, ref: AttemptRef) -> list[ProbeResult]:
    """Every result of an attempt that a heartbeat has had since the worker last registered."""
    beats = [beat for beat in state.beats if beat.incarnation == state.incarnation]
    return [result for beat in beats for result in beat.probes if result.ref == ref]


async def sent(
    state: FakeState, ref: AttemptRef, true: Callable[[ProbeResult], bool], since: int = 0
) -> ProbeResult:
    """The first result of an attempt as wanted, in a heartbeat from number ``since`` on, which was
    sent early.
    """

    def wanted(beat: HeartbeatMessage) -> list[ProbeResult]:
        of_this = beat.probes if beat.incarnation == state.incarnation else ()
        return [one for one in of_this if one.ref == ref and true(one)]

    await state.until(lambda: any(map(wanted, state.beats[since:])))
    at = next(at for at, beat in enumerate(state.beats) if at >= since and wanted(beat))
    earlier = [
        beat.monotonic_ms for beat in state.beats[:at] if beat.incarnation == state.incarnation
    ]
    assert (
        state.beats[at].monotonic_ms - max([*earlier, state.registered[-1].monotonic_ms])
        < RARELY_S * 1000
    )
    return wanted(state.beats[at])[0]


async def serve(state: FakeState, sick: Path, address: str = ADDRESS, **more: object) -> AttemptRef:
    """Run a service that is healthy while there is no such file."""
    probe = Probe(interval_s=0.2, failures=2)
    return await state.run(
        "python3", "-c", SERVICE, address, str(sick), ports=("http",), probe=probe, **more
    )


def port_of(result: ProbeResult) -> str:
    host, _, port = result.address.rpartition(":")
    assert host == ADDRESS
    return port


def living(pids: Path) -> list[int]:
    """Of the processes that noted themselves in a file, those that still run."""
    noted = [int(line) for line in pids.read_text().split()] if pids.exists() else []
    return [pid for pid in noted if lives(pid)]


async def gone(pids: Iterable[int]) -> None:
    """Return once none of them runs any more; what was killed may take a moment."""
    await until(lambda: not any(map(lives, pids)))


async def noted(pids: Path, count: int) -> list[int]:
    """The processes noted there, once there are so many."""
    await until(lambda: pids.exists() and pids.read_text().count("\n") >= count)
    return [int(line) for line in pids.read_text().split()]


async def test_changes_of_a_routes_health_are_sent_at_once(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    sick = tmp_path / "sick"
    ref = await serve(state, sick)
    found = await sent(state, ref, lambda one: one.passes > 0)
    assert (found.ready, found.failures, port_of(found).isdigit()) == (True, 0, True)
    sick.touch()
    found = await sent(state, ref, lambda one: one.failures >= 2, since=len(state.beats))
    assert found.detail == "GET /healthz: status 503"
    sick.unlink()
    await sent(state, ref, lambda one: one.passes > 0, since=len(state.beats))


async def test_a_service_that_listens_on_loopback_only_is_not_healthy(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref = await serve(state, tmp_path / "sick", "127.0.0.1")
    await sent(state, ref, lambda one: one.failures >= 2)
    assert results(state, ref)[-1].detail == "GET /healthz: connection refused"
    assert not any(result.passes for result in results(state, ref))


async def test_a_route_probed_on_another_port_is_advertised_where_it_serves(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    words = (
        "sh",
        "-c",
        f'echo $IRIS_PORT_API > {tmp_path}/port; exec "$0" "$@"',
        "python3",
        "-c",
        SERVICE,
    )
    ports, probe = ("api", "http"), Probe(interval_s=0.2)
    ref = await state.run(
        *words, ADDRESS, str(tmp_path / "sick"), ports=ports, probe=probe, serves="api"
    )
    await sent(state, ref, lambda one: one.passes > 0)
    assert port_of(results(state, ref)[-1]) == (tmp_path / "port").read_text().strip()


async def test_a_probe_command_has_the_directory_and_environment_of_its_task(
    state: FakeState, worker: WorkerProcess
):
    """It fails until it finds what its task has written."""
    words = 'test "$(cat up)" = "$MINE $IRIS_TASK_INDEX $IRIS_PORT_HTTP" || { echo not up >&2; exit 3; }'
    probe = Probe(kind="command", command=("sh", "-c", words), interval_s=0.1, failures=2)
    task = 'while ! test -e "$GO"; do sleep 0.01; done; echo "$MINE $IRIS_TASK_INDEX $IRIS_PORT_HTTP" > up; sleep 1000'
    go = worker.data / "go"
    env = {"MINE": "1", "GO": str(go)}
    ref = await state.run("sh", "-c", task, env=env, ports=("http",), probe=probe)
    await sent(state, ref, lambda one: one.failures >= 2)
    assert results(state, ref)[-1].detail == "the command: exit code 3: not up"
    go.touch()
    await sent(state, ref, lambda one: one.passes > 0)


async def test_a_hanging_probe_ends_with_its_group_and_its_attempt(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    pids = tmp_path / "pids"
    probe = Probe(
        kind="command", command=("sh", "-c", HANGS), interval_s=0.1, timeout_s=0.5, failures=1
    )
    ref = await state.run("sleep", "1000", env={"PIDS": str(pids)}, probe=probe)
    first = await noted(pids, 4)
    await gone(first[:2])
    await sent(state, ref, lambda one: one.failures > 0)
    assert results(state, ref)[-1].detail == "the command did not end within 0.5 s"
    await state.order(stop=[Stop(ref, 1000)])
    await state.ended(ref)
    assert living(pids) == []
    assert (
        len(os.listdir(worker.data / "attempts")) == 1
    )  # the place is as empty as it was, and serves the next


async def test_an_attempt_ends_after_what_its_probe_started(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    pids = tmp_path / "pids"
    probe = Probe(kind="command", command=("sh", "-c", LARGE), timeout_s=600)
    ref = await state.run("sleep", "1000", env={"PIDS": str(pids)}, probe=probe)
    await noted(pids, 1)
    await state.order(stop=[Stop(ref, 1000)])
    await state.ended(ref)
    assert living(pids) == []


async def test_after_a_crash_of_the_worker_a_route_is_probed_by_one_probe(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    pids, sick = tmp_path / "pids", tmp_path / "sick"
    served = await serve(state, sick)
    probe = Probe(
        kind="command", command=("sh", "-c", f'test -e "{sick}" || {{ {HANGS}; }}'), timeout_s=600
    )
    hung = await state.run("sleep", "1000", env={"PIDS": str(pids)}, probe=probe)
    before = await noted(pids, 2)
    await sent(state, served, lambda one: one.passes > 0)
    address = results(state, served)[-1].address
    sick.touch()
    await worker.kill()
    await gone(before)
    await worker.start()
    await state.registration(2)
    await sent(state, hung, lambda one: one.passes > 0)
    await sent(state, served, lambda one: one.failures >= 2)
    assert {result.address for result in results(state, served)} == {address}
    assert all(result.passes or result.failures for result in results(state, served))


async def test_a_route_that_is_stopped_serves_until_it_has_settled(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref, clock = await serve(state, tmp_path / "sick"), asyncio.get_running_loop().time
    await state.running(ref)
    began_s = clock()
    for _ in range(2):
        await state.order(stop=[Stop(ref, 10_000, settle_ms=500)])
    ended = await state.ended(ref)
    assert (ended.cause, ended.signal) == (Cause.CANCELLED, signal.SIGTERM)
    assert clock() - began_s >= 0.5


async def test_a_settling_route_is_probed_and_gets_term_when_its_worker_ends(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    sick = tmp_path / "sick"
    ref = await serve(state, sick)
    await sent(state, ref, lambda one: one.passes > 0)
    await state.order(stop=[Stop(ref, 10_000, settle_ms=1_000_000)])
    sick.touch()
    await sent(state, ref, lambda one: one.failures >= 2, since=len(state.beats))
    assert await worker.stop() == 0
    ended = state.end_of(ref)
    assert ended is not None
    assert (ended.cause, ended.signal) == (Cause.CANCELLED, signal.SIGTERM)


@pytest.mark.parametrize("is_adopted", [False, True])
async def test_a_stopping_worker_reports_it_before_its_routes_get_term(
    state: FakeState, worker: WorkerProcess, tmp_path: Path, is_adopted: bool
):
    ref = await serve(state, tmp_path / "sick", settle_ms=1500)
    await state.running(ref)
    if is_adopted:
        await worker.kill()
        await worker.start()
        await state.registration(2)
    told_ms = time.time_ns() // 1_000_000
    assert await worker.stop() == 0
    assert list(dict.fromkeys(state.leaving)) == ["stopping", "gone"]
    ended_ms = next(
        stage.at_ms for stage in state.stages if stage.ref == ref and stage.ended is not None
    )
    assert ended_ms - told_ms >= 1500
