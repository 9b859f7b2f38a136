"""What an executor stores about the attempts that it starts, and about those that it adopts."""

from __future__ import annotations

import asyncio
import io
import math
import os
import socket
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from iris_core import codec, subjects
from iris_core.access import task_tokens
from iris_core.access.task_tokens import SigningKey
from iris_core.messages.gateway_state import Caller
from iris_core.messages.gateway_worker import CallResults
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Gang, Order, Stage, TaskTemplate
from iris_core.spec.calls import Calls, inline
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_worker.agent.agent import Agent
from iris_worker.agent.local_attempt import LocalAttempt
from iris_worker.attempt.artifacts.uploader import Uploader
from iris_worker.attempt.executor import Callbacks, Executor
from iris_worker.attempt.health.host_checks import HostChecks
from iris_worker.attempt.probes.prober import Prober
from iris_worker.attempt.slots.confinement import Confinement
from iris_worker.attempt.slots.isolation import Isolated, Isolation
from iris_worker.clock import HostClock
from iris_worker.environment import coordinator_port
from iris_worker.host.devices import Accelerators, Devices
from iris_worker.launcher.records.records import TemplateState
from iris_worker.metrics import WorkerMetrics
from iris_worker.settings import WorkerSettings
from tests.support.memory import Memory

A, B, C = (AttemptRef(job, 0, 0) for job in (1, 2, 3))
PREPARING = Stage(A, KernelStatus.PREPARING, 1)
CLOCK = HostClock()
HOSTS = "127.0.0.1", "h1"
"""Of gangs. Their jobs have numbers of which no test beside this has a gang, for the number gives
them their port.
"""


Open = Callable[..., Awaitable[Executor]]


@pytest.fixture
def bus() -> Memory:
    return Memory()


@pytest.fixture
def uploads() -> list[asyncio.Future[None]]:
    """What stores output directories."""
    return []


@pytest.fixture
async def opened(
    tmp_path: Path, bus: Memory, uploads: list[asyncio.Future[None]]
) -> AsyncIterator[Open]:
    """Makes executors of one host; each takes the launcher over from the one before."""
    made: list[Executor] = []

    def spawn(work: Coroutine[None, None, None]) -> None:
        uploads.append(asyncio.ensure_future(work))

    async def make(
        isolation: Isolation | None = None,
        found: Accelerators | None = None,
        checks: HostChecks | None = None,
    ) -> Executor:
        agent = Agent("me")
        prober = Prober("127.0.0.1", CLOCK, WorkerMetrics(agent.running), lambda: None)
        devices = Devices("gpu", 2, found or Accelerators())
        nothing = Callbacks(*(lambda *_: None,) * 6)
        settings = WorkerSettings(id="w0", data=str(tmp_path))
        uploader = Uploader("w0", bus.connect().streams, settings.artifact_limits, 60.0, 1, spawn)
        made.append(
            Executor(
                settings, agent, CLOCK, prober, uploader, devices, nothing, isolation, checks=checks
            )
        )
        await made[-1].recover()
        return made[-1]

    yield make
    last = await make()
    last.kill_all()
    await until(lambda: not last.running)
    for executor in made:
        executor.close()


async def until(true: Callable[[], bool]) -> None:
    """Return once the launcher's answers have made it true."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.001)


def launched(executor: Executor, *command: str) -> int:
    """Start an attempt with one port, and return that."""
    template = TaskTemplate(1, "/t", command, {}, 1, ResourceRequest(), ports=("http",))
    executor.launch(LocalAttempt(A, template, Stage(A, KernelStatus.PREPARING, 1)))
    executor.flush()
    [port] = executor._use.ports._held[A]
    return port


def ordered(executor: Executor, ref: AttemptRef, gang: Gang, *command: str) -> None:
    """Have an agent's attempt launched, as the shell does."""
    template = TaskTemplate(gang.job, "/t", command or ("sleep", "100"), {}, 2, ResourceRequest())
    executor._agent.on_order(Order("me", 1, templates=(template,), run=(ref,), gangs=(gang,)), 1)
    executor.launch(executor._agent.next_launch())


def keeping(executor: Executor, *command: str) -> None:
    """Start an attempt whose directory ``out`` is kept, and run the agent with it."""
    template = TaskTemplate(1, "/t", command, {}, 1, ResourceRequest(), output="out")
    executor._agent.on_order(Order("me", 1, templates=(template,), run=(A,)), 1)
    executor.launch(executor._agent.next_launch())
    executor.flush()


