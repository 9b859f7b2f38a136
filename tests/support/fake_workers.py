"""A process that simulates many workers: real agents and messages on one connection, no processes.

    python -m tests.support.fake_workers --url nats://127.0.0.1:4222 --count 10000 --heartbeat 5
    --cpu-millis 8000

It prints `ready` once all are registered, and on TERM how many heartbeats and reports it sent.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
import uuid

from iris_bus.contract import Bus, Message, Unavailable
from iris_bus.jetstream import connect
from iris_core import codec, subjects
from iris_core.messages.state_worker import Ended, Order, Register, ReportTaken, Stage, WorkerReport
from iris_core.names import to_token
from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import Amount
from iris_core.states import Cause
from iris_worker.agent.agent import Agent
from iris_worker.agent.heartbeat import HeartbeatSchedule, to_ms

SUCCESS = Ended(Cause.EXITED, 0)
_AT_ONCE = 200


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class FakeWorker:
    """One host that succeeds at everything at once; ``endless``: what it runs never ends."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        heartbeat_interval_s: float,
        total: Amount,
        attributes: dict[str, Attribute],
        *,
        endless: bool = False,
    ) -> None:
        self.name = name
        self._endless = endless
        self.agent = Agent(uuid.uuid4().hex)
        self.heart = HeartbeatSchedule(name, self.agent.incarnation, heartbeat_interval_s)
        self.reports = 0
        self._bus = bus
        self._total = total
        self._attributes = attributes
        self._subject = subjects.heartbeat(name)
        self._telling: asyncio.Task[None] | None = None

    async def register(self) -> None:
        """Say who this is until somebody listens."""
        while True:
            stages = self.agent.report_all()
            register = Register(
                self.name,
                self.agent.incarnation,
                self._attributes,
                self._total,
                to_ms(time.monotonic()),
                stages,
                "127.0.0.1",
            )
            if await self._ask(self._said(register=register)) is not None:
                return

    def on_order(self, order: Order) -> bytes:
        taken, _ = self.agent.on_order(order, now_ms(), to_ms(time.monotonic()))
        while (held := self.agent.next_launch()) is not None:
            self.agent.on_started(held.ref, now_ms())
            if not self._endless:
                self.agent.on_ended(held.ref, SUCCESS, now_ms())
        if self._telling is None and (self.agent.reports or order.register):
            self._telling = asyncio.create_task(self._tell(order.register))
        return codec.pack(taken)

    async def _tell(self, register: bool) -> None:
        if register:
            await self.register()
        while stages := self.agent.reports.take():
            await self._report(stages)
        self._telling = None

    async def _report(self, stages: tuple[Stage, ...]) -> None:
        answer = await self._ask(self._said(stages))
        if answer is None:
            self.agent.on_untaken(stages)
        elif not answer.known:
            self.agent.on_untaken(stages)
            await self.register()
        else:
            self.agent.on_taken(stages, answer, now_ms())

    def _said(
        self, stages: tuple[Stage, ...] = (), register: Register | None = None
    ) -> WorkerReport:
        return WorkerReport(
            self.name, self.agent.incarnation, stages, register, to_ms(time.monotonic())
        )

    async def _ask(self, report: WorkerReport) -> ReportTaken | None:
        self.reports += 1
        try:
            answer = await self._bus.request(
                subjects.report(self.name), codec.pack(report), timeout=30
            )
        except Unavailable:
            await asyncio.sleep(0.2)
            return None
        return codec.unpack(answer.data, ReportTaken)

    def heartbeat(self, at_s: float) -> None:
        said, _ = self.heart.heartbeat(self.agent.attempts(), at_s, now_ms())
        self._bus.publish(self._subject, codec.pack(said))


class FakeWorkers:
    """Many of them on one connection, their heartbeats spread evenly over the interval."""

    def __init__(
        self,
        bus: Bus,
        count: int,
        heartbeat_interval_s: float,
        total: Amount,
        attributes: dict[str, Attribute],
        *,
        endless: bool = False,
    ) -> None:
        self._bus = bus
        self._beat_s = heartbeat_interval_s
        names = [f"fake-{number:05d}" for number in range(count)]
        self._workers = [
            FakeWorker(bus, name, heartbeat_interval_s, total, attributes, endless=endless)
            for name in names
        ]
        self._by_token = {to_token(worker.name): worker for worker in self._workers}
        self.beats = 0

    @property
    def reports(self) -> int:
        return sum(worker.reports for worker in self._workers)

    async def start(self) -> None:
        """Listen for orders and register, some at a time."""
        await self._bus.subscribe("iris.worker.*.order", self._on_order)
        for first in range(0, len(self._workers), _AT_ONCE):
            await asyncio.gather(
                *(worker.register() for worker in self._workers[first : first + _AT_ONCE])
            )

    def _on_order(self, message: Message) -> None:
        worker = self._by_token.get(message.subject.split(".")[2])
        if worker is not None:
            self._bus.publish(message.reply, worker.on_order(codec.unpack(message.data, Order)))

    async def heartbeat(self) -> None:
        """For ever."""
        began_s = time.monotonic()
        while True:
            due = int((time.monotonic() - began_s) / self._beat_s * len(self._workers))
            for number in range(self.beats, due):
                self._workers[number % len(self._workers)].heartbeat(time.monotonic())
            self.beats = max(self.beats, due)
            await asyncio.sleep(0.01)


async def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="nats://127.0.0.1:4222")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--heartbeat", type=float, default=5.0)
    parser.add_argument("--cpu-millis", type=int, default=8000)
    parser.add_argument("--memory-bytes", type=int, default=64 << 30)
    parser.add_argument("--endless", action="store_true")
    options = parser.parse_args(argv)
    connection = await connect(options.url, name="fake-workers")
    total = Amount(options.cpu_millis, options.memory_bytes, 1 << 40, 0)
    workers = FakeWorkers(
        connection.bus,
        options.count,
        options.heartbeat,
        total,
        {"kind": "fake"},
        endless=options.endless,
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await workers.start()
    beating = asyncio.create_task(workers.heartbeat())
    print("ready", flush=True)
    await stop.wait()
    beating.cancel()
    print(f"{workers.beats} beats, {workers.reports} reports", flush=True)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
