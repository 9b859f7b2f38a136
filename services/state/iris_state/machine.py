"""The state service without its shell: inputs in, one commit and what follows it out. One deterministic machine.

Inputs are judged in the order in which they arrived and applied at once, so that each sees what those before it
did; nothing leaves this room for the world before the commit that holds it is durable. No clock, no bus: `service`
gives the time and carries the messages. Source: architecture.md section 1, the picture of the one way round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from iris_bus.contract import Telling
from iris_core import codec, subjects
from iris_core.codec import Undecodable
from iris_core.errors import Code, Invalid, Refused
from iris_core.messages import (
    AdminCommand,
    Answer,
    AttemptRef,
    Beat,
    CancelJob,
    Delta,
    JobReason,
    Order,
    Plan,
    PlanTaken,
    Query,
    ReportTaken,
    RerunJob,
    SubmitJob,
    WorkerReport,
)
from iris_core.states import KERNEL_NON_TERMINAL, Cause, SchedulingResult, TaskState, WorkerState
from iris_core.tables.session import ENDINGS, OWNER, SCHEDULE, SessionRule
from iris_state import answers, attendance, cascade, coordinator, deltas, outbox, snapshot
from iris_state.changes import (
    GANG,
    Answered,
    Assigned,
    Avoided,
    Change,
    Closed,
    Commit,
    JobMoved,
    Judged,
    Led,
    Moved,
    Promised,
    SessionMoved,
    Staged,
    WorkerMoved,
)
from iris_state.claims import Claim
from iris_state.conclude import conclude
from iris_state.deadlines import Alarms
from iris_state.deliveries import Deliveries
from iris_state.handlers import DELIVERING, REPORTS, SessionId, SessionView
from iris_state.intake import Step as Happening
from iris_state.intake import clock, hosts, people, plans
from iris_state.ledger import Ledger
from iris_state.orders import Orders
from iris_state.policy import Policy
from iris_state.records import Told
from iris_state.retention import Retention

_COMMANDS: dict[str, type[SubmitJob | CancelJob | AdminCommand | RerunJob]] = {
    subjects.CMD_SUBMIT: SubmitJob,
    subjects.CMD_CANCEL: CancelJob,
    subjects.CMD_ADMIN: AdminCommand,
    subjects.CMD_SCALE: AdminCommand,
    subjects.CMD_RERUN: RerunJob,
}
_AVOIDED = frozenset({Cause.UNDELIVERED, Cause.PREPARE_TIMEOUT, Cause.START_TIMEOUT, Cause.INFRASTRUCTURE})


@dataclass(frozen=True, slots=True)
class Command:
    """A message of the durable inbox; its sequence becomes the commit's cursor."""

    sequence: int
    subject: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """A request on a core subject, answered to ``reply`` after the commit that holds its effect."""

    subject: str
    data: bytes
    reply: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A beat; nobody waits for an answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Delivered:
    """How the delivery of an order ended; ``error`` is empty when its worker took it."""

    worker: str
    order: Order
    error: str = ""


Input = Command | Asked | Heard | Delivered


@dataclass(slots=True)
class Output:
    """What one round came to. Nothing of it may be sent before ``commit`` is durable.

    Attributes:
        commit: the bytes to append behind ``sequence - 1``; None when nothing changed.
        delta: for the scheduler's mirror, present with every commit.
        moves: task state changes of known tasks, from and to, for the metrics.
    """

    sequence: int
    commit: bytes | None = None
    replies: list[tuple[str, bytes]] = field(default_factory=list)
    orders: dict[str, Order] = field(default_factory=dict)
    events: list[Telling] = field(default_factory=list)
    delta: bytes | None = None
    changes: Sequence[Change] = ()
    moves: Sequence[tuple[str, str]] = ()


