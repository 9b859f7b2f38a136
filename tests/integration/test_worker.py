"""A worker process on a real NATS server with real tasks; the test stands in for the state service."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from iris_bus.contract import Connection, Unavailable
from iris_bus.jetstream import connect
from iris_core import subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Gang, Stop
from iris_core.resources import Amount
from iris_core.states import Cause, KernelStatus
from iris_nats.nats_process import NatsProcess
from iris_worker.launcher.adopt import boot_id
from tests.support.state import FakeState, template
from tests.support.worker import WorkerProcess, lives, number_from

pytestmark = pytest.mark.integration

K = KernelStatus


@pytest.fixture
async def state(connection: Connection) -> FakeState:
    return await FakeState(connection, "w0").start()


@pytest.fixture
async def worker(state: FakeState, nats_url: str, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    async with WorkerProcess(nats_url, tmp_path / "w0", stop_grace_s=1, heartbeat_interval_s=0.2) as process:
        await state.registration()
        yield process


# ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_task_runs_and_its_stages_come_in_order(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "echo hello $IRIS_TASK_INDEX; echo bad >&2; exit 3")
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code, ended.signal, ended.stderr_tail) == (Cause.EXITED, 3, None, "bad")
    assert state.reported(ref) == [K.PREPARING, K.RUNNING, K.TERMINATED]
    assert await state.output(ref) == b"hello 0\n"
    assert await state.output(ref, "stderr") == b"bad\n"


async def test_a_task_killed_by_a_signal_says_which(state: FakeState, worker: WorkerProcess):
    ended = await state.ended(await state.run("sh", "-c", "kill -SEGV $$"))
    assert (ended.cause, ended.exit_code, ended.signal) == (Cause.EXITED, None, signal.SIGSEGV)


async def test_a_command_that_is_not_there_is_its_owners_failure(state: FakeState, worker: WorkerProcess):
    ref = await state.run("no-such-command")
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code, ended.error) == (Cause.EXITED, 127, "no-such-command: command not found")
    assert await state.output(ref, "stderr") == b"iris: no-such-command: command not found\n"


async def test_a_file_that_may_not_be_executed_is_its_owners_failure(state: FakeState, worker: WorkerProcess):
    ended = await state.ended(await state.run("/etc/passwd"))
    assert (ended.cause, ended.exit_code, ended.error) == (Cause.EXITED, 126, "/etc/passwd: permission denied")


async def test_a_script_without_a_first_line_is_run_by_the_shell(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    script = tmp_path / "script"
    script.write_text("exit 7\n")
    script.chmod(0o755)
    assert (await state.ended(await state.run(str(script)))).exit_code == 7


async def test_the_environment_holds_only_what_is_meant_for_a_task(state: FakeState, worker: WorkerProcess):
    ref = await state.run("env", "-0", env={"MINE": "1", "LANG": "C.UTF-8"}, ports=("http",))
    await state.ended(ref)
    env = dict(line.split("=", 1) for line in (await state.output(ref)).decode().split("\0") if line)
    assert env.pop("IRIS_PORT_HTTP").isdigit()
    assert env.pop("IRIS_ERROR_FILE").startswith(env["IRIS_WORKDIR"])
    assert env.pop("IRIS_WORKDIR").startswith(f"{worker.data}/attempts/")
    assert {key: env.pop(key) for key in ("PATH", "HOME")} == {key: os.environ[key] for key in ("PATH", "HOME")}
    assert env == {
        "MINE": "1",
        "LANG": "C.UTF-8",
        "IRIS_JOB": "/t",
        "IRIS_TASK": "/t/0",
        "IRIS_TASK_INDEX": "0",
        "IRIS_NUM_TASKS": "1",
        "IRIS_ATTEMPT": "0",
        "IRIS_WORKER_ID": "w0",
        "IRIS_GATEWAY_URL": "http://127.0.0.1:8080",
    }


async def test_a_task_begins_in_its_own_empty_directory(state: FakeState, worker: WorkerProcess):
    for _ in range(3):
        ref = await state.run("sh", "-c", "pwd -P; ls -A; touch left; mkdir -p deep/er; chmod 0 deep")
        await state.ended(ref)
        lines = (await state.output(ref)).decode().splitlines()
        assert len(lines) == 1
        assert lines[0].startswith(str(worker.data / "attempts"))


async def test_a_task_inherits_no_descriptor_but_its_three(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "ls /proc/$$/fd")
    await state.ended(ref)
    assert (await state.output(ref)).split() == [b"0", b"1", b"2"]


@pytest.fixture
def in_the_background() -> Iterator[None]:
    """What is started ignores two signals, as in the background of a shell."""
    ignored = (signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    yield
    for number, handler in zip(ignored, before, strict=True):
        signal.signal(number, handler)


async def test_a_task_gets_signals_as_if_started_by_a_shell(
    in_the_background: None, state: FakeState, worker: WorkerProcess
):
    ref = await state.run("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    await state.ended(ref)
    blocked, ignored = (int(line.split()[1], 16) for line in (await state.output(ref)).splitlines())
    reserved = 0b11 << 31  # glibc keeps signals 32 and 33 for itself
    assert (blocked, ignored & ~reserved) == (0, 0)


async def test_what_a_task_writes_into_its_error_file_is_its_error(state: FakeState, worker: WorkerProcess):
    ended = await state.ended(await state.run("sh", "-c", 'printf "no\\nluck" > $IRIS_ERROR_FILE; exit 1'))
    assert ended.error == "no luck"


async def test_the_most_memory_a_task_held_is_known(state: FakeState, worker: WorkerProcess):
    ended = await state.ended(await state.run("python3", "-c", "x = bytearray(300 << 20)"))
    assert 300 << 20 <= ended.peak_rss_bytes < 400 << 20


@pytest.mark.parametrize(("cgroups", "most"), [("false", 0), ("true", 8 << 20)])
async def test_memory_of_the_worker_is_not_taken_for_the_tasks(
    state: FakeState, nats_url: str, tmp_path: Path, cgroups: str, most: int
):
    async with WorkerProcess(nats_url, tmp_path / "w0", cgroups=cgroups):
        await state.registration()
        assert (await state.ended(await state.run("true"))).peak_rss_bytes <= most


async def test_a_task_may_be_held_to_the_memory_it_asked_for_without_control_groups(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(nats_url, tmp_path / "w0", cgroups="false", limit_memory="rlimit"):
        await state.registration()
        greedy = ("python3", "-c", "x = bytearray(300 << 20)")
        assert (await state.ended(await state.run(*greedy, memory_bytes=400 << 20))).exit_code == 0
        ended = await state.ended(await state.run(*greedy, memory_bytes=200 << 20))
        assert (ended.exit_code, ended.stderr_tail.splitlines()[-1]) == (1, "MemoryError")


async def test_a_task_leaves_no_core_file(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "ulimit -c")
    await state.ended(ref)
    assert await state.output(ref) == b"0\n"


# ── stopping ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_stopping_lets_a_task_tidy_up(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "trap 'echo tidy; exit 5' TERM; echo up; while :; do sleep 0.01; done")
    await state.printed(ref, b"up\n")
    await state.order(stop=[Stop(ref, 10_000)])
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code) == (Cause.CANCELLED, 5)
    assert await state.output(ref) == b"up\ntidy\n"


async def test_a_task_that_will_not_go_is_killed_after_its_grace(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
    await state.printed(ref, b"up\n")
    await state.order(stop=[Stop(ref, 200)])
    ended = await state.ended(ref)
    assert (ended.cause, ended.signal) == (Cause.CANCELLED, signal.SIGKILL)


async def test_nothing_a_task_started_survives_it(state: FakeState, worker: WorkerProcess, tmp_path: Path):
    left = tmp_path / "left"
    ref = await state.run("sh", "-c", f"trap '' TERM; sleep 1000 & echo $! > {left}")
    await state.ended(ref)
    assert not lives(await number_from(left))


async def test_not_even_what_left_its_session(state: FakeState, worker: WorkerProcess, tmp_path: Path):
    left = tmp_path / "left"
    daemon = f"setsid env -i sh -c 'echo $$ > {left}; exec sleep 1000' & while ! test -s {left}; do :; done"
    ref = await state.run("sh", "-c", daemon)
    await state.ended(ref)
    assert not lives(await number_from(left))


async def test_a_daemon_of_one_task_outlives_other_tasks(state: FakeState, worker: WorkerProcess, tmp_path: Path):
    left = tmp_path / "left"
    daemon = f"setsid sh -c 'echo $$ > {left}; exec sleep 1000' & exec sleep 1000"
    ref = await state.run("sh", "-c", f"({daemon})")
    pid = await number_from(left)
    await state.ended(await state.run("true"))
    assert lives(pid)
    await state.order(stop=[Stop(ref, 1000)])
    await state.ended(ref)
    assert not lives(pid)


async def test_a_gang_starts_only_when_told(state: FakeState, worker: WorkerProcess):
    ref, words = AttemptRef(9, 1, 0), "echo $IRIS_GANG_HOSTS $JAX_PROCESS_ID $JAX_NUM_PROCESSES $TPU_WORKER_HOSTNAMES"
    work = [template("sh", "-c", words, job=9, replicas=2)]
    await state.order(work, prepare=[ref], gangs=[Gang(9, ("h0", "h1"))])
    await state.until(lambda: K.PREPARED in state.reported(ref))
    await state.until(lambda: any(beat.attempts and beat.attempts[0].status is K.PREPARED for beat in state.beats))
    await state.order(start=[ref])
    await state.ended(ref)
    assert state.reported(ref) == [K.PREPARING, K.PREPARED, K.CREATING, K.RUNNING, K.TERMINATED]
    assert await state.output(ref) == b"h0,h1 1 2 h0,h1\n"


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


async def test_a_worker_that_is_told_to_end_says_that_it_stops_and_that_it_is_gone(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("sleep", "1000")
    await state.running(ref)
    assert await worker.stop() == 0
    assert state.leaving == ["stopping", "gone"]
    assert state.end_of(ref) is not None


async def test_an_order_that_has_expired_begins_nothing(state: FakeState, worker: WorkerProcess):
    await state.until(lambda: len(state.beats) > 0)
    ref, now_ms = AttemptRef(1000, 0, 0), state.beats[-1].monotonic_ms
    late = await state.order([template("true", job=1000)], run=[ref], expires_ms=now_ms - 1)
    assert (late.taken, late.monotonic_ms >= now_ms) == (False, True)
    assert (await state.order([template("true", job=1000)], run=[ref], expires_ms=now_ms + 60_000)).taken
    assert (await state.ended(ref)).exit_code == 0


async def test_a_worker_that_is_told_to_end_waits_for_no_task_and_no_answer(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref = await state.run("sh", "-c", f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done")
    pid = await number_from(tmp_path / "pid")
    await state.order(stop=[Stop(ref, 1_000_000)])
    state.silent = True
    async with asyncio.timeout(12):
        assert await worker.stop() == 0
    assert not lives(pid)


async def test_a_worker_whose_registration_is_not_answered_yet_says_that_it_is_gone(
    state: FakeState, nats_url: str, tmp_path: Path
):
    state.silent = True
    async with WorkerProcess(nats_url, tmp_path / "w0") as worker:
        await state.registration()
        assert await worker.stop() == 0
    assert "gone" in state.leaving


async def test_a_task_far_past_its_timeout_is_ended_by_its_host(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(nats_url, tmp_path / "w0", timeout_slack_s=0.1):
        await state.registration()
        ended = await state.ended(await state.run("sleep", "1000", timeout_ms=100))
        assert ended.cause is Cause.TIMEOUT


# ── bundles ─────────────────────────────────────────────────────────────────────────────────────────────────────


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            made.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


async def stored(connection: Connection, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    await connection.blobs(subjects.BUNDLES_BUCKET).put(digest, data)
    return digest


async def test_a_task_begins_in_a_copy_of_its_bundle(state: FakeState, worker: WorkerProcess, connection: Connection):
    bundle = await stored(connection, archive(run="#!/bin/sh\ncat data; echo changed > data", data="as packed\n"))
    for _ in range(2):
        ref = await state.run("./run", bundle=bundle)
        assert (await state.ended(ref)).exit_code == 0
        assert await state.output(ref) == b"as packed\n"
        assert state.reported(ref) == [K.PREPARING, K.PULLING, K.RUNNING, K.TERMINATED]


async def test_a_bundle_that_nobody_stored_is_not_the_tasks_failure(
    state: FakeState, worker: WorkerProcess, connection: Connection
):
    await stored(connection, archive(other=""))
    ref = await state.run("true", bundle="0" * 64)
    ended = await state.ended(ref)
    assert (ended.cause, ended.error) == (Cause.INFRASTRUCTURE, "bundle: *** is not in the store")
    assert state.reported(ref) == [K.PREPARING, K.PULLING, K.ERROR]


async def test_a_hostile_bundle_is_its_owners_failure(
    state: FakeState, worker: WorkerProcess, connection: Connection, tmp_path: Path
):
    bundle = await stored(connection, archive(**{"../../../../escaped": "x"}))
    ended = await state.ended(await state.run("true", bundle=bundle))
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 126)
    assert ended.error.startswith("bundle: '../../../../escaped'")
    assert not list(tmp_path.rglob("escaped"))


# ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_output_is_there_while_a_task_runs(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "echo early; exec sleep 1000")
    await state.printed(ref, b"early\n")
    assert state.end_of(ref) is None


async def test_all_output_is_stored_before_the_end_is_told(state: FakeState, worker: WorkerProcess):
    ref = await state.run("seq", "1", "200000")
    await state.ended(ref)
    assert await state.output(ref) == "".join(f"{n}\n" for n in range(1, 200001)).encode()


async def test_the_last_chunk_says_so(state: FakeState, worker: WorkerProcess):
    ref = await state.run("seq", "1", "50000")
    await state.ended(ref)
    chunks = await state.chunks(ref)
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_a_task_may_write_to_its_output_by_name(state: FakeState, worker: WorkerProcess):
    os.mkfifo(worker.data / "go")
    ref = await state.run("sh", "-c", f"echo one; read x < {worker.data}/go; echo two > /dev/stdout; echo three")
    await state.printed(ref, b"one\n")
    (worker.data / "go").write_text("go\n")
    await state.ended(ref)
    assert await state.output(ref) == b"one\ntwo\nthree\n"


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


# ── the state service is away, or has other thoughts ────────────────────────────────────────────────────────────


async def test_what_is_not_answered_is_told_again(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(nats_url, tmp_path / "w0", report_timeout_s=0.2, heartbeat_interval_s=1000):
        await state.registration()
        state.silent = True
        ref = await state.run("sleep", "1000")
        await state.until(lambda: any(stage.status is K.RUNNING for stage in state.ignored))
        state.silent = False
        await state.running(ref)
        assert state.reported(ref) == [K.PREPARING, K.RUNNING]


async def test_a_worker_that_is_not_known_registers_with_all_it_runs(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sleep", "1000")
    await state.running(ref)
    state.known = False
    await state.order(register=True)
    again = await state.registration(2)
    assert [(stage.ref, stage.status) for stage in again.attempts] == [(ref, K.RUNNING)]


async def test_what_was_given_to_others_is_stopped(state: FakeState, worker: WorkerProcess, tmp_path: Path):
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    pid = await number_from(tmp_path / "pid")
    await state.running(ref)
    state.drop = (ref,)
    await state.run("true")
    await state.ended(ref)
    assert not lives(pid)


async def test_a_worker_that_was_asleep_runs_nothing_of_what_it_finds(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(nats_url, tmp_path / "w0", pause_s=0.5) as worker:
        await state.registration()
        worker.signal(signal.SIGSTOP)
        with pytest.raises(Unavailable):
            await state.order([template("touch", str(tmp_path / "ran"))], run=[AttemptRef(100, 0, 0)], timeout=1.0)
        worker.signal(signal.SIGCONT)
        assert (await state.ended(await state.run("true"))).exit_code == 0
        assert not (tmp_path / "ran").exists()


# ── the worker dies ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_restarted_worker_adopts_what_still_runs(state: FakeState, worker: WorkerProcess, tmp_path: Path):
    go = tmp_path / "go"
    ref = await state.run("sh", "-c", f"echo before; while ! test -e {go}; do sleep 0.01; done; echo after; exit 4")
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


async def test_an_adopted_task_can_be_stopped(state: FakeState, worker: WorkerProcess, tmp_path: Path):
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 1000; true")
    pid = await number_from(tmp_path / "pid")
    await state.running(ref)
    await worker.kill()
    await worker.start()
    await state.registration(2)
    await state.order(stop=[Stop(ref, 500)])
    assert (await state.ended(ref)).cause is Cause.CANCELLED
    assert not lives(pid)


async def test_an_adopted_task_is_held_to_its_timeout(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(nats_url, tmp_path / "w0", timeout_slack_s=1) as worker:
        await state.registration()
        ref = await state.run("sleep", "1000", timeout_ms=1)
        await state.running(ref)
        await worker.kill()
        await worker.start()
        assert (await state.ended(ref)).cause is Cause.TIMEOUT


async def test_what_ended_meanwhile_is_told_with_its_output(state: FakeState, worker: WorkerProcess, tmp_path: Path):
    go = tmp_path / "go"
    ref = await state.run("sh", "-c", f"echo $$ > {tmp_path}/pid; while ! test -e {go}; do sleep 0.01; done; echo late")
    pid = await number_from(tmp_path / "pid")
    await state.running(ref)
    await worker.kill()
    go.touch()
    async with asyncio.timeout(10):
        while lives(pid):
            await asyncio.sleep(0.01)
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
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
    await state.until(lambda: any(s.ended is not None for beat in state.beats for s in beat.attempts))
    await worker.kill()
    state.silent = False
    await worker.start()
    start, stage = (await state.registration(2)).attempts
    assert (start.ref, start.status) == (ref, KernelStatus.RUNNING)
    assert stage.ref == ref
    assert stage.ended is not None
    assert stage.ended.exit_code == 9


async def test_a_heartbeat_that_tells_an_end_tells_the_start_before_it(state: FakeState, worker: WorkerProcess):
    """Reports are not answered, so heartbeats are all the state service may come to hear."""
    state.silent = True
    ref = await state.run("true")
    await state.until(lambda: any(stage.ended is not None for beat in state.beats for stage in beat.attempts))
    said = next(beat.attempts for beat in state.beats if any(stage.ended is not None for stage in beat.attempts))
    assert [(stage.ref, stage.status) for stage in said] == [
        (ref, KernelStatus.PREPARING),
        (ref, KernelStatus.RUNNING),
        (ref, KernelStatus.TERMINATED),
    ]


async def test_a_start_says_when_it_was_by_a_clock_that_nobody_sets(state: FakeState, worker: WorkerProcess):
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


async def test_one_data_directory_has_one_worker(state: FakeState, worker: WorkerProcess, nats_url: str):
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


# ── the server goes away ────────────────────────────────────────────────────────────────────────────────────────


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
        async with asyncio.timeout(20):
            while not (tmp_path / "done").exists():
                await asyncio.sleep(0.01)
        assert (await state.ended(ref)).exit_code == 0
        assert (await state.chunks(ref))[-1].data.endswith(b"after\n")  # the log stream may forget its last moments
    await connection.close()


# ── hosts that are not what they seem ───────────────────────────────────────────────────────────────────────────


async def test_a_simulated_host_says_what_it_was_told_to(state: FakeState, nats_url: str, tmp_path: Path):
    vm = {"attributes": "tpu-name=s0,tpu-worker-id=1", "chips": 4, "cpu_millis": 7, "memory_bytes": 8, "disk_bytes": 9}
    async with WorkerProcess(nats_url, tmp_path / "w0", detect="false", address="10.0.0.9", **vm):
        register = await state.registration()
    assert register.attributes == {"tpu-name": "s0", "tpu-worker-id": 1}
    assert register.total == Amount(7, 8, 9, 4)
    assert register.address == "10.0.0.9"


async def test_a_worker_for_measuring_succeeds_without_running(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(nats_url, tmp_path / "w0", program="benchmarks.noop_worker"):
        await state.registration()
        refs = [AttemptRef(1, index, 0) for index in range(3000)]
        await state.order([template("touch", f"{tmp_path}/ran")], run=refs)
        await state.until(lambda: {s.ref for s in state.stages if s.ended is not None} == set(refs))
    assert not (tmp_path / "ran").exists()
    assert state.reported(refs[0]) == [K.PREPARING, K.RUNNING, K.TERMINATED]


async def test_many_tasks_at_once_all_end_with_all_their_output(state: FakeState, worker: WorkerProcess):
    refs = [AttemptRef(1, index, 0) for index in range(300)]
    await state.order([template("sh", "-c", "echo $IRIS_TASK_INDEX; exit $((IRIS_TASK_INDEX % 3))")], run=refs)
    for ref in refs:
        assert (await state.ended(ref)).exit_code == ref.index % 3
    outputs = [await state.output(ref) for ref in refs[::30]]
    assert outputs == [b"%d\n" % ref.index for ref in refs[::30]]