def end_of(executor: Executor) -> Ended | None:
    return next(
        (stage.ended for stage in executor._agent.attempts() if stage.ended is not None), None
    )


def note_of(executor: Executor) -> str:
    return next((stage.detail for stage in executor._agent.attempts() if stage.detail), "")


async def files_of(bus: Memory, ended: Ended) -> list[str]:
    """The names in an attempt's artifact."""
    pieces, after, streams = b"", 0, bus.connect().streams
    subject = subjects.artifact("w0", A.job, ended.artifact.upload)
    while found := await streams.next("IRIS_ARTIFACTS", after, subject=subject):
        pieces, after = pieces + found.data, found.sequence
    assert len(pieces) == ended.artifact.bytes
    with tarfile.open(fileobj=io.BytesIO(pieces)) as archive:
        return archive.getnames()


def rest_s(executor: Executor, port: int) -> float:
    return executor._use.ports.rest_s(port, CLOCK.steady_s())


async def test_the_port_of_an_attempt_is_its_own_until_it_ends_and_rests_then(opened: Open):
    executor = await opened()
    port = launched(executor, "true")
    assert rest_s(executor, port) == math.inf
    await until(lambda: not executor.running)
    assert 0 < rest_s(executor, port) <= 60


async def test_the_ports_of_an_adopted_attempt_are_its_own(opened: Open):
    before = await opened()
    port = launched(before, "sleep", "1000")
    after = await opened()
    assert rest_s(after, port) == math.inf
    after.kill_all()
    await until(lambda: not after.running)
    assert 0 < rest_s(await opened(), port) <= 60


