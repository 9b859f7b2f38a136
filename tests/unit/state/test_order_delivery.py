"""Orders that find no listener: sent again while the host is only reconnecting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from iris_core import codec, subjects
from iris_core.messages.state_worker import Order, OrderTaken
from iris_service.tracing import Tracer
from iris_state.records.inputs import DeliveryResult, Fate
from iris_state.replication.order_delivery import OrderDelivery
from tests.support.memory import Memory
from tests.support.script import Script

ORDER = Order(incarnation="1", epoch=1)


class Sent:
    """One order to w0, on its way since it found no listener; ``results``: what was passed on of
    it.
    """

    def __init__(self, script: Script) -> None:
        self.memory, self.results = Memory(), list[DeliveryResult]()
        world: Any = script.world
        clock: Any = SimpleNamespace(now_ms=lambda: world.now_ms)
        bus = self.memory.connect().bus
        machine = world.machine
        self.delivery = OrderDelivery(
            bus, 60, clock, Tracer(""), lambda: machine, self.results.append
        )
        self.delivery.watch(["w0"])
        self.sending = asyncio.create_task(self.delivery.send("w0", ORDER))


@pytest.fixture
def script() -> Script:
    script = Script()
    script.play("worker w0 cpu=4")
    return script


async def test_an_order_reaches_a_host_that_listens_again_shortly(script: Script) -> None:
    script.play("policy order_retry_s=60")
    sent, taken = Sent(script), list[Order]()
    for _ in range(10):
        await asyncio.sleep(0)
    worker = sent.memory.connect()

    def take(message: Any) -> None:
        taken.append(codec.unpack(message.data, Order))
        worker.bus.publish(message.reply, codec.pack(OrderTaken("1")))

    await worker.bus.subscribe(subjects.order("w0"), take)
    async with asyncio.timeout(60):
        await sent.sending
    assert (len(taken), sent.results) == (1, [DeliveryResult("w0", ORDER, fate=Fate.REFUSED)])


@pytest.mark.parametrize(("silent_s", "retry_s"), [(11, 60), (0, 0.05)])
async def test_an_order_that_nobody_hears_never_arrives(
    script: Script, silent_s: int, retry_s: float
) -> None:
    """At once when its host has been silent, else after ``order_retry_s``."""
    script.play(f"policy order_retry_s={retry_s}")
    script.world.now_ms += silent_s * 1000
    sent = Sent(script)
    async with asyncio.timeout(30):
        await sent.sending
    assert sent.results == [DeliveryResult("w0", ORDER, "worker w0 does not listen", Fate.NEVER)]
