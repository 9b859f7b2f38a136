"""A worker that is killed, and the launcher that goes on without it: nothing runs twice, every exit
code is known.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris_bus.contract import Connection
from iris_core import subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Register
from iris_core.states import Cause, KernelStatus
from iris_worker.launcher import rescue
from tests.support.state import FakeState, template
from tests.support.suspend import suspend
from tests.support.worker import WorkerProcess, lives, until

pytestmark = pytest.mark.integration

K = KernelStatus
CANNOT_START = "could not be started on this host"
PTRACE_ATTACH = 16
SILENT = "the launcher has not answered for "
NO_ROOM = "process store: File too large"


@pytest.fixture
async def worker(state: FakeState, nats_url: str, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    settings = {
        "stop_grace_s": 1,
        "heartbeat_interval_s": 0.2,
        "pause_s": 60,
    }  # nobody continues what a test stops
    async with WorkerProcess(nats_url, tmp_path / "w0", **settings) as process:  # type: ignore[arg-type]
        await state.registration()
        yield process


def waiting(go: Path) -> str:
    return f"while ! test -e {go}; do sleep 0.01; done"


def ends(register: Register) -> dict[AttemptRef, tuple[Cause, int | None]]:
    return {
        s.ref: (s.ended.cause, s.ended.exit_code) for s in register.attempts if s.ended is not None
    }


async def test_what_was_requested_before_a_worker_died_runs_once(
    state: FakeState, worker: WorkerProcess, connection: Connection, tmp_path: Path
):
    launcher = worker.launcher_pid
    suspend(launcher)
    ref = await state.run("sh", "-c", f"echo ran >> {tmp_path}/runs; echo all; exit 7")
    await state.until(lambda: state.reported(ref) == [K.PREPARING])
    await connection.bus.flush()
    answered_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    # It requests when its report is answered; that is behind it when it has sent several heartbeats
    # since.
    await state.until(lambda: sum(beat.monotonic_ms > answered_ms for beat in state.beats) >= 5)
    await worker.kill()
    assert not (tmp_path / "runs").exists()
    os.kill(launcher, signal.SIGCONT)
    await until(lambda: not worker.launchers())
    await worker.start()
    register = await state.registration(2)
    assert [stage.status for stage in register.attempts] == [K.RUNNING, K.TERMINATED]
    assert ends(register) == {ref: (Cause.EXITED, 7)}
    await state.printed(ref, b"all\n")
    assert (tmp_path / "runs").read_text() == "ran\n"


async def test_an_adopted_task_ends_with_its_exit_code_and_all_its_output(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    go, launcher = tmp_path / "go", worker.launcher_pid
    ref = await state.run("sh", "-c", f"echo before; {waiting(go)}; echo after; exit 7")
    await state.printed(ref, b"before\n")
    for number in (2, 3):
        await worker.kill()
        await worker.start()
        register = await state.registration(number)
        assert [(stage.ref, stage.status) for stage in register.attempts] == [(ref, K.RUNNING)]
    go.touch()
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code, worker.launchers()) == (Cause.EXITED, 7, [launcher])
    assert await state.output(ref) == b"before\nafter\n"


async def test_tasks_that_end_while_no_worker_lives_are_reported_as_they_ended(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    go = tmp_path / "go"
    commands = ["exit 7", "exit 0", "kill -SEGV $$", 'printf "no luck" > $IRIS_ERROR_FILE; exit 1']
    refs = [
        await state.run("sh", "-c", f"{waiting(go)}; echo late; {command}") for command in commands
    ]
    for ref in refs:
        await state.running(ref)
    await worker.kill()
    go.touch()
    await until(lambda: not worker.launchers())
    await worker.start()
    register = await state.registration(2)
    found = [
        s.ended for ref in refs for s in register.attempts if s.ref == ref and s.ended is not None
    ]
    assert [(e.exit_code, e.signal) for e in found] == [
        (7, None),
        (0, None),
        (None, signal.SIGSEGV),
        (1, None),
    ]
    assert found[3].error == "no luck"
    for ref in refs:
        await state.printed(ref, b"late\n")


async def test_tasks_run_once_whenever_their_worker_is_killed(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    runs = tmp_path / "runs"
    command = f"echo $IRIS_JOB >> {runs}; sleep 0.02; exit 7"
    for number in range(2, 8):
        refs = [AttemptRef(number * 100 + n, 0, 0) for n in range(20)]
        work = [template("sh", "-c", command, job=ref.job, name=f"/{ref.job}") for ref in refs]
        await state.tell(work, run=refs)
        await until(
            lambda number=number: runs.exists() and len(runs.read_text().split()) >= number * 3
        )
        await worker.kill()
        await worker.start()
        await state.registration(number)
    known = {stage.ref for register in state.registered for stage in register.attempts}
    known |= {stage.ref for stage in state.stages}
    began = [AttemptRef(int(line[1:]), 0, 0) for line in runs.read_text().split()]
    ended = [await state.ended(ref) for ref in began]
    assert len(began) == len(set(began))
    assert {(e.cause, e.exit_code) for e in ended} == {(Cause.EXITED, 7)}
    assert set(began) <= known


async def test_a_worker_ends_with_its_launcher_and_the_next_one_adopts_its_tasks(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    go = tmp_path / "go"
    runs = await state.run("sh", "-c", f"echo before; {waiting(go)}; echo after")
    await state.printed(runs, b"before\n")
    state.silent = True
    ended = await state.run("sh", "-c", "exit 7")
    await state.until(
        lambda: any(stage.ref == ended and stage.ended is not None for stage in state.ignored)
    )
    os.kill(worker.launcher_pid, signal.SIGKILL)
    assert await worker.ended() == 1
    state.silent = False
    await worker.start()
    register = await state.registration(2)
    assert {stage.ref for stage in register.attempts} == {runs, ended}
    assert ends(register) == {ended: (Cause.EXITED, 7)}
    go.touch()
    end = await state.ended(runs)
    assert (end.cause, end.exit_code) in {
        (Cause.EXITED, 0),
        (Cause.WORKER_CRASHED, None),
    }  # as the kernel allows
    assert await state.output(runs) == b"before\nafter\n"


async def test_a_launcher_that_somebody_stops_is_continued(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(
        nats_url, tmp_path / "w0", heartbeat_interval_s=0.2, pause_s=1
    ) as worker:
        await state.registration()
        launcher = worker.launcher_pid
        suspend(launcher)
        assert (await state.ended(await state.run("true"))).exit_code == 0
        assert worker.launchers() == [launcher]


async def test_an_unusable_launcher_is_a_fault_of_the_host_and_is_replaced(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with WorkerProcess(
        nats_url, tmp_path / "w0", heartbeat_interval_s=0.2, pause_s=0.4
    ) as worker:
        await state.registration()
        ref, launcher = await state.run("sleep", "1000"), worker.launcher_pid
        await state.running(ref)
        assert (
            ctypes.CDLL(None).ptrace(PTRACE_ATTACH, launcher, 0, 0) == 0
        )  # SIGCONT does not help it
        await until(lambda: not lives(launcher))
        assert any(SILENT in beat.detail for beat in state.beats)
        assert await worker.ended() == 1
        await worker.start()
        register = await state.registration(2)
        assert [(stage.ref, stage.status) for stage in register.attempts] == [(ref, K.RUNNING)]
        assert worker.launcher_pid != launcher


async def test_a_worker_that_starts_continues_the_launcher_that_it_finds(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    ref, launcher = await state.run("sleep", "1000"), worker.launcher_pid
    await state.running(ref)
    suspend(launcher)
    await worker.kill()
    await worker.start()
    register = await state.registration(2)
    assert [(stage.ref, stage.status) for stage in register.attempts] == [(ref, K.RUNNING)]
    assert worker.launchers() == [launcher]


def test_what_a_launcher_waits_for_is_ended_when_it_is_stopped(tmp_path: Path):
    workdir = tmp_path / "attempts" / "3" / "7-0-1"
    workdir.mkdir(parents=True)
    stops = f"os.chdir({str(workdir)!r}); os.kill(os.getpid(), signal.SIGSTOP)"
    code = f"import os, signal\nif os.fork(): os.wait()\nelse: {stops}"
    waits = subprocess.Popen((sys.executable, "-c", code, rescue.MODULE, str(tmp_path)))
    found: set[str] = set()
    while not found:
        found = rescue.resume(tmp_path)
    assert found == {"3/7-0-1"}
    assert waits.wait(60) == 0


async def test_nothing_starts_that_cannot_be_recorded_until_it_can_be(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    await state.ended(await state.run("true"))
    _, most = resource.prlimit(worker.launcher_pid, resource.RLIMIT_FSIZE)
    resource.prlimit(
        worker.launcher_pid, resource.RLIMIT_FSIZE, (0, most)
    )  # its writes fail, as on a full disk
    refs = [await state.run("touch", str(tmp_path / "ran")) for _ in range(2)]
    ends = [await state.ended(ref) for ref in refs]
    assert {(end.cause, end.error) for end in ends} == {
        (Cause.INFRASTRUCTURE, f"{CANNOT_START}: {NO_ROOM}")
    }
    await state.until(lambda: [beat.detail for beat in state.beats][-1:] == [NO_ROOM])
    resource.prlimit(worker.launcher_pid, resource.RLIMIT_FSIZE, (most, most))
    await state.until(lambda: state.beats[-1].healthy)
    assert not (tmp_path / "ran").exists()
    assert (await state.ended(await state.run("touch", str(tmp_path / "ran")))).exit_code == 0


async def test_a_launcher_without_descriptors_keeps_its_tasks_and_recovers(
    state: FakeState, nats_url: str, tmp_path: Path
):
    go, log = tmp_path / "go", tmp_path / "log"
    async with WorkerProcess(nats_url, tmp_path / "w0", log=log) as worker:
        await state.registration()
        ref, launcher = await state.run("sh", "-c", f"{waiting(go)}; exit 7"), worker.launcher_pid
        await state.running(ref)
        _, most = resource.prlimit(launcher, resource.RLIMIT_NOFILE)
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (0, most))
        await worker.kill()
        await worker.start()
        await until(
            lambda: "a worker cannot be accepted now: Too many open files" in log.read_text()
        )
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (most, most))
        await state.registration(2)
        go.touch()
        assert ((await state.ended(ref)).exit_code, worker.launchers()) == (7, [launcher])


async def test_a_launcher_ends_with_a_worker_that_is_told_to_end(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("sleep", "1000")
    await state.running(ref)
    assert len(worker.launchers()) == 1
    assert await worker.stop() == 0
    await until(lambda: not worker.launchers())


async def test_a_task_sees_nothing_of_the_workers_environment_in_its_parents(
    state: FakeState, nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET", "s3cret")
    async with WorkerProcess(nats_url, tmp_path / "w0"):
        await state.registration()
        ref = await state.run("sh", "-c", "tr '\\0' '\\n' < /proc/$PPID/environ | grep -c s3cret")
        assert (await state.ended(ref)).exit_code == 1
        assert await state.output(ref) == b"0\n"


async def test_an_output_directory_is_stored_by_the_next_worker(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    work = f"echo ran >> {tmp_path}/runs; head -c 30000000 /dev/urandom > out/x; exit 3"
    ref = await state.run("sh", "-c", work, output="out")
    await state.until(lambda: any("being stored" in stage.detail for stage in state.stages))
    await worker.kill()
    await worker.start()
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code, (tmp_path / "runs").read_text()) == (
        Cause.EXITED,
        3,
        "ran\n",
    )
    assert ended.artifact is not None
    size, after = 0, 0
    while part := await state.connection.streams.next(
        "IRIS_ARTIFACTS", after, subject=subjects.artifact("w0", ref.job, ended.artifact.upload)
    ):
        size, after = size + len(part.data), part.sequence
    assert size == ended.artifact.bytes > 30_000_000
