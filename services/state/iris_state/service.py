"""The shell of the state service: the only room here that waits, reads the clock, or touches the bus.

It gathers what has arrived, gives it to the machine with the time, makes the commit durable, and only then sends
what the machine has worded. One round at a time, so everything that arrives during an append is the next batch.
Source: architecture.md sections 2 and 3; nats.md section 4.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable

from iris_bus.contract import Fenced, Message, NoResponders, Unavailable
from iris_bus.jetstream import Connection
from iris_bus.run import Service
from iris_bus.telemetry import MetricsServer
from iris_core import codec, subjects
from iris_core.messages import Order, OrderTaken, Ping
from iris_state.machine import Asked, Command, Delivered, Heard, Input, Machine, Output
from iris_state.metrics import StateMetrics
from iris_state.outbox import told_before
from iris_state.policy import Policy

log = logging.getLogger(__name__)

BATCH = 4000
"""Inputs of one commit at most, so that a commit stays far below the largest message."""
LONGEST_WAIT_S = 0.5
DRAIN_S = 10.0


class Clock:
    """Wall time that never goes back: taken once at the start, then advanced by the monotonic clock."""

    def __init__(self) -> None:
        self._wall_ns = time.time_ns()
        self._start_ns = time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._wall_ns + time.monotonic_ns() - self._start_ns) // 1_000_000

    def start_after(self, at_ms: int) -> None:
        """The record's last time is in the future of this clock: go on from there."""
        self._wall_ns += max(0, at_ms - self.now_ms()) * 1_000_000


class Leader:
    """One replica that writes."""

    def __init__(self, service: Service[Policy], connection: Connection) -> None:
        self.service = service
        self.connection = connection
        self.bus = connection.bus
        self.journal = connection.journal()
        self.teller = connection.teller()
        self.machine = Machine(service.settings, f"{os.getpid()}-{uuid.uuid4().hex[:8]}")
        self.metrics = StateMetrics(self.machine)
        self.clock = Clock()
        self._inbox: list[Input] = []
        self._arrived = asyncio.Event()
        self._orders: set[asyncio.Task[None]] = set()
        self.ready = False

    async def run(self) -> None:
        """Recover, take over, and serve until told to stop. Raises Fenced when another replica has taken over."""
        await self.connection.streams.ensure()
        await self._recover()
        commands = self.connection.streams.read(subjects.COMMANDS.name, self.machine.cursor)
        commands.on_arrival(self._arrived.set)
        subscriptions = [await self.bus.subscribe(subject, callback) for subject, callback in self._callbacks().items()]
        try:
            await self._commit(self.machine.lead(self.clock.now_ms()))
            self.ready = True
            log.info("leading", extra={"sequence": self.machine.sequence, "epoch": self.machine.ledger.epoch})
            while not self.service.stop.is_set():
                await self._wait()
                inputs, self._inbox = self._inbox[:BATCH], self._inbox[BATCH:]
                wishes = [Command(m.sequence, m.subject, m.data) for m in commands.take(BATCH)]
                await self._commit(self.machine.step([*inputs, *wishes], self.clock.now_ms()))
        finally:
            self.ready = False
            for subscription in subscriptions:
                await subscription.close()
            await commands.close()
        await self._drain()

    async def _recover(self) -> None:
        """Replay the journal; events that may not have been told go out again behind the last one that was."""
        told = told_before(await self.teller.resume())
        began, entries = time.monotonic(), 0
        async for entry in await self.journal.replay(self.machine.sequence):
            events = self.machine.replay(entry.sequence, entry.data, told)
            entries += 1
            if events:
                self.teller.tell(events)
        self.clock.start_after(self.machine.last_ms)
        log.info(
            "recovered",
            extra={
                "entries": entries,
                "seconds": round(time.monotonic() - began, 3),
                "jobs": len(self.machine.ledger.jobs),
            },
        )

    def _callbacks(self) -> dict[str, Callable[[Message], None]]:
        return {
            subjects.STATE_REPORT: self._on_asked,
            subjects.STATE_PLAN: self._on_asked,
            subjects.STATE_QUERY: self._on_asked,
            subjects.SNAPSHOT_FULL: self._on_asked,
            subjects.BEATS: self._on_beat,
            subjects.STATE_PING: self._on_ping,
        }

    def _on_asked(self, message: Message) -> None:
        self._arrive(Asked(message.subject, message.data, message.reply))

    def _on_beat(self, message: Message) -> None:
        self._arrive(Heard(message.data))

    def _on_ping(self, message: Message) -> None:
        machine = self.machine
        pong = Ping(machine.leader, machine.ledger.epoch, machine.sequence, self.ready)
        self.bus.publish(message.reply, codec.pack(pong))

    def _arrive(self, one: Input) -> None:
        self._inbox.append(one)
        self._arrived.set()

    async def _wait(self) -> None:
        """Until something arrives, something is due, or the process should end."""
        if self._inbox:
            self._arrived.clear()
            return
        due = self.machine.next_due()
        wait = LONGEST_WAIT_S if due is None else min(LONGEST_WAIT_S, max(0.0, (due - self.clock.now_ms()) / 1000))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._arrived.wait()
        self._arrived.clear()

    async def _commit(self, output: Output) -> None:
        """Make a round durable, then let the world know. Raises Fenced: nobody has been told anything."""
        if output.commit is not None:
            began = time.perf_counter()
            await self.journal.append(output.commit, expected=output.sequence - 1)
            self.metrics.committed(output, time.perf_counter() - began)
        self._send(output)

    def _send(self, output: Output) -> None:
        for worker, order in output.orders.items():
            self._deliver(worker, order)
        if output.delta is not None:
            self.bus.publish(subjects.SNAPSHOT, output.delta)
        for subject, data in output.replies:
            if subject:
                self.bus.publish(subject, data)
        if output.events:
            self.teller.tell(output.events)

    def _deliver(self, worker: str, order: Order) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver_one(worker, order))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _deliver_one(self, worker: str, order: Order) -> None:
        """Hand an order over and note how that ended; a worker that restarted has taken nothing."""
        timeout = self.service.settings.order_timeout_s
        try:
            answer = await self.bus.request(subjects.order(worker), codec.pack(order), timeout=timeout)
            taken = codec.unpack(answer.data, OrderTaken)
            error = "" if taken.taken else f"worker {worker} has restarted"
        except NoResponders:
            error = f"worker {worker} does not listen"
        except (Unavailable, codec.Undecodable):
            error = f"worker {worker} did not take its order within {timeout:g} s"
        if order.prepare or order.start or error:
            self._arrive(Delivered(worker, order, error))

    async def _drain(self) -> None:
        """What was committed is told before the process ends."""
        for task in self._orders:
            task.cancel()
        await self.bus.flush()
        with contextlib.suppress(Unavailable):
            await self.teller.drain(DRAIN_S)


async def main(service: Service[Policy]) -> None:
    """Be the state service until told to stop; a replica that has been fenced ends at once."""
    connection = await service.connect()
    leader = Leader(service, connection)
    metrics = MetricsServer(leader.metrics.registry, lambda: leader.ready)
    if service.run.metrics:
        await metrics.start(service.run.metrics)
    try:
        await leader.run()
    except Fenced:
        log.warning("another replica leads now; ending")
        raise
    finally:
        await metrics.close()
        await connection.close()
