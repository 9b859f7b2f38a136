"""What a worker process does with real tasks: they share one worker and one NATS server.

The test stands in for the state service. What needs a worker of its own is in `test_worker`.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from iris_bus.contract import Connection
from iris_bus.jetstream import connect
from iris_core import subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Gang, Stop
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_worker.environment import THREADS
from tests.support.nats import OpenServer, emptied
from tests.support.state import FakeState, template
from tests.support.worker import WorkerProcess, lives, number_from

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

K = KernelStatus


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connection(nats_server: OpenServer) -> AsyncIterator[Connection]:
    made = await connect(await emptied(nats_server.url), name="test")
    await made.streams.ensure()
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def state(connection: Connection) -> FakeState:
    return await FakeState(connection, "w0").start()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(
    state: FakeState, nats_server: OpenServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WorkerProcess]:
    data = tmp_path_factory.mktemp("worker") / "w0"
    async with WorkerProcess(
        nats_server.url, data, stop_grace_s=1, heartbeat_interval_s=0.2
    ) as process:
        await state.registration()
        yield process


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


async def test_a_task_runs_and_its_stages_come_in_order(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "echo hello $IRIS_TASK_INDEX; echo bad >&2; exit 3")
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code, ended.signal, ended.stderr_tail) == (
        Cause.EXITED,
        3,
        None,
        "bad",
    )
    assert state.reported(ref) == [K.PREPARING, K.RUNNING, K.TERMINATED]
    assert await state.output(ref) == b"hello 0\n"
    assert await state.output(ref, "stderr") == b"bad\n"


async def test_a_task_killed_by_a_signal_says_which(state: FakeState, worker: WorkerProcess):
    ended = await state.ended(await state.run("sh", "-c", "kill -SEGV $$"))
    assert (ended.cause, ended.exit_code, ended.signal) == (Cause.EXITED, None, signal.SIGSEGV)


async def test_a_command_that_is_not_there_is_its_owners_failure(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("no-such-command")
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code, ended.error) == (
        Cause.EXITED,
        127,
        "no-such-command: command not found",
    )
    assert await state.output(ref, "stderr") == b"iris: no-such-command: command not found\n"


async def test_a_file_that_may_not_be_executed_is_its_owners_failure(
    state: FakeState, worker: WorkerProcess
):
    ended = await state.ended(await state.run("/etc/passwd"))
    assert (ended.cause, ended.exit_code, ended.error) == (
        Cause.EXITED,
        126,
        "/etc/passwd: permission denied",
    )


async def test_a_script_without_a_first_line_is_run_by_the_shell(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    script = tmp_path / "script"
    script.write_text("exit 7\n")
    script.chmod(0o755)
    assert (await state.ended(await state.run(str(script)))).exit_code == 7


async def test_the_environment_holds_only_what_is_meant_for_a_task(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("env", "-0", env={"MINE": "1", "LANG": "C.UTF-8"}, ports=("http",))
    await state.ended(ref)
    env = dict(
        line.split("=", 1) for line in (await state.output(ref)).decode().split("\0") if line
    )
    assert env.pop("IRIS_PORT_HTTP").isdigit()
    assert env.pop("IRIS_ERROR_FILE").startswith(env["IRIS_WORKDIR"])
    assert env.pop("IRIS_WORKDIR").startswith(f"{worker.data}/attempts/")
    assert {key: env.pop(key) for key in ("PATH", "HOME")} == {
        key: os.environ[key] for key in ("PATH", "HOME")
    }
    assert env == {
        **dict.fromkeys(THREADS, "1"),
        "MINE": "1",
        "LANG": "C.UTF-8",
        "IRIS_JOB": "/t",
        "IRIS_TASK": "/t/0",
        "IRIS_TASK_INDEX": "0",
        "IRIS_NUM_TASKS": "1",
        "IRIS_PROJECT": "/",
        "IRIS_ATTEMPT": "0",
        "IRIS_WORKER_ID": "w0",
        "IRIS_GATEWAY_URL": "http://127.0.0.1:8080",
    }


async def test_a_task_begins_in_its_own_empty_directory(state: FakeState, worker: WorkerProcess):
    for _ in range(3):
        ref = await state.run(
            "sh", "-c", "pwd -P; ls -A; touch left; mkdir -p deep/er; chmod 0 deep"
        )
        await state.ended(ref)
        lines = (await state.output(ref)).decode().splitlines()
        assert len(lines) == 1
        assert lines[0].startswith(str(worker.data / "attempts"))


async def test_a_task_inherits_no_descriptor_but_its_three(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "ls /proc/$$/fd")
    await state.ended(ref)
    assert (await state.output(ref)).split() == [b"0", b"1", b"2"]


async def test_what_a_task_writes_into_its_error_file_is_its_error(
    state: FakeState, worker: WorkerProcess
):
    ended = await state.ended(
        await state.run("sh", "-c", 'printf "no\\nluck" > $IRIS_ERROR_FILE; exit 1')
    )
    assert ended.error == "no luck"


async def test_the_most_memory_a_task_held_is_known(state: FakeState, worker: WorkerProcess):
    ended = await state.ended(await state.run("python3", "-c", "x = bytearray(300 << 20)"))
    assert 300 << 20 <= ended.peak_rss_bytes < 400 << 20


async def test_a_task_leaves_no_core_file(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "ulimit -c")
    await state.ended(ref)
    assert await state.output(ref) == b"0\n"


async def test_stopping_lets_a_task_tidy_up(state: FakeState, worker: WorkerProcess):
    ref = await state.run(
        "sh", "-c", "trap 'echo tidy; exit 5' TERM; echo up; while :; do sleep 0.01; done"
    )
    await state.printed(ref, b"up\n")
    await state.order(stop=[Stop(ref, 10_000)])
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code) == (Cause.CANCELLED, 5)
    assert await state.output(ref) == b"up\ntidy\n"


async def test_a_task_that_will_not_go_is_killed_after_its_grace(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
    await state.printed(ref, b"up\n")
    await state.order(stop=[Stop(ref, 200)])
    ended = await state.ended(ref)
    assert (ended.cause, ended.signal) == (Cause.CANCELLED, signal.SIGKILL)


async def test_a_grace_period_that_has_begun_is_ended_by_a_stop_without_one(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run(
        "sh", "-c", "trap 'echo wait' TERM; echo up; while :; do sleep 0.01; done"
    )
    await state.printed(ref, b"up\n")
    await state.order(stop=[Stop(ref, 3_600_000)])
    await state.printed(ref, b"up\nwait\n")
    await state.order(stop=[Stop(ref, 3_600_000)])
    await state.order(stop=[Stop(ref, 0)])
    ended = await state.ended(ref)
    assert (ended.cause, ended.signal) == (Cause.CANCELLED, signal.SIGKILL)


WRAPPED = """
python3 -u -c '
import signal, sys
def save(*_):
    print("saves", flush=True)
    sys.stdin.read(1)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
