"""The shell of the worker: the only room here that waits and reads the clock.

It hands what arrives to the agent, has the workshop carry out what the agent wants, and tells the state service what
became of it, again and again until that is committed. Two reports may be under way at once, so that an end need not
wait for the answer to its start. Not in this room: any decision.
Source: architecture.md sections 2 and 3; semantics.md section 9.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from iris_bus.contract import Connection, Message, Unavailable
from iris_bus.run import Service
from iris_bus.telemetry import MetricsServer
from iris_core import codec, subjects
from iris_core.messages import AttemptRef, Ended, Order, Register, ReportTaken, Stage, WorkerReport
from iris_core.states import Cause
from iris_worker import descent, host, spawn
from iris_worker.agent import Agent, Discard, Instruction, Kill, Prepare
from iris_worker.bundle import BundleStore, digest_of
from iris_worker.childwatch import ChildWatch
from iris_worker.heartbeat import Heartbeat, Pulse
from iris_worker.logs import TICK_S, Batch
from iris_worker.manifest import BadBundle
from iris_worker.metrics import WorkerMetrics
from iris_worker.noop import NoopWorkshop
from iris_worker.reports import Pace
from iris_worker.settings import WorkerSettings
from iris_worker.workshop import Workshop

log = logging.getLogger(__name__)

T = TypeVar("T")

VERSION = "1"
_HANDS = 2
_PULSE_S = 0.25
_SAMPLE_EVERY = 20
_LAUNCHES = 4
_NOOP_LAUNCHES = 1000
_AGAIN_S = 0.2
_LAST_WORDS_S = 3.0
_TRIES = 3


class SystemClock:
    """Wall time for people, and time since boot, which goes on while the host sleeps, for everything else."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class InUse(Exception):
    """Another worker runs on the same data directory."""