async def test_a_gang_whose_coordinator_port_is_taken_tries_another(opened: Open):
    executor = await opened()
    first, second = Gang(4_242, HOSTS), Gang(4_242, HOSTS, attempt=1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", coordinator_port(first)))
        other.listen()
        for index, attempt, gang in ((0, 0, first), (1, 0, first), (0, 1, second)):
            ordered(executor, AttemptRef(4_242, index, attempt), gang)
        assert executor.running == 2
        [error] = [
            stage.ended.error for stage in executor._agent.attempts() if stage.ended is not None
        ]
    assert f"port {coordinator_port(first)}, its gang's coordinator port, is in use" in error


async def test_two_gangs_on_one_port_of_a_host_do_not_start_together(opened: Open):
    executor = await opened()
    one, same = Gang(4_243, HOSTS), Gang(14_243, HOSTS)
    assert coordinator_port(one) == coordinator_port(same)
    ordered(executor, AttemptRef(4_243, 0, 0), one)
    ordered(executor, AttemptRef(14_243, 0, 0), same)
    assert executor.running == 1
    [error] = [stage.ended.error for stage in executor._agent.attempts() if stage.ended is not None]
    assert "coordinator port, is in use" in error
    executor.kill_all()
    await until(lambda: rest_s(executor, coordinator_port(one)) < math.inf)


async def test_a_gang_member_finds_the_hosts_in_a_file_outside_its_directory(opened: Open):
    executor = await opened()
    ref = AttemptRef(4_244, 0, 0)
    workdir = Path((await executor.prepare(ref)).workdir)
    ordered(executor, ref, Gang(4_244, HOSTS), "sh", "-c", 'cat "$IRIS_HOSTFILE"; exec sleep 100')
    executor.flush()
    slot = executor.attempts.by_ref[ref].slot
    await until(lambda: os.pread(slot.out, 100, 0) == b"127.0.0.1 slots=1\nh1 slots=1\n")
    assert list(workdir.iterdir()) == []


def gpus(executor: Executor, ref: AttemptRef, *command: str) -> None:
    """Start an attempt with one GPU."""
    ask = ResourceRequest(device=Device("gpu"))
    executor.launch(LocalAttempt(ref, TaskTemplate(ref.job, "/t", command, {}, 1, ask), PREPARING))
    executor.flush()


async def test_an_attempt_has_its_gpu_until_its_end_over_a_worker_restart(
    opened: Open, tmp_path: Path
):
    before = await opened()
    gpus(before, A, "sh", "-c", f"echo $CUDA_VISIBLE_DEVICES > {tmp_path}/a; exec sleep 1000")
    await until(lambda: not before.attempts.starting)
    after = await opened()
    gpus(after, B, "sh", "-c", f"echo $CUDA_VISIBLE_DEVICES > {tmp_path}/b; exec sleep 1000")
    gpus(after, C, "true")
    files = [tmp_path / name for name in ("a", "b")]
    await until(lambda: all(file.exists() and file.read_text() for file in files))
    told = [file.read_text() for file in files]
    free = after._use.devices._total - len(after._use.devices._held)
    after.kill_all()
    await until(lambda: not after.running)
    assert (told, free, after._use.devices._held) == (["0\n", "1\n"], 0, {})


async def test_a_process_finds_a_renewed_token_where_the_first_was(opened: Open, tmp_path: Path):
    executor, key, out = await opened(), SigningKey("k1", b"1" * 32, 0), tmp_path / "out"
    first, second = (task_tokens.grant(key, 1, "ann", "w0", life_ms) for life_ms in (1000, 2000))
    words = f'echo "$IRIS_TOKEN_FILE $IRIS_TOKEN" > {out}.new; mv {out}.new {out}; sleep 1000'
    template = TaskTemplate(1, "/t", ("sh", "-c", words), {}, 1, ResourceRequest(), grant=first)
    executor.launch(LocalAttempt(A, template, Stage(A, KernelStatus.PREPARING, 1)))
    executor.flush()
    await until(out.exists)
    file, token = out.read_text().split()
    assert token == Path(file).read_text() == task_tokens.token(first, A)
    assert task_tokens.verified(token, {"k1": key}, 0) == Caller("ann", "task", A, "w0")
    adopted = await opened()
    adopted.renew_token(A, second)
    assert Path(file).read_text() == task_tokens.token(second, A) != token
    adopted.kill_all()
    await until(lambda: not adopted.running)
    assert not Path(file).exists()


@pytest.mark.parametrize("code", [0, 3])
async def test_an_end_is_reported_once_the_output_directory_is_stored(
    opened: Open, bus: Memory, code: int
):
    executor, bus.away = await opened(), True
    keeping(executor, "sh", "-c", f'echo x > "$IRIS_OUTPUT/x"; exit {code}')
    await until(lambda: note_of(executor) == "2B of output are being stored")
    assert (end_of(executor), executor.running) == (None, 1)
    bus.away = False
    await until(lambda: end_of(executor) is not None)
    ended = end_of(executor)
    assert (ended.cause, ended.exit_code, ended.artifact.files, executor.running) == (
        Cause.EXITED,
        code,
        1,
        0,
    )
    assert await files_of(bus, ended) == ["x"]


async def test_a_worker_killed_while_it_stores_stores_again_and_reruns_nothing(
    opened: Open, bus: Memory, uploads: list[asyncio.Future[None]], tmp_path: Path
):
    before, bus.away = await opened(), True
    keeping(before, "sh", "-c", f'echo ran >> {tmp_path}/runs; echo x > "$IRIS_OUTPUT/x"; exit 3')
    await until(lambda: note_of(before) != "")
    for upload in uploads:
        upload.cancel()
    after = await opened()
    assert [stage.status for stage in after._agent.attempts()] == [KernelStatus.RUNNING]
    bus.away = False
    await until(lambda: end_of(after) is not None)
    ended = end_of(after)
    assert (ended.exit_code, await files_of(bus, ended)) == (3, ["x"])
    assert (tmp_path / "runs").read_text() == "ran\n"


def call_of(executor: Executor, *command: str) -> None:
    """Start a call of a map."""
    calls = Calls(runner="1" * 64, function="2" * 64, segments=(inline(b""),), firsts=(0,), count=1)
    template = TaskTemplate(1, "/t", command, {}, 1, ResourceRequest(), calls=calls)
    executor._agent.on_order(Order("me", 1, templates=(template,), run=(A,)), 1)
    executor.launch(LocalAttempt(A, template, PREPARING))
    executor.flush()


@pytest.mark.parametrize("stored", [False, True])
async def test_a_worker_killed_before_an_end_is_recorded_loses_no_result(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
):
    """Records are sent to the launcher with its next request, or a quarter of a second later."""
    before, attempts = await opened(), tmp_path / "attempts"
    call_of(
        before, "sh", "-c", "mkdir -m 700 .iris-call; printf vpickle > .iris-call/result; exit 3"
    )
    await until(lambda: before.attempts.by_ref[A].result is not None)
    if stored:
        before.finisher.stored(before.logs.collect(before._clock.steady_s(), 1))
    assert any(attempts.glob("*/*")) is not stored, (
        "a result is sent before its directory is taken away"
    )
    with monkeypatch.context() as killed:
        killed.setattr(before._launcher, "_outbox", bytearray())
        after = await opened()
    found = after.attempts.by_ref[A].result
    assert found is not None
    assert (found.kind, found.data) == ("value", b"pickle")


async def test_a_call_has_the_slot_of_one_whose_result_is_being_stored(opened: Open):
    """In another one it would need a template of its own."""
    executor = await opened()
    call_of(executor, "sh", "-c", "mkdir -m 700 .iris-call; printf vpickle > .iris-call/result")
    await until(lambda: executor.attempts.by_ref[A].result is not None)
    before = executor.attempts.by_ref[A].slot.number
    other, following = [await executor.prepare(ref) for ref in (B, AttemptRef(A.job, 1, 0))]
    assert (other.number == before, following.number == before) == (False, True)
    batch = executor.logs.collect(executor._clock.steady_s(), 1)
    executor.finisher.stored(batch)
    [(_, message)] = batch.messages
    assert codec.unpack(message, CallResults).results[0].data == b"pickle"
    assert end_of(executor).exit_code == 0


async def test_one_stopped_while_stored_ends_within_its_grace_period(opened: Open, bus: Memory):
    executor, bus.away = await opened(), True
    keeping(executor, "sh", "-c", "exit 0")
    await until(lambda: note_of(executor) != "")
    [kill] = executor._agent.stop_all(50, 1)
    executor.kill(kill.ref, kill.grace_ms, kill.settle_ms)
    await until(lambda: end_of(executor) is not None)
    ended = end_of(executor)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 0)
    assert ended.artifact.note == "its task was stopped before it was stored"


