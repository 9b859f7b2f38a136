"""A notifier beside a gateway under test, with a sender that keeps what it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import msgspec

from iris_core import subjects
from iris_core.views.notify import NewTarget
from iris_notifier.records import DeliveryRecord, TargetRecord
from iris_notifier.senders import SendResult
from iris_notifier.service import NotifierProcess
from iris_notifier.settings import NotifierSettings
from tests.support.memory import Memory

SECRET = "sixteen bytes and"
OPS = NewTarget(name="ops", webhook="https://hooks.example.org/x", secret=SECRET)
QUICK = NotifierSettings(retry_first_s=0.01, retry_longest_s=0.02, storm_s=0.2)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class KeptMessages:
    """A sender.

    Attributes:
        sent: what was delivered, with the name of its target.
        results: what comes of the next tries; afterwards every message is delivered.
    """

    sent: list[tuple[str, DeliveryRecord]] = field(default_factory=list)
    results: list[SendResult] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    sends_mail: bool = False

    async def send(self, delivery: DeliveryRecord, target: TargetRecord) -> SendResult:
        result = self.results.pop(0) if self.results else SendResult(True, "200")
        async with self.arrived:
            if result.is_delivered:
                self.sent.append((target.name, msgspec.structs.replace(delivery)))
            self.arrived.notify_all()
        return result

    async def refusal(self, webhook: str) -> str:
        return "" if webhook.startswith("https://") else "no"

    async def has_sent(self, number: int) -> list[tuple[str, DeliveryRecord]]:
        """The messages, once there are so many beside tests of targets."""
        async with asyncio.timeout(10), self.arrived:
            await self.arrived.wait_for(lambda: len(self.messages) >= number)
        return self.messages

    @property
    def messages(self) -> list[tuple[str, DeliveryRecord]]:
        return [(to, one) for to, one in self.sent if one.type != "iris.test"]


@asynccontextmanager
async def notifier_of(memory: Memory) -> AsyncIterator[KeptMessages]:
    """One notifier of a cluster, once it answers."""
    sender = KeptMessages()
    stop = asyncio.Event()
    process = NotifierProcess(memory.connect("notifier"), sender, QUICK, now_ms=now_ms)
    running = asyncio.create_task(process.run(stop))
    try:
        await answering(memory)
        yield sender
    finally:
        stop.set()
        await running


async def answering(memory: Memory) -> None:
    """Return when a notifier takes requests."""
    pattern = tuple(subjects.NOTIFIER_REQUEST.split("."))
    async with asyncio.timeout(10):
        while not any(one.pattern == pattern for one in memory.listeners):
            await asyncio.sleep(0)


async def show_notifications(http: httpx.AsyncClient, sender: KeptMessages) -> None:
    """Targets in every state, a subscription of each kind, and a message to each target; with names
    and errors as long as they may be.
    """
    url = "https://hooks.example.org/services/T0/B0/" + "x" * 80
    failed = SendResult(False, "the address hooks.example.org resolves to 10.0.0.7, " + "y" * 90)
    for name, result in (
        ("ops", SendResult(True, "200")),
        ("paused", SendResult(True, "200")),
        ("n" * 63, failed),
    ):
        sender.results = [result]
        await http.post("/v1/notify/targets", json={"name": name, "webhook": url, "secret": SECRET})
    await http.post("/v1/notify/targets/paused/pause", json={})
    for of in ({"job": "/a"}, {"project": "/research/" + "p" * 63}, {"all_mine": True}):
        asked = {"to": "ops", "on": ["failed", "waiting_1h", "time_80"], **of}
        await http.post("/v1/notify/subscriptions", json=asked)
