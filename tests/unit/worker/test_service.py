"""The worker's shell: state kept per attempt is removed with the attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from iris_bus.contract import Message
from iris_core import codec, subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Order, ReportTaken, Stage, WorkerReport
from iris_core.states import Cause, KernelStatus
from iris_worker.service.service import WorkerService
from iris_worker.settings import WorkerSettings
from tests.support.memory import Memory

DAY_S = 86_400.0


def timers() -> int:
    """Calls that the loop still has to make."""
    return sum(not call.cancelled() for call in cast(Any, asyncio.get_running_loop())._scheduled)


async def test_an_attempt_that_ends_long_before_its_timeout_leaves_no_timer(tmp_path: Path):
    worker = WorkerService(
        WorkerSettings(id="w0", data=str(tmp_path)), Memory().connect(), "", asyncio.Event()
    )
    refs, before = [AttemptRef(job, 0, 0) for job in range(1000)], timers()
    for ref in refs:
        worker._timeouts.begin(ref, DAY_S)
    assert timers() == before + 1000
    worker._taken(
        [Stage(ref, KernelStatus.TERMINATED, 1, Ended(Cause.EXITED, 0)) for ref in refs],
        ReportTaken(),
    )
    assert timers() == before
    worker._tasks.close()
    worker._executor.close()


async def test_an_unanswered_report_is_repeated_at_an_order_of_a_new_leader(tmp_path: Path):
    memory, reports = Memory(), asyncio.Queue[WorkerReport]()
    state = memory.connect()

    def arrived(message: Message) -> None:
        reports.put_nowait(codec.unpack(message.data, WorkerReport))

    await state.bus.subscribe(subjects.REPORTS, arrived)
    settings = WorkerSettings(id="w0", data=str(tmp_path), report_timeout_s=DAY_S)
    worker = WorkerService(settings, memory.connect(), "", asyncio.Event())
    worker._tasks.spawn(worker.reporter.report())
    worker.reporter.wake()
    assert (await reports.get()).register is not None
    for epoch in (1, 2):
        order = Order(worker.agent.incarnation, epoch)
        worker._on_order(Message(subjects.order("w0"), codec.pack(order)))
    async with asyncio.timeout(10):
        assert (await reports.get()).register is not None
    worker._tasks.close()
    worker._executor.close()


async def test_orders_of_new_leaders_are_answered_while_no_report_is_under_way(tmp_path: Path):
    memory = Memory()
    worker = WorkerService(
        WorkerSettings(id="w0", data=str(tmp_path)), memory.connect(), "", asyncio.Event()
    )
    answers: list[Message] = []
    await memory.connect().bus.subscribe("answers", answers.append)
    worker._tasks.spawn(worker.reporter.report())
    worker.reporter.wake()
    async with asyncio.timeout(60):
        while not worker.reporter._unheard:  # nobody listens: it waits for the next try
            await asyncio.sleep(0)
        for epoch in (1, 2):
            order = codec.pack(Order(worker.agent.incarnation, epoch))
            worker._on_order(Message(subjects.order("w0"), order, reply="answers"))
        while len(answers) < 2:
            await asyncio.sleep(0)
    worker._tasks.close()
    worker._executor.close()
