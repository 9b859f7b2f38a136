"""A worker on a real NATS server, with real processes; the state service is played by the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris_bus.jetstream import Connection
from iris_core.states import Cause, KernelStatus
from iris_worker.service import Worker
from iris_worker.settings import WorkerSettings
from tests.support.state import FakeState

pytestmark = pytest.mark.integration

K = KernelStatus


@pytest.fixture
async def state(connection: Connection) -> FakeState:
    return await FakeState(connection, "w0").start()


@contextlib.asynccontextmanager
async def working(settings: WorkerSettings, url: str) -> AsyncIterator[Worker]:
    """A worker in this process, stopped in order at the end."""
    from iris_bus.jetstream import connect

    connection = await connect(url, name="worker")
    stop = asyncio.Event()
    worker = Worker(settings, connection, url, stop)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        stop.set()
        async with asyncio.timeout(15):
            await running
        await connection.close()


def settings_for(tmp_path: Path, **more: object) -> WorkerSettings:
    return WorkerSettings(id="w0", data=str(tmp_path / "w0"), stop_grace_s=1.0, **more)  # type: ignore[arg-type]


async def test_a_task_runs_and_its_stages_come_in_order(state: FakeState, nats_url: str, tmp_path: Path):
    async with working(settings_for(tmp_path), nats_url):
        await state.registration()
        ref = await state.run("sh", "-c", "echo hello $IRIS_TASK_INDEX; exit 3")
        ended = await state.ended(ref)
        assert (ended.cause, ended.exit_code) == (Cause.EXITED, 3)
        assert state.told(ref) == [K.PREPARING, K.RUNNING, K.TERMINATED]
        assert await state.output(ref) == b"hello 0\n"
