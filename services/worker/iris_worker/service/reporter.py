"""Sends reports to the state service and repeats each until it is committed. Part of the shell: it
waits for answers.

Answers to orders that nobody awaits are sent with the next report, because each message by itself
wakes two services. Two reports may be under way at once, so that an end need not wait for the
answer to its start. While this worker is not registered, or unconfirmed, one report holds
everything; until it is answered nothing else is reported or started. Out of scope: what is reported
(agent, reports), how soon (`Batcher`), and what follows from an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from iris_bus.contract import Bus, Unavailable
from iris_core import codec, subjects
from iris_core.batching import Batcher
from iris_core.messages.state_worker import (
    LiveUsage,
    OrderTaken,
    ProbeResult,
    Register,
    ReportTaken,
    Stage,
    WorkerReport,
)
from iris_worker.agent.agent import Agent
from iris_worker.agent.heartbeat import HeartbeatSchedule, StallDetector, to_ms
from iris_worker.clock import HostClock
from iris_worker.metrics import WorkerMetrics

log = logging.getLogger(__name__)

HANDS = 2
_RETRY_S = 0.2
_MORE_S = 0.02
"""For how long an attempt's first stages wait for the start of its process, and that of a call for
its end: the two are one report, and one commit.
"""
_ANSWER_S = 0.02
"""For how long the answer to an order waits for a report."""
_GATHER_S = 0.025
"""For how long stages are gathered that nothing waits for: others run in the place of those that
have ended.
"""


class Leaving(NamedTuple):
    """How and why a worker leaves. ``ends_s``: when its machine is taken away, by the steady clock;
    0: that is not known.
    """

    how: str = ""
    why: str = ""
    ends_s: float = 0.0

    def left_ms(self, now_s: float) -> int:
        """How long the machine is still there, at least a moment; 0: that is not known."""
        return max(1, to_ms(self.ends_s - now_s)) if self.ends_s else 0


_STAYS = Leaving()
Registration = Callable[[tuple[Stage, ...]], Register]
OnTaken = Callable[[Sequence[Stage], ReportTaken], None]


class Reporter:
    """Sends this worker's reports and heartbeats.

    Args:
        registration: makes the Register with these stages.
        on_taken: called with each answered report.
    """

    def __init__(
        self,
        agent: Agent,
        heart: HeartbeatSchedule,
        stall_detector: StallDetector,
        pace: Batcher,
        bus: Bus,
        clock: HostClock,
        metrics: WorkerMetrics,
        timeout_s: float,
        registration: Registration,
        on_taken: OnTaken,
    ) -> None:
        self._agent = agent
        self._heart = heart
        self._subject = subjects.report(heart.worker)
        self._stall_detector = stall_detector
        self._pace = pace
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._registration = registration
        self._on_taken = on_taken
        self._changed = asyncio.Event()
        self._advanced = asyncio.Event()
        self._turn = asyncio.Lock()
        self._registered = False
        self._introduced = False
        self._leaving = Leaving()
        self._doubts = 0
        self._unheard = 0
        self._unanswered: set[asyncio.Timeout] = set()
        self._answers: list[tuple[str, OrderTaken]] = []
        self._answer_timer: asyncio.TimerHandle | None = None
        self.settled = False

    def answer(self, reply: str, taken: OrderTaken, *, urgent: bool) -> None:
        """Answer an order, with those before it: at once when ``urgent``, otherwise with a report
        that comes soon.
        """
        self._answers.append((reply, taken))
        if urgent:
            self._send_answers()
        elif self._answer_timer is None:
            self._answer_timer = asyncio.get_running_loop().call_later(
                _ANSWER_S, self._send_answers
            )

    def close(self) -> None:
        """Send the answers that wait for a report, as far as there is a connection."""
        with contextlib.suppress(Unavailable):
            self._send_answers()

    def _send_answers(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
        answers = self._answers
        self._answers = []
        for reply, taken in answers:
            self._bus.publish(reply, codec.pack(taken))

    def wake(self) -> None:
        """There may be new stages to report."""
        if self._agent.reports or not self.settled:
            self._changed.set()

    def suspend(self, why: str) -> None:
        """Start no attempt until the state service has confirmed the worker's attempts."""
        self._doubts += 1
        self.settled = False
        if not self._agent.unconfirmed:
            self._agent.unconfirmed = True
            log.warning("in doubt about orders: %s", why)
        self.wake()

    def ask(self) -> None:
        """Ping the state service; whether it answered."""
        self.settled = False
        self.wake()

    def introduce(self) -> None:
        """The state service does not know this incarnation: register."""
        self._registered = self.settled = False
        self.wake()

    def repeat(self) -> None:
        """A new leader has taken over: repeat every report that the previous one has not
        answered.
        """
        unanswered = self._unanswered
        self._unanswered = set()
        for one in unanswered:
            one.reschedule(0.0)

    async def report(self) -> None:
        """Sends one report after another: until it is cancelled."""
        while True:
            async with self._turn:
                stages = await self._next()
            answer = await self._ask(stages)
            if answer is not None and answer.known:
                self._on_taken(stages, answer)
                continue
            self._agent.on_untaken(stages)
            if answer is not None:
                self.introduce()
            self.wake()

    async def _next(self) -> tuple[Stage, ...]:
        """The next stages to report, when there are any and the spacing allows it."""
        while True:
            await self._changed.wait()
            if not self.settled:
                await self._settle()
            if self._agent.awaits_more():
                await self._while(self._agent.awaits_more, _MORE_S)
            if self._agent.reports and self._agent.is_patient:
                await self._while(lambda: self._agent.is_patient, _GATHER_S)
            if wait_s := self._pace.wait_s(self._clock.steady_s()):
                await asyncio.sleep(wait_s)
            stages = self._agent.reports.take()
            if stages:
                self._pace.spend(self._clock.steady_s(), len(self._agent))
                return stages
            self._changed.clear()

    async def _while(self, waits: Callable[[], bool], most_s: float) -> None:
        """Wait until there is something to report that must not wait, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while waits():
                    self._changed.clear()
                    await self._changed.wait()
        self._changed.set()

    async def _settle(self) -> None:
        """Register, or be confirmed: report all stages, and accept orders once that is answered."""
        while not self.settled:
            doubts = self._doubts
            registered = self._registered
            stages = self._agent.report_all()
            register = None if registered else self._registration(stages)
            if not registered:
                self._agent.room.doubt()
            reported = stages if registered else ()
            self._introduced = True
            answer = await self._ask(reported, register, self._leaving)
            if answer is None:
                continue
            self._registered = answer.known or not registered
            if self._registered and doubts == self._doubts:
                self.settled = True
                self._agent.unconfirmed = False
                self._agent.room.believe(answer.drop, self._clock.wall_ms())
                self._on_taken(stages, answer)
                if (
                    register is not None and register.trouble
                ):  # it may be over, and no heartbeat has said so
                    self.advance()

    async def leave(self, how: str, why: str = "", ends_s: float = 0.0) -> None:
        """Report that this worker is "stopping" or "gone" until that is answered; not when no
        registration was sent.

        A registration that is not answered yet may have been applied. The last report holds all
        unacknowledged stages. ``ends_s``: see `Leaving`.
        """
        self._leaving = Leaving(how, why, ends_s)  # a later registration says it too
        stages = self._agent.report_all() if how == "gone" else ()
        while self._introduced and await self._ask(stages, leaving=self._leaving) is None:
            pass

    async def _ask(
        self,
        stages: tuple[Stage, ...],
        register: Register | None = None,
        leaving: Leaving = _STAYS,
    ) -> ReportTaken | None:
        """Send a request to the state service; None when it was not answered, after a pause."""
        monotonic_ms = to_ms(self._clock.steady_s())
        worker = self._heart.worker
        incarnation = self._agent.incarnation
        report = WorkerReport(
            worker,
            incarnation,
            stages,
            register,
            monotonic_ms=monotonic_ms,
            leaving=leaving.how,
            why=leaving.why,
            notice_ms=leaving.left_ms(self._clock.steady_s()),
        )
        self._send_answers()
        try:
            taken = await self._request(report)
        except (Unavailable, codec.Undecodable) as error:
            if not self._unheard:
                log.info("reports are not taken: %s", error)
            self._unheard += 1
            self._metrics.reported(False)
            await asyncio.sleep(_RETRY_S)
            return None
        if self._unheard:
            log.info("reports are taken again", extra={"untaken": self._unheard})
            self._unheard = 0
        self._metrics.reported(True)
        self._stall_detector.touch(self._clock.steady_s())
        return taken

    async def _request(self, report: WorkerReport) -> ReportTaken:
        """The answer to a report. Raises Unavailable, also when a new leader takes over, and
        Undecodable.
        """
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._unanswered.add(limit)
                try:
                    answer = await self._bus.request(
                        self._subject, codec.pack(report), timeout=self._timeout_s
                    )
                finally:  # one that was left cannot be rescheduled
                    self._unanswered.discard(limit)
        except TimeoutError:
            raise Unavailable("a new leader has taken over") from None
        return codec.unpack(answer.data, ReportTaken)

    def warn(self, warnings: dict[str, str]) -> None:
        """Tell with each heartbeat what is misconfigured on this host."""
        self._heart.warnings = warnings

    def advance(self) -> None:
        """A change should be sent with an early heartbeat."""
        self._heart.advance(self._clock.steady_s())
        self._advanced.set()

    async def heartbeat(
        self,
        trouble: Callable[[], str],
        probes: Callable[[], tuple[ProbeResult, ...]],
        usage: Callable[[], tuple[LiveUsage, ...]],
        output_bytes: Callable[[], dict[int, int]],
    ) -> None:
        """Sends heartbeats until cancelled, once registered.

        Args:
            trouble: returns the fault of this host, empty when healthy. probes: the newest result
                of each.
            usage: what running attempts use. output_bytes: what they have stored, by job.
        """
        while True:
            while wait_s := self._heart.wait_s(self._clock.steady_s()):
                self._advanced.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._advanced.wait()
            now_s = self._clock.steady_s()
            now_ms = self._clock.wall_ms()
            heartbeat, lag_s = self._heart.heartbeat(
                self._agent.attempts(),
                now_s,
                now_ms,
                trouble(),
                probes=probes(),
                usage=usage(),
                timeouts=self._agent.timeouts(),
                output_bytes=output_bytes(),
                muted=self._agent.muted(),
            )
            self._metrics.heartbeat(lag_s)
            if self._registered:
                self._bus.publish(subjects.heartbeat(self._heart.worker), codec.pack(heartbeat))
