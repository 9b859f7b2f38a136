"""The state machine of a worker's attempts: takes a stimulus, returns instructions. Pure.

The shell executes instructions, and their outcome is the next stimulus. The shell pulls the next
launch (`next_launch`), so that an unconfirmed worker launches nothing. Out of scope: clocks,
processes, sockets, and judging tasks, which the state service does.
Source: docs/design/semantics.md#tasks-and-attempts, docs/design/semantics.md#sessions;
    docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import structs

from iris_core.limits import ATTEMPTS
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import (
    Ended,
    Gang,
    GivenNotice,
    Order,
    OrderTaken,
    ReportTaken,
    Stage,
    Stop,
    TaskTemplate,
)
from iris_core.states import Cause, KernelStatus, NoticeReason
from iris_worker.agent.chains import WaitingChains
from iris_worker.agent.instructions import Discard, Instruction, Kill, Prepare
from iris_worker.agent.local_attempt import (
    LocalAttempt,
    drain_notices,
    end_stage,
    renewals,
    set_timeouts,
)
from iris_worker.agent.reports import Reports, fitting
from iris_worker.agent.room import LACKING, HostRoom
from iris_worker.agent.seen import SeenAttempts

K = KernelStatus
DROP_GRACE_MS = 5000
_LONG = "not started: the call before it on this worker takes long"
OUR_SIGNALS = frozenset({9, 15})
"""KILL and TERM, the signals of a stop; the cause of the end then says enough, without the
signal.
"""


class Agent:
    """The worker's view of itself; ``room``: while in doubt; ``epoch``: of the leader whose orders
    it takes, or 0; ``checks_gangs``: members of gangs wait for a check of the host.

    Args:
        incarnation: identifies this start of the worker; orders for another incarnation are
            refused.
        max_attempts: most open attempts at a time; orders that would exceed it are refused.
    """

    def __init__(self, incarnation: str, max_attempts: int = ATTEMPTS) -> None:
        self.incarnation = incarnation
        self._max_attempts = max_attempts
        self.unconfirmed = self.closing = self.checks_gangs = False
        self._why_closing = ""
        self.reports = Reports()
        self.epoch = 0
        self._held: dict[AttemptRef, LocalAttempt] = {}
        self._seen = SeenAttempts()
        self._ready: deque[LocalAttempt] = deque()
        self._starting: set[AttemptRef] = set()
        self._timeouts: dict[int, int] = {}
        self._muted: frozenset[int] = frozenset()
        self._chains = WaitingChains(self._is_done)
        self.room = HostRoom(self._held, self._chains.next)

    # ── orders ────────────────────────────────────────────────────────────────────────────────────

    def on_order(
        self, order: Order, now_ms: int, monotonic_ms: int = 0
    ) -> tuple[OrderTaken, list[Instruction]]:
        """Accept an order, or refuse it as a whole; stops are executed in any case, because they
        cannot do harm.

        Refused: an order for another incarnation, of a deposed leader, an expired one, any while
        unconfirmed, and one that would exceed ``max_attempts``.
        """
        fresh = [ref for ref in (*order.run, *order.prepare) if ref not in self._seen]
        begun = len(fresh) < len(order.run) + len(order.prepare)
        refused = OrderTaken(
            self.incarnation, False, monotonic_ms, stopping=self.closing and not begun
        )
        if order.incarnation != self.incarnation or order.epoch < self.epoch:
            return refused, []
        self.epoch = order.epoch
        todo: list[Instruction] = []
        for stop in order.stop:
            self._stop(stop, now_ms, todo)
        if self.unconfirmed or self.closing or 0 < order.expires_ms < monotonic_ms:
            return refused, todo
        if fresh and len(self._held) + len(fresh) > self._max_attempts:
            return refused, todo
        templates = {template.job: template for template in order.templates}
        gangs = {gang.job: gang for gang in order.gangs}
        waits = {ref for chain in order.chains for ref in chain.members if ref not in self._seen}
        for ref in order.run:
            if ref in waits and templates.get(ref.job) is not None:
                self._seen.add(ref)
                self._held[ref] = LocalAttempt(
                    ref, templates[ref.job], Stage(ref, K.SCHEDULED, now_ms)
                )
            else:
                stage = Stage(ref, K.PREPARING, now_ms)
                self._take(
                    LocalAttempt(ref, templates.get(ref.job), stage, gangs.get(ref.job)),
                    now_ms,
                    todo,
                )
        for chain in order.chains:
            self._chains.add(chain, [ref for ref in chain.members if ref in waits], now_ms)
        todo += self.begin_waiting(now_ms)
        for ref in order.prepare:
            stage = Stage(ref, K.PREPARING, now_ms)
            self._take(
                LocalAttempt(ref, templates.get(ref.job), stage, gangs.get(ref.job), barrier=True),
                now_ms,
                todo,
            )
        for ref in order.start:
            self._start(ref, gangs.get(ref.job), now_ms)
        todo += drain_notices(self._held, order.drained)
        if order.renewals:
            todo += renewals(self._held.values(), order.renewals)
        for job, timeout_ms in order.timeouts.items():
            self._timeouts[job] = timeout_ms
            todo += set_timeouts(self._held.values(), job, timeout_ms)
        return OrderTaken(self.incarnation, monotonic_ms=monotonic_ms), todo

    def timeouts(self) -> dict[int, int]:
        """The timeouts that orders have changed, in ms by job, of the jobs with attempts here; 0:
        none.
        """
        here = {ref.job for ref in self._held} if self._timeouts else set()
        self._timeouts = {
            job: timeout_ms for job, timeout_ms in self._timeouts.items() if job in here
        }
        return self._timeouts

    def mute(self, jobs: Iterable[int]) -> None:
        """An order says of which jobs nothing more is stored."""
        self._muted = frozenset(jobs)

    def muted(self) -> frozenset[int]:
        """The jobs with attempts here of which orders say that nothing more is stored."""
        if self._muted:
            self._muted &= {ref.job for ref in self._held}
        return self._muted

    def _take(self, held: LocalAttempt, now_ms: int, todo: list[Instruction]) -> None:
        """Begin an attempt, unless it or a later one of its task was here before."""
        ref = held.ref
        template = held.template
        if ref in self._seen:
            return
        self._seen.add(ref)
        if (
            template is not None and ref.job in self._timeouts
        ):  # the template may be older than that
            held.template = template = structs.replace(
                template, timeout_ms=self._timeouts[ref.job] or None
            )
        self._held[ref] = held
        if template is None:
            self._end(
                held,
                now_ms,
                Ended(Cause.INFRASTRUCTURE, error="the order does not say what to run"),
            )
            return
        self._begin(held, template, now_ms, todo)

    def _begin(
        self, held: LocalAttempt, template: TaskTemplate, now_ms: int, todo: list[Instruction]
    ) -> None:
        """Have whatever an attempt needs before it starts provided."""
        ref = held.ref
        held.settle_ms = template.settle_ms
        if self.room.doubted and not self.room.take(ref, template):
            self._report(held, Stage(ref, K.PREPARING, now_ms, detail=LACKING))
            return
        if not held.chained:  # what follows within milliseconds is told with what comes next
            self.reports.add(held.stage)
        needs = template.code or template.environment is not None or template.preload
        if needs or (held.barrier and self.checks_gangs):
            if not held.chained:
                self._report(held, Stage(ref, K.PULLING, now_ms))
            held.preparing = True
            self._starting.add(ref)
            todo.append(Prepare(ref, template, held.barrier))
        else:
            self._advance(held, now_ms)

    # ── what waits behind others ──────────────────────────────────────────────────────────────────

    def _is_done(self, ref: AttemptRef) -> bool:
        held = self._held.get(ref)
        return held.freed or held.is_over if held is not None else ref in self._seen

    @property
    def has_next(self) -> bool:
        """Whether `begin_waiting` would begin something."""
        return bool(self._chains.next)

    def begin_waiting(self, now_ms: int) -> list[Instruction]:
        """Begin what has waited for others that have ended."""
        todo: list[Instruction] = []
        while self._chains.next:
            held = self._living(self._chains.next.popleft())
            if held is None or held.template is None:
                continue
            if self.closing:
                self._let_go(held, Cause.CANCELLED, 0, now_ms, todo=todo)
                continue
            held.chained = held.stage.status is K.SCHEDULED  # else it has waited for room
            held.stage = Stage(held.ref, K.PREPARING, now_ms)
            self._begin(held, held.template, now_ms, todo)
        return todo

    def hand_back(self, now_ms: int) -> None:
        """End what waits behind an attempt that takes long, without having started it, and waits
        that are too long.
        """
        self.room.pass_time(now_ms)
        for ref in list(self._chains.late(now_ms)):
            self._end(self._held[ref], now_ms, Ended(Cause.HANDED_BACK, error=_LONG))

    def on_free(self, ref: AttemptRef, now_ms: int) -> None:
        """Nothing of an attempt runs any more, though its end is not reported yet: the next may run
        in its place.
        """
        held = self._held.get(ref)
        if held is not None and not held.freed:
            held.freed = True
            held.chained = self._chains.left(ref, now_ms)
            if self.room.doubted:
                self.room.left(ref)

    def is_replaced(self, ref: AttemptRef) -> bool:
        """Whether another attempt was begun in the place of one that has ended."""
        held = self._held.get(ref)
        return held is not None and held.freed and held.chained

    @property
    def is_patient(self) -> bool:
        """Whether nothing that is to be reported leaves a place empty until then."""
        held = (self._held.get(ref) for ref in self.reports)
        return all(one is not None and one.chained for one in held)

    def _advance(self, held: LocalAttempt, now_ms: int) -> None:
        """Start the attempt or report PREPARED, once everything it needs is on this host."""
        if not held.barrier:
            self._make_ready(held)
            return
        self._starting.discard(held.ref)  # others wait for this one
        self._report(held, Stage(held.ref, K.PREPARED, now_ms))
        if held.go:
            self._create(held, now_ms)

    def _start(self, ref: AttemptRef, gang: Gang | None, now_ms: int) -> None:
        held = self._held.get(ref)
        if held is None:
            if ref not in self._seen:
                self._missing(ref, now_ms)
            return
        if held.go or held.is_over:
            return
        held.go, held.gang = True, gang or held.gang
        if held.stage.status is K.PREPARED:
            self._create(held, now_ms)

    def _create(self, held: LocalAttempt, now_ms: int) -> None:
        self._report(held, Stage(held.ref, K.CREATING, now_ms))
        self._make_ready(held)

    def _make_ready(self, held: LocalAttempt) -> None:
        self._ready.append(held)
        self._starting.add(held.ref)

    # ── stopping ──────────────────────────────────────────────────────────────────────────────────

    def _stop(self, stop: Stop, now_ms: int, todo: list[Instruction]) -> None:
        held = self._held.get(stop.ref)
        if held is None:
            self._missing(stop.ref, now_ms)
        else:
            reason = NoticeReason.PREEMPTED if stop.why is Cause.PREEMPTED else None
            self._let_go(
                held,
                Cause.CANCELLED,
                stop.grace_ms,
                now_ms,
                todo=todo,
                settle_ms=stop.settle_ms,
                reason=reason,
            )

    def _let_go(
        self,
        held: LocalAttempt,
        why: Cause,
        grace_ms: int,
        now_ms: int,
        todo: list[Instruction],
        settle_ms: int = 0,
        reason: NoticeReason | None = None,
    ) -> None:
        """End an attempt in whatever stage it is; repeating the call changes nothing, but that
        without a grace period it is killed.
        """
        if held.is_over:
            return
        if held.stopping is not None:
            if not grace_ms and not settle_ms:
                todo.append(Kill(held.ref, 0))
            return
        if held.exited:
            todo.append(Kill(held.ref, grace_ms))
            return
        held.stopping = why
        if held.launched or held.building:
            todo.append(Kill(held.ref, grace_ms, settle_ms, reason))
        else:
            if not held.preparing:  # else it is discarded afterwards
                todo.append(Discard(held.ref))
            self._end(held, now_ms, Ended(why, error="stopped before it started"))

    def on_timeout(self, ref: AttemptRef) -> list[Instruction]:
        """The attempt has run well past its timeout, and the state service has not stopped it."""
        todo: list[Instruction] = []
        if (held := self._held.get(ref)) is not None and held.launched:
            self._let_go(held, Cause.TIMEOUT, DROP_GRACE_MS, held.stage.at_ms, todo=todo)
        return todo

    def stop_all(
        self, grace_ms: int, now_ms: int, why: str = "", reason: NoticeReason = NoticeReason.DRAIN
    ) -> list[Instruction]:
        """The worker shuts down: end all attempts and accept no new ones.

        Routes serve for their settle time: the state service has taken them out of discovery.
        ``why``: for their ends. ``reason``: for their notices.
        """
        self.closing = True
        self._why_closing = why
        todo: list[Instruction] = []
        for held in self._held.values():
            if held.stopping is not None and not held.is_over:
                # with this worker's grace period: the one of its order may be longer
                todo.append(Kill(held.ref, grace_ms, held.settle_ms))
            of_notice = None if held.settle_ms else reason
            self._let_go(
                held,
                Cause.CANCELLED,
                grace_ms,
                now_ms,
                todo=todo,
                settle_ms=held.settle_ms,
                reason=of_notice,
            )
        return todo

    def settle_ms(self) -> int:
        """The longest settle time of the routes that run here."""
        return max((held.settle_ms for held in self._held.values() if not held.is_over), default=0)

    # ── results of instructions ───────────────────────────────────────────────────────────────────

    @property
    def has_launches(self) -> bool:
        """Whether a launch is pending, disregarding confirmation."""
        return bool(self._ready)

    def next_launch(self) -> LocalAttempt | None:
        """The next attempt to launch; each is returned once, unless postponed, and none while
        unconfirmed.
        """
        while self._ready and not self.unconfirmed:
            held = self._ready.popleft()
            if not held.is_over:
                held.launched = True
                return held
        return None

    def postpone(self, held: LocalAttempt) -> None:
        """An attempt was not launched yet: it is the next launch, if that is still allowed."""
        held.launched = False
        self._ready.appendleft(held)

    def on_prepared(self, ref: AttemptRef, now_ms: int) -> list[Instruction]:
        """Its bundle is unpacked, and its environment is there."""
        if (held := self._living(ref)) is None:
            return [Discard(ref)]
        held.preparing = held.building = False
        if held.stopping is not None:
            self._end(held, now_ms, Ended(held.stopping, error="stopped before it started"))
            return [Discard(ref)]
        self._advance(held, now_ms)
        return []

    def on_building(self, ref: AttemptRef) -> bool:
        """Its environment is about to be built; False when it is not needed any more."""
        if (held := self._living(ref)) is None:
            return False
        held.building = True
        return True

    def on_detail(self, ref: AttemptRef, detail: str, now_ms: int, *, waits: bool = False) -> None:
        """What is done in its present status, for a person. ``waits``: as in `Stage`."""
        if (held := self._living(ref)) is not None:
            self._report(
                held,
                structs.replace(held.stage, at_ms=now_ms, detail=detail, waits=waits),
            )

    def on_noticed(self, ref: AttemptRef, notice: GivenNotice) -> None:
        """It was given a notice."""
        if (held := self._living(ref)) is not None:
            self._report(held, structs.replace(held.stage, notices=(*held.stage.notices, notice)))

    def on_unprepared(self, ref: AttemptRef, ended: Ended, now_ms: int) -> list[Instruction]:
        """Its bundle or its environment could not be provided."""
        self.on_ended(ref, ended, now_ms)
        return [Discard(ref)]

    def on_started(self, ref: AttemptRef, now_ms: int, detail: str = "") -> None:
        """Its process runs; ``detail``: what is odd about that, for a person."""
        held = self._held.get(ref)
        if (
            held is None
            or held.template is None
            or held.template.calls is None
            or len(self._held) > 1
        ):
            self._starting.discard(ref)
        if held is not None and held.stage.ended is None:
            self._report(held, Stage(ref, K.RUNNING, now_ms, detail=detail))

    def on_exited(self, ref: AttemptRef) -> None:
        """Its process has ended; what that means is reported when its output directory is
        stored.
        """
        if (held := self._held.get(ref)) is not None and held.stopping is None:
            held.exited = True

    def on_ended(self, ref: AttemptRef, ended: Ended, now_ms: int) -> None:
        """Its process has ended for good; the cause of an ordered stop overrides the exit code."""
        held = self._held.get(ref)
        if held is not None and held.stage.ended is None:
            self._end(held, now_ms, self.as_reported(ref, ended))

    def as_reported(self, ref: AttemptRef, ended: Ended) -> Ended:
        """An end as it is reported, by this worker or its successor: with the cause of the stop, if
        it was stopped.
        """
        held = self._held.get(ref)
        if held is None or held.stopping is None:
            return ended
        error = self._why_closing if ended.signal in OUR_SIGNALS else ended.error
        return structs.replace(ended, cause=held.stopping, error=error)

    def adopt(self, *stages: Stage, settle_ms: int = 0) -> None:
        """Adopt an attempt of the previous worker process; it runs or has ended, and what was
        reported of it is unknown.
        """
        last = stages[-1]
        self._seen.add(last.ref)
        self._held[last.ref] = LocalAttempt(
            last.ref, None, last, launched=True, settle_ms=settle_ms
        )
        for stage in stages:
            self.reports.add(stage)

    # ── reporting ─────────────────────────────────────────────────────────────────────────────────

    def attempts(self) -> tuple[Stage, ...]:
        """All attempts that run here or whose end is not acknowledged, for heartbeats and
        registrations.

        Each with its unacknowledged stages in order, or else its present stage.
        """
        unreported = self.reports.of
        return fitting(
            tuple(
                stage
                for ref, held in self._held.items()
                for stage in unreported(ref) or (held.stage,)
            )
        )

    def __len__(self) -> int:
        """How many attempts run here, or have an end that is not acknowledged."""
        return len(self._held)

    def running(self) -> int:
        """Attempts whose end is not known yet."""
        return sum(not held.is_over for held in self._held.values())

    def awaits_more(self) -> bool:
        """Whether all that is to be reported is of attempts whose process is about to run, or of a
        call that is alone here and may end at once: one report may hold both.
        """
        return bool(self._starting) and self._starting.issuperset(self.reports)

    def report_all(self) -> tuple[Stage, ...]:
        """All stages of all attempts, for a Register or to be confirmed again; its answer
        acknowledges them all.
        """
        self.reports.clear()
        return self.attempts()

    def on_taken(
        self, stages: Sequence[Stage], answer: ReportTaken, now_ms: int
    ) -> list[Instruction]:
        """A report or registration is committed: drop acknowledged ends, and stop attempts that
        were reassigned.
        """
        self.reports.answered(stages)
        for stage in stages:
            if stage.ended is not None:
                self._held.pop(stage.ref, None)
        todo: list[Instruction] = []
        for held in filter(None, map(self._held.get, answer.drop)):
            self._let_go(
                held, Cause.CANCELLED, DROP_GRACE_MS, now_ms, todo=todo, settle_ms=held.settle_ms
            )
        return todo

    def on_untaken(self, stages: Iterable[Stage]) -> None:
        """A report was not answered: report its stages again."""
        self.reports.give_back(stages)

    def _missing(self, ref: AttemptRef, now_ms: int) -> None:
        """Report an unknown attempt as missing, and never start it later."""
        self._seen.add(ref)
        held = self._held[ref] = LocalAttempt(ref, None, Stage(ref, K.PENDING, now_ms))
        self._end(held, now_ms, Ended(Cause.MISSING, error="this worker has no trace of it"))

    def _end(self, held: LocalAttempt, now_ms: int, ended: Ended) -> None:
        self._starting.discard(held.ref)
        self.on_free(held.ref, now_ms)
        self._report(held, end_stage(held.ref, ended, now_ms))

    def _report(self, held: LocalAttempt, stage: Stage) -> None:
        held.stage = stage
        self.reports.add(stage)

    def _living(self, ref: AttemptRef) -> LocalAttempt | None:
        """An attempt of this host whose end is not known yet."""
        held = self._held.get(ref)
        return held if held is not None and held.stage.ended is None else None
