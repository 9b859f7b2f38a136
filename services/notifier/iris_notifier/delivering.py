"""Sends what waits, one message at a time to each target, and tries again.

A target that fails is left alone for a pause that doubles; its messages keep their order. What could
not be sent for long is given up, and its target is paused. Source: docs/design/notifications.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from iris_core.backoff import Backoff
from iris_notifier.metrics import NotifierMetrics
from iris_notifier.outbox import MessageOutbox
from iris_notifier.records import DeliveryRecord, TargetRecord
from iris_notifier.senders import MessageSender
from iris_notifier.settings import NotifierSettings
from iris_notifier.store import RecordStore

log = logging.getLogger(__name__)

AT_ONCE = 16
OF_OWNER = 4
"""Messages that are being sent, and those of them to targets of one user."""
_LOOK_S = 60.0
"""How often messages that have waited too long are looked for."""


class Deliverer:
    """Sends the messages of an outbox.

    Args:
        now_ms: the wall clock.
    """

    def __init__(
        self,
        store: RecordStore,
        outbox: MessageOutbox,
        sender: MessageSender,
        settings: NotifierSettings,
        metrics: NotifierMetrics,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._sender = sender
        self._settings = settings
        self._metrics = metrics
        self._now_ms = now_ms
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._pauses: dict[str, tuple[Backoff, int]] = {}
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Look again: something was made, or a target has changed."""
        self._news.set()

    def forgive(self, target: str) -> None:
        """Try a target again at once."""
        self._pauses.pop(target, None)
        self.wake()

    async def run(self) -> None:
        """Send until cancelled. Raises Fenced, Unavailable of the store."""
        try:
            while True:
                self._news.clear()
                await self._give_up()
                wait_s = self._begin()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()
                except TimeoutError:
                    pass
                for task in [one for one in self._sending.values() if one.done()]:
                    task.result()
                self._sending = {t: one for t, one in self._sending.items() if not one.done()}
        finally:
            for task in self._sending.values():
                task.cancel()
            await asyncio.gather(*self._sending.values(), return_exceptions=True)

    async def try_once(self, target: TargetRecord, delivery: DeliveryRecord) -> bool:
        """Send a message out of turn, as the test of a target; whether it was delivered."""
        result = await self._sender.send(delivery, target)
        delivery.tries = 1
        delivery.status = "delivered" if result.is_delivered else "given_up"
        delivery.error = "" if result.is_delivered else result.detail
        self._metrics.ended(delivery.status)
        self._outbox.end(delivery, self._now_ms())
        return result.is_delivered

    def _begin(self) -> float:
        """Start on every target that has something due; returns after how many seconds to look
        again.
        """
        now_ms = self._now_ms()
        next_ms = math.inf
        for key in self._outbox.waiting():
            target = self._store.find(key, TargetRecord)
            if target is None or target.state != "active" or key in self._sending:
                continue
            due_ms = max(self._due_ms(key), self._pauses.get(key, (None, 0))[1])
            if due_ms > now_ms:
                next_ms = min(next_ms, due_ms)
                continue
            if not self._has_room(key):
                continue  # the end of one that is being sent makes some
            task = asyncio.get_running_loop().create_task(self._send_to(key))
            task.add_done_callback(lambda _: self._news.set())
            self._sending[key] = task
        return min(_LOOK_S, (next_ms - now_ms) / 1000)

    def _has_room(self, target: str) -> bool:
        """Whether one more message may be sent: targets of one user that are slow leave room to
        those of others.
        """
        owner = target.rpartition(".")[0]
        of_owner = sum(key.rpartition(".")[0] == owner for key in self._sending)
        return len(self._sending) < AT_ONCE and of_owner < OF_OWNER

    def _due_ms(self, target: str) -> float:
        return min((one.due_ms for one in self._outbox.pending(target)), default=math.inf)

    async def _send_to(self, key: str) -> None:
        """Send what is due to one target, until one fails."""
        for delivery in self._outbox.pending(key):
            target = self._store.find(key, TargetRecord)
            if target is None or target.state != "active":
                return
            if delivery.due_ms <= self._now_ms() and not await self._send(target, delivery):
                return

    async def _send(self, target: TargetRecord, delivery: DeliveryRecord) -> bool:
        result = await self._sender.send(delivery, target)
        if self._store.find(delivery.key, DeliveryRecord) is not delivery:
            return False  # its target was removed meanwhile
        delivery.tries += 1
        now_ms = self._now_ms()
        self._metrics.tried(is_delivered=result.is_delivered)
        if result.is_delivered:
            self._pauses.pop(target.key, None)
            delivery.status = "delivered"
            delivery.error = ""
            self._metrics.ended("delivered")
            self._outbox.end(delivery, now_ms)
        else:
            backoff, _ = self._pauses.get(target.key) or (self._backoff(), 0)
            delivery.next_ms = now_ms + int(1000 * backoff.next_s())
            delivery.error = result.detail
            self._pauses[target.key] = (backoff, delivery.next_ms)
            self._store.save(delivery)
            if result.is_gone:
                self._pause(target, f"the other side wants no more messages: {result.detail}")
        await self._store.flush()
        return result.is_delivered

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.retry_first_s, self._settings.retry_longest_s)

    async def _give_up(self) -> None:
        """Give up what has waited for too long, and pause its targets."""
        now_ms = self._now_ms()
        oldest_ms = now_ms - int(1000 * self._settings.retry_for_s)
        for key in self._outbox.waiting():
            why = next((one.error for one in self._outbox.pending(key) if one.error), "")
            given_up = [one for one in self._outbox.pending(key) if one.created_ms <= oldest_ms]
            for delivery in given_up:
                delivery.status = "given_up"
                delivery.error = delivery.error or why or "its target was not active"
                self._metrics.ended("given_up")
                self._outbox.end(delivery, now_ms)
                log.warning("gave up %s to %s: %s", delivery.id, delivery.target, delivery.error)
            target = self._store.find(key, TargetRecord)
            if given_up and target is not None and target.state == "active":
                self._pause(target, f"no message was delivered: {given_up[0].error}")
        await self._store.flush()

    def _pause(self, target: TargetRecord, why: str) -> None:
        target.state = "paused"
        target.detail = why
        self._store.save(target)
        log.warning("target %s of %s is paused: %s", target.name, target.user, why)
