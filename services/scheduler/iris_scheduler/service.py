"""The shell of the scheduler: the only module here that waits, reads the clock, or uses the bus.

It keeps the mirror up to date, plans when a record has changed or when time alone would change the
plan, and has one plan in flight at a time; later deltas are for the next plan. After any
inconsistency it drops its state and requests a full snapshot from the state service. Source:
    docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter

import msgspec

from iris_bus.contract import Bus, Message, Subscription, Unavailable
from iris_core import codec, subjects
from iris_core.backoff import Backoff
from iris_core.batching import Batcher
from iris_core.errors import Refused
from iris_core.messages.gateway_scheduler import PlanRequest
from iris_core.messages.processes import Ping
from iris_core.messages.scheduler_state import Delta, FullSnapshot, Plan, PlanTaken
from iris_core.placement.chains import CHAIN_ENDED
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.metrics import SchedulerMetrics
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import Decision, plan
from iris_scheduler.preview import preview
from iris_scheduler.settings import SchedulerSettings
from iris_service.run import Service
from iris_service.tracing import Tracer

log = logging.getLogger(__name__)

_RETRY_S = 0.1
_LONGEST_RETRY_S = 2.0
_OWN_COMMIT_S = 0.25
"""How long the delta of an accepted plan may take to arrive, in seconds."""


class Scheduler:
    """One scheduler on one bus.

    Args:
        stop: set when it should end.
        tracer: gets one span for each traced job that a plan places tasks of.
    """

    def __init__(
        self,
        bus: Bus,
        settings: SchedulerSettings,
        stop: asyncio.Event,
        tracer: Tracer | None = None,
    ) -> None:
        self._bus = bus
        self._tracer = tracer or Tracer("scheduler")
        self._settings = settings
        self._stop = stop
        self._mirror: Mirror | None = None
        self._cache = Cache()
        self._deltas: list[bytes] = []
        self._chunks: list[bytes] = []
        self._questions: list[Message] = []
        self._arrived = asyncio.Event()
        self._wake_ms: int | None = None
        self._refused_in_a_row = 0
        self._epoch: int | None = None
        self._checked_s = 0.0
        self._confirmed_s = 0.0
        self._ahead_ms = 0
        self._pace = Batcher(settings.plan_spacing_s, settings.plan_burst)
        self.metrics = SchedulerMetrics(self._age_s)

    @property
    def ready(self) -> bool:
        """Whether it has a mirror of the records."""
        return self._mirror is not None

    async def run(self) -> None:
        """Plan until stopped."""
        stopping = asyncio.ensure_future(self._stop.wait())
        stopping.add_done_callback(lambda _: self._arrived.set())
        inbox = self._bus.new_inbox()
        subscriptions = [
            await self._bus.subscribe(subjects.SNAPSHOT, self._on_delta),
            await self._bus.subscribe(inbox, self._on_chunk),
        ]
        try:
            while not self._stop.is_set():
                await self._turn(inbox, subscriptions)
        finally:
            stopping.cancel()
            for subscription in subscriptions:
                await subscription.close()

    async def _turn(self, inbox: str, subscriptions: list[Subscription]) -> None:
        if self._mirror is None:
            self._mirror = await self._fetch_full_snapshot(inbox)
            if self._mirror is not None and len(subscriptions) == 2:
                subscriptions.append(
                    await self._bus.subscribe(subjects.SCHEDULER_PLAN, self._on_question)
                )
            return
        arrived = await self._wait()
        await self._gather()
        mirror = self._mirror = self._follow(self._mirror)
        if mirror is None or self._stop.is_set():
            return
        due = self._steady_s() - self._checked_s >= self._settings.check_s
        if due and not await self._is_up_to_date(mirror, silent=not arrived):
            self._mirror = None
            return
        self._answer_questions(mirror)
        await self._cycle(mirror)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────

    def _on_delta(self, message: Message) -> None:
        self._deltas.append(message.data)
        self._arrived.set()

    def _on_chunk(self, message: Message) -> None:
        self._chunks.append(message.data)
        self._arrived.set()

    def _on_question(self, message: Message) -> None:
        if subjects.is_inbox(message.reply):
            self._questions.append(message)
            self._arrived.set()

    async def _wait(self) -> bool:
        """Wait until a message arrives, time changes the plan, or the process should end. False
        after a long silence.
        """
        wait_s = self._settings.check_s
        if self._wake_ms is not None:
            wait_s = min(wait_s, max(0.0, (self._wake_ms - self._now_ms()) / 1000))
        if not (self._deltas or self._questions) and not await self._hear(wait_s):
            return wait_s < self._settings.check_s
        self._arrived.clear()
        return True

    async def _gather(self) -> None:
        """Wait for more changes before the next plan while many attempts start and end."""
        if wait_s := self._pace.wait_s(self._steady_s()):
            await asyncio.sleep(wait_s)
            self._arrived.clear()

    async def _hear(self, wait_s: float) -> bool:
        """Whether a message arrives within the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                return await self._arrived.wait()
        return False

    def _now_ms(self) -> int:
        """The state service's time, in which delays and timeouts are measured; this host's clock
        may differ.
        """
        return self._steady_ms() + self._ahead_ms

    def _set_clock(self, at_ms: int) -> None:
        """Update the clock from a message with the state service's time; the message with the
        shortest delay counts most.
        """
        self._ahead_ms = max(self._ahead_ms, at_ms - self._steady_ms())

    def _steady_ms(self) -> int:
        return int(self._steady_s() * 1000)

    def _steady_s(self) -> float:
        """Monotonic seconds of the event loop, which a simulation controls."""
        return asyncio.get_running_loop().time()

    def _age_s(self) -> float:
        """Seconds since the state service last confirmed the mirror; -1 while there is none."""
        return self._steady_s() - self._confirmed_s if self._mirror else -1.0

    # ── the mirror ────────────────────────────────────────────────────────────────────────────────

    async def _fetch_full_snapshot(self, inbox: str) -> Mirror | None:
        """Request full snapshots until one arrives. None when the process should end first."""
        backoff = Backoff(_RETRY_S, _LONGEST_RETRY_S)
        while not self._stop.is_set():
            chunks = await self._ask(inbox)
            if chunks:
                mirror = Mirror.of(chunks)
                self._ahead_ms = mirror.at_ms - self._steady_ms()
                self._cache = Cache()
                self._wake_ms = None
                self._arrived.set()
                return self._follow(mirror, since=mirror.version)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), backoff.next_s())
        return None

    async def _ask(self, inbox: str) -> list[FullSnapshot]:
        """All chunks of one full snapshot; empty when the state service does not answer or complete
        it in time.
        """
        self._chunks = []
        self._bus.publish(subjects.SNAPSHOT_FULL, b"", reply=inbox)
        found: list[FullSnapshot] = []
        deadline_s = self._steady_s() + self._settings.answer_timeout_s
        while not self._stop.is_set() and await self._hear(deadline_s - self._steady_s()):
            self._arrived.clear()
            arrived = self._chunks
            self._chunks = []
            if arrived:
                deadline_s = self._steady_s() + self._settings.answer_timeout_s
            try:
                found += [codec.unpack(data, FullSnapshot) for data in arrived]
            except codec.Undecodable:  # an empty answer: no responders
                return []
            if whole := _whole(found):
                return whole
        return []

    async def _is_up_to_date(self, mirror: Mirror, *, silent: bool) -> bool:
        """After a silence, ask the state service whether a delta was missed; no, if it does not
        answer.

        After a change of leader the mirror is loaded and all reasons are computed again: the last
        deltas of the old leader may never have become durable, and the new one does not know the
        published reasons.
        """
        self._checked_s = self._steady_s()
        try:
            answer = await self._bus.request(
                subjects.STATE_PING, b"", timeout=self._settings.answer_timeout_s
            )
            ping = codec.unpack(answer.data, Ping)
        except (Unavailable, codec.Undecodable):
            return True
        before = self._epoch
        self._epoch = ping.epoch
        if before not in (None, ping.epoch):
            return False
        if ping.sequence == mirror.version:
            self._confirmed_s = self._steady_s()
        if not silent:
            return True
        if ping.sequence <= mirror.version:
            return ping.sequence == mirror.version
        return await self._hear(_OWN_COMMIT_S)

    def _follow(self, mirror: Mirror, since: int = -1) -> Mirror | None:
        """Apply the deltas that have arrived; None when one is missing. Deltas up to ``since`` are
        in the mirror already, but for drafts of the commit behind it.
        """
        deltas = self._deltas
        self._deltas = []
        if deltas or since >= 0:
            self._confirmed_s = self._steady_s()
        for data in deltas:
            try:
                delta = codec.unpack(data, Delta)
            except codec.Undecodable as error:
                log.warning("a delta cannot be read: %s", error)
                return None
            if (delta.version > since or delta.after == since) and not mirror.apply(delta):
                log.info(
                    "asking for everything",
                    extra={"known": mirror.version, "arrived": delta.version},
                )
                return None
        self._set_clock(mirror.at_ms)
        return mirror

    # ── a cycle ───────────────────────────────────────────────────────────────────────────────────

    async def _cycle(self, mirror: Mirror) -> None:
        """Make one plan and send it; nothing is planned while no task is pending."""
        if not mirror.queue:
            self._wake_ms = None
            return
        self._pace.spend(self._steady_s(), sum(mirror.held.values()))
        began = time.perf_counter()
        decision = plan(mirror, self._cache, self._now_ms(), self._settings)
        self._cache.learn(decision.columns, decision.findings, mirror.looked())
        mirror.changes.fresh |= decision.left
        self._wake_ms = decision.wake_ms
        seconds = time.perf_counter() - began
        self.metrics.cycle(seconds)
        if decision.is_empty:
            return
        sent = msgspec.structs.replace(decision.plan, cycle_us=int(seconds * 1e6))
        taken = await self._send(sent)
        if taken is None:
            self._mirror = None
            return
        self._trace(sent, taken)
        await self._await_own_commit(mirror, taken)
        if self._mirror is not None:
            self._note(self._mirror, decision, taken)

    async def _send(self, decided: Plan) -> PlanTaken | None:
        """Send a plan to the state service. None when it is unknown whether it was accepted."""
        try:
            answer = await self._bus.request(
                subjects.STATE_PLAN, codec.pack(decided), timeout=self._settings.answer_timeout_s
            )
            return codec.unpack(answer.data, PlanTaken)
        except (Unavailable, codec.Undecodable) as error:
            log.warning("a plan was not answered: %s", error)
            return None

    def _trace(self, sent: Plan, taken: PlanTaken) -> None:
        """One span for each traced job of a plan, of the time it took to plan it."""
        if not (taken.traces and self._tracer.records):
            return
        tasks: Counter[int] = Counter()
        for placement in sent.placements:
            tasks[placement.job] += len(placement.indexes)
        now_ms = self._now_ms()
        for job, traceparent in taken.traces.items():
            began_ms = now_ms - sent.cycle_us / 1000
            self._tracer.record("plan", traceparent, began_ms, now_ms, {"tasks": tasks[job]})

    def _note(self, mirror: Mirror, decision: Decision, taken: PlanTaken) -> None:
        """Pause rejected jobs that are still pending; after a second such plan in a row the mirror
        is reloaded.
        """
        refused = {
            job: why
            for job, index, why in taken.refused
            if (job, index) in mirror.queue and why != CHAIN_ENDED
        }
        for placement in decision.plan.placements:
            if placement.job not in refused:
                self._cache.backoffs.pop(placement.job, None)
        for job, why in refused.items():
            self._cache.refuse(job, why, self._now_ms(), self._settings)
        gangs = sum(mirror.kinds[job].is_gang for job, _, _ in taken.refused if job in mirror.kinds)
        self.metrics.taken(
            max(0, decision.singles - len(taken.refused) + gangs),
            max(0, decision.gangs - gangs),
            sum(len(eviction.victims) for eviction in decision.plan.evictions),
        )
        self._refused_in_a_row = self._refused_in_a_row + 1 if refused else 0
        if refused:
            self._arrived.set()
        if self._refused_in_a_row > 1:
            self._refused_in_a_row = 0
            self._mirror = None

    async def _await_own_commit(self, mirror: Mirror, taken: PlanTaken) -> None:
        """Wait for the delta of the commit that holds the plan, so that no task is planned
        twice.
        """
        self._mirror = self._follow(mirror)
        if not taken.placed:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OWN_COMMIT_S):
                while (
                    self._mirror is mirror
                    and mirror.version < taken.version
                    and not self._stop.is_set()
                ):
                    await self._arrived.wait()
                    self._arrived.clear()
                    self._mirror = self._follow(mirror)
        self._arrived.set()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────

    def _answer_questions(self, mirror: Mirror) -> None:
        questions = self._questions
        self._questions = []
        for message in questions:
            try:
                request = codec.unpack(message.data, PlanRequest)
                answer = preview(
                    mirror, self._cache, request, self._now_ms(), settings=self._settings
                )
            except (codec.Undecodable, Refused) as error:
                log.warning("a question that cannot be answered: %s", error)
                continue
            self._bus.publish(message.reply, codec.pack(answer))


def _whole(found: list[FullSnapshot]) -> list[FullSnapshot]:
    """The chunks, each once, of the first snapshot that is complete, also when it was requested
    twice.
    """
    for end in (chunk for chunk in found if chunk.last):
        of_it = {
            chunk.chunk: chunk
            for chunk in found
            if (chunk.version, chunk.at_ms) == (end.version, end.at_ms)
        }
        if len(of_it) == end.chunk + 1:
            return list(of_it.values())
    return []


async def main(service: Service[SchedulerSettings]) -> None:
    """Run the scheduler until it is stopped."""
    connection = await service.connect()
    scheduler = Scheduler(connection.bus, service.settings, service.stop, service.tracer)
    await service.serve_metrics(scheduler.metrics.registry, lambda: scheduler.ready)
    try:
        await scheduler.run()
    finally:
        await connection.close()
