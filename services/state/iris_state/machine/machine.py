"""The deterministic state machine of the state service: takes inputs, returns one commit and the
messages after it.

Inputs are judged in the order of arrival and applied at once, so that each sees the effect of those
before it; no message is released before its commit is durable. No clock, no bus: `service` passes
the time and sends the messages.
Source: docs/ARCHITECTURE.md#modules, the picture of the one way round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, get_args

import msgspec

from iris_bus.contract import DamagedCommit, RecordsLost
from iris_bus.journal import framing
from iris_core import codec, subjects
from iris_core.codec import Undecodable
from iris_core.errors import Code, InvariantBroken
from iris_core.limits import SHOWN, clipped
from iris_core.messages.gateway_state import Answer
from iris_core.messages.proxy_state import LoadReport
from iris_core.messages.scheduler_state import Plan, PlanTaken
from iris_core.messages.state_worker import HeartbeatMessage, ReportTaken, WorkerReport
from iris_core.states import WorkerState
from iris_state import views
from iris_state.commands.decode import decode
from iris_state.decide.retention import Retention
from iris_state.effects import deltas, outbox
from iris_state.effects.kinds import (
    AnswerTo,
    Effect,
    MirrorDelta,
    OrderTo,
    Output,
    PlacementRefused,
    Raised,
    ReplyTo,
    SnapshotTo,
    Undiscovered,
    Unjudged,
)
from iris_state.inputs.plans import accept, extend
from iris_state.inputs.plans.skipped import record_reason
from iris_state.inputs.reports import liveness, loss, progress
from iris_state.machine.executor import CommandExecutor
from iris_state.machine.quarantine import Quarantine, kind_of
from iris_state.machine.round import Round
from iris_state.machine.timers import Timers
from iris_state.policy import FLEET_POLICY, FleetPolicy, Policy
from iris_state.records.changes import (
    Answered,
    Assigned,
    Change,
    Commit,
    DeploymentForgotten,
    Evicted,
    Led,
    RoutesDiscovered,
)
from iris_state.records.deployments.records import discovery_of
from iris_state.records.facts import PublicFact
from iris_state.records.inputs import (
    FleetReport,
    Heartbeat,
    Input,
    Load,
    Request,
    RoomMade,
    Timer,
)
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import KINDS
from iris_state.snapshots import snapshot

TRACES = 1000
"""Trace contexts in one answer to a plan."""
FACTS: frozenset[type] = frozenset(get_args(PublicFact))


def unseen_epoch(at_ms: int) -> int:
    """A higher epoch than any that processes may have heard of from leaders of records that are lost:
    its time, for leaders do not change once a millisecond.
    """
    return max(1, at_ms)


class Machine:
    """Judges inputs, applies changes and makes messages; the shell appends commits and sends.

    Args:
        leader: a name for this replica, unique per start. fleet: limits and times of the fleet.

    Attributes:
        floor_ms: when this machine began to lead, or its service last stood still. silent_from_ms:
            from when on the silence of hosts counts; a machine that follows a torn one takes over
            its value.
        sequence, previous: of the last commit in the journal, that is where it ends, and of the one
            before it.
        torn: some changes of an input that was set aside stand in the ledger, which must be
            reloaded.
    """

    def __init__(self, policy: Policy, leader: str, fleet: FleetPolicy = FLEET_POLICY) -> None:
        self.policy = policy
        self.leader = leader
        self.ledger = Ledger()
        self.ledger.default_quota = policy.default_quota
        self.ledger.grace_limits = policy.grace_limits
        self.ledger.begin_shares(policy.fair_share, policy.share_half_life_ms)
        self.ledger.fleet_policy = fleet
        self.ledger.probes.heartbeat_ms = policy.heartbeat_interval_ms
        self.sequence = self.previous = 0
        self.serial = -1
        self._drafts = 0
        self.floor_ms = self.silent_from_ms = 0
        self._torn_ms = 0
        self._heard_ms: dict[str, int] = {}
        self.retention = Retention(self.ledger)
        self.round = Round(self.ledger, policy, self.retention)
        self.timers = Timers(self.round)
        self.commands = CommandExecutor(self.round)
        self.quarantine = Quarantine()
        self.torn = False

    @property
    def last_ms(self) -> int:
        """The time of the last round, or of the last replayed commit."""
        return self.round.now_ms

    # ── recovery ──────────────────────────────────────────────────────────────────────────────────

    def restore(self, image: snapshot.Image) -> None:
        """Start from a snapshot; only allowed for a machine without records."""
        snapshot.restore(self.ledger, image)
        self.ledger.newly_queued.clear()
        self.retention.restore()
        rest = image.rest
        self.sequence = rest.sequence
        self.round.now_ms = rest.at_ms

    def replay(self, sequence: int, data: bytes) -> list[PublicFact]:
        """Apply an earlier commit, or one of another replica; returns its public facts. Raises
        DamagedCommit.
        """
        try:
            commit = codec.unpack(data, Commit)
        except Undecodable as error:
            raise DamagedCommit(sequence, str(error)) from error
        if (
            commit.epoch == self.ledger.epoch
            and self.serial >= 0
            and commit.serial != self.serial + 1
        ):
            raise DamagedCommit(
                sequence, f"commit {commit.serial} of epoch {commit.epoch} follows {self.serial}"
            )
        self.serial = commit.serial
        self.round.replay(commit)
        self.ledger.renew_shares(commit.at_ms)
        self.previous = self.sequence
        self.sequence = sequence
        facts = self.ledger.facts
        self.ledger.facts = []
        self.retention.settle()
        return facts

    def bid(self, now_ms: int, boot: str = "", boot_ms: int = 0) -> bytes:
        """The commit that makes this replica the leader, if the journal accepts it after
        `sequence`.

        Args:
            boot, boot_ms: by what its times pass, see `Led`.
        """
        at_ms = max(now_ms, self.round.now_ms)
        epoch = self.ledger.epoch + 1 if self.ledger.epoch else unseen_epoch(at_ms)
        led = Led(self.leader, epoch, boot, boot_ms)
        return codec.pack(Commit(led.epoch, 0, at_ms, [led]))

    def lead(self, now_ms: int) -> Output:
        """Our bid and all behind it was replayed: a full grace for every worker, every open order
        again.

        After a torn machine workers have what is left of their grace, unless the reload took long:
        otherwise inputs that raise again and again would keep dead hosts alive forever.
        """
        self.round.now_ms = self.floor_ms = now_ms = max(now_ms, self.round.now_ms)
        if now_ms - self._torn_ms > self.policy.stall_ms:
            self.silent_from_ms = now_ms
        heard_ms = {worker: self._heard_ms.get(worker, now_ms) for worker in self.ledger.workers}
        for worker in sorted(self.ledger.workers.values(), key=lambda one: heard_ms[one.id]):
            if worker.state is not WorkerState.LOST:
                self.ledger.hear(worker.id, heard_ms[worker.id])
                self.ledger.presence[worker.id].answered = False
                self.round.orders.probe(worker.id)
            if (
                worker.state is WorkerState.DEGRADED
            ):  # orders may be what does not reach it: let one do so first
                self.ledger.presence[worker.id].undelivered = self.policy.undelivered_limit
        for job in self.ledger.jobs.values():
            if job.open:  # its client could not reach a leader
                self.ledger.timers.start_idle(job, now_ms)
        self.round.orders.again()
        self.round.deployments.begin(self.round.now_ms)
        self.round.fleet.begin(self.round.now_ms)
        output = self.finish()
        output.add(
            discovery_of(one) for one in self.ledger.deployments.values() if one.discovered.version
        )
        output.add([self._delta()])
        return output

    def succeed(self, torn: Machine) -> None:
        """Continue after a torn machine of the same leader, having replayed the journal."""
        self.serial = torn.serial
        self.quarantine = torn.quarantine
        self.timers.aside = torn.timers.aside
        self.silent_from_ms = torn.silent_from_ms
        self._torn_ms = torn.round.now_ms
        self._heard_ms = dict(torn.ledger.heard.items())

    # ── one round ─────────────────────────────────────────────────────────────────────────────────

    def step(self, inputs: Iterable[Input], now_ms: int) -> Output:
        """One whole round. Raises InvariantBroken, RecordsLost."""
        self.judge(inputs, now_ms)
        return self.finish()

    def judge(self, inputs: Iterable[Input], now_ms: int) -> None:
        """Judge everything that has arrived, then whatever is due at ``now_ms``, which is the same
        in all of a round.

        What raises is set aside and changes nothing, be it an input or a timer. Raises
        InvariantBroken, RecordsLost.
        """
        if now_ms - self.round.now_ms > self.policy.stall_ms:
            self.floor_ms = self.silent_from_ms = (
                now_ms  # it was this service that stood still, not the workers
            )
            self.ledger.probes.floor_ms = now_ms
        self.round.now_ms = self.ledger.now_ms = now_ms = max(now_ms, self.round.now_ms)
        arrived = iter(inputs)
        for one in chain(arrived, self.timers.expired(self.silent_from_ms)):
            begun = self.round.begun
            mark = len(self.round.effects)
            try:
                self._handle(one)
                self.round.settle()
            except (InvariantBroken, RecordsLost):
                raise
            except Exception as error:  # noqa: BLE001 - the next leader would be asked the same
                self.torn = self.round.begun != begun
                self._set_aside(one, error, mark)
                if self.torn:
                    self.round.effects += [Unjudged(later) for later in arrived]
                    break

    def draft(self) -> MirrorDelta:
        """The delta of what this round has changed so far; that of its commit has the rest."""
        delta = self._delta_after(self.sequence)
        self._drafts += 1
        return delta

    def next_due(self) -> int | None:
        """When `step` should be called next if nothing arrives, ms; None when no timer is set."""
        return self.timers.next_due()

    def finish(self) -> Output:
        """The result of the round: its changes are the commit, and what can only be worded now is
        added to the rest.
        """
        changes: list[Any] = []
        facts: list[Any] = []
        rest: list[Any] = []
        for one in self.round.effects:
            kind = type(one)
            (changes if kind in KINDS else facts if kind in FACTS else rest).append(one)
        self.round.effects = []
        output = Output(self.sequence, None, changes, facts)
        if not self.torn:
            orders = self.round.orders.take(self.ledger.epoch, self.round.now_ms)
            output.add(OrderTo(worker, order) for worker, order in orders.items())
        if changes:
            self.serial += 1
            output.commit = codec.pack(
                Commit(self.ledger.epoch, self.serial, self.round.now_ms, changes)
            )
            self.previous = self.sequence
            self.sequence += framing.count(len(output.commit), self.policy.journal_part_bytes)
            output.sequence = self.sequence
            if self.ledger.shares.enabled or self.ledger.shares.undone:
                self.round.deltas.share(self.ledger.renew_shares(self.round.now_ms))
            output.add([self._delta(), *self._discovery(changes)])
            output.add(outbox.events(facts, self.sequence))
            if not self.torn:
                self.retention.settle()
        for one in rest:
            output.add(self._worded(one))
        return output

    def _worded(self, one: Effect) -> Iterable[Effect]:
        """An effect as it is sent when the round has ended."""
        if isinstance(one, AnswerTo):
            answer = msgspec.structs.replace(one.answer, position=self.sequence)
            return [ReplyTo(one.to, codec.pack(answer))]
        if isinstance(one, SnapshotTo):
            return [Unjudged(one.request)] if self.torn else self._snapshot(one.request)
        return [one]

    def _snapshot(self, request: Request) -> list[Effect]:
        """A full snapshot as of the end of the round, which includes everything before the
        request.
        """
        try:
            whole = deltas.full(self.ledger, self.sequence, self.round.now_ms, self.policy)
            return [ReplyTo(request.reply, data) for data in deltas.chunks(whole)]
        except InvariantBroken:
            raise
        except Exception as error:  # noqa: BLE001 - an error is the answer to this request only
            refusal = Answer(Code.INTERNAL.value, _words(error))
            return [Raised(kind_of(request), error), ReplyTo(request.reply, codec.pack(refusal))]

    def _discovery(self, changes: Iterable[Change]) -> list[Effect]:
        """The sets of routes after these changes, and the deployments that are forgotten."""
        numbers = dict.fromkeys(one.deployment for one in changes if type(one) is RoutesDiscovered)
        gone = [one.name for one in changes if type(one) is DeploymentForgotten]
        known = self.ledger.deployments
        names = self.ledger.deployment_names
        sets: list[Effect] = [discovery_of(known[number]) for number in numbers if number in known]
        return sets + [Undiscovered(name) for name in gone if name not in names]

    def _delta(self) -> MirrorDelta:
        if self.torn:
            return MirrorDelta(codec.pack(deltas.everything(self.sequence, self.round.now_ms)))
        delta = self._delta_after(self.previous)
        self._drafts = 0
        return delta

    def _delta_after(self, after: int) -> MirrorDelta:
        delta = self.round.deltas.take(self.sequence, after, self._drafts, self.round.now_ms)
        return MirrorDelta(deltas.fitting(delta))

    # ── what raises ───────────────────────────────────────────────────────────────────────────────

    def _set_aside(self, one: Input | Timer, error: Exception, mark: int) -> None:
        """Undo what an input or timer has caused, and answer it. Its changes in the ledger stay."""
        self.round.drop(mark)
        self.round.effects.append(Raised(kind_of(one), error))
        if isinstance(one, Timer):
            self.timers.set_aside(one)
            error.add_note(f"what had come due: {one.keys[:SHOWN]}")
            return
        if self.torn:
            self.quarantine.put(one, self.round.now_ms + 2 * self.policy.lost_after_ms)
        if isinstance(one, Request) and subjects.is_command(one.subject):
            self._refuse(one, error)
        elif isinstance(one, Request) and one.subject == subjects.STATE_PLAN:
            self._refuse_plan(one)

    def _refuse(self, request: Request, error: Exception) -> None:
        """Answer a command that raised, also when it is repeated."""
        with contextlib.suppress(Undecodable):
            refusal = Answer(Code.INTERNAL.value, _words(error))
            asked = decode(request.subject, request.data)
            self.round.apply(
                Answered(asked.request_id, refusal.status, refusal.body, asked.caller.user)
            )
            self.round.effects.append(AnswerTo(request.reply, refusal))

    def _refuse_plan(self, request: Request) -> None:
        """Refuse a plan as a whole: its jobs pause, and others are placed."""
        with contextlib.suppress(Undecodable):
            plan = codec.unpack(request.data, Plan)
            refused = tuple(
                (p.job, index, "set_aside") for p in plan.placements for index in p.indexes
            )
            refused += tuple(
                (e.chain.job, index, "set_aside") for e in plan.extensions for index in e.indexes
            )
            taken = PlanTaken(self.sequence + 1, 0, refused)
            self.round.effects.append(ReplyTo(request.reply, codec.pack(taken)))

    def _handle(self, one: Input | Timer) -> None:
        if isinstance(one, Timer):
            one.judge()
            return
        if self.quarantine.holds(one, self.round.now_ms):
            return
        if isinstance(one, Request):
            self._on_request(one)
        elif isinstance(one, Heartbeat):
            self._on_heartbeat(one)
        elif isinstance(one, Load):
            self._on_load(one.data)
        elif isinstance(one, FleetReport):
            self.round.take(self.round.fleet.on_report(one.data))
        elif isinstance(one, RoomMade):
            if one.job in self.ledger.jobs:
                self.round.apply(Evicted(one.job, one.bytes))
        else:
            self.round.on_delivered(one)

    def _on_request(self, request: Request) -> None:
        if subjects.is_report(request.subject):
            self._on_report(request)
        elif request.subject == subjects.STATE_PLAN:
            self._on_plan(request)
        elif subjects.is_command(request.subject):
            self.commands.on_command(request)
        elif request.subject == subjects.SNAPSHOT_FULL:
            self.round.effects.append(SnapshotTo(request))

    # ── the scheduler ─────────────────────────────────────────────────────────────────────────────

    def _on_plan(self, request: Request) -> None:
        try:
            plan = codec.unpack(request.data, Plan)
        except Undecodable:
            return
        refused: accept.Refusals = []
        effects = self.round.effects
        before = len(effects)
        self.round.take(
            accept.on_plan(
                self.ledger,
                self.policy,
                plan,
                refused,
                now_ms=self.round.now_ms,
                sequence=self.sequence + 1,
            )
        )
        self.round.take(extend.on_extensions(self.ledger, plan, refused))
        placed = [change.job for change in effects[before:] if type(change) is Assigned]
        self._explain(plan)
        effects += [PlacementRefused(cause) for _, _, cause in refused]
        taken = PlanTaken(self.sequence + 1, len(placed), tuple(refused), self._traces(placed))
        effects.append(ReplyTo(request.reply, codec.pack(taken)))

    def _traces(self, numbers: list[int]) -> dict[int, str]:
        found = ((job, self.ledger.jobs[job].traceparent) for job in dict.fromkeys(numbers))
        return dict(
            islice(((job, traceparent) for job, traceparent in found if traceparent), TRACES)
        )

    def _explain(self, plan: Plan) -> None:
        """Store the reasons of pending jobs, and send them to followers."""
        if plan.reasons:
            self.round.fleet.look_soon()
        for update in plan.reasons:
            job = self.ledger.jobs.get(update.job)
            if job is not None and not job.is_terminal and job.is_waiting:
                self.round.take(record_reason(self.ledger, job, update, self.round.now_ms))
                self.round.effects.append(update)

    # ── hosts ─────────────────────────────────────────────────────────────────────────────────────

    def _on_report(self, request: Request) -> None:
        try:
            report = codec.unpack(request.data, WorkerReport)
        except Undecodable:
            return
        if not subjects.is_from(request.subject, report.worker):
            return
        listed = report.register.attempts if report.register is not None else ()
        loss.check(
            self.ledger,
            self.policy,
            report.worker,
            report.stages + listed,
            self.round.now_ms - self.floor_ms,
        )
        if report.register is not None:
            if report.register.worker != report.worker or not progress.is_valid_registration(
                report.register
            ):
                return
            self.round.take(progress.on_register(self.ledger, self.policy, report.register))
        if not liveness.is_known(self.ledger, report.worker, report.incarnation):
            self.round.effects.append(ReplyTo(request.reply, codec.pack(ReportTaken(known=False))))
            return
        self.ledger.hear(report.worker, self.round.now_ms)
        presence = self.ledger.presence[report.worker]
        presence.hear(report.monotonic_ms, self.round.now_ms)
        presence.reported_ms = max(presence.reported_ms, report.monotonic_ms)
        self.round.take(progress.on_stages(self.ledger, self.policy, report.worker, report.stages))
        if report.leaving:
            self.round.take(
                progress.on_leaving(
                    self.ledger, report.worker, report.leaving, report.why, report.notice_ms
                )
            )
            self.round.take(self.round.fleet.on_notice())
        stages = report.stages + listed
        drop = liveness.stop_unknown_attempts(self.ledger, self.round.orders, report.worker, stages)
        self.round.effects.append(ReplyTo(request.reply, codec.pack(ReportTaken(drop=tuple(drop)))))

    def _on_heartbeat(self, one: Heartbeat) -> None:
        try:
            heartbeat = codec.unpack(one.data, HeartbeatMessage)
        except Undecodable:
            return
        if not subjects.is_from(one.subject, heartbeat.worker):
            return
        ledger = self.ledger
        now_ms = self.round.now_ms
        loss.check(
            ledger, self.policy, heartbeat.worker, heartbeat.attempts, now_ms - self.floor_ms
        )
        self.round.take(
            liveness.on_heartbeat(
                ledger,
                self.policy,
                self.round.orders,
                heartbeat,
                floor_ms=self.floor_ms,
                now_ms=now_ms,
            )
        )
        if heartbeat.probes and liveness.is_known(ledger, heartbeat.worker, heartbeat.incarnation):
            self.round.take(
                self.round.deployments.on_probes(heartbeat.worker, heartbeat.probes, now_ms)
            )

    def _on_load(self, data: bytes) -> None:
        with contextlib.suppress(Undecodable):
            self.round.take(
                self.round.deployments.on_loads(codec.unpack(data, LoadReport), self.round.now_ms)
            )


def _words(error: Exception) -> bytes:
    """The answer to an input that raised; the log has the traceback."""
    return views.refusal(
        clipped(f"the state service failed to process this: {error!r}; nothing was changed")
    )