async def test_one_that_is_stopped_is_stored_in_the_rest_of_its_grace_period(
    opened: Open, bus: Memory
):
    """Its shell has no program in the foreground: it would print that the signal has ended that, and
    the end would wait for this output.
    """
    executor = await opened()
    keeping(
        executor, "sh", "-c", 'trap "echo x > out/x; exit 0" TERM; sleep 100 & : > out/on; wait'
    )
    on = Path(executor.attempts.by_ref[A].slot.workdir) / "out" / "on"
    await until(on.exists)
    [kill] = executor._agent.stop_all(10_000, 1)
    executor.kill(kill.ref, kill.grace_ms, kill.settle_ms)
    executor.flush()
    await until(lambda: end_of(executor) is not None)
    ended = end_of(executor)
    assert (ended.cause, await files_of(bus, ended)) == (Cause.CANCELLED, ["on", "x"])


LARGE = "its files have more than 1GiB, the limit of this worker (artifact_bytes)"


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("rm -r out", "out is no longer a directory: No such file or directory"),
        ("rm -r out; ln -s / out", "out is no longer a directory: Not a directory"),
        ("truncate -s 2G out/x", LARGE),
        ("truncate -s 2G out/x; kill -9 $$", LARGE),
    ],
)
async def test_what_cannot_be_kept_is_said_and_is_no_failure(opened: Open, command: str, note: str):
    executor = await opened()
    keeping(executor, "sh", "-c", command)
    await until(lambda: end_of(executor) is not None)
    ended = end_of(executor)
    assert (ended.cause, ended.artifact.upload, ended.artifact.note) == (Cause.EXITED, "", note)


async def test_a_task_without_an_output_directory_has_no_variable_or_artifact(opened: Open):
    executor = await opened()
    template = TaskTemplate(
        1, "/t", ("sh", "-c", 'test -z "$IRIS_OUTPUT"'), {}, 1, ResourceRequest()
    )
    executor._agent.on_order(Order("me", 1, templates=(template,), run=(A,)), 1)
    executor.launch(executor._agent.next_launch())
    executor.flush()
    await until(lambda: end_of(executor) is not None)
    assert (end_of(executor).exit_code, end_of(executor).artifact) == (0, None)


async def test_a_bundle_file_in_place_of_the_output_directory_is_a_user_error(opened: Open):
    executor = await opened()
    template = TaskTemplate(1, "/t", ("true",), {}, 1, ResourceRequest(), bundle="b", output="out")
    executor._agent.on_order(Order("me", 1, templates=(template,), run=(A,)), 1)
    (Path((await executor.prepare(A)).workdir) / "out").touch()
    executor._agent.on_prepared(A, 1)
    executor.launch(executor._agent.next_launch())
    ended = end_of(executor)
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 126)
    assert ended.error == "--output out: out is not a directory in the bundle: Not a directory"


