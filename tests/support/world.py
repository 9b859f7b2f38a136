"""The state machine without a bus or clock, its hosts, and all invariants after every step.

Everything goes in through the machine's front door as the bytes a service would send, and is read
back the same way. After each step all invariants are asked; the scheduler's mirror is kept from the
deltas and must equal a full snapshot. At the end the commits are replayed and must make an equal
    ledger. Out of scope: any story.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from iris_bus.contract import Publication
from iris_core import codec, subjects
from iris_core.limits import ATTEMPTS
from iris_core.messages.gateway_state import (
    AdminCommand,
    AmendJob,
    Answer,
    Caller,
    CancelJob,
    FleetCommand,
    GrowJob,
    HoldQueue,
    ProjectCommand,
    Query,
    RequeueTasks,
    RerunJob,
    SubmitJob,
)
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Delta, FullSnapshot, Plan, PlanTaken
from iris_core.messages.state_provisioner import FleetOrders
from iris_core.messages.state_worker import (
    Ended,
    HeartbeatMessage,
    Order,
    ProbeResult,
    Register,
    ReportTaken,
    Stage,
    WorkerReport,
)
from iris_core.spec.jobs import Attribute, JobSpec
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.resources import Amount
from iris_core.spec.serving import Discovery
from iris_core.states import KernelStatus
from iris_scheduler.mirror.mirror import Mirror
from iris_state.check.records import check
from iris_state.effects.kinds import FleetOrdersTo, MirrorDelta, OrderTo, Output, ReplyTo, Unjudged
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.compacted import encoder
from iris_state.records.inputs import DeliveryResult, Fate, Heartbeat, Input, Request
from iris_state.records.ledger import Ledger
from iris_state.views.reads import answer
from tests.support.growth import Growth, check_timeouts

START_MS = 1_000_000
ADMIN = Caller("root", "admin")

LISTENS, DEAF, HELD, ABSENT, CLOSING = "listens", "deaf", "held", "absent", "closing"
"""What a host does with orders: takes them, never answers, leaves the answer to the story, is not
subscribed to them, or refuses them because it is stopping."""


@dataclass
class Host:
    """One host: what it has, and what it believes about its attempts."""

    name: str
    total: Amount
    attributes: dict[str, Attribute]
    max_attempts: int = ATTEMPTS
    incarnation: str = "1"
    manner: str = LISTENS
    silent: bool = False
    beats: int = 0
    believes: dict[AttemptRef, Stage] = field(default_factory=dict)
    stopping: set[AttemptRef] = field(default_factory=set)
    orders: list[Order] = field(default_factory=list)
    held: list[Order] = field(default_factory=list)
    timeouts: dict[int, int] = field(default_factory=dict)

    def take(self, order: Order, now_ms: int) -> None:
        """Remember what is to be run, prepared and stopped; nothing of it is begun."""
        for ref in (*order.run, *order.prepare):
            self.believes.setdefault(ref, Stage(ref, KernelStatus.SCHEDULED, now_ms))
        self.stopping.update(stop.ref for stop in order.stop)
        self.timeouts |= order.timeouts


class World:
    """The machine and its hosts. ``events``, ``orders`` and ``replies`` keep everything that was
    ever said.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.machine = Machine(self.policy, "leader")
        self.now_ms = START_MS
        self.hosts: dict[str, Host] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.commits: list[tuple[int, bytes]] = []
        self.discovered: dict[str, Discovery] = {}
        self.fleet_orders: list[FleetOrders] = []
        self.reader = Caller("root", "admin")
        self.growth = Growth()
        self.mirror: Mirror | None = None
        self._unreached: set[str] = set()
        self._replies: dict[str, bytes] = {}
        self._asked = 0
        self._lead()

    def _lead(self) -> None:
        """The bid goes into the journal, is read back, and the machine leads."""
        bid = self.machine.bid(self.now_ms)
        self.commits.append((self.machine.sequence + 1, bid))
        self.machine.replay(self.machine.sequence + 1, bid)
        self._say_first()

    def take_over(self, seconds: float) -> None:
        """Nobody leads for a while and no host is heard; then another machine leads, which has read
        the journal.
        """
        self.now_ms += round(seconds * 1000)
        self.machine, self.mirror = self.replayed(), None
        self._lead()
        self.step()

    def _say_first(self) -> None:
        """As the shell does: every answer to the first orders is told."""
        first = self.machine.lead(self.now_ms)
        self._unreached.update(one.worker for one in first.of(OrderTo))
        self.send(first)

    @property
    def ledger(self) -> Ledger:
        return self.machine.ledger

    # ── the machine ───────────────────────────────────────────────────────────────────────────────

    def step(self, *inputs: Input) -> Output:
        """One round, everything it says carried to where it belongs, and every check that it can
        have broken.
        """
        output = self._judge(inputs)
        self.send(output)
        if output.commit is not None or output.of(MirrorDelta) or self.mirror is None:
            self.check()
        else:  # nothing has changed but the time
            self.check_timeouts()
        return output

    def _judge(self, inputs: Sequence[Input]) -> Output:
        """One round, or as many as the leader needs when the ledger is torn."""
        output = self.machine.step(inputs, self.now_ms)
        if not self.machine.torn:
            return output
        torn, self.mirror = self.machine, None
        self.send(output)
        self.machine = self.replayed()
        self.machine.succeed(torn)
        self._say_first()
        return self._judge([one.input for one in output.of(Unjudged)])

    def send(self, output: Output) -> None:
        if output.commit is not None:
            self.commits.append((output.sequence, output.commit))
        self._replies.update({one.to: one.data for one in output.of(ReplyTo)})
        self.discovered.update({one.deployment: one for one in output.of(Discovery)})
        self.events += [(event.subject, json.loads(event.data)) for event in output.of(Publication)]
        for delta in output.of(MirrorDelta):
            if self.mirror is not None:
                assert self.mirror.apply(codec.unpack(delta.data, Delta)), (
                    "the mirror refused a delta"
                )
        self.fleet_orders += [one.orders for one in output.of(FleetOrdersTo)]
        for one in output.of(OrderTo):
            self._deliver(one.worker, one.order)

    def _deliver(self, name: str, order: Order) -> None:
        host = self.hosts.get(name)
        if host is None or order.incarnation != host.incarnation:
            self._delivered(name, order, f"worker {name} has restarted")
            return
        host.orders.append(order)
        if host.manner == HELD:
            host.held.append(order)
            return
        if host.manner == LISTENS:
            host.take(order, self.now_ms)
        fate = Fate.NEVER if host.manner in (ABSENT, CLOSING) else Fate.UNKNOWN
        self._delivered(
            name, order, "" if host.manner == LISTENS else f"worker {name} does not listen", fate
        )

    def _delivered(self, name: str, order: Order, error: str, fate: Fate = Fate.UNKNOWN) -> None:
        """As the shell does: what nobody waits for is not told."""
        if error or order.is_awaited or name in self._unreached:
            (self._unreached.add if error else self._unreached.discard)(name)
            self.step(DeliveryResult(name, order, error, fate, self.now_ms))

    def answer_held(self, name: str, error: str = "") -> None:
        """The answers that a holding host owes arrive now."""
        host = self.hosts[name]
        orders, host.held = host.held, []
        for order in orders:
            if not error:
                host.take(order, self.now_ms)
            self._delivered(name, order, error)

    def wait(self, seconds: float, *, heartbeat: bool = True) -> None:
        """Let time pass, stopping at half a heartbeat and whenever something is due;

        hosts heartbeat unless they are silent.
        """
        until = self.now_ms + round(seconds * 1000)
        pace = round(self.policy.heartbeat_interval_s * 500)
        while self.now_ms < until:
            due = self.machine.next_due()
            pause = pace if due is None else max(1, min(pace, due - self.now_ms))
            self.now_ms = min(until, self.now_ms + pause)
            if heartbeat:
                for name in [name for name, host in self.hosts.items() if not host.silent]:
                    self.heartbeat(name)
            self.step()

    def check(self) -> None:
        """Raises InvariantBroken, or AssertionError when the mirror differs from a full
        snapshot.
        """
        check(self.ledger, self.machine.timers.aside)
        self.check_timeouts()
        self.growth.look(self.ledger)
        full = Mirror.of([self.snapshot()])
        if self.mirror is None:
            self.mirror = full
        kept, told = self.mirror.snapshot(), full.snapshot()
        for name in (
            "version",
            "jobs",
            "workers",
            "quotas",
            "holds",
            "queued",
            "avoid",
            "nominations",
            "projects",
            *(["reclaimed"] if self.ledger.projects.guarantees() else []),
        ):
            mine, theirs = getattr(kept, name), getattr(told, name)
            if (
                name == "avoid"
            ):  # the mirror keeps what has no effect any more: what is over, and of ended tasks
                kept_off = self.ledger.avoided
                mine = tuple(
                    a for a in mine if a.until_ms > self.now_ms and (a.job, a.index) in kept_off
                )
            elif (
                name == "queued"
            ):  # since when is told per task and kept per job, so it may differ for a plain job
                mine, theirs = (
                    [(tasks.job, tasks.ranges) for tasks in side] for side in (mine, theirs)
                )
            assert mine == theirs, f"the mirror's {name} are {mine}, a full snapshot has {theirs}"

    def check_timeouts(self) -> None:
        """Raises InvariantBroken when something is overdue."""
        check_timeouts(self.ledger, self.policy, self.now_ms, aside=self.machine.timers.aside)

    def replayed(self) -> Machine:
        """A machine that has read the commits and nothing else."""
        other = Machine(self.policy, "reader")
        for sequence, data in self.commits:
            other.replay(sequence, data)
        return other

    # ── people ────────────────────────────────────────────────────────────────────────────────────

    def command(self, subject: str, message: Any) -> Answer:
        answer: Answer = self.ask(subject, message, Answer)
        return answer

    def submit(
        self, spec: JobSpec, caller: Caller = ADMIN, *, request: str = "", **options: Any
    ) -> Answer:
        message = SubmitJob(spec, caller, request or self._fresh(), self.now_ms, **options)
        return self.command(subjects.CMD_SUBMIT, message)

    def cancel(
        self,
        job: str,
        caller: Caller = ADMIN,
        reason: str = "",
        request: str = "",
        *,
        now: bool = False,
    ) -> Answer:
        message = CancelJob(job, caller, request or self._fresh(), self.now_ms, reason, now)
        return self.command(subjects.CMD_CANCEL, message)

    def admin(self, action: str, target: str, caller: Caller = ADMIN, **arguments: Any) -> Answer:
        message = AdminCommand(action, target, caller, self._fresh(), self.now_ms, arguments)
        return self.command(subjects.CMD_ADMIN, message)

    def rerun(self, job: str, caller: Caller = ADMIN, **fields: Any) -> Answer:
        message = RerunJob(job, caller, self._fresh(), self.now_ms, **fields)
        return self.command(subjects.CMD_RERUN, message)

    def requeue(self, target: str, caller: Caller = ADMIN, reason: str = "") -> Answer:
        return self.command(
            subjects.CMD_REQUEUE, RequeueTasks(target, caller, self._fresh(), self.now_ms, reason)
        )

    def grow(self, job: str, caller: Caller = ADMIN, *, request: str = "", **fields: Any) -> Answer:
        """Add calls, one task each, with arguments of their own in one segment."""
        first, count = fields.get("offset", 0), fields.get("count", 0)
        named = {"segments": (f"{first:064x}",), "firsts": (first,)} if count else {}
        message = GrowJob(job, caller, request or self._fresh(), self.now_ms, **{**named, **fields})
        return self.command(subjects.CMD_GROW, message)

    def amend(self, job: str, caller: Caller = ADMIN, **fields: Any) -> Answer:
        return self.command(
            subjects.CMD_AMEND, AmendJob(job, caller, self._fresh(), self.now_ms, **fields)
        )

    def hold_queue(self, caller: Caller = ADMIN, **fields: str) -> Answer:
        return self.command(
            subjects.CMD_QUEUE, HoldQueue(caller, self._fresh(), self.now_ms, **fields)
        )

    def change_fleet(
        self, action: str, target: str, caller: Caller = ADMIN, **fields: Any
    ) -> Answer:
        message = FleetCommand(action, target, caller, self._fresh(), self.now_ms, **fields)
        return self.command(subjects.CMD_FLEET, message)

    def change_project(
        self, path: str, caller: Caller = ADMIN, action: str = "set", version: int = 0, **spec: Any
    ) -> Answer:
        """Set a project with these fields of its specification, or remove it."""
        message = ProjectCommand(
            action,
            path,
            caller,
            self._fresh(),
            self.now_ms,
            spec=ProjectSpec(**spec) if action == "set" else None,
            version=version,
        )
        return self.command(subjects.CMD_PROJECT, message)

    def query(self, what: str, **arguments: Any) -> Any:
        """The JSON of a view; None when there is no such thing."""
        answer = self.ask(subjects.STATE_QUERY, Query(what, arguments, self.reader), Answer)
        return json.loads(answer.body) if answer.status == "ok" else None

    def ask(self, subject: str, message: Any, kind: type[Any]) -> Any:
        """A request on a core subject, and its answer."""
        if subject == subjects.STATE_QUERY:
            return codec.unpack(answer(self.ledger, message, self.machine.sequence), kind)
        reply = self._fresh()
        self.step(Request(subject, codec.pack(message), reply))
        return codec.unpack(self._replies[reply], kind)

    def snapshot(self) -> FullSnapshot:
        """The whole picture, asked for without a check behind it."""
        output = self._judge([Request(subjects.SNAPSHOT_FULL, b"", "full")])
        if output.commit is not None:
            self.send(output)  # something came due meanwhile
        return codec.unpack(output.of(ReplyTo)[0].data, FullSnapshot)

    def _fresh(self) -> str:
        self._asked += 1
        return f"r{self._asked}"

    # ── hosts ─────────────────────────────────────────────────────────────────────────────────────

    def register(self, host: Host, *, attempts: Iterable[Stage] = ()) -> ReportTaken:
        self.hosts[host.name] = host
        message = Register(
            host.name,
            host.incarnation,
            host.attributes,
            host.total,
            self.now_ms,
            tuple(attempts),
            f"{host.name}.local",
            max_attempts=host.max_attempts,
            chains=True,
        )
        return self._report(host, register=message)

    def restart(self, name: str, *, without: Iterable[AttemptRef] = ()) -> ReportTaken:
        """A host starts again under a new incarnation and has found what it believed in, but for
        some.
        """
        host = self.hosts[name]
        host.incarnation = str(int(host.incarnation) + 1)
        for ref in without:
            host.believes.pop(ref, None)
        host.held, host.silent, host.manner, host.timeouts = [], False, LISTENS, {}
        return self.register(host, attempts=host.believes.values())

    def say(self, name: str, *stages: Stage) -> ReportTaken:
        """A host reports stages, and forgets what has ended once that is taken."""
        host = self.hosts[name]
        taken = self._report(host, stages=stages)
        for stage in stages:
            host.believes[stage.ref] = stage
            if stage.ended is not None and taken.known:
                del host.believes[stage.ref]
                host.stopping.discard(stage.ref)
        return taken

    def _report(self, host: Host, **parts: Any) -> ReportTaken:
        report = WorkerReport(host.name, host.incarnation, monotonic_ms=self.now_ms, **parts)
        taken: ReportTaken = self.ask(subjects.report(host.name), report, ReportTaken)
        return taken

    def leave(self, name: str, how: str, why: str = "", notice_ms: int = 0) -> ReportTaken:
        """A worker that was told to end, or whose host is to end, says that it is "stopping", or
        that it is "gone".
        """
        host = self.hosts[name]
        host.manner = CLOSING if how == "stopping" else ABSENT
        host.silent = how == "gone"
        return self._report(host, leaving=how, why=why, notice_ms=notice_ms)

    def heartbeat(
        self, name: str, *, healthy: bool = True, without: Iterable[AttemptRef] = ()
    ) -> Output:
        host = self.hosts[name]
        host.beats += 1
        unsaid = set(without)
        stages = tuple(stage for ref, stage in host.believes.items() if ref not in unsaid)
        now_ms = self.now_ms
        ails = "" if healthy else "no disk"
        heartbeat = HeartbeatMessage(
            name,
            host.incarnation,
            host.beats,
            now_ms,
            stages,
            healthy,
            ails,
            monotonic_ms=now_ms,
            probes=self.probes(host),
            timeouts=host.timeouts,
        )
        return self.step(Heartbeat(subjects.heartbeat(name), codec.pack(heartbeat)))

    def probes(self, host: Host) -> tuple[ProbeResult, ...]:
        """The newest results of probes on a host; its heartbeat holds them."""
        return ()

    # ── the scheduler ─────────────────────────────────────────────────────────────────────────────

    def plan(self, plan: Plan) -> PlanTaken:
        taken: PlanTaken = self.ask(subjects.STATE_PLAN, plan, PlanTaken)
        return taken


