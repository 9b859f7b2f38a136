"""Tasks in containers of an image: real runtimes, an image of programs of this machine, no
registry.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Stop
from iris_core.spec.jobs import Environment
from iris_core.states import Cause, KernelStatus
from tests.support.cluster import Cluster, cluster_on
from tests.support.cluster import until as cluster_until
from tests.support.runtimes import IMAGE, RUNTIMES, OwnRuntime
from tests.support.state import GRANT, FakeState
from tests.support.worker import WorkerProcess, until

pytestmark = pytest.mark.integration

TOOLS = Environment(image=IMAGE)
MIB = 1 << 20
FINE_MS = 20_000


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OwnRuntime:
    found: OwnRuntime = request.getfixturevalue(request.param)
    for name, value in found.environ.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
async def worker(
    runtime: OwnRuntime, state: FakeState, nats_url: str, tmp_path: Path
) -> AsyncIterator[WorkerProcess]:
    """As root's is by default: tasks are users of a pool, and sandboxed."""
    given = {"run_as": "", "sandbox": "auto", "stop_grace_s": 1, "heartbeat_interval_s": 0.2}
    async with WorkerProcess(
        nats_url, tmp_path / "w0", container_runtime=runtime.name, **given
    ) as process:
        register = await state.registration()
        assert register.attributes["container-runtime"] == runtime.name
        yield process


async def run(state: FakeState, *command: str, **more: object) -> AttemptRef:
    return await state.run(*command, environment=TOOLS, **more)


def client_of(worker: WorkerProcess) -> psutil.Process:
    """The runtime's client that a launcher has started."""
    found = psutil.process_iter(["cmdline", "environ"])
    return next(
        process
        for process in found
        if (process.info["cmdline"] or [])[1:2] == ["run"]
        and str(worker.data) in (process.info["environ"] or {}).get("IRIS_WORKDIR", "")
    )


def directory_of(worker: WorkerProcess, ref: AttemptRef) -> Path:
    """Of an attempt in the first slot."""
    return worker.data / "attempts" / "0" / f"{ref.job}-{ref.index}-{ref.attempt}"


async def test_a_task_runs_in_its_image_and_ends_with_its_exit_code_and_output(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    script = """echo "$FROM_IMAGE $KEY $IRIS_TASK_INDEX"; id -u; pwd; echo "$HOME"; ls /etc; echo err >&2
read -r token <"$IRIS_TOKEN_FILE"; [ "$token" = "$IRIS_TOKEN" ] && exit 3"""
    ref = await run(
        state, "sh", "-c", script, env={"KEY": "a b='c'"}, memory_bytes=64 * MIB, grant=GRANT
    )
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 3)
    words, uid, workdir, home, *etc = (await state.output(ref)).decode().splitlines()
    assert words == "yes a b='c' 0"
    assert int(uid) >= 61_184
    assert workdir == home == str(directory_of(worker, ref))
    assert {"group", "passwd"} <= set(etc)
    assert "debian_version" not in etc
    assert await state.output(ref, "stderr") == b"err\n"
    assert runtime.containers() == []
    assert list((worker.data / "containers").iterdir()) == []


