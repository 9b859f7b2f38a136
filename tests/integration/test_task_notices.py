"""Notices of real tasks: what they are told, when, and that they are told once."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Gang, Stop
from iris_core.spec.jobs import NoticePolicy
from iris_core.states import Cause, KernelStatus
from tests.support.metadata import PREEMPTED, TPU_VM, MetadataServer
from tests.support.state import FakeState, template
from tests.support.suspend import suspended
from tests.support.worker import WorkerProcess

pytestmark = pytest.mark.integration

NOTICE = NoticePolicy(signal="SIGUSR1", before_s=3600.0)
CHECKPOINT = """
on_notice() {
    read -r said < $IRIS_NOTICE_FILE
    echo "$said"
    echo "$said" >> ${SAID:-/dev/null}
    n=$((n+1))
    [ $n -lt ${UNTIL:-1} ] || exit 0
}
trap on_notice USR1
trap 'echo TERM' TERM
echo ready
while :; do sleep 0.02; done
"""
"""Prints each notice, and exits 0 after so many."""
DRAINED = b'ready\n{"reason":"drain","deadline":null,"signal":"SIGUSR1"}\n'
"""What it has printed after that one."""


@pytest.fixture
async def worker(state: FakeState, nats_url: str, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    async with WorkerProcess(
        nats_url, tmp_path / "w0", heartbeat_interval_s=0.2, stop_grace_s=20
    ) as process:
        await state.registration()
        yield process


async def begun(state: FakeState, until: int = 1, said: str = "", **more: object) -> AttemptRef:
    """A task that prints its notices, and writes them into the file ``said``, once it waits for
    them and its worker has seen it start.
    """
    env = {"UNTIL": str(until), "SAID": said}
    ref = await state.run("sh", "-c", CHECKPOINT, env=env, notice=NOTICE, **more)
    await state.printed(ref, b"ready\n")
    await state.running(ref)
    return ref


async def told(state: FakeState, ref: AttemptRef) -> list[dict[str, str | None]]:
    """What an attempt that has ended has printed of its notices."""
    lines = (await state.output(ref)).decode().splitlines()
    assert lines[0] == "ready"
    return [json.loads(line) for line in lines[1:]]


async def test_a_task_is_told_before_its_time_limit_until_when_it_may_run(
    state: FakeState, worker: WorkerProcess
):
    notice = NoticePolicy(signal="SIGUSR1", before_s=596.0)
    script = "trap 'cat $IRIS_NOTICE_FILE; exit 0' USR1; while :; do sleep 0.02; done"
    ref = await state.run("sh", "-c", script, timeout_ms=600_000, notice=notice)
    ended = await state.ended(ref)
    [stage, *_] = [stage for stage in state.stages if stage.ref == ref and stage.notices]
    [given] = stage.notices
    said = json.loads(await state.output(ref))
    assert (ended.cause, ended.exit_code) == (Cause.EXITED, 0)
    assert (said["reason"], said["signal"]) == ("timeout", "SIGUSR1")
    assert datetime.fromisoformat(said["deadline"]).timestamp() == pytest.approx(
        given.deadline_ms / 1000, abs=0.01
    )
    assert given.deadline_ms - given.at_ms == pytest.approx(596_000, abs=30_000)


async def test_a_member_of_a_gang_is_told_by_the_deadline_of_the_start_order(
    state: FakeState, worker: WorkerProcess
):
    about, ref = state.registered[-1], AttemptRef(77, 0, 0)
    work = template("sh", "-c", CHECKPOINT, job=77, timeout_ms=7_200_000, notice=NOTICE)
    deadline_ms = about.monotonic_ms + 3_612_000  # told 12 s after the worker has registered
    gang = Gang(77, ("127.0.0.1",), deadline_ms=deadline_ms)
    await state.tell([work], prepare=[ref])
    await state.tell([work], start=[ref], gangs=[gang])
    await state.ended(ref)
    [notice] = await told(state, ref)
    assert notice["reason"] == "timeout"


async def test_a_preempted_task_is_told_in_place_of_its_stop_signal(
    state: FakeState, worker: WorkerProcess
):
    ref = await begun(state)
    await state.order(stop=[Stop(ref, 20_000, Cause.PREEMPTED)])
    ended = await state.ended(ref)
    [notice] = await told(state, ref)
    assert (ended.cause, ended.exit_code, notice["reason"]) == (Cause.CANCELLED, 0, "preempted")
    assert notice["deadline"] is not None


async def test_a_task_that_is_preempted_as_it_starts_is_told(
    state: FakeState, worker: WorkerProcess
):
    """The launcher is asked to start it, and has not answered."""
    with suspended([worker.launcher_pid]):
        ref = await state.run("sleep", "600", notice=NOTICE)
        await state.until(lambda: KernelStatus.PREPARING in state.reported(ref))
        await state.order(stop=[Stop(ref, 20_000, Cause.PREEMPTED)])
        await state.until(lambda: state.notices(ref) == ["preempted"])
    ended = await state.ended(ref)
    assert (ended.cause, ended.signal, state.notices(ref)) == (
        Cause.CANCELLED,
        signal.SIGUSR1,
        ["preempted"],
    )


async def test_a_noticed_task_that_goes_on_is_killed_after_its_grace_period(
    state: FakeState, worker: WorkerProcess
):
    ref = await begun(state, until=9)
    await state.order(stop=[Stop(ref, 3_000, Cause.PREEMPTED)])
    ended = await state.ended(ref)
    assert (ended.signal, [notice["reason"] for notice in await told(state, ref)]) == (
        9,
        ["preempted"],
    )


async def test_a_drain_is_told_without_a_deadline_and_the_task_goes_on(
    state: FakeState, worker: WorkerProcess
):
    ref = await begun(state, until=2)
    await state.tell(drained=[ref])
    await state.until(lambda: state.notices(ref) == ["drain"])
    await state.printed(ref, DRAINED)
    await state.tell(drained=[ref])
    await state.order(stop=[Stop(ref, 20_000, Cause.PREEMPTED)])
    await state.ended(ref)
    first, second = await told(state, ref)
    assert (first, second["reason"]) == (
        {"reason": "drain", "deadline": None, "signal": "SIGUSR1"},
        "preempted",
    )


async def test_a_cancelled_task_gets_its_stop_signal(state: FakeState, worker: WorkerProcess):
    ref = await begun(state)
    await state.order(stop=[Stop(ref, 3_000)])
    ended = await state.ended(ref)
    assert (ended.signal, await state.output(ref)) == (9, b"ready\nTERM\n")


async def test_a_task_without_a_notice_gets_its_stop_signal_when_it_is_preempted(
    state: FakeState, worker: WorkerProcess
):
    ref = await state.run(
        "sh", "-c", "trap 'echo ${IRIS_NOTICE_FILE-none}; exit 0' TERM; sleep 60 & echo ready; wait"
    )
    await state.printed(ref, b"ready\n")
    await state.order(stop=[Stop(ref, 20_000, Cause.PREEMPTED)])
    await state.ended(ref)
    assert await state.output(ref) == b"ready\nnone\n"


async def test_a_notice_outlives_the_worker_and_is_given_once(
    state: FakeState, worker: WorkerProcess, tmp_path: Path
):
    said = tmp_path / "said"
    ref = await begun(state, until=2, said=str(said))
    await state.tell(drained=[ref])
    await state.until(lambda: state.notices(ref) == ["drain"])
    await state.printed(ref, DRAINED)
    await worker.kill()
    await worker.start()
    again = await state.registration(2)
    await state.until(
        lambda: bool(state.beats) and state.beats[-1].incarnation == again.incarnation
    )
    await state.tell(drained=[ref])
    await state.order(stop=[Stop(ref, 20_000, Cause.PREEMPTED)])
    ended = await state.ended(ref)
    assert [notice.reason for stage in again.attempts for notice in stage.notices] == ["drain"]
    assert ended.exit_code == 0
    assert [json.loads(line)["reason"] for line in said.read_text().splitlines()] == [
        "drain",
        "preempted",
    ]


async def test_a_worker_that_adopts_a_task_gives_the_notice_of_its_time_limit(
    state: FakeState, worker: WorkerProcess
):
    ref = await begun(state, timeout_ms=3_605_000)
    await worker.kill()
    await worker.start()
    await state.registration(2)
    await state.ended(ref)
    assert [notice["reason"] for notice in await told(state, ref)] == ["timeout"]


async def test_tasks_of_a_worker_that_stops_are_told_of_a_drain(
    state: FakeState, worker: WorkerProcess
):
    ref = await begun(state)
    assert await worker.stop() == 0
    ended = await state.ended(ref)
    [notice] = await told(state, ref)
    assert (ended.exit_code, notice["reason"], notice["deadline"] is None) == (0, "drain", False)


async def test_tasks_of_a_machine_that_is_taken_away_are_told(
    state: FakeState, nats_url: str, tmp_path: Path
):
    async with (
        MetadataServer(TPU_VM) as machine,
        WorkerProcess(nats_url, tmp_path / "w0", metadata_url=machine.url),
    ):
        await state.registration()
        ref = await begun(state)
        machine.say(PREEMPTED)
        ended = await state.ended(ref)
    [notice] = await told(state, ref)
    assert (ended.exit_code, notice["reason"]) == (0, "spot")


@pytest.mark.needs("bwrap")
async def test_a_confined_task_reads_its_notice(state: FakeState, nats_url: str, tmp_path: Path):
    async with WorkerProcess(nats_url, tmp_path / "w0", sandbox="auto", run_as=""):
        await state.registration()
        ref = await begun(state)
        await state.order(stop=[Stop(ref, 20_000, Cause.PREEMPTED)])
        ended = await state.ended(ref)
    assert (ended.exit_code, [one["reason"] for one in await told(state, ref)]) == (
        0,
        ["preempted"],
    )