def stage(ref: AttemptRef, status: KernelStatus, at_ms: int, ended: Ended | None = None) -> Stage:
    return Stage(ref, status, at_ms, ended)


def picture(machine: Machine, now_ms: int) -> dict[str, Any]:
    """Everything that replay must bring back: records as bytes, indexes as plain values."""
    ledger = machine.ledger
    return {
        "sequence": machine.sequence,
        "epoch": ledger.epoch,
        "next_number": ledger.next_number,
        "jobs": {n: msgspec.msgpack.decode(encoder.encode(job)) for n, job in ledger.jobs.items()},
        "workers": {w: msgspec.to_builtins(worker) for w, worker in ledger.workers.items()},
        "quotas": dict(ledger.quotas),
        "groups": dict(ledger.groups),
        "deployments": {n: msgspec.to_builtins(one) for n, one in ledger.deployments.items()},
        "routes": dict(ledger.route_of_job),
        "discovery": (
            ledger.discovery_version,
            dict(ledger.deployment_names),
            list(ledger.destroyed),
        ),
        "idempotency": dict(ledger.idempotency),
        "answers": dict(ledger.answers),
        "names": dict(ledger.names),
        "shares": ledger.shares.picture(),
        "shared_names": dict(ledger.shared_names),
        "nominations": dict(ledger.nominations),
        "avoided": {key: dict(workers) for key, workers in ledger.avoided.items()},
        "totals": msgspec.to_builtins(ledger.totals),
        "queue": list(ledger.queue),
        "alarms": {key: due for key, due in ledger.timers.items() if due > now_ms},
        "lines": {status: list(line.items()) for status, line in ledger.timeouts.items()},
        "kernels": {n: dict(+counts) for n, counts in ledger.kernels.items()},
        "hosts": {
            worker: (sorted(p.open), p.committed, p.building)
            for worker, p in ledger.presence.items()
        },
    }
