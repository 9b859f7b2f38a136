"""The worker's shell: what it keeps of an attempt is removed with it, and it is registered before it takes orders."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from iris_bus.contract import Message
from iris_core import codec, subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, ReportTaken, Stage
from iris_core.states import Cause, KernelStatus
from iris_worker.service import WorkerService
from iris_worker.settings import WorkerSettings
from tests.support.memory import Memory

DAY_S = 86_400.0


def timers() -> int:
    """Calls that the loop still has to make."""
    return sum(not call.cancelled() for call in cast(Any, asyncio.get_running_loop())._scheduled)


async def test_an_attempt_that_ends_long_before_its_timeout_leaves_no_timer(tmp_path: Path):
    worker = WorkerService(WorkerSettings(id="w0", data=str(tmp_path)), Memory().connect(), "", asyncio.Event())
    refs, before = [AttemptRef(job, 0, 0) for job in range(1000)], timers()
    for ref in refs:
        worker._timeouts.begin(ref, DAY_S)
    assert timers() == before + 1000
    worker._taken([Stage(ref, KernelStatus.TERMINATED, 1, Ended(Cause.EXITED, 0)) for ref in refs], ReportTaken())
    assert timers() == before
    worker._tasks.close()
    worker._executor.close()


async def test_a_worker_takes_no_order_until_it_knows_what_to_stop(tmp_path: Path):
    memory, registrations = Memory(), asyncio.Queue[Message]()
    worker = WorkerService(WorkerSettings(id="w0", data=str(tmp_path)), memory.connect(), "", asyncio.Event())
    worker.agent.adopt(Stage(AttemptRef(1, 0, 0), KernelStatus.RUNNING, 1))
    state = memory.connect().bus
    await state.subscribe(subjects.report("w0"), registrations.put_nowait)
    reporting = asyncio.create_task(worker.reporter.report())
    async with asyncio.timeout(10):
        worker.reporter.wake()
        registration = await registrations.get()
        assert worker.agent.unconfirmed
        state.publish(registration.reply, codec.pack(ReportTaken()))
        while worker.agent.unconfirmed:
            await asyncio.sleep(0)
    reporting.cancel()
    worker._tasks.close()
    worker._executor.close()
