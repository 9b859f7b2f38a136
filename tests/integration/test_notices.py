"""A worker on a virtual machine that is taken away: real processes, and a metadata server on
loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.states import Cause
from tests.support.metadata import PREEMPTED, QUIET, TPU_VM, MetadataServer
from tests.support.state import FakeState, template
from tests.support.worker import WorkerProcess

pytestmark = pytest.mark.integration


@pytest.fixture
async def machine() -> AsyncIterator[MetadataServer]:
    async with MetadataServer(TPU_VM) as server:
        yield server


async def test_a_notice_gives_tasks_the_time_left_while_the_worker_drains(
    state: FakeState, machine: MetadataServer, nats_url: str, tmp_path: Path
):
    settings = {"stop_grace_s": 0.01, "heartbeat_interval_s": 0.2, "metadata_url": machine.url}
    async with WorkerProcess(nats_url, tmp_path / "w0", **settings) as worker:
        about = await state.registration()
        trap = f"trap 'sleep 0.5; echo saved > {tmp_path}/checkpoint; exit 0' TERM"
        ref = await state.run("sh", "-c", f"{trap}; echo ready; while :; do sleep 0.05; done")
        await state.printed(ref, b"ready\n")
        machine.say(PREEMPTED)
        ended = await state.ended(ref)
        beats = len(state.beats)
        order = await state.order([template("true", job=99)], run=[AttemptRef(99, 0, 0)])
        await state.until(lambda: len(state.beats) > beats)
        told = len(state.leaving)
        await state.order(register=True)
        await state.registration(2)
        leaving, again = set(state.leaving), state.leaving[told:]
        machine.say(QUIET)
        code = await worker.ended()

    has = about.attributes
    assert (has["tpu-name"], has["tpu-worker-id"], has["zone"], has["spot"]) == (
        "train-0",
        2,
        "us-central2-b",
        "true",
    )
    assert about.total.chips == 4
    assert (ended.cause, ended.exit_code, (tmp_path / "checkpoint").read_text()) == (
        Cause.CANCELLED,
        0,
        "saved\n",
    )
    assert (leaving, state.why_leaving) == (
        {"stopping"},
        "this VM is being preempted, 30 s after notice",
    )
    assert again
    assert (order.taken, order.stopping) == (False, True)
    assert (code, state.leaving[-1]) == (0, "gone")


async def test_a_metadata_server_that_is_away_delays_no_start(
    state: FakeState, nats_url: str, tmp_path: Path
):
    with_nobody = "http://127.0.0.1:1"
    async with WorkerProcess(nats_url, tmp_path / "w0", metadata_url=with_nobody):
        async with asyncio.timeout(60):
            about = await state.registration()
        assert "zone" not in about.attributes
        assert (await state.ended(await state.run("true"))).exit_code == 0