signal.pause()
' < {fifo}
echo after
"""


async def test_what_a_shell_has_started_has_the_grace_period_too(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    """The shell ends by the signal, and the program in it when it is done."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ref = await state.run("bash", "-c", WRAPPED.format(fifo=fifo))
    told = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)
    await state.printed(ref, b"up\n")
    await state.order(stop=[Stop(ref, 3_600_000)])
    await state.printed(ref, b"up\nsaves\n")
    assert state.end_of(ref) is None
    os.close(told)
    ended = await state.ended(ref)
    assert (ended.cause, ended.signal) == (Cause.CANCELLED, signal.SIGTERM)
    assert await state.output(ref) == b"up\nsaves\nsaved\n"


async def test_what_is_left_of_a_stopped_task_is_killed_after_its_grace(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    left = tmp_path / "left"
    script = f"(trap '' TERM; echo up; while :; do sleep 1; done) & echo $! > {left}; wait"
    ref = await state.run("bash", "-c", script)
    await state.printed(ref, b"up\n")
    await state.order(stop=[Stop(ref, 300)])
    assert (await state.ended(ref)).signal == signal.SIGTERM
    assert not lives(await number_from(left))


async def test_libraries_start_a_thread_for_each_processor_of_the_task(
    state: FakeState, worker: WorkerProcess
):
    shown = ("sh", "-c", "echo $OMP_NUM_THREADS $MKL_NUM_THREADS $OPENBLAS_NUM_THREADS")
    for asked, env, found in (
        (ResourceRequest(cpu_millis=100), {}, "1 1 1"),
        (ResourceRequest(cpu_millis=2500), {}, "2 2 2"),
        (ResourceRequest(cpu_millis=1000, cpu_limit_millis=4000), {}, "4 4 4"),
        (ResourceRequest(cpu_millis=2000), {"OMP_NUM_THREADS": "3"}, "3 3 3"),
        (ResourceRequest(cpu_millis=2000), {"MKL_NUM_THREADS": "1"}, "2 1 2"),
    ):
        ref = await state.run(*shown, resources=asked, env=env)
        assert (await state.line(ref)) == found


async def test_nothing_a_task_started_survives_it(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    left = tmp_path / "left"
    ref = await state.run("sh", "-c", f"trap '' TERM; sleep 1000 & echo $! > {left}")
    await state.ended(ref)
    assert not lives(await number_from(left))


async def test_not_even_what_left_its_session(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    left = tmp_path / "left"
    daemon = f"setsid env -i sh -c 'echo $$ > {left}; exec sleep 1000' & while ! test -s {left}; do :; done"
    ref = await state.run("sh", "-c", daemon)
    await state.ended(ref)
    assert not lives(await number_from(left))


async def test_a_daemon_of_one_task_outlives_other_tasks(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
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
    ref, words = (
        AttemptRef(900, 1, 0),
        "echo $IRIS_GANG_HOSTS $JAX_PROCESS_ID $JAX_NUM_PROCESSES $TPU_WORKER_HOSTNAMES",
    )
    work = [template("sh", "-c", words, job=900, replicas=2)]
    await state.tell(work, prepare=[ref], gangs=[Gang(900, ("h0", "h1"))])
    await state.until(lambda: K.PREPARED in state.reported(ref))
    await state.until(
        lambda: any(
            (ref, K.PREPARED) in {(s.ref, s.status) for s in beat.attempts} for beat in state.beats
        )
    )
    await state.tell(start=[ref])
    await state.ended(ref)
    assert state.reported(ref) == [K.PREPARING, K.PREPARED, K.CREATING, K.RUNNING, K.TERMINATED]
    assert await state.output(ref) == b"h0,h1 1 2 h0,h1\n"


async def test_a_task_begins_in_a_copy_of_its_bundle(
    state: FakeState, worker: WorkerProcess, connection: Connection
):
    bundle = await stored(
        connection, archive(run="#!/bin/sh\ncat data; echo changed > data", data="as packed\n")
    )
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


async def test_output_is_there_while_a_task_runs(state: FakeState, worker: WorkerProcess):
    ref = await state.run("sh", "-c", "echo early; exec sleep 1000")
    await state.printed(ref, b"early\n")
    assert state.end_of(ref) is None
    await state.order(stop=[Stop(ref, 1000)])
    await state.ended(ref)


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
    ref = await state.run(
        "sh", "-c", f"echo one; read x < {worker.data}/go; echo two > /dev/stdout; echo three"
    )
    await state.printed(ref, b"one\n")
    (worker.data / "go").write_text("go\n")
    await state.ended(ref)
    assert await state.output(ref) == b"one\ntwo\nthree\n"


async def test_many_tasks_at_once_all_end_with_all_their_output(
    state: FakeState, worker: WorkerProcess
):
    refs = [AttemptRef(901, index, 0) for index in range(300)]
    await state.tell(
        [template("sh", "-c", "echo $IRIS_TASK_INDEX; exit $((IRIS_TASK_INDEX % 3))", job=901)],
        run=refs,
    )
    for ref in refs:
        assert (await state.ended(ref)).exit_code == ref.index % 3
    outputs = [await state.output(ref) for ref in refs[::30]]
    assert outputs == [b"%d\n" % ref.index for ref in refs[::30]]
