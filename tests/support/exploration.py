"""Breadth-first search over every way in which a session of two kernels can progress.

A world is the machine, two hosts with room for one kernel each, and the orders under way to them.
In each state every action is tried: an order is taken, or lost, or taken with its answer lost; a
kernel is prepared, runs, exits well or badly, cannot be brought up; a stop takes effect; a host
heartbeats, restarts with or without its processes, is given up for lost while they live on; the job
is cancelled; the scheduler plans; the clock passes what is due, timeout included. With nothing
forgiven the whole space has 32,360 states, at most 19 actions from the beginning; a limit of 40,000
looks into all of them in a minute. Out of scope: what must hold in each state (the test says it).
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from iris_core import codec, subjects
from iris_core.messages.gateway_state import AdminCommand, CancelJob, SubmitJob
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import FullSnapshot
from iris_core.messages.state_worker import (
    Ended,
    HeartbeatMessage,
    Order,
    Register,
    Stage,
    WorkerReport,
)
from iris_core.spec.jobs import Coscheduling, JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus, SessionStatus, WorkerState
from iris_state.effects.kinds import OrderTo, Output, ReplyTo
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.inputs import DeliveryResult, Heartbeat, Request
from tests.support import first_fit
from tests.support.world import ADMIN

K = KernelStatus
Action = tuple[str, ...]
Path = tuple[Action, ...]
HOSTS = ("a", "b")
UNFAIR = frozenset(
    {"cancel", "lost", "drop", "lose answer", "exit 1", "infra", "vanish", "restart"}
)
"""What the world does to a session; without any more of it, every session must come to an end."""


@dataclass
class Host:
    """One host: what it was told, what really runs, and what it has not been handed yet.

    ``forsaken``: what was open on it when it was given up for lost; nobody waits for its end
    (docs/design/reliability.md#promises).
    """

    incarnation: int = 1
    beats: int = 0
    stages: dict[AttemptRef, KernelStatus] = field(default_factory=dict)
    ends: dict[AttemptRef, Ended] = field(default_factory=dict)
    past: set[AttemptRef] = field(default_factory=set)
    may_start: set[AttemptRef] = field(default_factory=set)
    stopping: set[AttemptRef] = field(default_factory=set)
    forsaken: set[AttemptRef] = field(default_factory=set)
    orders: list[Order] = field(default_factory=list)


class Cell:
    """One state, reached by the actions of its path."""

    def __init__(self, spec: JobSpec, policy: Policy) -> None:
        self.policy = policy
        self.now_ms = 1_000_000
        self.machine = Machine(policy, "cell")
        self.hosts = {name: Host() for name in HOSTS}
        self.commands = 0
        self.machine.replay(1, self.machine.bid(self.now_ms))
        self._send(self.machine.lead(self.now_ms))
        for name in HOSTS:
            self._register(name)
        self._command(subjects.CMD_SUBMIT, SubmitJob(spec, ADMIN, "submit", self.now_ms))

    # ── what can happen ───────────────────────────────────────────────────────────────────────────

    def actions(self) -> Iterator[Action]:
        """Everything that can happen now."""
        job = self.machine.ledger.jobs[1]
        if not job.is_terminal:
            yield ("cancel",)
        if (
            job.session is not None
            and job.session.status is SessionStatus.PENDING
            and not job.is_terminal
        ):
            yield ("plan",)
        if self._due() is not None:
            yield ("clock",)
        for name, host in self.hosts.items():
            yield from self._of_host(name, host)

    def _of_host(self, name: str, host: Host) -> Iterator[Action]:
        if host.orders:
            yield ("take", name)
            if host.orders[0].prepare or host.orders[0].start:
                yield ("drop", name)
                yield ("lose answer", name)
        worker = self.machine.ledger.workers[name]
        if self._has_news(name, host):
            yield ("beat", name)
        if worker.state is not WorkerState.LOST and self.machine.ledger.presence[name].open:
            yield ("lost", name)
        if host.stages:
            yield ("vanish", name)
            yield ("restart", name)
        for ref, stage in host.stages.items():
            yield from self._of_kernel(name, host, ref, stage)

    def _has_news(self, name: str, host: Host) -> bool:
        """Whether a heartbeat would say anything that the ledger does not know, or ask for
        anything.
        """
        ledger = self.machine.ledger
        if ledger.workers[name].state is WorkerState.LOST:
            return True
        held = {
            AttemptRef(*key): attempt.status for key, attempt in ledger.presence[name].open.items()
        }
        return (
            held != host.stages or bool(host.ends) or any(s is K.TERMINATING for s in held.values())
        )

    def _of_kernel(
        self, name: str, host: Host, ref: AttemptRef, stage: KernelStatus
    ) -> Iterator[Action]:
        which = (name, f"{ref.index}.{ref.attempt}")
        if ref in host.stopping:
            yield ("stop", *which)
            return
        if stage in (K.SCHEDULED, K.PREPARED):
            yield ("infra", *which)
        if stage is K.SCHEDULED:
            yield ("prepare", *which)
        elif stage is K.PREPARED and ref in host.may_start:
            yield ("run", *which)
        elif stage is K.RUNNING:
            yield ("exit 0", *which)
            yield ("exit 1", *which)

    # ── doing it ──────────────────────────────────────────────────────────────────────────────────

    def do(self, action: Action) -> None:
        """Let one of the actions happen."""
        what, *where = action
        if what in ("take", "drop", "lose answer"):
            self._hand_over(what, where[0])
        elif what in ("cancel", "plan", "clock"):
            getattr(self, f"_{what}")()
        elif what in ("beat", "lost", "vanish", "restart"):
            getattr(self, f"_{what}")(where[0])
        else:
            index, attempt = (int(part) for part in where[1].split("."))
            self._kernel(what, where[0], AttemptRef(1, index, attempt))

    def _hand_over(self, what: str, name: str) -> None:
        host = self.hosts[name]
        order = host.orders.pop(0)
        expired = 0 < order.expires_ms < self.now_ms
        if what != "drop":
            self._execute(
                name,
                host,
                msgspec.structs.replace(order, prepare=(), start=()) if expired else order,
            )
        error = "" if what == "take" and not expired else "no answer"
        if order.prepare or order.start or error:
            self._step(DeliveryResult(name, order, error, monotonic_ms=self.now_ms))

    def _execute(self, name: str, host: Host, order: Order) -> None:
        if order.incarnation != str(host.incarnation):
            return
        for ref in order.prepare:
            if ref not in host.past:
                host.stages.setdefault(ref, K.SCHEDULED)
        host.may_start.update(ref for ref in order.start if ref in host.stages)
        for stop in order.stop:
            if stop.ref in host.stages:
                host.stopping.add(stop.ref)
            else:
                host.past.add(stop.ref)
                host.ends[stop.ref] = Ended(Cause.MISSING)
        if order.register:
            self._register(name)
        self._tell_ends(name, host)

    def _tell_ends(self, name: str, host: Host) -> None:
        if host.ends:
            self._say(
                name,
                *(Stage(ref, K.TERMINATED, self.now_ms, ended) for ref, ended in host.ends.items()),
            )
            host.ends = {}

    def _kernel(self, what: str, name: str, ref: AttemptRef) -> None:
        host = self.hosts[name]
        if what in ("prepare", "run"):
            status = K.PREPARED if what == "prepare" else K.RUNNING
            host.stages[ref] = status
            self._say(name, Stage(ref, status, self.now_ms))
            return
        ended = {
            "exit 0": Ended(Cause.EXITED, exit_code=0),
            "exit 1": Ended(Cause.EXITED, exit_code=1),
            "infra": Ended(Cause.INFRASTRUCTURE),
            "stop": Ended(Cause.CANCELLED, signal=15),
        }[what]
        self._end(host, ref)
        self._say(name, Stage(ref, K.TERMINATED, self.now_ms, ended))

    def _end(self, host: Host, ref: AttemptRef) -> None:
        del host.stages[ref]
        host.past.add(ref)
        host.may_start.discard(ref)
        host.stopping.discard(ref)

    def _beat(self, name: str) -> None:
        host = self.hosts[name]
        host.beats += 1
        stages = tuple(Stage(ref, stage, self.now_ms) for ref, stage in host.stages.items())
        now_ms, incarnation = self.now_ms, str(host.incarnation)
        heartbeat = HeartbeatMessage(
            name, incarnation, host.beats, now_ms, stages, monotonic_ms=now_ms
        )
        self._step(Heartbeat(subjects.heartbeat(name), codec.pack(heartbeat)))

    def _lost(self, name: str) -> None:
        self.hosts[name].forsaken.update(
            AttemptRef(*key) for key in self.machine.ledger.presence[name].open
        )
        self._command(
            subjects.CMD_ADMIN, AdminCommand("mark_lost", name, ADMIN, self._fresh(), self.now_ms)
        )

    def _vanish(self, name: str) -> None:
        """The host restarts and has lost its processes."""
        host = self.hosts[name]
        host.past.update(host.stages)
        host.stages, host.may_start, host.stopping = {}, set(), set()
        self._restart(name)

    def _restart(self, name: str) -> None:
        host = self.hosts[name]
        host.incarnation += 1
        host.beats = 0
        host.orders, host.may_start, host.stopping = [], set(), set()
        self._register(name)

    def _cancel(self) -> None:
        self._command(subjects.CMD_CANCEL, CancelJob("j1", ADMIN, self._fresh(), self.now_ms))

    def _plan(self) -> None:
        output = self.machine.step([Request(subjects.SNAPSHOT_FULL, b"", "full")], self.now_ms)
        snapshot = codec.unpack(output.of(ReplyTo)[0].data, FullSnapshot)
        self._step(Request(subjects.STATE_PLAN, codec.pack(first_fit.plan(snapshot)), "plan"))

    def _clock(self) -> None:
        """Let the next thing come due, and nobody be lost by it: hosts heartbeat whenever they
        like.
        """
        due = self._due()
        assert due is not None
        self.now_ms = max(due, self.now_ms)
        for name in HOSTS:
            if self.machine.ledger.workers[name].state is not WorkerState.LOST:
                self.machine.ledger.hear(name, self.now_ms)
                self.machine.ledger.presence[name].listed_ms = self.now_ms
        self._step()

    def _due(self) -> int | None:
        """When the service would wake up by itself, or somebody is let back onto a host, ms."""
        kept_off = [
            until for hosts in self.machine.ledger.avoided.values() for until in hosts.values()
        ]
        dues = [due for due in (self.machine.next_due(), *kept_off) if due is not None]
        return min((due for due in dues if due > self.now_ms), default=self.machine.next_due())

    def _register(self, name: str) -> None:
        host = self.hosts[name]
        self.now_ms += 1
        stages = tuple(Stage(ref, stage, self.now_ms) for ref, stage in host.stages.items())
        start = Register(
            name, str(host.incarnation), {"rack": "r"}, Amount(1000), self.now_ms, stages
        )
        self._step(Request(subjects.report(name), self._report(name, register=start), "r"))

    def _say(self, name: str, *stages: Stage) -> None:
        self._step(Request(subjects.report(name), self._report(name, stages=stages), "r"))

    def _report(self, name: str, **parts: object) -> bytes:
        incarnation = str(self.hosts[name].incarnation)
        return codec.pack(WorkerReport(name, incarnation, monotonic_ms=self.now_ms, **parts))  # type: ignore[arg-type]

    def _command(self, subject: str, message: object) -> None:
        self.commands += 1
        self._step(Request(subject, codec.pack(message), "c"))

    def _fresh(self) -> str:
        return f"c{self.commands}"

    def _step(self, *inputs: Request | Heartbeat | DeliveryResult) -> None:
        self._send(self.machine.step(inputs, self.now_ms))

    def _send(self, output: Output) -> None:
        for one in output.of(OrderTo):
            host = self.hosts[one.worker]
            if one.order not in host.orders:
                host.orders.append(one.order)

    # ── what a state is ───────────────────────────────────────────────────────────────────────────

    def key(self) -> object:
        """Everything that decides what can happen, without times."""
        machine = self.machine
        job = machine.ledger.jobs[1]
        return (
            job.state,
            tuple(_task(task) for task in job.tasks),
            (job.session.status, tuple(sorted(job.session.tries.items())))
            if job.session is not None
            else None,
            tuple(_host(host) for host in self.hosts.values()),
            tuple(worker.state for worker in machine.ledger.workers.values()),
            tuple(sorted(key for key, _ in machine.round.deliveries.again.items())),
            machine.round.deliveries.wanting(job),
            tuple(sorted(key for key, _ in machine.round.stop_again.items())),
            tuple(sorted(key[2:] for key in machine.ledger.avoided if _kept_off(machine, key))),
        )

    def is_over(self) -> bool:
        """Whether the job has ended and the end of every attempt is known."""
        return self.machine.ledger.jobs[1].is_terminal and not self.machine.ledger.open_of_job[1]


def _kept_off(machine: Machine, key: tuple[int, int]) -> bool:
    return any(until > machine.last_ms for until in machine.ledger.avoided[key].values())


def _task(task: object) -> tuple[object, ...]:
    return (
        task.state,  # type: ignore[attr-defined]
        task.failure_count,  # type: ignore[attr-defined]
        task.preemption_count,  # type: ignore[attr-defined]
        task.reschedules,  # type: ignore[attr-defined]
        tuple((a.status, a.worker, a.is_open, a.started_ms > 0) for a in task.attempts),  # type: ignore[attr-defined]
    )


def _host(host: Host) -> tuple[object, ...]:
    return (
        tuple(sorted(host.stages.items())),
        tuple(sorted(host.may_start)),
        tuple(sorted(host.stopping)),
        tuple(
            (
                o.prepare,
                o.start,
                tuple(s.ref for s in o.stop),
                o.register,
                o.incarnation == str(host.incarnation),
            )
            for o in host.orders
        ),
    )


@dataclass
class Space:
    """What was found: each state's path, the states each leads to and by which action, and which
    are over.
    """

    paths: list[Path] = field(default_factory=list)
    edges: list[dict[Action, int]] = field(default_factory=list)
    over: set[int] = field(default_factory=set)
    unexplored: set[int] = field(default_factory=set)


def gang(**options: object) -> JobSpec:
    return JobSpec(
        name="/g", command=("true",), replicas=2, coscheduling=Coscheduling("rack"), **options
    )  # type: ignore[arg-type]


def explore(
    spec: JobSpec,
    policy: Policy,
    inspect: Callable[[Cell, Path], None],
    limit: int,
    root: Path = (),
) -> Space:
    """Every state within ``limit`` states looked into, nearest to the root first; ``inspect`` is
    asked in each.
    """
    space = Space()
    known: dict[object, int] = {}
    frozen: deque[tuple[int, list[Action], bytes]] = deque()

    def enter(cell: Cell, path: Path) -> int:
        key = cell.key()
        number = known.get(key)
        if number is None:
            number = known[key] = len(space.paths)
            space.paths.append(path)
            space.edges.append({})
            inspect(cell, path)
            if cell.is_over():
                space.over.add(number)
            elif number < limit:
                frozen.append((number, list(cell.actions()), pickle.dumps(cell, -1)))
            else:
                space.unexplored.add(number)
        return number

    first = Cell(spec, policy)
    for action in root:
        assert action in list(first.actions()), f"{action} cannot happen"
        first.do(action)
    enter(first, root)
    while frozen:
        number, actions, image = frozen.popleft()
        for action in actions:
            cell = pickle.loads(image)
            cell.do(action)
            space.edges[number][action] = enter(cell, (*space.paths[number], action))
    return space


def endless(space: Space) -> list[int]:
    """States from which nothing that the world must do for a session leads to an end."""
    before: dict[int, list[int]] = {}
    for number, edges in enumerate(space.edges):
        for action, to in edges.items():
            if action[0] not in UNFAIR:
                before.setdefault(to, []).append(number)
    todo, ending = [*space.over, *space.unexplored], {*space.over, *space.unexplored}
    while todo:
        for number in before.get(todo.pop(), ()):
            if number not in ending:
                ending.add(number)
                todo.append(number)
    return [number for number in range(len(space.paths)) if number not in ending]
