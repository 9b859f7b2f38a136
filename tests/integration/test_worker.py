"""A worker process that is stopped, killed, or set up in another way; the test stands in for the
state service.

What all workers do with tasks is in `test_worker_tasks`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from iris_bus.contract import Unavailable
from iris_bus.jetstream import connect
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Stop
from iris_core.spec.resources import Amount, Device, ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_nats.nats_process import NatsProcess
from iris_service.boot import boot_id
from iris_worker.agent.room import LACKING
from tests.support.state import FakeState, template
from tests.support.suspend import suspend
from tests.support.worker import WorkerProcess, lives, number_from, until

pytestmark = pytest.mark.integration

K = KernelStatus


@pytest.fixture
async def worker(state: FakeState, nats_url: str, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    async with WorkerProcess(
        nats_url, tmp_path / "w0", stop_grace_s=1, heartbeat_interval_s=0.2
    ) as process:
        await state.registration()
        yield process


# ── running ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def in_the_background() -> Iterator[None]:
    """What is started ignores two signals, as in the background of a shell."""
    ignored = (signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    yield
    for number, handler in zip(ignored, before, strict=True):
        signal.signal(number, handler)


async def test_a_task_gets_signals_as_if_started_by_a_shell(
    in_the_background: None, state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", fresh=True):
        await state.registration()
        ref = await state.run("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
        await state.ended(ref)
    blocked, ignored = (int(line.split()[1], 16) for line in (await state.output(ref)).splitlines())
    reserved = 0b11 << 31  # glibc keeps signals 32 and 33 for itself
    assert (blocked, ignored & ~reserved) == (0, 0)


@pytest.mark.parametrize(("cgroups", "most"), [("false", 0), ("true", 8 << 20)])
async def test_memory_of_the_worker_is_not_taken_for_the_tasks(
    state: FakeState, nats_url: str, tmp_path: Path, cgroups: str, most: int
):
    async with WorkerProcess(nats_url, tmp_path / "w0", cgroups=cgroups):
        await state.registration()
        assert (await state.ended(await state.run("true"))).peak_rss_bytes <= most


async def test_memory_is_limited_without_control_groups(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", cgroups="false", limit_memory="rlimit"):
        await state.registration()
        greedy = ("python3", "-c", "x = bytearray(300 << 20)")
        assert (await state.ended(await state.run(*greedy, memory_bytes=400 << 20))).exit_code == 0
        ended = await state.ended(await state.run(*greedy, memory_bytes=200 << 20))
        assert (ended.exit_code, ended.stderr_tail.splitlines()[-1]) == (1, "MemoryError")


async def test_memory_is_limited_by_samples_without_control_groups(
    state: FakeState, nats_url: str, tmp_path: Path
):
    limit, rest = 200 << 20, "; import time; time.sleep(1000)"
    shared = "x = bytearray(120 << 20); import os; [os.fork() for _ in '12']" + rest
    async with WorkerProcess(nats_url, tmp_path / "w0", cgroups="false"):
        await state.registration()
        several = await state.run("python3", "-c", shared, memory_bytes=limit)
        alone = await state.run(
            "python3", "-c", "x = bytearray(300 << 20)" + rest, memory_bytes=limit
        )
        children = "import os; os.fork(); x = bytearray(130 << 20)" + rest
        together = await state.run("python3", "-c", children, memory_bytes=limit)
        found = [await state.ended(ref) for ref in (alone, together)]

        for ended in found:
            assert (ended.cause, ended.signal) == (Cause.EXITED, signal.SIGKILL)
            assert ended.error.startswith("memory limit 200MiB reached, peak ")
            assert ended.error.endswith(
                ", found by a sample: its host has no control groups for memory"
            )
            assert ended.usage is not None
            assert ended.usage.memory_limit_bytes == limit < ended.peak_rss_bytes
        assert state.end_of(several) is None


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_that_is_told_to_end_takes_its_tasks_along(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    pid = await number_from(tmp_path / "pid")
    assert await worker.stop() == 0
    assert not lives(pid)
    ended = state.end_of(ref)
    assert ended is not None
    assert (ended.cause, ended.signal) == (Cause.CANCELLED, signal.SIGTERM)


async def test_a_worker_that_ends_reports_stopping_and_gone(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("sleep", "1000")
    await state.running(ref)
    assert await worker.stop() == 0
    assert list(dict.fromkeys(state.leaving)) == ["stopping", "gone"]
    assert state.end_of(ref) is not None


async def test_an_order_that_has_expired_begins_nothing(state: FakeState, worker: WorkerProcess):
    await state.until(lambda: len(state.beats) > 0)
    ref, now_ms = AttemptRef(1000, 0, 0), state.beats[-1].monotonic_ms
    late = await state.order([template("true", job=1000)], run=[ref], expires_ms=now_ms - 1)
    assert (late.taken, late.monotonic_ms >= now_ms) == (False, True)
    await state.tell([template("true", job=1000)], run=[ref], expires_ms=now_ms + 60_000)
    assert (await state.ended(ref)).exit_code == 0


async def test_a_worker_that_is_told_to_end_waits_for_no_task_and_no_answer(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref = await state.run(
        "sh", "-c", f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done"
    )
    pid = await number_from(tmp_path / "pid")
    await state.order(stop=[Stop(ref, 1_000_000)])
    state.silent = True
    async with asyncio.timeout(60):
        assert await worker.stop() == 0
    assert not lives(pid)


async def test_a_worker_that_ends_before_it_is_registered_reports_gone(
    state: FakeState, nats_url: str, tmp_path: Path
):
    state.silent = True
    async with WorkerProcess(nats_url, tmp_path / "w0") as worker:
        await state.registration()
        assert await worker.stop() == 0
    assert "gone" in state.leaving


async def test_a_task_far_past_its_timeout_is_ended_by_its_host(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", timeout_slack_s=0.1):
        await state.registration()
        ended = await state.ended(await state.run("sleep", "1000", timeout_ms=100))
        assert ended.cause is Cause.TIMEOUT


async def test_a_host_keeps_to_the_timeout_that_it_was_told_last(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", timeout_slack_s=0.1):
        await state.registration()
        longer = await state.run("sleep", "1000", timeout_ms=3_600_000)
        await state.running(longer)
        await state.tell(timeouts={longer.job: 1})
        assert (await state.ended(longer)).cause is Cause.TIMEOUT


# ── output ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_flood_is_cut_but_its_end_is_kept(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(nats_url, tmp_path / "w0", log_attempt_bytes=500_000):
        await state.registration()
        ref = await state.run("sh", "-c", "yes | head -c 20000000; echo the end")
        await state.ended(ref)
        chunks = await state.chunks(ref)
    kept, dropped = sum(len(c.data) for c in chunks), sum(c.dropped for c in chunks)
    assert kept < 2_000_000
    assert kept + dropped == 20_000_000 + len("the end\n")
    assert chunks[-1].data.endswith(b"y\nthe end\n")


# ── the state service is away, or has other thoughts ──────────────────────────────────────────────


async def test_what_is_not_answered_is_told_again(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(
        nats_url, tmp_path / "w0", report_timeout_s=0.2, heartbeat_interval_s=1000
    ):
        await state.registration()
        state.silent = True
        ref = await state.run("sleep", "1000")
        await state.until(lambda: any(stage.status is K.RUNNING for stage in state.ignored))
        state.silent = False
        await state.running(ref)
        assert state.reported(ref) == [K.PREPARING, K.RUNNING]


async def test_a_worker_that_is_not_known_registers_with_all_it_runs(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("sleep", "1000")
    await state.running(ref)
    state.known = False
    await state.order(register=True)
    again = await state.registration(2)
    assert [(stage.ref, stage.status) for stage in again.attempts] == [(ref, K.RUNNING)]


async def test_what_was_given_to_others_is_stopped(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    pid = await number_from(tmp_path / "pid")
    await state.running(ref)
    state.drop = (ref,)
    await state.run("true")
    await state.ended(ref)
    assert not lives(pid)


async def test_what_needs_the_devices_of_a_stopped_attempt_waits_for_its_end(
    state: FakeState, nats_url: str, tmp_path: Path
):
    """The worker was LOST, so that its devices count as free when it comes back."""
    all_four = ResourceRequest(device=Device("tpu", count=4))
    until_told = f"until test -e {tmp_path}/over; do sleep 0.01; done"
    async with WorkerProcess(nats_url, tmp_path / "w0", chips=4, attributes="device-type=tpu"):
        await state.registration()
        lost = await state.run("sh", "-c", until_told, resources=all_four, settle_ms=1_000_000)
        await state.running(lost)
        state.drop = (lost,)
        await state.order(register=True)
        await state.registration(2)
        ref = await state.run("true", resources=all_four)
        await state.until(
            lambda: LACKING in {stage.detail for stage in state.stages if stage.ref == ref}
        )
        (tmp_path / "over").touch()
        assert (await state.ended(ref)).exit_code == 0


async def test_a_worker_that_was_asleep_runs_nothing_of_what_it_finds(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", pause_s=0.5) as worker:
        await state.registration()
        suspend(worker.pid)
        with pytest.raises(Unavailable):
            await state.order(
                [template("touch", str(tmp_path / "ran"))], run=[AttemptRef(100, 0, 0)], timeout=1.0
            )
        worker.signal(signal.SIGCONT)
        assert (await state.ended(await state.run("true"))).exit_code == 0
        assert not (tmp_path / "ran").exists()


# ── the worker dies ───────────────────────────────────────────────────────────────────────────────


async def test_a_restarted_worker_adopts_what_still_runs(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    go = tmp_path / "go"
    ref = await state.run(
        "sh", "-c", f"echo before; while ! test -e {go}; do sleep 0.01; done; echo after; exit 4"
    )
    await state.running(ref)
    await worker.kill()
    await worker.start()
    register = await state.registration(2)
    assert [(stage.ref, stage.status) for stage in register.attempts] == [(ref, K.RUNNING)]
    go.touch()
    ended = await state.ended(ref)
    assert await state.output(ref) == b"before\nafter\n"
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 4)


@pytest.mark.parametrize("leaves", ["true", "touch left"])
async def test_the_directory_of_an_adopted_task_serves_the_next_ones(
    state: FakeState, worker: WorkerProcess, tmp_path: Path, leaves: str
):
    go = tmp_path / "go"
    ref = await state.run("sh", "-c", f"{leaves}; while ! test -e {go}; do sleep 0.01; done")
    await state.running(ref)
    await worker.kill()
    await worker.start()
    await state.registration(2)
    go.touch()
    await state.ended(ref)
    for _ in range(3):
        ended = await state.ended(await state.run("sh", "-c", "ls; touch mine"))
        assert (ended.cause, ended.exit_code, ended.error) == (Cause.EXITED, 0, "")


async def test_without_control_groups_a_shells_group_has_the_grace_period_too(
    state: FakeState, nats_url: str, tmp_path: Path
):
    script = "(trap 'echo saved; exit' TERM; echo up; while :; do sleep 0.01; done) & wait"
    async with WorkerProcess(nats_url, tmp_path / "w0", cgroups=False):
        await state.registration()
        ref = await state.run("bash", "-c", script)
        await state.printed(ref, b"up\n")
        await state.order(stop=[Stop(ref, 3_600_000)])
        assert (await state.ended(ref)).signal == signal.SIGTERM
        assert await state.output(ref) == b"up\nsaved\n"


async def test_an_adopted_task_can_be_stopped(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 1000; true")
    pid = await number_from(tmp_path / "pid")
    await state.running(ref)
    await worker.kill()
    await worker.start()
    await state.registration(2)
    await state.order(stop=[Stop(ref, 500)])
    assert (await state.ended(ref)).cause is Cause.CANCELLED
    assert not lives(pid)


async def test_an_adopted_task_is_held_to_its_timeout(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", timeout_slack_s=1) as worker:
        await state.registration()
        ref = await state.run("sleep", "1000", timeout_ms=1)
        await state.running(ref)
        await worker.kill()
        await worker.start()
        assert (await state.ended(ref)).cause is Cause.TIMEOUT


async def test_what_ended_meanwhile_is_told_with_its_output(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    go = tmp_path / "go"
    ref = await state.run(
        "sh",
        "-c",
        f"echo $$ > {tmp_path}/pid; while ! test -e {go}; do sleep 0.01; done; echo late",
    )
    pid = await number_from(tmp_path / "pid")
    await state.running(ref)
    await worker.kill()
    go.touch()
    await until(lambda: not lives(pid))
    await worker.start()
    register = await state.registration(2)
    start, stage = register.attempts
    assert (start.ref, start.status) == (ref, KernelStatus.RUNNING)
    assert stage.ref == ref
    assert stage.ended is not None
    await state.printed(ref, b"late\n")


async def test_an_end_that_nobody_heard_is_told_after_a_restart(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    state.silent = True
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exit 9")
    pid = await number_from(tmp_path / "pid")
    await until(lambda: not Path(f"/proc/{pid}").exists())
    await state.until(
        lambda: any(s.ended is not None for beat in state.beats for s in beat.attempts)
    )
    await worker.kill()
    state.silent = False
    await worker.start()
    start, stage = (await state.registration(2)).attempts
    assert (start.ref, start.status) == (ref, KernelStatus.RUNNING)
    assert stage.ref == ref
    assert stage.ended is not None
    assert stage.ended.exit_code == 9


async def test_a_heartbeat_that_tells_an_end_tells_the_start_before_it(
    state: FakeState, worker: WorkerProcess
):
    """Reports are not answered, so heartbeats are all the state service may come to hear."""
    state.silent = True
    ref = await state.run("true")
    await state.until(
        lambda: any(stage.ended is not None for beat in state.beats for stage in beat.attempts)
    )
    said = next(
        beat.attempts
        for beat in state.beats
        if any(stage.ended is not None for stage in beat.attempts)
    )
    assert [(stage.ref, stage.status) for stage in said] == [
        (ref, KernelStatus.PREPARING),
        (ref, KernelStatus.RUNNING),
        (ref, KernelStatus.TERMINATED),
    ]


async def test_a_start_says_when_it_was_by_a_clock_that_nobody_sets(
    state: FakeState, worker: WorkerProcess
):
    since_boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    first = state.registered[0]
    await worker.kill()
    await worker.start()
    second = await state.registration(2)
    assert (first.boot, second.boot) == (boot_id(), boot_id())
    assert first.monotonic_ms <= since_boot_ms < second.monotonic_ms


async def test_an_order_for_the_worker_before_is_not_taken(state: FakeState, worker: WorkerProcess):
    old = state.registered[0]
    await worker.kill()
    await worker.start()
    await state.registration(2)
    state.registered.append(old)
    assert not (await state.order([template("true")], run=[AttemptRef(1, 0, 0)])).taken


async def test_one_data_directory_has_one_worker(
    state: FakeState, worker: WorkerProcess, nats_url: str
):
    second = WorkerProcess(nats_url, worker.data)
    await second.start()
    assert await second.ended() == 1


async def test_what_cannot_be_written_down_for_the_next_launcher_is_killed_by_it(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    pid = await number_from(tmp_path / "pid")
    os.kill(worker.launcher_pid, signal.SIGKILL)
    await worker.ended()
    (worker.data / "processes").unlink()
    await worker.start()
    assert (await state.registration(2)).attempts == ()
    assert not lives(pid)


# ── the server goes away ──────────────────────────────────────────────────────────────────────────


async def test_work_goes_on_while_the_server_is_away(own_nats: NatsProcess, tmp_path: Path):
    connection = await connect(own_nats.url, name="test")
    await connection.streams.ensure()
    state = await FakeState(connection, "w0").start()
    go = tmp_path / "go"
    async with WorkerProcess(own_nats.url, tmp_path / "w0"):
        await state.registration()
        waiting = f"echo before; while ! test -e {go}; do sleep 0.01; done; echo after; touch {tmp_path}/done"
        ref = await state.run("sh", "-c", waiting)
        await state.printed(ref, b"before\n")
        os.kill(own_nats.pid, signal.SIGKILL)
        go.touch()
        await until((tmp_path / "done").exists)
        assert (await state.ended(ref)).exit_code == 0
        assert (await state.chunks(ref))[-1].data.endswith(
            b"after\n"
        )  # the log stream may forget its last moments
    await connection.close()


# ── hosts that are not what they seem ─────────────────────────────────────────────────────────────


async def test_a_simulated_host_says_what_it_was_told_to(
    state: FakeState, nats_url: str, tmp_path: Path
):
    vm = {
        "attributes": "tpu-name=s0,tpu-worker-id=1",
        "chips": 4,
        "cpu_millis": 7,
        "memory_bytes": 8,
        "disk_bytes": 9,
    }
    async with WorkerProcess(nats_url, tmp_path / "w0", detect="false", address="10.0.0.9", **vm):
        register = await state.registration()
    assert register.attributes == {"tpu-name": "s0", "tpu-worker-id": 1}
    assert register.total == Amount(7, 8, 9, 4)
    assert register.address == "10.0.0.9"


async def test_a_worker_for_measuring_succeeds_without_running(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(
        nats_url, tmp_path / "w0", program="benchmarks.noop_worker", fresh=True
    ):
        await state.registration()
        refs = [AttemptRef(1, index, 0) for index in range(3000)]
        await state.tell([template("touch", f"{tmp_path}/ran")], run=refs)
        await state.until(lambda: {s.ref for s in state.stages if s.ended is not None} == set(refs))
    assert not (tmp_path / "ran").exists()
    assert state.reported(refs[0]) == [K.PREPARING, K.RUNNING, K.TERMINATED]
