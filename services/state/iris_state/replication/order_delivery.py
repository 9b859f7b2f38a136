"""Sends orders to workers, each by a request, and passes on how those were delivered that somebody
waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from iris_bus.connection.retry import with_retries
from iris_bus.contract import Bus, NoResponders, Unavailable
from iris_core import codec, subjects
from iris_core.messages.state_worker import Order, OrderTaken
from iris_service.tracing import Tracer
from iris_state.clock import Clock
from iris_state.effects.deliveries import why_refused
from iris_state.machine.machine import Machine
from iris_state.records.inputs import DeliveryResult, Fate
from iris_state.replication import spans


class OrderDelivery:
    """The orders on their way.

    Args:
        machine: the present one; the results of orders of an earlier one are dropped.

    Attributes:
        unreached: the known hosts whose last order did not reach them, or that nothing is known of.
    """

    def __init__(
        self,
        bus: Bus,
        timeout_s: float,
        clock: Clock,
        tracer: Tracer,
        machine: Callable[[], Machine],
        arrive: Callable[[DeliveryResult], None],
    ) -> None:
        self._bus = bus
        self._timeout_s = timeout_s
        self._clock = clock
        self._tracer = tracer
        self._machine = machine
        self._arrive = arrive
        self._under_way: set[asyncio.Task[None]] = set()
        self.unreached: set[str] = set()

    def watch(self, workers: Iterable[str]) -> None:
        """Pass on how the next order to each of these is delivered."""
        self.unreached.update(workers)

    def deliver(self, worker: str, order: Order) -> None:
        task = asyncio.get_running_loop().create_task(self.send(worker, order))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        for task in self._under_way:
            task.cancel()

    async def send(self, worker: str, order: Order) -> None:
        """Send an order and record the result; a worker that has restarted has executed nothing of
        it.
        """
        timeout = self._timeout_s
        machine = self._machine()
        sent = spans.OrderSpans(self._tracer, order, self._clock.now_ms())
        taken = OrderTaken("")
        fate = Fate.UNKNOWN
        try:
            send = partial(
                self._bus.request, subjects.order(worker), codec.pack(sent.order), timeout=timeout
            )
            answer = await with_retries(send, self._repeat_s(machine, worker), repeat_unknown=False)
            taken = codec.unpack(answer.data, OrderTaken)
            error = "" if taken.taken else why_refused(worker, taken)
            fate = Fate.NEVER if taken.stopping else Fate.REFUSED
        except NoResponders:
            error = f"worker {worker} does not listen"
            fate = Fate.NEVER
        except (Unavailable, codec.Undecodable):
            error = f"worker {worker} did not take its order within {timeout:g} s"
        sent.answered(worker, self._clock.now_ms(), error)
        if machine is self._machine() and (error or worker in self.unreached or order.is_awaited):
            self._note_reached(worker, not error)
            self._arrive(
                DeliveryResult(worker, order, error, fate, monotonic_ms=taken.monotonic_ms)
            )

    def _repeat_s(self, machine: Machine, worker: str) -> float:
        """How long an order that finds no listener is sent again: a host with fresh heartbeats is
        only reconnecting.
        """
        presence = machine.ledger.presence.get(worker)
        policy = machine.policy
        if (
            presence is None
            or self._clock.now_ms() - presence.heartbeat_ms > 2 * policy.heartbeat_interval_ms
        ):
            return 0.0
        return policy.order_retry_s

    def _note_reached(self, worker: str, reached: bool) -> None:
        (self.unreached.discard if reached else self.unreached.add)(worker)
        workers = self._machine().ledger.workers
        if len(self.unreached) > len(workers):
            self.unreached &= workers.keys()
