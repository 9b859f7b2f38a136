"""A simulated host: the worker's real agent and stall detector in a small shell, and its processes.

Processes belong to the host and outlive their worker; a worker that starts again adopts them, a
host that starts again has none. Out of scope: what a task does when it runs; that is the fate of
    its attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from iris_bus.contract import Message, Unavailable
from iris_core import codec, subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import (
    Ended,
    GivenNotice,
    Order,
    ProbeResult,
    Register,
    ReportTaken,
    Stage,
    TaskTemplate,
    WorkerReport,
)
from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import NOTHING, Amount
from iris_core.states import Cause, KernelStatus, NoticeReason
from iris_worker.agent.agent import Agent
from iris_worker.agent.heartbeat import HeartbeatSchedule, StallDetector, to_ms
from iris_worker.agent.instructions import (
    Discard,
    Instruction,
    Kill,
    Notify,
    Prepare,
    RenewToken,
    SetTimeout,
)
from iris_worker.agent.local_attempt import LocalAttempt
from tests.sim.network import Link
from tests.sim.process import Process

_PULSE_S = 0.5
_REPORT_S = 2.0
_RETRY_S = 0.2


@dataclass
class Running:
    """One process of a task on a host; ``ended`` once it is gone. ``settle_ms``: for who adopts it.
    ``total``: what the host has. ``limited_s``: since when its time limit counts, and how long that
    is.
    """

    ref: AttemptRef
    template: TaskTemplate
    host: str
    since_s: float
    until_s: float
    exit_code: int
    stage: Stage
    settle_ms: int = 0
    ended: Ended | None = None
    total: Amount = NOTHING
    notices: tuple[GivenNotice, ...] = ()
    limited_s: tuple[float, float | None] = (0.0, None)


Answers = Callable[[Running, float], tuple[int, int]]
"""How many probes of a route have passed, or failed, in a row as of a time."""

Fate = Callable[[AttemptRef, TaskTemplate], tuple[float, int]]
"""How long an attempt runs, in seconds, and the exit code it ends with."""


class Machine:
    """One host and what runs on it.

    Args:
        started: told of each process, for whoever counts. told_to_end: of each that is sent TERM,
            and when that was ordered.
    """

    def __init__(
        self,
        name: str,
        attributes: dict[str, Attribute],
        fate: Fate,
        started: Callable[[Running], None],
        answers: Answers,
        told_to_end: Callable[[AttemptRef, float], None],
    ) -> None:
        self.name = name
        self.attributes = attributes
        self.total = Amount(4000, 8 << 30, 8 << 30, 4)
        self.fate = fate
        self.started = started
        self.answers = answers
        self.told_to_end = told_to_end
        self.running: dict[AttemptRef, Running] = {}
        self.unreachable_until_s = 0.0
        """Its worker says what it says and hears no order before that."""

    def reboot(self, now_s: float) -> None:
        """Every process is gone, and nobody remembers them."""
        for running in self.running.values():
            if running.ended is None:
                running.ended, running.until_s = Ended(Cause.MISSING), now_s
        self.running.clear()


class Worker:
    """The worker's shell on one host."""

    def __init__(self, machine: Machine, link: Link, process: Process, incarnation: str) -> None:
        self.machine = machine
        self.agent = Agent(incarnation)
        self.agent.room.total = machine.total
        self._link = link
        self._bus = link.bus
        self._process = process
        self._stall_detector = StallDetector(3.0, 10.0)
        self._heart = HeartbeatSchedule(machine.name, incarnation, 5.0)
        self._news = asyncio.Event()
        self._registered = self._settled = self._unheard = False
        self._due: dict[AttemptRef, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._stall_detector.begin(loop.time())
        self._adopt()
        await self._bus.subscribe(subjects.order(self.machine.name), self._on_order)
        self._tasks = [
            loop.create_task(work) for work in (self._beat(), self._watch_pulse(), self._report())
        ]
        self._news.set()
        try:
            await asyncio.gather(*self._tasks)
        except asyncio.CancelledError:
            if self._ending is None:
                raise
            await self._ending

    def begin_to_stop(self) -> None:
        self._ending = self._ending or asyncio.get_running_loop().create_task(self.stop())

    def _now_ms(self) -> int:
        return (
            int(asyncio.get_running_loop().time() * 1000)
            + self._process.jump_ms
            + 1_700_000_000_000
        )

    def _adopt(self) -> None:
        """Everything that still runs, or whose end nobody has acknowledged."""
        for running in self.machine.running.values():
            started = Stage(
                running.ref, KernelStatus.RUNNING, running.stage.at_ms, notices=running.notices
            )
            self.agent.adopt(*dict.fromkeys((started, running.stage)), settle_ms=running.settle_ms)
            if running.ended is None:
                self._await_end(running)
                self._await_notice(running)

    # ── orders ────────────────────────────────────────────────────────────────────────────────────

    def _on_order(self, message: Message) -> None:
        if self._steady() < self.machine.unreachable_until_s:
            return
        order = codec.unpack(message.data, Order)
        if self._stall_detector.slept(self._steady()):
            self._doubt()
        taken, todo = self.agent.on_order(order, self._now_ms(), to_ms(self._steady()))
        self._bus.publish(message.reply, codec.pack(taken))
        if taken.taken:
            self._stall_detector.touch(self._steady())
        if order.register:
            self._registered = self._settled = False
        self._do(todo)

    def _steady(self) -> float:
        return asyncio.get_running_loop().time()

    def _do(self, todo: Iterable[Instruction]) -> None:
        loop = asyncio.get_running_loop()
        for one in todo:
            if isinstance(one, Kill):
                noticed = one.reason is not None and self._notify(one.ref, one.reason)
                wait_s = (
                    one.grace_ms / 1000
                    if noticed and not self._saves(one.ref)
                    else 0.05 + one.settle_ms / 1000
                )
                loop.call_later(wait_s, self._killed, one.ref, loop.time())
            elif isinstance(one, Notify):
                self._notify(one.ref, one.reason)
            elif isinstance(one, Prepare):
                loop.call_later(
                    0.02, lambda ref=one.ref: self._do(self.agent.on_prepared(ref, self._now_ms()))
                )
            elif isinstance(one, SetTimeout):
                self._set_timeout(one)
            else:
                assert isinstance(one, Discard | RenewToken)
        self._launch()
        self._told()

    def _notify(self, ref: AttemptRef, reason: NoticeReason) -> bool:
        """Give a notice, each once; False when the attempt has none."""
        running = self.machine.running.get(ref)
        if running is None or running.template.notice is None:
            return False
        if all(given.reason is not reason for given in running.notices):
            notice = GivenNotice(reason, self._now_ms())
            running.notices += (notice,)
            self.agent.on_noticed(ref, notice)
            running.stage = msgspec.structs.replace(running.stage, notices=running.notices)
        return True

    def _set_timeout(self, wanted: SetTimeout) -> None:
        running = self.machine.running.get(wanted.ref)
        if running is not None and running.ended is None:
            limit_s = None if wanted.timeout_ms is None else wanted.timeout_ms / 1000
            running.limited_s = (running.limited_s[0], limit_s)
            self._await_notice(running)

    def _await_notice(self, running: Running) -> None:
        """The notice of its time limit is due so long before that, unless it was given."""
        if (due := self._due.pop(running.ref, None)) is not None:
            due.cancel()
        since_s, limit_s = running.limited_s
        if running.template.notice is not None and limit_s is not None:
            loop, at_s = (
                asyncio.get_running_loop(),
                since_s + limit_s - running.template.notice.before_s,
            )
            self._due[running.ref] = loop.call_at(
                max(at_s, loop.time()), self._near_limit, running.ref
            )

    def _near_limit(self, ref: AttemptRef) -> None:
        """Give the notice of the time limit; every second one ends with exit 0 then."""
        running = self.machine.running.get(ref)
        if running is not None and running.ended is None:
            self._notify(ref, NoticeReason.TIMEOUT)
            if self._saves(ref):
                running.exit_code, running.until_s = 0, self._steady() + 0.05
                self._await_end(running)
            self._told()

    def _saves(self, ref: AttemptRef) -> bool:
        """Whether it ends with exit 0 when it is told to stop, as every second one does that has a
        notice.
        """
        running = self.machine.running.get(ref)
        return (
            running is not None
            and running.template.notice is not None
            and sum(msgspec.structs.astuple(ref)) % 2 == 0
        )

    def _launch(self) -> None:
        while True:
            if not self._stall_detector.may_launch(self._steady()):
                self._doubt()
            held = self.agent.next_launch()
            if held is None:
                return
            self._begin(held)

    def _begin(self, held: LocalAttempt) -> None:
        template = held.template
        assert template is not None
        seconds, code = self.machine.fate(held.ref, template)
        now = self._steady()
        running = Running(
            held.ref,
            template,
            self.machine.name,
            now,
            now + seconds,
            code,
            held.stage,
            held.settle_ms,
        )
        running.total = self.machine.total
        limit_s = None if template.timeout_ms is None else template.timeout_ms / 1000
        gang_s = held.gang.deadline_ms / 1000 if held.gang is not None else 0.0
        running.limited_s = (gang_s - limit_s if gang_s and limit_s is not None else now, limit_s)
        self.machine.running[held.ref] = running
        self.machine.started(running)
        self.agent.on_started(held.ref, self._now_ms())
        running.stage = Stage(held.ref, KernelStatus.RUNNING, self._now_ms())
        self._await_end(running)
        self._await_notice(running)

    def _await_end(self, running: Running) -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(max(running.until_s, loop.time()), self._exited, running.ref)

    def _exited(self, ref: AttemptRef) -> None:
        running = self.machine.running.get(ref)
        if running is not None and running.ended is None:
            self._over(running, Ended(Cause.EXITED, running.exit_code))

    def end_all(self, role: str) -> None:
        """What runs in this role succeeds now."""
        for running in list(self.machine.running.values()):
            if running.ended is None and running.template.command[1:] == (role,):
                self._over(running, Ended(Cause.EXITED, 0))

    def _killed(self, ref: AttemptRef, ordered_s: float) -> None:
        running = self.machine.running.get(ref)
        if running is not None and running.ended is None:
            if not self._unheard:  # nobody could take its routes out of discovery
                self.machine.told_to_end(ref, ordered_s)
            self._over(
                running,
                Ended(Cause.EXITED, 0) if self._saves(ref) else Ended(Cause.EXITED, None, 15),
            )

    def _over(self, running: Running, ended: Ended) -> None:
        running.ended = ended
        running.until_s = self._steady()
        self.agent.on_ended(running.ref, ended, self._now_ms())
        self._begin_waiting()
        held = {stage.ref: stage for stage in self.agent.attempts()}
        running.stage = held.get(running.ref, running.stage)
        self._told()

    def _begin_waiting(self) -> None:
        if self.agent.has_next:
            self._do(self.agent.begin_waiting(self._now_ms()))

    # ── telling ───────────────────────────────────────────────────────────────────────────────────

    def _told(self) -> None:
        if self.agent.reports or not self._settled:
            self._news.set()

    def _doubt(self) -> None:
        self._settled = False
        self._news.set()
        self.agent.unconfirmed = True

    async def _report(self) -> None:
        while True:
            await self._news.wait()
            if not self._settled:
                await self._settle()
            stages = self.agent.reports.take()
            if not stages:
                self._news.clear()
                continue
            answer = await self._ask(stages)
            if answer is not None and answer.known:
                self._taken(stages, answer)
            else:
                self.agent.on_untaken(stages)
                self._settled = self._registered = self._settled and answer is None

    async def _settle(self) -> None:
        while not self._settled:
            stages = self.agent.report_all()
            was = self._registered
            register = None if was else self._registration(stages)
            if not was:
                self.agent.room.doubt()
            answer = await self._ask(stages if was else (), register)
            if answer is None:
                continue
            self._registered = answer.known or not was
            if self._registered and not self._stall_detector.slept(self._steady()):
                self._settled, self.agent.unconfirmed = True, False
                self.agent.room.believe(answer.drop, self._now_ms())
                self._taken(stages, answer)

    def _registration(self, stages: tuple[Stage, ...]) -> Register:
        machine, now_ms = self.machine, to_ms(self._steady())
        return Register(
            machine.name,
            self.agent.incarnation,
            machine.attributes,
            machine.total,
            now_ms,
            stages,
            chains=True,
        )

    async def stop(self) -> None:
        """Told to end: nothing new, an end to what runs, a last word. With routes it waits a while
        to be heard.
        """
        self.agent.closing = True
        said = asyncio.get_running_loop().create_task(self._say_that_it_stops())
        if self.agent.settle_ms():
            await asyncio.wait({said}, timeout=_REPORT_S)
            self._unheard = not said.done()
        self._do(self.agent.stop_all(1000, self._now_ms()))
        await said
        while len(self.agent):
            await asyncio.sleep(_PULSE_S)
        for task in self._tasks:
            task.cancel()
        await self._ask(self.agent.report_all(), leaving="gone")

    async def _say_that_it_stops(self) -> None:
        while await self._ask((), leaving="stopping") is None:
            pass

    async def _ask(
        self, stages: tuple[Stage, ...], register: Register | None = None, leaving: str = ""
    ) -> ReportTaken | None:
        name, incarnation = self.machine.name, self.agent.incarnation
        report = WorkerReport(name, incarnation, stages, register, to_ms(self._steady()), leaving)
        try:
            answer = await self._bus.request(
                subjects.report(name), codec.pack(report), timeout=_REPORT_S
            )
            taken = codec.unpack(answer.data, ReportTaken)
        except (Unavailable, codec.Undecodable):
            await asyncio.sleep(_RETRY_S)
            return None
        self._stall_detector.touch(self._steady())
        return taken

    def _taken(self, stages: tuple[Stage, ...], answer: ReportTaken) -> None:
        todo = self.agent.on_taken(stages, answer, self._now_ms())
        for stage in stages:
            running = self.machine.running.get(stage.ref)
            if stage.ended is not None and running is not None and running.ended is not None:
                del self.machine.running[stage.ref]
        self._do(todo)
        self._begin_waiting()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heart.wait_s(self._steady()))
            heartbeat, _ = self._heart.heartbeat(
                self.agent.attempts(), self._steady(), self._now_ms()
            )
            told = self.agent.timeouts()
            heartbeat = msgspec.structs.replace(
                heartbeat, probes=tuple(self._probes()), timeouts=told
            )
            if self._registered:
                self._bus.publish(subjects.heartbeat(self.machine.name), codec.pack(heartbeat))

    def _probes(self) -> Iterator[ProbeResult]:
        """The newest result of each route that runs here; the launcher has kept how to probe what
        is adopted.
        """
        for ref, running in self.machine.running.items():
            if running.ended is None and running.template.probe is not None:
                passes, failures = self.machine.answers(running, self._steady())
                yield ProbeResult(ref, f"{self.machine.name}:{ref.job}", passes, failures)

    async def _watch_pulse(self) -> None:
        while True:
            if self._stall_detector.tick(self._steady()):
                self._doubt()
            self.agent.hand_back(self._now_ms())
            self._begin_waiting()
            self._told()
            await asyncio.sleep(_PULSE_S)
