"""Answers to orders: with the next report where nobody awaits them."""

import asyncio
import math

import pytest

from iris_bus.contract import Message
from iris_core import codec, subjects
from iris_core.batching import Batcher
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import OrderTaken, Register, ReportTaken, Stage
from iris_core.spec.resources import Amount
from iris_core.states import KernelStatus
from iris_worker.agent.agent import Agent
from iris_worker.agent.heartbeat import HeartbeatSchedule, StallDetector
from iris_worker.clock import HostClock
from iris_worker.metrics import WorkerMetrics
from iris_worker.service import reporter as module
from iris_worker.service.reporter import Reporter
from tests.support.memory import Memory

TAKEN = OrderTaken("1", monotonic_ms=5)
STAGE = Stage(AttemptRef(1, 0, 0), KernelStatus.RUNNING, 7)


class Host:
    """A registered worker's reporter, and what the state service hears of it."""

    def __init__(self, bus):
        self.heard: list[str] = []
        self.agent = Agent("1")
        self.heart, stalls = HeartbeatSchedule("w0", "1", 5.0), StallDetector(60.0)
        self.trouble = ""
        self.bus, metrics = bus, WorkerMetrics(lambda: 0)
        self.reporter = Reporter(
            *(self.agent, self.heart, stalls, Batcher(0.0, 4), bus, HostClock(), metrics, 60.0),
            *(self._registration, lambda stages, taken: None),
        )
        self.reporter.settled = True

    def _registration(self, stages):
        return Register("w0", "1", {}, Amount(1000), 1, stages, trouble=self.trouble)

    async def listen(self):
        await self.bus.subscribe("answers", lambda message: self.heard.append("answer"))
        await self.bus.subscribe(subjects.REPORTS, self._on_report)

    def _on_report(self, message: Message) -> None:
        self.heard.append("report")
        self.bus.publish(message.reply, codec.pack(ReportTaken()))

    async def report(self):
        """One stage, until it is answered."""
        self.agent.reports.add(STAGE)
        self.reporter.wake()
        reporting = asyncio.create_task(self.reporter.report())
        await self.until("report")
        reporting.cancel()

    async def until(self, what):
        async with asyncio.timeout(60):
            while what not in self.heard:
                await asyncio.sleep(0)


@pytest.fixture
async def host():
    made = Host(Memory().connect().bus)
    await made.listen()
    return made


async def test_an_answer_that_nobody_awaits_is_sent_with_the_next_report(host, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_S", 3600.0)
    host.reporter.answer("answers", TAKEN, urgent=False)
    await host.bus.flush()
    before = [*host.heard]
    await host.report()
    assert (before, host.heard) == ([], ["answer", "report"])


async def test_an_answer_does_not_wait_long_for_a_report(host):
    host.reporter.answer("answers", TAKEN, urgent=False)
    await host.until("answer")
    assert host.heard == ["answer"]


async def test_an_urgent_answer_is_sent_at_once_with_those_that_wait(host, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_S", 3600.0)
    host.reporter.answer("answers", TAKEN, urgent=False)
    host.reporter.answer("answers", TAKEN, urgent=True)
    await host.bus.flush()
    assert host.heard == ["answer", "answer"]


@pytest.mark.parametrize("trouble", ["", "host check has not passed"])
async def test_a_fault_told_at_the_registration_may_be_over_soon_after(host, trouble):
    host.trouble, host.heart.due_s, host.reporter.settled = trouble, math.inf, False
    host.reporter.wake()
    reporting = asyncio.create_task(host.reporter.report())
    async with asyncio.timeout(60):
        while not host.reporter.settled:
            await asyncio.sleep(0)
    reporting.cancel()
    assert (host.heart.due_s < math.inf) == bool(trouble)