class Worker:
    """One host."""

    def __init__(self, settings: WorkerSettings, connection: Connection, nats_url: str, stop: asyncio.Event) -> None:
        self.settings = settings
        self.id = host.worker_id(settings)
        self.agent = Agent(uuid.uuid4().hex)
        self.metrics = WorkerMetrics(self.agent.running)
        self._connection = connection
        self._bus = connection.bus
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._pulse = Pulse(settings.pause_s, settings.fresh_s)
        self._heart = Heartbeat(self.id, self.agent.incarnation, settings.beat_s)
        self._bundles = BundleStore(settings.root / "bundles", settings.bundle_limits, settings.bundles_kept)
        self._blobs = connection.blobs(subjects.BUNDLES_BUCKET)
        self._workshop: Workshop | NoopWorkshop = self._open_workshop()
        self._address = host.address(settings, nats_url)
        self._attributes = host.attributes(settings)
        self._total = host.total(settings)
        self._news = asyncio.Event()
        self._printed = asyncio.Event()
        self._pump_rests = False
        self._emptied = asyncio.Event()
        self._settled = False
        self._registered = False
        self._doubts = 0
        self._turn = asyncio.Lock()
        self._pace = Pace(settings.report_gap_s)
        self._launching = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetching: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fetches = asyncio.Semaphore(settings.bundles_at_once)
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._dropped = 0

    def _open_workshop(self) -> Workshop | NoopWorkshop:
        if self.settings.runner == "noop":
            return NoopWorkshop(self.agent, self._clock)
        return Workshop(self.settings, self.agent, self._clock, self._loop, self.metrics.started, self._told)

    @property
    def ready(self) -> bool:
        """Registered, and not in doubt."""
        return self._settled

    async def run(self) -> None:
        """Serve until told to stop, then stop everything that runs. Raises whatever ended it otherwise."""
        self._pulse.begin(self._clock.steady_s())
        children = ChildWatch()
        self._loop.add_reader(children.fd, self._reap, children)
        alive, ended, killed = self._workshop.recover()
        orders = await self._bus.subscribe(subjects.order(self.id), self._on_order)
        try:
            for _ in range(_HANDS):
                self._spawn(self._report())
            for work in (self._beat(), self._watch_pulse(), self._tell_logs()):
                self._spawn(work)
            log.info("started", extra={"worker": self.id, "alive": alive, "ended": ended, "killed": killed})
            self._news.set()
            stopping: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait({stopping, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if self._failed.done():
                self._failed.result()
            await self._drain()
        finally:
            await orders.close()
            await self._end_tasks()
            self._loop.remove_reader(children.fd)
            children.close()
            self._workshop.close()

    # ── orders ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_order(self, message: Message) -> None:
        try:
            order = codec.unpack(message.data, Order)
        except codec.Undecodable as error:
            log.error("an order that is none: %s", error)
            return
        if self._pulse.slept(self._clock.steady_s()):
            self._doubt("this process was stopped for a while")
        taken, todo = self.agent.on_order(order, self._clock.wall_ms())
        self._bus.publish(message.reply, codec.pack(taken))
        if taken.taken:
            self._pulse.touch(self._clock.steady_s())
        if order.register:
            self._registered = self._settled = False
        self._do(todo)

    def _do(self, todo: Iterable[Instruction]) -> None:
        """Carry out what the agent wants, and go on with what it may launch."""
        for one in todo:
            if isinstance(one, Kill):
                self._workshop.kill(one.ref, one.grace_ms)
            elif isinstance(one, Discard):
                self._workshop.discard(one.ref)
            else:
                self._spawn(self._prepare(one))
        self._launch_soon()
        self._told()

    def _launch_soon(self) -> None:
        if not self._launching:
            self._launching = True
            self._loop.call_soon(self._launch)

    def _launch(self) -> None:
        """Start a few attempts, then let others have their turn."""
        self._launching = False
        workshop, agent = self._workshop, self.agent
        for _ in range(_LAUNCHES if isinstance(workshop, Workshop) else _NOOP_LAUNCHES):
            if not self._pulse.may_launch(self._clock.steady_s()):
                self._doubt("no contact with the state service lately")
            held = agent.next_launch()
            if held is None:
                break
            workshop.launch(held)
            if held.template is not None and held.template.timeout_ms is not None:
                self._limit(held.ref, held.template.timeout_ms / 1000)
        else:
            self._launch_soon()
        self._told()

    def _limit(self, ref: AttemptRef, timeout_s: float) -> None:
        """The state service ends what runs past its timeout; should it not, this host does."""
        self._loop.call_later(timeout_s + self.settings.timeout_slack_s, lambda: self._do(self.agent.on_timeout(ref)))

    def _told(self) -> None:
        """End of a round: wake whoever has something to send now."""
        self._workshop.flush()
        if self.agent.reports or not self._settled:
            self._news.set()
        if self._workshop.logs.is_urgent or (self._pump_rests and len(self._workshop.logs)):
            self._printed.set()

    def _reap(self, children: ChildWatch) -> None:
        children.clear()
        self._workshop.reap()
        self._told()

    # ── bundles ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _prepare(self, ask: Prepare) -> None:
        """Have an attempt's bundle in its directory, or say why not. Bad archives are their owner's failure."""
        try:
            digest = digest_of(ask.template.bundle or "")
            async with self._fetches:
                await self._have(digest)
                if isinstance(self._workshop, Workshop):
                    workdir = self._workshop.prepare(ask.ref)
                    await self._timed("copy", asyncio.to_thread(self._bundles.copy, digest, workdir))
        except BadBundle as error:
            ended = Ended(Cause.EXITED, spawn.NOT_EXECUTABLE, error=f"bundle: {error}")
            self._do(self.agent.on_unprepared(ask.ref, ended, self._clock.wall_ms()))
        except (Unavailable, ValueError, OSError) as error:
            ended = Ended(Cause.INFRASTRUCTURE, error=f"bundle: {error}")
            self._do(self.agent.on_unprepared(ask.ref, ended, self._clock.wall_ms()))
        else:
            self._do(self.agent.on_prepared(ask.ref, self._clock.wall_ms()))

    async def _have(self, digest: str) -> None:
        """Fetch and unpack a bundle once, however many attempts want it. Raises BadBundle, Unavailable, OSError."""
        async with self._fetching[digest]:
            if self._bundles.has(digest):
                return
            data = await self._timed("download", self._download(digest))
            await self._timed("unpack", asyncio.to_thread(self._bundles.add, digest, data))

    async def _download(self, digest: str) -> bytes:
        for left in reversed(range(_TRIES)):
            try:
                data = await self._blobs.get(digest)
            except Unavailable:
                if not left:
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                if data is None:
                    raise OSError(f"{digest} is not in the store")
                return data
        raise AssertionError("the last try raises")

    async def _timed(self, step: str, work: Awaitable[T]) -> T:
        began_s = self._clock.steady_s()
        done = await work
        self.metrics.built(step, self._clock.steady_s() - began_s)
        return done

    # ── telling ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _report(self) -> None:
        """One hand: tells what there is to tell, for ever."""
        while True:
            async with self._turn:
                await self._news.wait()
                if not self._settled:
                    await self._settle()
                if wait_s := self._pace.wait_s(self._clock.steady_s()):
                    await asyncio.sleep(wait_s)
                stages = self.agent.reports.take()
                if not stages:
                    self._news.clear()
                    continue
                self._pace.spend(self._clock.steady_s(), len(self.agent))
            answer = await self._ask(WorkerReport(self.id, self.agent.incarnation, stages))
            if answer is not None and answer.known:
                self._taken(stages, answer)
            else:
                self.agent.on_untaken(stages)
                self._settled &= answer is None
                self._registered &= answer is None

    async def _settle(self) -> None:
        """Register, or end a doubt: tell everything, and trust orders again once that is answered."""
        while not self._settled:
            doubts, registered = self._doubts, self._registered
            stages = self.agent.tell_all()
            register = None if registered else self._registration(stages)
            report = WorkerReport(self.id, self.agent.incarnation, stages if registered else (), register)
            answer = await self._ask(report)
            if answer is None:
                continue
            self._registered = answer.known or not registered
            if self._registered and doubts == self._doubts:
                self._settled = True
                self.agent.in_doubt = False
                self._taken(stages, answer)

    def _registration(self, stages: tuple[Stage, ...]) -> Register:
        return Register(
            self.id,
            self.agent.incarnation,
            self._attributes,
            self._total,
            self._clock.wall_ms(),
            stages,
            self._address,
            VERSION,
        )

    async def _ask(self, report: WorkerReport) -> ReportTaken | None:
        """Tell the state service; None when it did not answer, after a moment's rest."""
        try:
            answer = await self._bus.request(
                subjects.STATE_REPORT, codec.pack(report), timeout=self.settings.report_timeout_s
            )
            taken = codec.unpack(answer.data, ReportTaken)
        except (Unavailable, codec.Undecodable) as error:
            log.info("a report was not taken: %s", error)
            self.metrics.reported(False)
            await asyncio.sleep(_AGAIN_S)
            return None
        self.metrics.reported(True)
        self._pulse.touch(self._clock.steady_s())
        return taken

    def _taken(self, stages: Sequence[Stage], answer: ReportTaken) -> None:
        todo = self.agent.on_taken(stages, answer, self._clock.wall_ms())
        self._workshop.acknowledged(stage.ref for stage in stages if stage.ended is not None)
        if not len(self.agent):
            self._emptied.set()
        self._do(todo)

    def _doubt(self, why: str) -> None:
        """Start nothing until the state service has said what still counts."""
        self._doubts += 1
        self._settled = False
        self._news.set()
        if not self.agent.in_doubt:
            self.agent.in_doubt = True
            log.warning("in doubt about orders: %s", why)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heart.wait_s(self._clock.steady_s()))
            trouble = host.trouble(self.settings.root)
            beat, lag_s = self._heart.beat(
                self.agent.attempts(), self._clock.steady_s(), self._clock.wall_ms(), trouble
            )
            self.metrics.beat(lag_s)
            if self._registered:
                self._bus.publish(subjects.beat(self.id), codec.pack(beat))

    async def _watch_pulse(self) -> None:
        """Notice having been stopped; now and then look at memory and delete what was thrown away."""
        rounds = 0
        while True:
            if self._pulse.tick(self._clock.steady_s()):
                self._doubt("this process was stopped for a while")
            rounds += 1
            workshop = self._workshop
            if isinstance(workshop, Workshop):
                if rounds % _SAMPLE_EVERY == 0:
                    workshop.runner.sample()
                if workshop.has_trash:
                    workshop.has_trash = False
                    await asyncio.to_thread(workshop.slots.empty_trash)
            await asyncio.sleep(_PULSE_S)

    # ── logs ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tell_logs(self) -> None:
        """Send what tasks print; ends that wait for it go first."""
        logs = self._workshop.logs
        while True:
            if not logs.is_urgent:
                self._pump_rests = not len(logs)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if self._pump_rests else TICK_S):
                        await self._printed.wait()
            self._pump_rests = False
            self._printed.clear()
            batch = logs.collect(self._clock.steady_s(), self._clock.wall_ms())
            if batch.messages or batch.ended:
                await self._send(batch)
                self._told()

    async def _send(self, batch: Batch) -> None:
        """Store a batch: the last message is acknowledged, and so are all before it on the same connection."""
        try:
            for subject, data in batch.messages[:-1]:
                self._bus.publish(subject, data)
            for subject, data in batch.messages[-1:]:
                await self._connection.streams.publish(subject, data)
        except Unavailable as error:
            log.warning("output could not be stored: %s", error)
            self._workshop.logs.unsent(batch)
            self._workshop.give_up_logs(self.settings.log_patience_s)
            await asyncio.sleep(_AGAIN_S)
        else:
            self._workshop.stored(batch)
            self.metrics.dropped(self._workshop.logs.dropped_bytes - self._dropped)
            self._dropped = self._workshop.logs.dropped_bytes

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _drain(self) -> None:
        """Stop everything that runs, and have its end told if anybody listens."""
        grace_s = self.settings.stop_grace_s
        self._do(self.agent.stop_all(round(grace_s * 1000), self._clock.wall_ms()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s + _LAST_WORDS_S):
                while len(self.agent):
                    self._emptied.clear()
                    await self._emptied.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _end_tasks(self) -> None:
        self._failed.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def lock(settings: WorkerSettings) -> int:
    """Have the data directory for ourselves, until this process ends. Raises InUse."""
    settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(settings.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InUse(f"another worker runs on {settings.root}") from None
    return descriptor


async def main(service: Service[WorkerSettings]) -> None:
    """Be a worker until the process is told to stop."""
    held = lock(service.settings)
    descent.become_subreaper()
    spawn.seal_inherited()
    connection = await service.connect()
    try:
        worker = Worker(service.settings, connection, service.nats.url, service.stop)
        metrics = MetricsServer(worker.metrics.registry, lambda: worker.ready)
        if service.run.metrics:
            await metrics.start(service.run.metrics)
        try:
            await worker.run()
        finally:
            await metrics.close()
    finally:
        await connection.close()
        os.close(held)
