"""The notifier's shell: one process reads events and sends messages, another one stands by.

Everything that has to be kept is in the bucket: a message is stored before the position after its
event, so a message is neither lost nor made twice when a process ends at any moment. Source:
docs/design/notifications.md#one-of-several.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable

from iris_bus.contract import (
    Bus,
    Connection,
    Fenced,
    Gap,
    Message,
    NoResponders,
    StreamPosition,
    Streams,
    Unavailable,
)
from iris_core import codec
from iris_core.errors import Code
from iris_core.messages.gateway_notifier import NotifyRequest, NotifyVerb
from iris_core.messages.gateway_state import Answer
from iris_core.subjects import (
    EVENTS,
    JOB_EVENTS,
    NOTIFIER_REQUEST,
    NOTIFY_BUCKET,
    NOTIFY_POSITION,
    is_inbox,
)
from iris_core.views.events import JobEvent
from iris_notifier.delivering import Deliverer
from iris_notifier.facts import StateReader
from iris_notifier.metrics import NotifierMetrics
from iris_notifier.outbox import MessageOutbox
from iris_notifier.records import EventPosition, StoreWriter, TargetRecord
from iris_notifier.requests import NotifyRequests
from iris_notifier.senders import MessageSender, Sender
from iris_notifier.settings import NotifierSettings
from iris_notifier.store import RecordStore
from iris_notifier.watching import JobWatch
from iris_service.run import Service

log = logging.getLogger(__name__)

_QUEUE = "notifier"
_PING_S = 2.0
_SILENT_PINGS = 3
"""A process that does not answer so many in a row is taken for gone."""
_PAUSE_S = 1.0
_BATCH = 500
_BATCH_S = 5.0
"""How often the position is stored while nothing else is."""
_PROBE_S = 1.0


class NotifierProcess:
    """One notifier on one bus.

    Args:
        sender: sends one message. now_ms: the wall clock.
    """

    def __init__(
        self,
        connection: Connection,
        sender: MessageSender,
        settings: NotifierSettings,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._connection = connection
        self._bus: Bus = connection.bus
        self._streams: Streams = connection.streams
        self._sender = sender
        self._settings = settings
        self._now_ms = now_ms
        self._outbox: MessageOutbox | None = None
        self._store: RecordStore | None = None
        self.is_active = False
        self.metrics = NotifierMetrics()
        self.metrics.show(self._pending, self._targets)

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by, and do the work while nobody else does, until stopped."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                working = asyncio.ensure_future(self._turn())
                await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    working.cancel()
                await asyncio.gather(working, return_exceptions=stop.is_set())
        finally:
            stopping.cancel()

    async def _turn(self) -> None:
        await self._stand_by()
        try:
            await self._work()
        except* Fenced:
            log.warning("another notifier has written; this one stands by")
        except* Gap as group:
            log.warning("what was read is gone: %s", group.exceptions[0])
        except* Unavailable as group:
            log.warning("the bus did not answer: %s", group.exceptions[0])
        finally:
            self.is_active = False
        await asyncio.sleep(_PAUSE_S)

    async def _stand_by(self) -> None:
        """Return when no other notifier answers."""
        silent = 0
        asked = codec.pack(NotifyRequest(NotifyVerb.PING))
        while silent < _SILENT_PINGS:
            try:
                await self._bus.request(NOTIFIER_REQUEST, asked, timeout=_PING_S)
                silent = 0
                await asyncio.sleep(_PING_S)
            except NoResponders:
                return
            except Unavailable:
                silent += 1

    # ── the one that works ────────────────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        store = RecordStore(self._connection.key_value(NOTIFY_BUCKET))
        await store.load()
        outbox = MessageOutbox(store, int(1000 * self._settings.storm_s))
        reader = StateReader(self._bus)
        watch = JobWatch(store, outbox, reader, url=self._settings.url, now_ms=self._now_ms)
        deliverer = Deliverer(
            store, outbox, self._sender, self._settings, self.metrics, now_ms=self._now_ms
        )
        requests = NotifyRequests(
            store, outbox, watch, deliverer, reader, self._sender, now_ms=self._now_ms
        )
        position = await self._position(store)
        self._store = store
        self._outbox = outbox
        self.is_active = True
        log.info("this notifier works", extra={"position": position.events})
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer(requests, group))
            group.create_task(deliverer.run())
            group.create_task(self._check_times(store, watch, deliverer))
            group.create_task(self._read_events(store, watch, deliverer, position))

    async def _position(self, store: RecordStore) -> EventPosition:
        """Where to read on; of the first notifier of a cluster at the end of the stream. The store is
        this notifier's from now on. Raises Fenced when it is another's by now.
        """
        store.save(StoreWriter(id=uuid.uuid4().hex))
        known = store.find(NOTIFY_POSITION, EventPosition)
        if known is None:
            end = await self._streams.position(EVENTS.name)
            known = EventPosition(events=end.sequence, made=end.made)
            store.save(known)
        await store.flush()
        return known

    async def _read_events(
        self, store: RecordStore, watch: JobWatch, deliverer: Deliverer, known: EventPosition
    ) -> None:
        end = await self._streams.position(EVENTS.name)
        position = known.events
        is_another = known.made not in ("", end.made)
        is_behind = is_another or await self._is_behind(end, position)
        if is_behind:
            log.error(
                "events after %d were deleted, or their stream was made anew, before they were read",
                position,
            )
            self.metrics.missed()
            position = 0 if is_another else min(position, end.sequence)
        await watch.resume(is_behind=is_behind)
        reader = self._streams.read(EVENTS.name, position, JOB_EVENTS, made=end.made)
        stored_ms = self._now_ms()
        changes = -1
        try:
            while True:
                for message in await reader.batch(limit=_BATCH, wait=_BATCH_S):
                    await self._on_event(watch, message)
                    position = message.sequence
                if store.changes != changes or self._now_ms() - stored_ms >= 1000 * _BATCH_S:
                    store.save(EventPosition(events=position, made=end.made))
                    await store.flush()
                    deliverer.wake()
                    changes = store.changes
                    stored_ms = self._now_ms()
        finally:
            await reader.close()

    async def _check_times(self, store: RecordStore, watch: JobWatch, deliverer: Deliverer) -> None:
        while True:
            await watch.until_due()
            await watch.check_due()
            await store.flush()
            deliverer.wake()

    async def _on_event(self, watch: JobWatch, message: Message) -> None:
        try:
            event = codec.from_json(message.data, JobEvent)
        except codec.Undecodable as error:
            log.error("the event %d cannot be read: %s", message.sequence, error)
            return
        await watch.on_event(event)

    async def _is_behind(self, end: StreamPosition, position: int) -> bool:
        """Whether the stream has deleted events after a position, or is shorter."""
        if position >= end.sequence:
            return position > end.sequence
        probe = self._streams.read(EVENTS.name, position, made=end.made)
        try:
            await probe.batch(limit=1, wait=_PROBE_S)
        except Gap:
            return True
        finally:
            await probe.close()
        return False

    async def _answer(self, requests: NotifyRequests, group: asyncio.TaskGroup) -> None:
        def on_request(message: Message) -> None:
            if is_inbox(message.reply):
                group.create_task(self._reply(requests, message))

        subscription = await self._bus.subscribe(NOTIFIER_REQUEST, on_request, queue=_QUEUE)
        try:
            await asyncio.Event().wait()
        finally:
            await subscription.close()

    async def _reply(self, requests: NotifyRequests, message: Message) -> None:
        try:
            request = codec.unpack(message.data, NotifyRequest)
        except codec.Undecodable as error:
            answer = Answer(Code.INTERNAL, codec.to_json({"detail": str(error)}))
        else:
            try:
                answer = await requests.answer(request)
            except (Fenced, Unavailable):
                body = codec.to_json({"detail": "the notifier could not store it; another one may"})
                self._bus.publish(message.reply, codec.pack(Answer(Code.UNAVAILABLE, body)))
                raise
        self._bus.publish(message.reply, codec.pack(answer))

    def _pending(self) -> int:
        return self._outbox.count() if self.is_active and self._outbox is not None else 0

    def _targets(self) -> dict[str, int]:
        found = {"unverified": 0, "active": 0, "paused": 0}
        if self.is_active and self._store is not None:
            found.update(Counter(one.state for one in self._store.all(TargetRecord)))
        return found


async def main(service: Service[NotifierSettings]) -> None:
    """Run the notifier until it is stopped."""
    connection = await service.connect()
    sender = Sender(service.settings, service.run.cluster, time.time)
    notifier = NotifierProcess(
        connection, sender, service.settings, now_ms=lambda: time.time_ns() // 1_000_000
    )
    await service.serve_metrics(notifier.metrics.registry)
    try:
        await notifier.run(service.stop)
    finally:
        await connection.close()