async def test_a_task_that_is_stopped_gets_term_and_then_kill(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    obeys = await run(
        state, "sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done"
    )
    plain = await run(state, "sleep", "1000")
    stubborn = await run(state, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.02; done")
    for ref in (obeys, stubborn):
        await state.printed(ref, b"up\n")
    await until(lambda: len(runtime.running()) == 3)
    graces = {obeys: FINE_MS, plain: FINE_MS, stubborn: 100}
    await state.order(stop=[Stop(ref, ms) for ref, ms in graces.items()])
    ends = [await state.ended(ref) for ref in graces]
    assert [ended.cause for ended in ends] == [Cause.CANCELLED] * 3
    assert [(ended.exit_code, ended.signal) for ended in ends] == [(7, None), (None, 15), (None, 9)]
    assert await state.output(obeys) == b"up\nbye\n"
    assert runtime.containers() == []


async def test_a_task_that_takes_too_much_memory_is_told_its_limit(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    ref = await run(state, "sh", "-c", "x=a; while :; do x=$x$x; done", memory_bytes=64 * MIB)
    ended = await state.ended(ref)
    assert (ended.signal, ended.error) == (9, "memory limit 64MiB reached, peak 64MiB")


async def test_what_a_container_uses_is_measured(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    ref = await run(state, "sh", "-c", "while :; do :; done")

    def measured() -> bool:
        return any(
            live.ref == ref and live.usage.cpu_ms and live.rss_bytes
            for live in state.beats[-1].usage
        )

    await state.until(lambda: bool(state.beats) and measured())
    await state.order(stop=[Stop(ref, 0)])
    ended = await state.ended(ref)
    assert ended.usage is not None
    assert ended.usage.cpu_ms > 0
    assert 0 < ended.peak_rss_bytes < 64 * MIB


async def test_a_restarted_worker_adopts_the_task_and_reports_its_exit_code(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    ref = await run(
        state, "sh", "-c", "echo up; until [ -e end ]; do sleep 0.02; done; echo down; exit 5"
    )
    await state.printed(ref, b"up\n")
    await worker.kill()
    await worker.start()
    await state.registration(2)
    (directory_of(worker, ref) / "end").touch()
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 5)
    assert await state.output(ref) == b"up\ndown\n"
    assert runtime.containers() == []


async def test_the_exit_code_is_known_although_nobody_saw_the_end_of_the_process(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    ref = await run(state, "sh", "-c", "echo up; until [ -e end ]; do sleep 0.02; done; exit 6")
    await state.printed(ref, b"up\n")
    client = client_of(worker)
    os.kill(worker.launcher_pid, signal.SIGKILL)
    await worker.ended()
    (directory_of(worker, ref) / "end").touch()
    await until(lambda: not client.is_running() or client.status() == psutil.STATUS_ZOMBIE)
    await worker.start()
    ended = await state.ended(ref)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 6)
    assert runtime.containers() == []


async def test_no_container_outlives_its_client(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    ref = await run(state, "sh", "-c", "echo up; sleep 1000")
    await state.printed(ref, b"up\n")
    client_of(worker).kill()
    ended = await state.ended(ref)
    assert ended.signal == signal.SIGKILL
    assert runtime.containers() == []


async def test_a_worker_removes_what_an_earlier_one_left(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    ref = await run(state, "sh", "-c", "echo up; sleep 1000")
    await state.printed(ref, b"up\n")
    launcher = worker.launcher_pid
    await worker.kill()
    os.kill(launcher, signal.SIGKILL)
    (worker.data / "processes").unlink()  # as after a crash of the host
    assert len(runtime.containers()) == 1
    await worker.start()
    await state.registration(2)
    await until(lambda: runtime.containers() == [])


def wrap_podman(podman: OwnRuntime, place: Path, patch: pytest.MonkeyPatch, script: str) -> None:
    """Have workers find a podman that first runs these lines of shell; ``$podman`` is the real
    one.
    """
    program = place / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncd {place}\npodman={shutil.which("podman")}\n{script}\nexec $podman "$@"\n'
    )
    program.chmod(0o755)
    for name, value in {**podman.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}.items():
        patch.setenv(name, value)


async def test_an_image_is_pulled_once_for_all_tasks_that_wait_for_it(
    state: FakeState,
    podman: OwnRuntime,
    nats_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    pull = f'echo "$2" >>pulls; until [ -e go ]; do sleep 0.02; done; set -- tag {IMAGE} "${{2#docker://}}"'
    wrap_podman(podman, tmp_path, monkeypatch, f'if [ "$1" = pull ]; then {pull}; fi')
    far = Environment(image="localhost/far:1")
    given = {"container_runtime": "podman", "heartbeat_interval_s": 0.2}
    async with WorkerProcess(nats_url, tmp_path / "w0", **given):  # type: ignore[arg-type]
        await state.registration()
        first = await state.run("sh", "-c", "exit 3", environment=far)
        await until((tmp_path / "pulls").exists)
        second = await state.run("sh", "-c", "exit 4", environment=far)
        waits = "waits for /t/0, which pulls image localhost/far:1"
        await state.until(
            lambda: any(stage.ref == second and stage.detail == waits for stage in state.stages)
        )
        (tmp_path / "go").touch()
        assert [(await state.ended(ref)).exit_code for ref in (first, second)] == [3, 4]
    assert (tmp_path / "pulls").read_text() == "docker://localhost/far:1\n"
    podman("rmi", "localhost/far:1")


async def test_while_a_runtime_is_silent_ends_wait_and_the_host_is_to_blame(
    state: FakeState,
    podman: OwnRuntime,
    nats_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    silent = tmp_path / "silent"
    wrap_podman(podman, tmp_path, monkeypatch, "[ ! -e silent ] || exit 1")
    given = {"container_runtime": "podman", "heartbeat_interval_s": 0.2}
    async with WorkerProcess(nats_url, tmp_path / "w0", **given) as worker:  # type: ignore[arg-type]
        await state.registration()
        ref = await run(state, "sh", "-c", "echo up; until [ -e end ]; do sleep 0.02; done; exit 8")
        killed = await run(state, "sh", "-c", "echo up; sleep 1000")
        for running in (ref, killed):
            await state.printed(running, b"up\n")
        name = f"iris-{killed.job}-{killed.index}-{killed.attempt}-"
        [container] = [one for one in podman.running() if one.startswith(name)]
        first = int(podman("inspect", "--format", "{{.State.Pid}}", container))
        silent.touch()
        os.kill(first, signal.SIGKILL)  # as docker does when it stops
        await state.until(
            lambda: state.beats != [] and state.beats[-1].detail.startswith("podman: ")
        )
        (directory_of(worker, ref) / "end").touch()
        await until(lambda: not psutil.Process(worker.launcher_pid).children())
        unpulled = await state.ended(
            await state.run("true", environment=Environment(image="localhost:1/nothing:1"))
        )
        assert unpulled.cause is Cause.INFRASTRUCTURE
        assert unpulled.error.endswith("podman does not answer")
        assert state.end_of(ref) is None
        silent.unlink()
        assert (await state.ended(ref)).exit_code == 8
        assert (await state.ended(killed)).cause is Cause.WORKER_CRASHED
        assert podman.containers() == []
        await state.until(lambda: state.beats[-1].healthy)


async def test_a_runtime_may_come_and_go_while_its_worker_runs(
    state: FakeState,
    podman: OwnRuntime,
    nats_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    (silent := tmp_path / "silent").touch()
    wrap_podman(podman, tmp_path, monkeypatch, "[ ! -e silent ] || exit 1")
    given = {
        "container_runtime": "podman",
        "container_runtime_interval_s": 0.1,
        "attributes": "zone=a",
    }
    async with WorkerProcess(nats_url, tmp_path / "w0", **given):  # type: ignore[arg-type]
        without = (await state.registration()).attributes
        assert "container-runtime" not in without
        silent.unlink()
        found = await state.registration(2)
        assert found.attributes == {**without, "container-runtime": "podman"}
        assert (await state.ended(await run(state, "sh", "-c", "exit 3"))).exit_code == 3
        silent.touch()
        gone = await state.registration(3)
        assert (gone.attributes, gone.incarnation) == (without, found.incarnation)


async def test_an_unavailable_image_is_the_owners_failure_in_the_runtimes_words(
    state: FakeState, worker: WorkerProcess, runtime: OwnRuntime
):
    missing = "localhost:1/nobody/nothing:1"
    ref = await state.run("true", environment=Environment(image=missing))
    ended = await state.ended(ref)
    assert ended.cause is Cause.EXITED
    assert ended.error.startswith(f"image {missing} could not be pulled: exit code 1")
    assert "localhost:1" in ended.stderr_tail
    assert KernelStatus.PULLING in state.reported(ref)
    details = {stage.detail for stage in state.stages if stage.ref == ref}
    assert f"pulls image {missing}" in details
    output = await state.output(ref, "stderr")
    assert output.startswith(f"iris: pulls image {missing}\n".encode())
    assert await state.output(ref) == b""


@pytest.fixture(scope="module", params=RUNTIMES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    runtime: OwnRuntime = request.getfixturevalue(request.param)
    data = tmp_path_factory.mktemp("image") / "data"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in runtime.environ.items():
            patch.setenv(name, value)
        with cluster_on(data, "--workers", "1", "--sandbox", containers=runtime.name) as running:
            yield running


def test_a_person_runs_an_image_and_looks_into_its_container(cluster: Cluster, tmp_path: Path):
    script = 'echo "$FROM_IMAGE $IRIS_JOB"; exit 3'
    ended = cluster.iris("run", "--name", "once", "--image", IMAGE, "--", "sh", "-c", script)
    assert (ended.code, ended.out) == (3, "yes /once\n")

    job = cluster.submit("sh", "-c", "echo made > made; sleep 1000", name="long", image=IMAGE)
    task = f"{job.name}/0"
    look = ("exec", "-n", task, "--", "sh", "-c", 'echo "$FROM_IMAGE $IRIS_JOB"; cat made; exit 7')
    told = cluster_until(
        lambda: found if (found := cluster.iris(*look)).code == 7 else None, "it can be executed"
    )
    assert told.out == "yes /long\nmade\n"
    assert cluster.iris("cp", f"{task}:made", tmp_path).code == 0
    assert (tmp_path / "made").read_text() == "made\n"
    job.cancel()
    job.wait(timeout=60)


def test_the_output_directory_of_a_failed_container_is_fetched_too(
    cluster: Cluster, tmp_path: Path
):
    script = 'cd "$IRIS_OUTPUT"; id -u >user; echo "$OLDPWD" >"$FROM_IMAGE"; exit $((IRIS_TASK_INDEX + 4))'
    job = cluster.submit(
        "sh", "-c", script, image=IMAGE, output="made/here", replicas=2, max_task_failures=2
    )
    job.wait(timeout=60)
    assert [task.state for task in job.tasks()] == ["failed", "failed"]
    fetched = cluster.iris("fetch", job.name, tmp_path)
    assert (fetched.code, fetched.out) == (0, f"{tmp_path}/0  2 files\n{tmp_path}/1  2 files\n")
    for index in "01":
        assert int((tmp_path / index / "user").read_text()) >= 61_184
        assert "/attempts/" in (tmp_path / index / "yes").read_text()
