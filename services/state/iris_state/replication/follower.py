"""Answers reads on a follower, from a ledger that is at least as new as the read requires. Shell.

A follower that is behind waits a moment for the journal, then answers `BEHIND`, and the read goes
to the leader. Unrecorded data, the reasons why jobs wait and the status that hosts report, reaches
a follower as it reaches the leader. Source: docs/adr/0017-reads-beside-the-writer.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from iris_bus.contract import Message, Subscription
from iris_core import codec, subjects
from iris_core.codec import Undecodable
from iris_core.limits import REASONS_BYTES
from iris_core.messages.gateway_state import BEHIND, Answer, Caller, Query
from iris_core.messages.processes import MissingReasons
from iris_core.messages.proxy_state import LoadReport
from iris_core.messages.scheduler_state import JobReason, Reasons
from iris_core.messages.state_worker import HeartbeatMessage
from iris_core.placement.reasons import size_of
from iris_state.deployments.reconciler import note_loads, note_results
from iris_state.inputs.reports.liveness import is_known
from iris_state.records.ledger import Ledger
from iris_state.replication.replica import Replica
from iris_state.views.reads import Reads

log = logging.getLogger(__name__)

WAIT_S = 0.1
"""How long a read may wait for the journal, in seconds."""
LAG = 100
"""At more commits behind the leader a follower answers no reads."""
LOOK_S = 1.0
"""How often it looks for jobs whose reasons it does not know, in seconds."""
MISSING = 1000
"""At most so many of them are asked for at once."""
GROUP = "followers"
_BEHIND = codec.pack(Answer(BEHIND))


class Follower:
    """Answers reads while the replica tails the journal.

    Args:
        wake: called when there is something to `answer`.
        in_the_way: whether other processes need the processor.

    Attributes:
        leader_at: the leader's position in its last message.
    """

    def __init__(
        self, replica: Replica, wake: Callable[[], None], in_the_way: Callable[[], bool]
    ) -> None:
        self._replica = replica
        self._wake = wake
        self._bus = replica.connection.bus
        self._loop = asyncio.get_running_loop()
        clock = self._loop.time
        policy = replica.policy
        self._reads = Reads(policy.read_timeout_s, clock, policy.read_share, in_the_way)
        self._sequence = replica.machine.sequence
        self._early: list[tuple[int, float, Message]] = []
        self._look_s = 0.0
        self._asked = 0
        self._subscriptions: list[Subscription] = []
        self.leader_at = 0

    async def start(self) -> None:
        """Subscribe; the silence of hosts and routes counts from now. Raises Unavailable."""
        self._replica.machine.ledger.probes.floor_ms = self._replica.clock.now_ms()
        listening = {
            subjects.STATE_REASONS: self._on_reasons,
            subjects.HEARTBEATS: self._on_heartbeat,
            subjects.LOADS: self._on_load,
        }
        for subject, callback in listening.items():
            self._subscriptions.append(await self._bus.subscribe(subject, callback))
        self._subscriptions.append(
            await self._bus.subscribe(subjects.STATE_READ, self._on_read, queue=GROUP)
        )

    async def close(self) -> None:
        """Stop; the callers of unanswered reads ask the leader."""
        for subscription in self._subscriptions:
            await subscription.close()
        for reply in (*self._reads.rest(), *(message.reply for _, _, message in self._early)):
            self._bus.publish(reply, _BEHIND)
        self._early = []

    def answer(self) -> bool:
        """Answer reads for a slice of time; True when more could be answered now."""
        machine = self._replica.machine
        now_s = self._loop.time()
        if machine.sequence != self._sequence:
            self._sequence = machine.sequence
            self._reads.note_commit()
        early = self._early
        self._early = []
        for position, until_s, message in early:
            if position <= machine.sequence:
                self._reads.ask(message.data, message.reply)
            elif now_s >= until_s:
                self._bus.publish(message.reply, _BEHIND)
            else:
                self._early.append((position, until_s, message))
        committed_ms = machine.ledger.now_ms
        machine.ledger.now_ms = max(
            committed_ms, self._replica.clock.now_ms()
        )  # time passes without commits
        for reply, data in self._reads.answers(machine.ledger, machine.sequence):
            self._bus.publish(reply, data)
        machine.ledger.now_ms = committed_ms
        for error in self._reads.take_raised():
            log.error("a query failed with an exception", exc_info=error)
        wait_s = self._reads.wait_s() if self._reads else 0.0
        if wait_s:
            self._loop.call_later(wait_s, self._wake)
        return bool(self._reads) and not wait_s

    def _on_read(self, message: Message) -> None:
        if not subjects.is_inbox(message.reply):
            return
        machine = self._replica.machine
        position, caller = _wanted(message.data)
        if self.leader_at - machine.sequence > LAG or self._is_newer(caller):
            self._bus.publish(message.reply, _BEHIND)
            return
        if position > machine.sequence:
            self._early.append((position, self._loop.time() + WAIT_S, message))
            self._loop.call_later(WAIT_S, self._wake)
        else:
            self._reads.ask(message.data, message.reply)
            self._wake()

    def _is_newer(self, caller: Caller) -> bool:
        """Whether it is a task whose attempt is not in the records here: placed a moment ago, or
        forgotten. A refusal is for the leader.
        """
        ref = caller.attempt
        known = self._replica.machine.ledger.attempt
        return ref is not None and known((ref.job, ref.index, ref.attempt)) is None

    def _on_reasons(self, message: Message) -> None:
        """Store the reasons of pending jobs that the leader forwards."""
        try:
            batch = codec.unpack(message.data, Reasons)
        except Undecodable:
            return
        self.keep_reasons(batch.reasons)

    def keep_reasons(self, reported: Iterable[JobReason]) -> None:
        ledger = self._replica.machine.ledger
        for each in reported:
            job = ledger.jobs.get(each.job)
            if job is not None and not job.is_terminal and job.is_waiting:
                ledger.keep_reason(job, each.reason)

    def missing_reasons(self) -> bytes:
        """The question for reasons that were forwarded before this process, or before their job,
        was here; empty when none is missing, or when it was asked a moment ago. O(waiting jobs).
        """
        ledger = self._replica.machine.ledger
        now_s = self._loop.time()
        if now_s < self._look_s:
            return b""
        missing = tuple(job for job in ledger.queue.jobs() if job not in ledger.reasons)
        first = self._asked if self._asked < len(missing) else 0
        asked = missing[first : first + MISSING]
        self._asked = first + len(asked) if first + len(asked) < len(missing) else 0
        self._look_s = now_s + (0.0 if self._asked else LOOK_S)
        return codec.pack(MissingReasons(asked)) if asked else b""

    def _on_heartbeat(self, message: Message) -> None:
        """Store the unrecorded data of a host's heartbeat."""
        try:
            heartbeat = codec.unpack(message.data, HeartbeatMessage)
        except Undecodable:
            return
        ledger = self._replica.machine.ledger
        if not subjects.is_from(message.subject, heartbeat.worker):
            return
        if is_known(ledger, heartbeat.worker, heartbeat.incarnation):
            now_ms = self._replica.clock.now_ms()
            ledger.hear(heartbeat.worker, now_ms)
            note_results(ledger, heartbeat.worker, heartbeat.probes, now_ms)
            ledger.presence[heartbeat.worker].note(heartbeat, now_ms)

    def _on_load(self, message: Message) -> None:
        """What is decided here says what holds a deployment at its number; the leader carries it
        out.
        """
        try:
            report = codec.unpack(message.data, LoadReport)
        except Undecodable:
            return
        for _ in note_loads(self._replica.machine.ledger, report, self._replica.clock.now_ms()):
            pass


def _wanted(data: bytes) -> tuple[int, Caller]:
    """The least position that a query requires, and who asks; 0 and nobody when it cannot be
    decoded.
    """
    try:
        query = codec.unpack(data, Query)
    except Undecodable:
        return 0, Caller()
    return query.at_least, query.caller


def known_reasons(ledger: Ledger, question: bytes) -> tuple[JobReason, ...]:
    """The leader's answer to `Follower.missing_reasons`: as many as fit into a message."""
    if not question:
        return ()
    try:
        wanted = codec.unpack(question, MissingReasons)
    except Undecodable:
        return ()
    size = 0
    reported = []
    for job in wanted.jobs:
        reason = ledger.reasons.get(job)
        size += 0 if reason is None else size_of(reason)
        if reason is not None and size <= REASONS_BYTES:
            reported.append(JobReason(job, reason))
    return tuple(reported)