class Machine:
    """Judges, applies and words; the shell makes durable and sends.

    Args:
        leader: a name for this replica, unique per start.
    """

    def __init__(self, policy: Policy, leader: str) -> None:
        self.policy = policy
        self.leader = leader
        self.ledger = Ledger()
        self.sequence = 0
        self.cursor = 0
        self.serial = 0
        self.floor_ms = 0
        self.orders = Orders(self.ledger, int(policy.stop_grace_s * 1000))
        self.deltas = deltas.DeltaBuilder(self.ledger, policy.max_building)
        self.deliveries = Deliveries(self.ledger)
        self.stop_again: Alarms[tuple[str, AttemptRef]] = Alarms()
        self.retention = Retention(self.ledger)
        self._changes: list[Change] = []
        self._claims: deque[Claim] = deque()
        self._dirty: dict[int, None] = {}
        self._replies: list[tuple[str, bytes]] = []
        self._reads: list[Asked] = []
        self._said: dict[int, str] = {}
        self._now_ms = 0

    @property
    def last_ms(self) -> int:
        """The time of the last round, or of the last commit replayed."""
        return self._now_ms

    # ── recovery ────────────────────────────────────────────────────────────────────────────────────────────────

    def restore(self, image: snapshot.Image) -> None:
        """Begin with what a snapshot holds; only a machine that knows nothing yet may be asked."""
        snapshot.restore(self.ledger, image)
        self.retention.restore()
        rest = image.rest
        self.sequence, self.cursor, self._now_ms = rest.sequence, rest.cursor, rest.at_ms

    def replay(self, sequence: int, data: bytes) -> list[Told]:
        """Apply a commit of the past or of another replica; the public facts it makes."""
        commit = codec.unpack(data, Commit)
        for change in commit.changes:
            self.ledger.apply(change, commit.at_ms)
            self.retention.note(change)
        self.sequence, self.cursor, self._now_ms = sequence, max(self.cursor, commit.cursor), commit.at_ms
        facts, self.ledger.told = self.ledger.told, []
        self.retention.settle()
        return facts

    def bid(self, now_ms: int) -> bytes:
        """The commit that makes this replica the leader, if the journal takes it behind `sequence`."""
        led = Led(self.leader, self.ledger.epoch + 1)
        return codec.pack(Commit(led.epoch, 0, self.cursor, max(now_ms, self._now_ms), [led]))

    def lead(self, now_ms: int) -> Output:
        """The bid stands in the journal and was replayed: a full grace for every worker, every open order again."""
        self._now_ms = self.floor_ms = max(now_ms, self._now_ms)
        self.serial = 0
        for worker in self.ledger.workers.values():
            if worker.state is not WorkerState.LOST:
                self.ledger.hear(worker.id, self._now_ms)
        self.orders.again()
        output = self._finish()
        output.delta = codec.pack(self.deltas.take(self.sequence, self._now_ms))
        return output

    # ── one round ───────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, inputs: Iterable[Input], now_ms: int) -> Output:
        """Judge everything that has arrived, then whatever is due at ``now_ms``. Never raises for what inputs say."""
        if now_ms - self._now_ms > self.policy.stall_ms:
            self.floor_ms = now_ms  # it was this service that stood still, not the workers
        self._now_ms = now_ms = max(now_ms, self._now_ms)
        for one in inputs:
            self._handle(one)
            self._settle()
        self._come_due()
        for forgotten in self.retention.forgettable(self.policy.keep_jobs, self.policy.keep_ms, now_ms):
            self._apply(forgotten)
        for read in self._reads:
            self._replies.append((read.reply, self._read(read)))
        self._reads = []
        return self._finish()

    def next_due(self) -> int | None:
        """When `step` should be called next though nothing arrives, ms; None when nothing is due ever."""
        dues = [self.ledger.alarms.next_due(), self.deliveries.again.next_due(), self.stop_again.next_due()]
        for status, line in self.ledger.lines.items():
            patience = self.policy.patience_of(status)
            dues.append(line.next_due(patience) if patience is not None else None)
        return min((due for due in dues if due is not None), default=None)

    def _finish(self) -> Output:
        changes, self._changes = self._changes, []
        replies, self._replies = self._replies, []
        told, self.ledger.told = self.ledger.told, []
        orders = self.orders.take(self.ledger.epoch)
        if not changes:
            return Output(self.sequence, replies=replies, orders=orders)
        self.sequence += 1
        self.serial += 1
        commit = Commit(self.ledger.epoch, self.serial, self.cursor, self._now_ms, changes)
        output = Output(
            self.sequence,
            codec.pack(commit),
            replies,
            orders,
            outbox.events(told, self.sequence),
            codec.pack(self.deltas.take(self.sequence, self._now_ms)),
            changes,
            [(fact.previous, fact.state) for fact in told if fact.entity == "task" and fact.previous is not None],
        )
        self.retention.settle()
        return output

    def _handle(self, one: Input) -> None:
        if isinstance(one, Asked):
            self._on_asked(one)
        elif isinstance(one, Heard):
            self._on_beat(one.data)
        elif isinstance(one, Command):
            self.cursor = one.sequence
            self._on_command(one)
        else:
            self._on_delivered(one)

    def _on_asked(self, asked: Asked) -> None:
        if asked.subject == subjects.STATE_REPORT:
            self._on_report(asked)
        elif asked.subject == subjects.STATE_PLAN:
            self._on_plan(asked)
        else:
            self._reads.append(asked)

    # ── changes and what follows from them ──────────────────────────────────────────────────────────────────────

    def _take(self, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            if isinstance(happening, Claim):
                self._claim(happening)
            else:
                self._apply(happening)

    def _claim(self, claim: Claim) -> None:
        change = conclude(self.ledger, claim, max_reschedules=self.policy.max_reschedules)
        if change is not None:
            self._apply(change)

    def _apply(self, change: Change) -> None:
        self.ledger.apply(change, self._now_ms)
        self.retention.note(change)
        self._changes.append(change)
        self.orders.note(change)
        self.deltas.note(change)
        self._follow(change)

    def _follow(self, change: Change) -> None:
        """Note what must be asked again because of a change; `_settle` asks."""
        if type(change) is Moved:
            self._dirty[change.job] = None
            self._claims.extend(cascade.siblings(self.ledger, change))
            self._keep_off(change)
        elif type(change) is JobMoved:
            if self.ledger.jobs[change.job].is_terminal:
                self._said.pop(change.job, None)
                self._claims.extend(cascade.remaining(self.ledger, change))
        elif type(change) is Assigned:
            if not self.ledger.jobs[change.job].started_ms:
                self._dirty[change.job] = None
        elif isinstance(change, Staged | Closed | SessionMoved) and change.job in self.ledger.kernels:
            self._dirty[change.job] = None
            if isinstance(change, SessionMoved):
                self.deliveries.forget(change.job)
        elif type(change) is WorkerMoved and change.state in (WorkerState.LOST, WorkerState.DRAINING):
            self._release(change.worker)

    def _settle(self) -> None:
        """Let follow what follows: siblings, derived jobs, their rest and children, promoted sessions."""
        while self._claims or self._dirty:
            while self._claims:
                self._claim(self._claims.popleft())
            if self._dirty:
                number = next(iter(self._dirty))
                del self._dirty[number]
                self._derive(number)

    def _derive(self, number: int) -> None:
        job = self.ledger.jobs.get(number)
        if job is None:
            return
        if job.is_gang:
            promoted = coordinator.promote(self.ledger, job, ENDINGS)
            if promoted is None:
                self._round_of((job.number, GANG))
                promoted = coordinator.promote(self.ledger, job)
            if promoted is not None:
                self._apply(promoted)
        moved = cascade.job(self.ledger, job)
        if moved is not None:
            self._apply(moved)

    def _release(self, worker: str) -> None:
        """Nothing new comes onto this host: its promises are void."""
        for key in [key for key, promised in self.ledger.promises.items() if promised == worker]:
            self._apply(Promised(*key, ""))

    def _keep_off(self, moved: Moved) -> None:
        """After a failure to deliver or build: this task stays off that worker for a growing while."""
        if moved.state is not TaskState.PENDING or moved.cause not in _AVOIDED:
            return
        task = self.ledger.jobs[moved.job].tasks[moved.index]
        worker = task.attempts[moved.attempt].worker
        times = sum(a.worker == worker and a.cause in _AVOIDED for a in task.attempts) - 1
        self._apply(Avoided(moved.job, moved.index, worker, self._now_ms + self.policy.avoid_ms(times)))

    # ── people ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_command(self, command: Command) -> None:
        """A command is answered exactly once, and a poison one never blocks the line."""
        kind = _COMMANDS.get(command.subject)
        try:
            if kind is None:
                raise Undecodable(f"no command on {command.subject}")
            wish = codec.unpack(command.data, kind)
        except Undecodable as error:
            self._apply(Answered(f"undecodable-{command.sequence}", Code.INVALID.value, answers.refusal(str(error))))
            return
        known = self.ledger.answers.get(wish.request_id)
        if known is None:
            known = self._obey(wish)
            self._settle()
            self._apply(Answered(wish.request_id, *known))
        if wish.answer_to:
            self._replies.append((wish.answer_to, codec.pack(Answer(*known))))

    def _obey(self, wish: SubmitJob | CancelJob | AdminCommand | RerunJob) -> tuple[str, bytes]:
        try:
            if isinstance(wish, RerunJob):
                wish = people.rerun_of(self.ledger, wish)
            if isinstance(wish, SubmitJob):
                return self._submit(wish)
            if isinstance(wish, CancelJob):
                self._take(people.on_cancel(self.ledger, wish))
                self._settle()
                return "accepted", answers.job(self.ledger, people.known_job(self.ledger, wish.job))
            self._take(people.on_admin(self.ledger, wish))
            return "accepted", answers.admin(self.ledger, wish)
        except Invalid as error:
            return error.code.value, answers.refusal(error.detail, error.mistakes)
        except Refused as error:
            return error.code.value, answers.refusal(error.detail)

    def _submit(self, wish: SubmitJob) -> tuple[str, bytes]:
        before = people.earlier(self.ledger, wish)
        if before is not None:
            return "replayed", answers.job(self.ledger, before)
        live = self.ledger.find_job(wish.spec.name)
        if wish.if_exists == "keep" and live is not None and not live.is_terminal:
            return "ok", answers.job(self.ledger, live)
        for happening in people.on_submit(self.ledger, wish, self._now_ms):
            self._take([happening])
            self._settle()
        admitted = self.ledger.jobs[self.ledger.next_number - 1]
        return "created", answers.job(self.ledger, admitted)

    def _read(self, asked: Asked) -> bytes:
        """Answered last in the round, as of its end: a reader sees everything that arrived before it."""
        if asked.subject == subjects.SNAPSHOT_FULL:
            version = self.sequence + bool(self._changes)
            return codec.pack(deltas.full(self.ledger, version, self._now_ms, self.policy.max_building))
        try:
            query = codec.unpack(asked.data, Query)
            return codec.pack(Answer("ok", answers.read(self.ledger, query, self._now_ms)))
        except Undecodable as error:
            return codec.pack(Answer(Code.INVALID.value, answers.refusal(str(error))))
        except Refused as error:
            return codec.pack(Answer(error.code.value, answers.refusal(error.detail)))

    # ── the scheduler ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_plan(self, asked: Asked) -> None:
        try:
            plan = codec.unpack(asked.data, Plan)
        except Undecodable:
            return
        refused: plans.Refusals = []
        before = len(self._changes)
        self._take(plans.on_plan(self.ledger, self.policy, plan, refused, self._now_ms, self.sequence + 1))
        placed = sum(type(change) is Assigned for change in self._changes[before:])
        self._explain(plan)
        self._replies.append((asked.reply, codec.pack(PlanTaken(self.sequence + 1, placed, tuple(refused)))))

    def _explain(self, plan: Plan) -> None:
        """Keep why jobs wait; a new reason is a row of history, SKIPPED."""
        for told in plan.reasons:
            job = self.ledger.jobs.get(told.job)
            if job is None or job.is_terminal or not job.counts[TaskState.PENDING]:
                continue
            before = self.ledger.reasons.get(told.job)
            self.ledger.reasons[told.job] = told.reason
            if before is None or before.code is not told.reason.code:
                self._said[told.job] = told.reason.message
            self._apply(self._passed_over(told))

    def _passed_over(self, told: JobReason) -> Judged:
        """Numbers in a reason may change from look to look; it is one row for as long as it is one kind of reason."""
        words = self._said.get(told.job, told.reason.message)
        return Judged(
            told.job, GANG, SCHEDULE.name, SchedulingResult.SKIPPED, words, looks=told.looks, since_ms=told.since_ms
        )

    # ── hosts ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_report(self, asked: Asked) -> None:
        try:
            report = codec.unpack(asked.data, WorkerReport)
        except Undecodable:
            return
        if report.register is not None:
            self._take(hosts.on_register(self.ledger, report.register))
        if not attendance.is_known(self.ledger, report.worker, report.incarnation):
            self._replies.append((asked.reply, codec.pack(ReportTaken(known=False))))
            return
        self.ledger.hear(report.worker, self._now_ms)
        presence = self.ledger.presence[report.worker]
        for stage in report.stages:
            presence.told_ms = max(presence.told_ms, stage.at_ms)
            self._take(hosts.on_stage(self.ledger, report.worker, stage))
        stages = report.stages + (report.register.attempts if report.register is not None else ())
        drop = attendance.stop_astray(self.ledger, self.orders, report.worker, stages)
        self._replies.append((asked.reply, codec.pack(ReportTaken(drop=tuple(drop)))))

    def _on_beat(self, data: bytes) -> None:
        try:
            beat = codec.unpack(data, Beat)
        except Undecodable:
            return
        self._take(attendance.on_beat(self.ledger, self.orders, beat, self._now_ms))

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_delivered(self, delivered: Delivered) -> None:
        """A worker took an order, or it could not be delivered: the sessions in it are judged."""
        order = delivered.order
        if not delivered.error:
            self.deliveries.took(order)
            for ref in (*order.prepare, *order.start):
                self._dirty[ref.job] = None
            return
        retry_ms = self._now_ms + int(self.policy.order_retry_s * 1000)
        for session in self.deliveries.sessions(order):
            if session not in self.deliveries.again:  # else another host has failed the same try of it
                self._round_of(session, delivered.error)
                self.deliveries.again.set(session, retry_ms)
        for stop in order.stop:
            self.stop_again.set((delivered.worker, stop.ref), retry_ms)

    def _round_of(self, session: SessionId, error: str = "") -> None:
        """Show a session to the handler that answers for its status."""
        status, _ = coordinator.seen(self.ledger, session)
        rule = OWNER.get(status) if status is not None else None
        if rule is not None and rule.name in DELIVERING:
            self._round(rule, [session], error)

    def _round(self, rule: SessionRule, sessions: Iterable[SessionId], error: str = "") -> None:
        shown = [self._view(session, error) for session in sessions]
        self._take(coordinator.run(self.ledger, self.policy, rule, REPORTS[rule.name], shown, self._now_ms))

    def _view(self, id_: SessionId, error: str) -> SessionView:
        job = self.ledger.jobs[id_[0]]
        status, version = coordinator.seen(self.ledger, id_)
        assert status is not None
        if id_[1] != GANG:
            return SessionView(id_, status, 1, (id_[1],), error, version=version)
        alive = sum(n for kernel, n in self.ledger.kernels[job.number].items() if kernel in KERNEL_NON_TERMINAL)
        return SessionView(id_, status, len(job.tasks), self.deliveries.wanting(job), error, alive, version)

    # ── the clock ───────────────────────────────────────────────────────────────────────────────────────────────

    def _come_due(self) -> None:
        now = self._now_ms
        for kind, number, index in list(self.ledger.alarms.due(now)):
            self._take(clock.on_alarm(self.ledger, kind, number, index))
            self._settle()
        for session in list(self.deliveries.again.due(now)):
            self.deliveries.order_again(self.orders, session)
        for worker, ref in list(self.stop_again.due(now)):
            attempt = self.ledger.attempt((ref.job, ref.index, ref.attempt))
            if attempt is not None and attempt.is_open:
                self.orders.stop(worker, ref, attempt)
        for rule, late in list(coordinator.overdue(self.ledger, self.policy, now)):
            self._round(rule, late)
            self._settle()
        self._take(attendance.silent(self.ledger, self.policy.lost_after_ms, self.floor_ms, now))
        self._settle()


def decode_delta(data: bytes) -> Delta:
    """The delta in an output, for tests and the simulation."""
    return msgspec.msgpack.decode(data, type=Delta)
