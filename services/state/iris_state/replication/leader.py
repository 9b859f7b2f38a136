"""The leader: collects inputs, has them judged, appends the commit to the journal, and only then
sends messages.

One round at a time, so everything that arrives during an append is the next batch. Messages without
a commit are sent only after the journal has confirmed that this replica still leads, so a deposed
one sends nothing. Only schedulers get deltas earlier, because their plans are checked.
Source: docs/ARCHITECTURE.md#storage, docs/ARCHITECTURE.md#the-path-of-one-job;
    docs/design/nats.md#features-used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from iris_bus.contract import (
    EventPublisher,
    Fenced,
    Message,
    Publication,
    Subscription,
    Unavailable,
)
from iris_core import codec, subjects
from iris_core.access.actor import audit_line
from iris_core.access.task_tokens import SigningKey
from iris_core.batching import Batcher
from iris_core.errors import Code
from iris_core.limits import MESSAGE_BYTES, ROUND_BYTES
from iris_core.messages.processes import Ping
from iris_core.messages.scheduler_state import JobReason, Reasons
from iris_core.spec.serving import Discovery
from iris_core.tables.deployment import LIVE
from iris_service.tracing import Tracer
from iris_state.clock import step_to_say
from iris_state.effects.kinds import (
    FleetOrdersTo,
    MirrorDelta,
    OrderTo,
    Output,
    Raised,
    ReplyTo,
    Undiscovered,
    Unjudged,
)
from iris_state.effects.orders import parts
from iris_state.records.changes import Audited, Change
from iris_state.records.inputs import (
    DeliveryResult,
    FleetReport,
    Heartbeat,
    Input,
    Load,
    Request,
    RoomMade,
)
from iris_state.replication import spans
from iris_state.replication.discovery import DiscoveryWriter
from iris_state.replication.follower import known_reasons
from iris_state.replication.load_queries import LoadQueries
from iris_state.replication.metrics import StateMetrics
from iris_state.replication.notifications import SchedulerNotifications
from iris_state.replication.order_delivery import OrderDelivery
from iris_state.replication.plan_wait import PlanWait
from iris_state.replication.replica import Replica
from iris_state.replication.snapshotter import Snapshotter
from iris_state.replication.task_keys import TaskKeyStore
from iris_state.views.reads import TOO_LARGE, Reads, refusal

log = logging.getLogger(__name__)

One = TypeVar("One", bound=Input)

BATCH = 4000
"""Inputs of one round, at most."""
WAITING = 4000
WAITING_BYTES = 64 << 20
"""Commands that wait for a round, at most; any more are refused at once."""
BUSY = "the state service has as many commands waiting as it takes; this one has had no effect"
LONGEST_WAIT_S = 0.5
DRAIN_S = 10.0
_CONFIRM_S = 15.0
_CONFIRM_EVERY_S = 2.0
_CONFIRMED: tuple[type, ...] = (ReplyTo, OrderTo, FleetOrdersTo)
_PAUSE_S = 0.05
_KEYS_S = 1.0


class Leader:
    """A replica from the time its epoch is in the journal."""

    def __init__(
        self,
        replica: Replica,
        publisher: EventPublisher,
        metrics: StateMetrics,
        stop: asyncio.Event,
        tracer: Tracer | None = None,
    ) -> None:
        self._replica = replica
        self._tracer = tracer or Tracer("state")
        self._machine = replica.machine
        self._policy = replica.policy
        self._bus = replica.connection.bus
        self._publisher = publisher
        self._metrics = metrics
        self._stop = stop
        self._steady = asyncio.get_running_loop().time
        self._notifications = SchedulerNotifications(self._bus)
        self._inputs: list[Input] = []
        self._commands: list[Request] = []
        self._commands_bytes = 0
        self._questions: list[Message] = []
        self._confirmations: list[asyncio.Event] = []
        self._reads = Reads(replica.policy.read_timeout_s, self._steady, replica.policy.read_share)
        self._arrived = asyncio.Event()
        self._plans = PlanWait(replica.policy.plan_wait_s, self._steady)
        self._pace = Batcher(replica.policy.commit_spacing_s, replica.policy.commit_burst)
        self._orders = OrderDelivery(
            self._bus,
            replica.policy.order_timeout_s,
            replica.clock,
            self._tracer,
            machine=lambda: self._machine,
            arrive=self._arrive,
        )
        self._discovery: DiscoveryWriter | None = None
        self._task_keys: Sequence[SigningKey] = ()
        self._snapshots = Snapshotter(
            replica.machine,
            replica.connection,
            publisher,
            changes=replica.policy.snapshot_changes,
            after_s=replica.policy.snapshot_after_s,
            settle_s=replica.policy.events_settle_s,
            clock=asyncio.get_running_loop().time,
        )
        self._confirmed_s = self._steady()
        self._said_ahead_ms = 0
        self.ready = False

    @property
    def unpublished(self) -> int:
        """Events that the stream of events has not confirmed yet."""
        return self._publisher.backlog

    async def run(self) -> None:
        """Serve until stopped. Raises Fenced when another replica has taken over."""
        await self._publish_the_rest()
        subscriptions: list[Subscription] = []
        queries = LoadQueries(self._bus, self._policy, self._load_queries)
        keys = self._open_keys()
        try:
            for subject, callback in self._callbacks().items():
                subscriptions.append(await self._bus.subscribe(subject, callback))
            try:
                async with asyncio.timeout(_KEYS_S):
                    await keys.known.wait()
            except TimeoutError:  # orders without tokens are better than none
                log.error(
                    "the keys of tasks' tokens are not loaded yet: tasks that start before get no token"
                )
            await self._begin()
            self.ready = True
            log.info(
                "leading",
                extra={"sequence": self._machine.sequence, "epoch": self._machine.ledger.epoch},
            )
            while not self._stop.is_set():
                await self._round()
        finally:
            self.ready = False
            self._notifications.close()
            for subscription in subscriptions:
                await subscription.close()
            await queries.close()
            await keys.close()
            await self._snapshots.close()
            if self._discovery is not None:
                await self._discovery.close()
            self._orders.close()
            for reply in self._reads.rest():
                self._bus.publish(reply, refusal(Code.UNAVAILABLE, "this replica leads no more"))
        await self._drain()

    def _open_keys(self) -> TaskKeyStore:
        bucket = self._replica.connection.key_value(subjects.KEYS_BUCKET)
        has_jobs = bool(self._machine.ledger.jobs)
        clock = self._replica.clock
        life_ms = self._policy.task_token_ms
        return TaskKeyStore(bucket, clock.now_ms, life_ms, self._use_keys, has_jobs=has_jobs)

    def _use_keys(self, keys: Sequence[SigningKey]) -> None:
        """Sign tokens with these keys, also after the machine is replaced; none where attempts get
        none.
        """
        self._task_keys = self._machine.round.orders.keys = (
            keys if self._policy.task_token_s else ()
        )

    async def _publish_the_rest(self) -> None:
        """Publish the events that the previous leader has not published."""
        last_published = await self._publisher.resume()
        events = self._replica.unpublished.behind(last_published)
        if events is None:
            raise Unavailable("the events have fallen back; this replica has to start anew")
        self._snapshots.start_at(events[-1].message_id if events else last_published)
        if events:
            self._publisher.publish(events)

    def _say_clock_steps(self) -> None:
        ahead_ms = self._replica.clock.ahead_ms()
        if said := step_to_say(self._said_ahead_ms, ahead_ms):
            self._said_ahead_ms = ahead_ms
            log.warning("%s", said)

    async def _round(self) -> None:
        await self._wait()
        self._say_clock_steps()
        questions = self._questions
        self._questions = []
        confirmations = self._confirmations
        self._confirmations = []
        output, worked_s = await self._judge()
        took_s = await self._commit(output, bool(questions or confirmations))
        stored_ms = self._replica.clock.now_ms()
        for confirmation in confirmations:
            confirmation.set()
        await self._send(output)
        if not self._inputs:
            self._notifications.send_immediately(False)
        if output.commit is not None:
            self._metrics.committed(output, took_s)
            _log_audit(output.changes)
            spans.committed(self._tracer, output, worked_s, took_s, stored_ms)
        for raised in output.of(Raised):
            self._metrics.raised.note(raised.kind)
            log.error(
                "a %s was set aside, because judging it raised", raised.kind, exc_info=raised.error
            )
        self._snapshots.note(output)
        if self._machine.torn:
            await self._reload_records([one.input for one in output.of(Unjudged)])
        began_s = time.thread_time()
        self._answer_reads(questions)
        self._metrics.worked(worked_s + time.thread_time() - began_s)
        self._snapshots.work()

    async def _judge(self) -> tuple[Output, float]:
        """The result of what has arrived, and the CPU seconds it took.

        A few new tasks are planned within a millisecond or two where there is room: their plan is
        then part of the same commit. All of a round is judged at one time, that of its commit.
        """
        now_ms = self._replica.clock.now_ms()
        queue = self._machine.ledger.queue
        waiting = len(queue)
        worked_s = self._judge_arrived(now_ms)
        if not self._machine.torn and self._plans.may_come(len(queue) - waiting):
            self._plans.forget()
            self._notifications.add(self._machine.draft().data, urgent=True)
            await self._plans.wait()
            worked_s += self._judge_arrived(now_ms)
            if not (self._inputs or self._commands or self._questions or self._confirmations):
                self._arrived.clear()
        began_s = time.thread_time()
        return self._machine.finish(), worked_s + time.thread_time() - began_s

    def _judge_arrived(self, now_ms: int) -> float:
        """Judge the inputs of one round; the CPU seconds it took."""
        inputs, self._inputs = _at_once(self._inputs)
        commands, self._commands = _at_once(self._commands)
        self._commands_bytes -= sum(len(one.data) for one in commands)
        self._plans.just_took = any(
            type(one) is Request and one.subject == subjects.STATE_PLAN for one in inputs
        )
        began_s = time.thread_time()
        self._machine.judge([*inputs, *commands], now_ms)
        return time.thread_time() - began_s

    async def _reload_records(self, left: Sequence[Input]) -> None:
        """Make the ledger again of what is durable: a part of what raised stands in it. What is
        ``left`` comes next.

        But for how orders of before were delivered: every open order is given again, and newer
        things were reported. Raises Fenced when another replica has written to the journal
        meanwhile, Unavailable.
        """
        torn = self._machine
        await self._replica.recover()
        machine = self._replica.machine
        if machine.sequence != torn.sequence:
            raise Fenced(f"the journal ends at {machine.sequence}, not at {torn.sequence}")
        machine.succeed(torn)
        self._machine = machine
        self._snapshots.begin_anew(machine)
        self._inputs[:] = [
            one for one in (*left, *self._inputs) if not isinstance(one, DeliveryResult)
        ]
        await self._begin()

    async def _begin(self) -> None:
        """Send the first messages of a leader."""
        self._use_keys(self._task_keys)
        first = self._machine.lead(self._replica.clock.now_ms())
        if self._discovery is None:
            bucket = self._replica.connection.key_value(subjects.DISCOVERY_BUCKET)
            self._discovery = DiscoveryWriter(bucket, first.of(Discovery), self._confirmed)
        self._orders.watch(one.worker for one in first.of(OrderTo))
        self._hint(first)
        await self._send(first)

    def _callbacks(self) -> dict[str, Callable[[Message], None]]:
        return {
            subjects.STATE_COMMAND: self._on_command,
            subjects.REPORTS: self._on_request,
            subjects.STATE_PLAN: self._on_request,
            subjects.STATE_QUERY: self._on_query,
            subjects.SNAPSHOT_FULL: self._on_request,
            subjects.HEARTBEATS: self._on_heartbeat,
            subjects.LOADS: self._on_load,
            subjects.FLEET_REPORTS: self._on_fleet_report,
            subjects.STATE_PING: self._on_ping,
        }

    def record(self, made: RoomMade) -> None:
        """Have the next round record what was deleted."""
        self._arrive(made)

    def _on_command(self, message: Message) -> None:
        if not subjects.is_plain(message.reply):
            return
        if (
            len(self._commands) >= WAITING
            or self._commands_bytes + len(message.data) > WAITING_BYTES
        ):
            if message.reply:
                self._bus.publish(message.reply, refusal(Code.UNAVAILABLE, BUSY))
            return
        self._commands.append(Request(message.subject, message.data, message.reply))
        self._commands_bytes += len(message.data)
        self._arrived.set()

    def _on_request(self, message: Message) -> None:
        if not subjects.is_inbox(message.reply):
            return
        if message.subject == subjects.SNAPSHOT_FULL:
            self._notifications.send_immediately(True)
        elif message.subject == subjects.STATE_PLAN:
            self._plans.note()
        self._arrive(Request(message.subject, message.data, message.reply))

    def _on_query(self, message: Message) -> None:
        if subjects.is_inbox(message.reply):
            self._questions.append(message)
            self._arrived.set()

    def _on_heartbeat(self, message: Message) -> None:
        self._arrive(Heartbeat(message.subject, message.data))

    def _load_queries(self) -> dict[str, str]:
        """What Prometheus is asked for the deployments that are scaled by a query, by name."""
        live = [one for one in self._machine.ledger.deployments.values() if one.status in LIVE]
        return {
            one.name: one.spec.scaling.query
            for one in live
            if one.spec.scaling and one.spec.scaling.query
        }

    def _on_load(self, message: Message) -> None:
        self._arrive(Load(message.data))

    def _on_fleet_report(self, message: Message) -> None:
        self._arrive(FleetReport(message.data))

    def _on_ping(self, message: Message) -> None:
        self._notifications.flush()
        machine = self._machine
        reasons = known_reasons(machine.ledger, message.data)
        state = (machine.leader, machine.ledger.epoch, machine.sequence, self.ready)
        now_ms = self._replica.clock.now_ms()
        pong = Ping(*state, self._publisher.last_published, reasons, now_ms)
        if message.reply and subjects.is_inbox(message.reply):
            self._bus.publish(message.reply, codec.pack(pong))

    def _arrive(self, one: Input) -> None:
        self._inputs.append(one)
        self._arrived.set()

    async def _wait(self) -> None:
        """Wait for an input, a timer, or the stop; longer under load (see `Batcher`)."""
        wait = self._pace.wait_s(self._steady())
        if wait:
            await asyncio.sleep(wait)
        if self._inputs or self._commands or self._snapshots.busy:
            self._arrived.clear()
            await asyncio.sleep(0)
            return
        due = self._machine.next_due()
        now_ms = self._replica.clock.now_ms()
        wait = (
            LONGEST_WAIT_S if due is None else min(LONGEST_WAIT_S, max(0.0, (due - now_ms) / 1000))
        )
        if self._reads:
            wait = min(wait, self._reads.wait_s())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._arrived.wait()
        self._arrived.clear()

    async def _commit(self, output: Output, requested: bool) -> float:
        """Append the commit, or confirm the leadership where messages or reads (``asked``) need it;
        the seconds it took.

        Raises Fenced, Full, Unavailable.
        """
        began = time.perf_counter()
        if output.commit is not None:
            self._hint(output)
            await self._replica.journal.append(output.commit, expected=self._machine.previous)
            self._pace.spend(self._steady(), self._machine.ledger.open_attempts)
            self._reads.note_commit()
            self._confirmed_s = self._steady()
        elif (
            requested
            or any(map(output.of, _CONFIRMED))
            or self._steady() - self._confirmed_s > _CONFIRM_EVERY_S
        ):
            await self._confirm()
            self._confirmed_s = self._steady()
        return time.perf_counter() - began

    def _answer_reads(self, questions: Sequence[Message]) -> None:
        """Queue the reads that came before the commit, and answer those for which there is time."""
        for question in questions:
            self._reads.ask(question.data, question.reply)
        for reply, data in self._reads.answers(self._machine.ledger, self._machine.sequence):
            self._bus.publish(reply, data)
        for error in self._reads.take_raised():
            self._metrics.raised.note("query")
            log.error("a query failed with an exception", exc_info=error)

    async def _confirmed(self) -> None:
        """Wait for a round that begins after this call to confirm that this replica leads."""
        confirmation = asyncio.Event()
        self._confirmations.append(confirmation)
        self._arrived.set()
        await confirmation.wait()

    async def _confirm(self) -> None:
        """Check that no other replica has written since these requests came. Raises Fenced,
        Unavailable.
        """
        until_s = self._steady() + _CONFIRM_S
        while True:
            try:
                if await self._replica.still_leads():
                    return
                raise Fenced("another replica has written to the journal")
            except Unavailable:
                if self._steady() > until_s:
                    raise
            await asyncio.sleep(_PAUSE_S)

    def _hint(self, output: Output) -> None:
        """Let schedulers plan while the commit becomes durable: a plan changes nothing until judged
        in a later one.

        A scheduler that received the delta of a lost commit is corrected by the next leader's first
        delta.
        """
        for delta in output.of(MirrorDelta):
            self._notifications.add(delta.data, urgent=len(self._machine.ledger.queue) > 0)

    async def _send(self, output: Output) -> None:
        """Send orders and answers first, then events; yields to the event loop after each."""
        orders = output.of(OrderTo)
        sets = output.of(Discovery)
        if self._discovery is not None:
            self._discovery.note(sets, [one.name for one in output.of(Undiscovered)])
            if sets and any(one.order.stop for one in orders):
                await (
                    self._discovery.stored()
                )  # before a route that is not in it any more is told to stop
        for one in orders:
            for part in parts(one.order):
                self._orders.deliver(one.worker, part)
        for fleet in output.of(FleetOrdersTo):
            self._bus.publish(subjects.FLEET_ORDERS, codec.pack(fleet.orders))
        await self._answer(output.of(ReplyTo))
        if reasons := output.of(JobReason):
            self._bus.publish(subjects.STATE_REASONS, codec.pack(Reasons(tuple(reasons))))
        if orders:
            await asyncio.sleep(0)
        if events := output.of(Publication):
            self._publisher.publish(events)
            await asyncio.sleep(0)

    async def _answer(self, replies: Sequence[ReplyTo]) -> None:
        """Send an answer; the chunks of a large snapshot no faster than the server accepts them, so
        that none is dropped.
        """
        size = 0
        for reply in replies:
            data = reply.data
            if len(data) > MESSAGE_BYTES:
                log.error("an answer of %d bytes is larger than a message may be", len(data))
                data = refusal(Code.UNAVAILABLE, TOO_LARGE)
            if subjects.is_inbox(reply.to):
                self._bus.publish(reply.to, data)
            size += len(data)
            if size > MESSAGE_BYTES:
                size = 0
                with contextlib.suppress(Unavailable):
                    await self._bus.flush()

    async def _drain(self) -> None:
        """Publish what was committed before the process ends."""
        await self._bus.flush()
        with contextlib.suppress(Unavailable):
            await self._publisher.drain(DRAIN_S)


def _at_once(inputs: list[One]) -> tuple[list[One], list[One]]:
    """The inputs of one round, and the rest: bounded by number and bytes, at least one."""
    size = count = 0
    for one in inputs[:BATCH]:
        size += 0 if isinstance(one, DeliveryResult | RoomMade) else len(one.data)
        if count and size > ROUND_BYTES:
            break
        count += 1
    return inputs[:count], inputs[count:]


def _log_audit(changes: Sequence[Change]) -> None:
    """One line for each command that changed something, once it is durable."""
    for done in changes:
        if type(done) is Audited:
            line = audit_line(
                done.by, done.action, done.kind, done.name, owner=done.owner, detail=done.detail
            )
            log.info("%s", line)
