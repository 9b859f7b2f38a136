"""The shell of the worker: passes messages to the agent, and the agent's instructions to the
executor.

Other parts of the shell wait for other services: reporter (the state service), log shipper (the log
stream), fetch (bundles). Out of scope: any decision.
Source: docs/ARCHITECTURE.md#storage, docs/ARCHITECTURE.md#the-path-of-one-job;
docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from iris_bus.contract import Connection, Message
from iris_core import codec, subjects
from iris_core.batching import Batcher
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Order, Register, ReportTaken, Stage
from iris_core.placement.constraints import DEVICE_TYPE, DEVICE_VARIANT
from iris_core.placement.limits import FRESH_CALLS
from iris_core.spec.jobs import NEEDS_RUNTIME, Attribute
from iris_core.states import KernelStatus, NoticeReason
from iris_service.boot import boot_id
from iris_service.directories import make_directory
from iris_service.lock import lock
from iris_service.run import Service
from iris_service.tracing import Tracer
from iris_service.version import VERSION
from iris_worker.agent.agent import Agent
from iris_worker.agent.heartbeat import HeartbeatSchedule, StallDetector, to_ms
from iris_worker.agent.instance import Notice
from iris_worker.agent.instructions import (
    Discard,
    Instruction,
    Kill,
    Notify,
    Prepare,
    RenewToken,
    SetTimeout,
)
from iris_worker.agent.spans import AttemptSpans
from iris_worker.attempt.artifacts.uploader import Uploader
from iris_worker.attempt.builder import Builder
from iris_worker.attempt.bundles.bundle import BundleStore
from iris_worker.attempt.bundles.fetch import Fetcher
from iris_worker.attempt.calls.files import CallFiles
from iris_worker.attempt.executions.server import ExecutionServer
from iris_worker.attempt.executor import Callbacks, Executor
from iris_worker.attempt.health.host_checks import HostChecks
from iris_worker.attempt.preparer import Preparer
from iris_worker.attempt.probes.prober import Prober
from iris_worker.attempt.shipper import LogShipper
from iris_worker.attempt.slots.isolation import Isolation, isolation
from iris_worker.attempt.slots.task_users import take_users
from iris_worker.attempt.timeouts import AttemptTimeouts
from iris_worker.background import BackgroundTasks
from iris_worker.clock import HostClock
from iris_worker.host import accelerators, host, metadata
from iris_worker.host.devices import Accelerators, Devices, share_of
from iris_worker.host.limits_in_force import warnings_of
from iris_worker.launcher.cgroups import limits
from iris_worker.launcher.starts import spawn
from iris_worker.metrics import WorkerMetrics
from iris_worker.service.host_watch import follow_runtime, warn_of_configuration
from iris_worker.service.recognition import recognise
from iris_worker.service.reporter import HANDS, Reporter
from iris_worker.service.start_trials import StartTrials
from iris_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_STALL_CHECK_S = 0.25
_LAST_WORDS_S = 2.0
_REPORTS_AT_ONCE = 4
_NOTICE_MARGIN_S = 5.0
"""Of the time that a notice leaves, for the ends and the last output of attempts to be reported."""


MUTED_OUTPUT = (
    "of its output only the end is stored: its user has stored as much today as the quota allows"
)


class WorkerService:
    """The worker of one host.

    Args:
        recognised: attributes of this host from `recognise`.

    Attributes:
        makes_executor: what executes its instructions.
    """

    makes_executor: ClassVar[type[Executor]] = Executor

    def __init__(
        self,
        settings: WorkerSettings,
        connection: Connection,
        nats_url: str,
        stop: asyncio.Event,
        tracer: Tracer | None = None,
        isolated: Isolation | None = None,
        recognised: Mapping[str, Attribute] = MappingProxyType({}),
    ) -> None:
        self.settings = settings
        self._isolation = isolated or Isolation()
        self.id = host.worker_id(settings)
        self.agent = Agent(uuid.uuid4().hex, settings.max_attempts)
        self.agent.checks_gangs = (
            bool(settings.check.command) and "before_gang" in settings.check.when
        )
        self.metrics = WorkerMetrics(self.agent.running)
        self._bus = connection.bus
        self._streams = connection.streams
        self._tracer = tracer or Tracer("worker")
        self._spans = AttemptSpans(self.id, lambda span: self._tracer.record(*span))
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks()
        self._clock = HostClock()
        self._stall_detector = StallDetector(settings.pause_s, settings.fresh_s)
        self._address = host.address(settings, nats_url)
        self._nats_url = nats_url
        self.reporter = self._open_reporter()
        self._prober = Prober(self._address, self._clock, self.metrics, self.reporter.advance)
        found = share_of(accelerators.find(), settings.accelerators)
        attributes = host.attributes(settings, found, recognised)
        self._about = (
            attributes,
            host.total(settings, found, str(attributes.get(DEVICE_VARIANT, ""))),
        )
        self.agent.room.total = self._about[1]
        slack_s = settings.timeout_slack_s
        self._timeouts = AttemptTimeouts(
            self._clock, slack_s, lambda ref: self._do(self.agent.on_timeout(ref))
        )
        self._checks = HostChecks(
            settings.check,
            self.id,
            self._clock,
            self._tasks.spawn,
            is_idle=lambda: not self.agent.running(),
            on_change=self.reporter.advance,
            on_end=self.metrics.checked,
        )
        self._executor = self._open_executor(found)
        self._shipper = self._open_shipper(connection)
        self._preparer = Preparer(
            self._executor,
            self._open_fetcher(connection),
            self._open_builder(),
            self._checks,
            on_detail=self._on_detail,
        )
        self._launching = False
        self._change = asyncio.Event()
        self._noticed = asyncio.Event()
        self._notice: Notice | None = None
        self._ends_s = 0.0

    def _open_executor(self, found: Accelerators) -> Executor:
        attributes, total = self._about
        return self.makes_executor(
            self.settings,
            self.agent,
            self._clock,
            self._prober,
            self._open_uploader(),
            Devices(str(attributes.get(DEVICE_TYPE, "")), total.chips, found),
            Callbacks(
                self.metrics.started,
                lambda: self._do(()),
                self._timeouts.begin,
                self._changed,
                gone=self._tasks.fail,
                health=self.reporter.advance,
            ),
            isolation=self._isolation,
            runtime=str(attributes.get(NEEDS_RUNTIME.key, "")),
            checks=self._checks,
        )

    def _open_uploader(self) -> Uploader:
        settings = self.settings
        limits = settings.artifact_limits
        timeout_s = settings.artifact_timeout_s
        at_once = settings.artifacts_at_once
        return Uploader(
            self.id, self._streams, limits, timeout_s, at_once=at_once, spawn=self._tasks.spawn
        )

    def _open_reporter(self) -> Reporter:
        settings = self.settings
        return Reporter(
            self.agent,
            HeartbeatSchedule(self.id, self.agent.incarnation, settings.heartbeat_interval_s),
            self._stall_detector,
            Batcher(settings.report_gap_s, _REPORTS_AT_ONCE),
            bus=self._bus,
            clock=self._clock,
            metrics=self.metrics,
            timeout_s=settings.report_timeout_s,
            registration=self._registration,
            on_taken=self._taken,
        )

    def _open_shipper(self, connection: Connection) -> LogShipper:
        retry_for_s = self.settings.log_timeout_s
        return LogShipper(
            self._executor.finisher,
            self._executor.logs,
            connection,
            self._clock,
            metrics=self.metrics,
            stall_detector=self._stall_detector,
            ask=self.reporter.ask,
            retry_for_s=retry_for_s,
        )

    def _open_fetcher(self, connection: Connection) -> Fetcher:
        settings = self.settings
        on_error = self._executor.starts.not_fetched
        store = BundleStore(
            settings.root / "bundles", settings.bundle_limits, settings.bundles_kept
        )
        blobs = connection.blobs(subjects.BUNDLES_BUCKET)
        calls = CallFiles(settings.root / "calls")
        return Fetcher(
            blobs,
            store,
            calls,
            settings.bundles_at_once,
            clock=self._clock,
            metrics=self.metrics,
            on_error=on_error,
        )

    def _open_builder(self) -> Builder:
        timeout_s = self.settings.build_timeout_s
        return Builder(
            self._executor,
            self.agent,
            self._clock,
            self.metrics,
            timeout_s=timeout_s,
            on_change=self._changed,
        )

    async def run(self) -> None:
        """Run until stopped, then stop all attempts. Raises the exception that ended it
        otherwise.
        """
        self._stall_detector.begin(self._clock.steady_s())
        alive, ended = await self._executor.recover()
        for one in (one for one in alive if one.pid and self._tracer.records):
            self._spans.adopted(one.ref, one.trace, one.task, one.at_ms)
        isolated = self._executor.requests.isolated
        cgroup = str(self._executor.cgroups)
        in_force = self._executor.requests.in_force
        if self.settings.detect:
            refusal = self._executor.call_memory.refusal
            fresh = f"process: {refusal}" if refusal else "memory"
            limits = in_force.attributes
            found = {"isolation": isolated.word, "cgroup": cgroup, **limits, FRESH_CALLS: fresh}
            self._about = ({**found, **self._about[0]}, self._about[1])
        about = {"worker": self.id, "alive": len(alive), "ended": ended, "cgroup": cgroup}
        log.info("started: %s", isolated.sentence, extra=about)
        orders = await self._bus.subscribe(subjects.order(self.id), self._on_order)
        executor = self._executor
        executions = ExecutionServer(
            self.settings,
            executor.attempts,
            executor.commands,
            executor.terminals,
            bus=self._bus,
            spawn=self._tasks.spawn,
        )
        await executions.subscribe(self.id)
        try:
            heartbeats = self.reporter.heartbeat(
                self._trouble,
                self._prober.results,
                lambda: self._executor.usage,
                executor.logs.output_bytes,
            )
            trials = StartTrials(executor, self.settings.failed_starts_retry_s).run()
            for work in (*(self.reporter.report() for _ in range(HANDS)), heartbeats, trials):
                self._tasks.spawn(work)
            for work in (
                self._watch_stalls(),
                self._shipper.run(),
                self._prober.run(),
                self._watch_notices(),
            ):
                self._tasks.spawn(work)
            self._tasks.spawn(self._checks.run())
            host = (
                self._address,
                self._nats_url,
                isolated.unscoped,
                self._executor.cgroups.version,
                dict(warnings_of(in_force, cgroup)),
            )
            self._tasks.spawn(warn_of_configuration(self.settings, self.reporter, *host))
            self._tasks.spawn(
                follow_runtime(self.settings, executor.containers, self.reporter, self._use_runtime)
            )
            self._changed()
            await self._tasks.until(self._stop, self._noticed)
            if self._noticed.is_set():
                await self._drain()
                await self._tasks.until(self._stop)
            await self._drain()
            await self._tasks.end()
            await self._leave()
        finally:
            await orders.close()
            self.reporter.close()
            executions.close()
            await self._tasks.end()
            self._tasks.close()
            self._executor.close()

    # ── orders ────────────────────────────────────────────────────────────────────────────────────

    def _on_order(self, message: Message) -> None:
        try:
            order = codec.unpack(message.data, Order)
        except codec.Undecodable as error:
            log.error("undecodable order: %s", error)
            return
        now_s = self._clock.steady_s()
        if self._stall_detector.slept(now_s):
            self.reporter.suspend("this process was stopped for a while")
        epoch = self.agent.epoch
        taken, todo = self.agent.on_order(order, self._clock.wall_ms(), to_ms(now_s))
        if 0 < epoch < self.agent.epoch:
            self.reporter.repeat()
        if message.reply:
            waits = (
                taken.taken
                and not order.is_awaited
                and not any(one.traceparent for one in order.templates)
            )
            self.reporter.answer(message.reply, taken, urgent=not waits)
        if taken.taken:
            self._stall_detector.touch(now_s)
            if self._tracer.records:
                self._spans.ordered(order, self._clock.wall_ms())
        if order.register:
            self.reporter.introduce()
        if taken.taken and order.muted is not None:
            self._mute(order.muted)
        self._do(todo)

    def _mute(self, muted: Iterable[int]) -> None:
        """Store nothing more of these jobs but the end of their output, and say so."""
        self.agent.mute(muted)
        jobs = self.agent.muted()
        logs = self._executor.logs
        for stage in self.agent.attempts():
            job = stage.ref.job
            if job in jobs - logs.muted and stage.status is KernelStatus.RUNNING:
                self.agent.on_detail(stage.ref, MUTED_OUTPUT, self._clock.wall_ms())
        logs.muted = jobs
        self._changed()

    def _do(self, todo: Iterable[Instruction]) -> None:
        """Execute the agent's instructions, and continue with its next launches."""
        for one in todo:
            if isinstance(one, Kill):
                self._executor.kill(one.ref, one.grace_ms, one.settle_ms, one.reason)
            elif isinstance(one, Notify):
                self._executor.notices.give(one.ref, one.reason)
            elif isinstance(one, Discard):
                self._executor.discard(one.ref)
            elif isinstance(one, RenewToken):
                self._executor.renew_token(one.ref, one.grant)
            elif isinstance(one, SetTimeout):
                self._timeouts.change(one)
                self._executor.notices.change(one)
            else:
                self._tasks.spawn(self._prepare(one))
        if not self._launching:
            self._launching = True
            self._loop.call_soon(self._launch)

    def _launch(self) -> None:
        """Start as many attempts as there is room for, then yield to other tasks."""
        self._launching = False
        executor = self._executor
        agent = self.agent
        for _ in range(executor.room):
            if not self._stall_detector.may_launch(self._clock.steady_s()) and agent.has_launches:
                self.reporter.suspend("no contact with the state service lately")
            held = agent.next_launch()
            if held is None:
                break
            executor.launch(held)
        else:
            if executor.room:
                self._do(())
        executor.flush()

    async def _prepare(self, ask: Prepare) -> None:
        """Provide what an attempt needs before it starts."""
        ended = await self._preparer.prepare(ask)
        now_ms = self._clock.wall_ms()
        if ended is None:
            self._do(self.agent.on_prepared(ask.ref, now_ms))
        elif self._executor.end_prepared(ask.ref, ended):
            self._executor.flush()
        else:
            self._do(self.agent.on_unprepared(ask.ref, ended, now_ms))

    def _on_detail(self, ref: AttemptRef, detail: str) -> None:
        self.agent.on_detail(ref, detail, self._clock.wall_ms())
        self._changed()

    def _changed(self) -> None:
        """End of a round: wake the tasks that may have something to send, and begin what has waited
        for others.
        """
        if self.agent.has_next:
            self._do(self.agent.begin_waiting(self._clock.wall_ms()))
        self.reporter.wake()
        self._shipper.wake()
        self._change.set()

    # ── reports ───────────────────────────────────────────────────────────────────────────────────

    def _registration(self, stages: tuple[Stage, ...]) -> Register:
        attributes, total = self._about
        incarnation = self.agent.incarnation
        since_boot_ms = to_ms(self._clock.steady_s())
        limit = self.settings.max_attempts
        return Register(
            self.id,
            incarnation,
            attributes,
            total,
            monotonic_ms=since_boot_ms,
            attempts=stages,
            address=self._address,
            version=VERSION,
            max_attempts=limit,
            boot=boot_id(),
            chains=True,
            trouble=self._trouble(),
        )

    def _taken(self, stages: Sequence[Stage], answer: ReportTaken) -> None:
        """A report is committed."""
        self._spans.committed(stages)
        todo = self.agent.on_taken(stages, answer, self._clock.wall_ms())
        ended = [stage.ref for stage in stages if stage.ended is not None]
        self._executor.acknowledged(ended)
        for ref in ended:
            self._timeouts.end(ref)
        self._do(todo)

    def _use_runtime(self, found: str) -> None:
        """Register again: the container runtime of this host has come or gone."""
        others = {
            name: value for name, value in self._about[0].items() if name != NEEDS_RUNTIME.key
        }
        self._about = (others | ({NEEDS_RUNTIME.key: found} if found else {}), self._about[1])
        self.reporter.introduce()

    def _trouble(self) -> str:
        return host.trouble(self.settings.root) or self._executor.trouble() or self._checks.trouble

    async def _watch_stalls(self) -> None:
        """Detect suspensions of this process; record what has happened, and delete discarded
        directories.
        """
        while True:
            if self._stall_detector.tick(self._clock.steady_s()):
                self.reporter.suspend("this process was stopped for a while")
            self.agent.hand_back(self._clock.wall_ms())
            self._changed()
            self._executor.flush_records()
            self._executor.watch.help(_STALL_CHECK_S)
            self._executor.slots.clean_unused()
            if (trash := self._executor.slots.trash).waits:
                await trash.empty(self._executor.flush_records)
            await asyncio.sleep(_STALL_CHECK_S)

    # ── shutdown ──────────────────────────────────────────────────────────────────────────────────

    async def _watch_notices(self) -> None:
        """A notice ends all attempts. When it is withdrawn this process ends; the next one takes
        work again.
        """
        url = metadata.server(self.settings.metadata_url)
        if not url:
            return
        async for notice in metadata.notices(url):
            if notice is None:
                log.warning("the notice is withdrawn")
                self._stop.set()
            elif self._notice is None:
                log.warning("notice: %s within %.0f s", notice.why, notice.within_s)
                self._notice, self._ends_s = notice, self._clock.steady_s() + notice.within_s
                self._noticed.set()

    async def _drain(self) -> None:
        """Stop all attempts, and report their ends if the state service answers; routes leave
        discovery before.
        """
        why = self._why()
        settle_s = self.agent.settle_ms() / 1000
        grace_s = self.settings.stop_grace_s
        if self._notice is not None:
            grace_s = max(0.0, self._ends_s - self._clock.steady_s() - settle_s - _NOTICE_MARGIN_S)
        self.agent.closing = True
        reported = self._tasks.spawn(self.reporter.leave("stopping", why, self._ends_s))
        if settle_s:
            await asyncio.wait({reported}, timeout=_LAST_WORDS_S)
        reason = self._notice.reason if self._notice is not None else NoticeReason.DRAIN
        self._do(self.agent.stop_all(round(grace_s * 1000), self._clock.wall_ms(), why, reason))
        if not await self._within(
            settle_s + grace_s + _STALL_CHECK_S, lambda: not self._executor.running
        ):
            self._executor.kill_all()
            await self._within(_LAST_WORDS_S, lambda: not self._executor.running)
        await self._within(_LAST_WORDS_S, lambda: not len(self.agent))

    def _why(self) -> str:
        """Why this worker leaves; empty: it was told to stop."""
        return (
            f"{self._notice.why}, {self._notice.within_s:.0f} s after notice"
            if self._notice is not None
            else ""
        )

    async def _leave(self) -> None:
        """Report that no attempt of this worker is left, once that is so; otherwise the missed
        heartbeats show it.
        """
        if not self._executor.running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self.reporter.leave("gone", self._why())

    async def _within(self, retry_for_s: float, done: Callable[[], bool]) -> bool:
        """Wait for a condition that may change at the end of a round; whether it came true in
        time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retry_for_s):
                while not done():
                    self._change.clear()
                    await self._change.wait()
        return done()


def lock_data(settings: WorkerSettings) -> int:
    """Lock the data directory until this process ends. Raises DirectoryInUse."""
    make_directory(settings.root)
    return lock(settings.root, f"another worker runs on {settings.root}")


async def main(service: Service[WorkerSettings], kind: type[WorkerService] = WorkerService) -> None:
    """Run a worker until the process is stopped."""
    isolated = isolation(service.settings, service.private_paths())
    held = lock_data(service.settings)
    if isolated.pool is not None:
        users = await take_users(isolated.pool, service.settings.root)
        isolated = replace(isolated, uids=users.users, users_lock=users.lock)
    limits.prepare_process(service.settings.core_bytes)
    spawn.close_inherited()
    service.disks.append(str(service.settings.root))
    connection = await service.connect()
    try:
        worker = kind(
            service.settings,
            connection,
            service.nats.url,
            service.stop,
            service.tracer,
            isolated,
            await recognise(service.settings),
        )
        await service.serve_metrics(worker.metrics.registry, lambda: worker.reporter.settled)
        await worker.run()
    finally:
        await connection.close()
        os.close(held)