# ── templates ─────────────────────────────────────────────────────────────────────────────────────


async def preloading(executor: Executor, *refs: AttemptRef) -> list[asyncio.Task[Ended | None]]:
    """Prepare attempts of a job that preloads a module, until they wait for their template."""
    template = TaskTemplate(
        1, "/t", ("python3", "-m", "json"), {}, 2, ResourceRequest(), preload=("json",)
    )
    executor._agent.on_order(Order("me", 1, templates=(template,), run=refs), 1)
    for ref in refs:
        await executor.prepare(ref)
    tasks = [asyncio.ensure_future(executor.preloading.provide(ref, template)) for ref in refs]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("failed", [True, False])
async def test_a_template_that_failed_for_a_stopped_attempt_is_made_again(
    opened: Open, failed: bool
):
    executor = await opened()
    other = AttemptRef(1, 1, 0)
    stopped, going_on = await preloading(executor, A, other)
    directory = executor.attempts.by_ref[A].slot.below
    executor.kill(A, 0, 0)
    executor.preloading.on_state(
        TemplateState("1", failed=failed, text="no such directory", directory=directory)
    )
    assert (await stopped).cause == Cause.CANCELLED
    assert await going_on is None
    assert (executor.attempts.by_ref[other].template, executor.attempts.by_ref[other].fresh) == (
        "1",
        "",
    )


@pytest.mark.parametrize(
    ("stops", "note"), [(True, ""), (False, "it is not cloned: its template has ended again and")]
)
async def test_stops_of_attempts_are_no_failures_of_their_template(
    opened: Open, stops: bool, note: str
):
    executor = await opened()
    refs = [AttemptRef(1, index, 0) for index in range(4)]
    *tasks, last = await preloading(executor, *refs)
    for ref, task in zip(refs, tasks, strict=False):
        if stops:
            executor.kill(ref, 0, 0)
            await task
        executor.preloading.on_state(TemplateState("1"))
        await asyncio.sleep(0)
    executor.preloading.on_state(TemplateState("1", ready=True))
    assert await last is None
    attempt = executor.attempts.by_ref[refs[-1]]
    assert (attempt.fresh[: len(note) or 1], attempt.template) == (note, "1" if stops else "")


async def test_a_template_that_failed_is_the_failure_of_all_that_wait_for_it(opened: Open):
    executor = await opened()
    tasks = await preloading(executor, A, AttemptRef(1, 1, 0))
    directory = executor.attempts.by_ref[A].slot.below
    executor.preloading.on_state(
        TemplateState("1", failed=True, text="ImportError: x", directory=directory)
    )
    assert [(await task).error for task in tasks] == ["preloading: ImportError: x"] * 2


async def test_preloading_that_takes_long_says_until_when(
    opened: Open, monkeypatch: pytest.MonkeyPatch
):
    """One that hung, or had stopped itself, held cores for ten minutes, and `iris why` said that it
    preloads.
    """
    monkeypatch.setattr("iris_worker.attempt.templates.preloading.SLOW_S", 0.0)
    executor = await opened()
    [waiting] = await preloading(executor, A)
    words = "preloads json, for more than 0s now: it fails after 10m (build_timeout_s of [worker])"
    await until(lambda: words in [stage.detail for stage in executor._agent.attempts()])
    executor.preloading.on_state(TemplateState("1", ready=True))
    assert await waiting is None


# ── the launcher speaks while a worker starts ─────────────────────────────────────────────────────


async def test_a_task_that_ends_while_its_next_worker_starts_is_adopted_first(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first, go = await opened(), tmp_path / "go"
    launched(first, "sh", "-c", f"until [ -e {go} ]; do sleep 0.01; done; exit 3")
    await until(lambda: first.attempts.by_ref[A].pid > 0)
    process, confine = Path(f"/proc/{first.attempts.by_ref[A].pid}"), Confinement.begin

    async def confine_after_its_end(*args: Any) -> Isolated:
        go.touch()
        await until(lambda: not process.exists())
        return await confine(*args)

    monkeypatch.setattr(Confinement, "begin", confine_after_its_end)
    second = await opened()
    await until(lambda: not second.running)
    assert [
        stage.ended.exit_code for stage in second._agent.attempts() if stage.ended is not None
    ] == [3]
