"""Executes the agent's instructions: processes, workspaces, output and the process store.

Nothing here waits. Out of scope: which instructions (agent), and when (the shell).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from iris_core.access import task_tokens
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, GivenNotice, LiveUsage, TaskGrant, TaskTemplate
from iris_core.states import Cause, NoticeReason
from iris_worker.agent.agent import Agent
from iris_worker.agent.local_attempt import LocalAttempt
from iris_worker.attempt.adoption import Adoption
from iris_worker.attempt.artifacts.uploader import Uploader
from iris_worker.attempt.beside import CommandsBeside
from iris_worker.attempt.builds.store import EnvironmentStore
from iris_worker.attempt.ends import INTERRUPTED, describe
from iris_worker.attempt.executions.terminals import Terminals
from iris_worker.attempt.finish import Finisher
from iris_worker.attempt.health.failed_starts import FailedStarts, needs_of
from iris_worker.attempt.health.host_checks import HostChecks
from iris_worker.attempt.health.launcher_watch import LauncherWatch
from iris_worker.attempt.images.containers import Containers
from iris_worker.attempt.notices import Notices, limit_s
from iris_worker.attempt.output.logs import OutputLogs
from iris_worker.attempt.probes.prober import Prober
from iris_worker.attempt.requests import StartRequests
from iris_worker.attempt.running import HostUse, RunningAttempt, RunningAttempts
from iris_worker.attempt.slots.confinement import Confinement
from iris_worker.attempt.slots.isolation import Isolation, owner_of, summary
from iris_worker.attempt.slots.ports import PortUse
from iris_worker.attempt.slots.workspaces import Workspace, Workspaces, write_token
from iris_worker.attempt.templates.preloading import Preloading
from iris_worker.attempt.templates.slot_templates import SlotTemplates
from iris_worker.clock import HostClock
from iris_worker.host import host
from iris_worker.host.devices import Devices
from iris_worker.launcher.cgroups import abandoned
from iris_worker.launcher.cgroups.files import CgroupSupport
from iris_worker.launcher.client import LauncherClient, LauncherGone
from iris_worker.launcher.records.process_table import StoredProcess
from iris_worker.launcher.records.records import (
    CommandExited,
    Confined,
    Exit,
    Exited,
    Gone,
    KillAll,
    LauncherAnswer,
    Measured,
    Pinged,
    SlotEmptied,
    Spawned,
    Started,
    StartProcess,
    StopProcess,
    StoreTrouble,
    TemplateState,
)
from iris_worker.launcher.templates.memory_library import LibraryBuilder
from iris_worker.settings import WorkerSettings

STARTS_AT_ONCE = 32
"""Requested of the launcher and not answered yet: enough to keep it busy, and few to begin on an
old order.
"""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What an executor calls.

    Attributes:
        started: with the seconds a start took. room: when `Executor.room` has grown.
        limited: with the seconds until an attempt has passed its timeout.
        change: at the end of each round in which there may be something to report.
        gone: when the launcher is gone; nothing can be started or stopped any more.
        health: when starts begin to fail, and when they do no longer.
    """

    started: Callable[[float], None]
    room: Callable[[], None]
    limited: Callable[[AttemptRef, float], None]
    change: Callable[[], None]
    gone: Callable[[LauncherGone], None]
    health: Callable[[], None]


class Executor:
    """Runs real processes, by a launcher.

    Args:
        prober: runs the probes of attempts. uploader: stores their output directories. devices: of
            this host.
        on: what is called.
        isolation: how tasks are to be confined.
        runtime: of this host's containers as the worker starts; empty: none. checks: of this host,
            if it has any.

    Attributes:
        attempts: those that have a directory. commands: what runs beside them. terminals: of those
            that have one.
        finisher: reports their ends. starts: that have failed.
        preloading: has templates made for them. notices: what they are told before they are
            stopped.
        requests: composes what the launcher is asked. watch: of the launcher. confinement: of what
            it starts.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        agent: Agent,
        clock: HostClock,
        prober: Prober,
        uploader: Uploader,
        devices: Devices,
        on: Callbacks,
        isolation: Isolation | None = None,
        runtime: str = "",
        checks: HostChecks | None = None,
    ) -> None:
        root = settings.root
        self.logs = OutputLogs(host.worker_id(settings), settings.log_limits)
        self.slots = Workspaces(root)
        self._tokens = abandoned.hold(self.slots.tokens, mode=0o711)
        self.environments = EnvironmentStore(
            root / "environments", settings.environment_limits, self.slots.trash.throw
        )
        self._agent = agent
        self._clock = clock
        self._prober = prober
        self._uploader = uploader
        self._on = on
        self._launcher = LauncherClient(root, self._on_answers, on.gone)
        self._settings = settings
        self._isolation = isolation or Isolation()
        self.confinement = Confinement(self._launcher, self._isolation)
        self._early: list[LauncherAnswer] | None = []
        self.containers = Containers(settings)
        self._runtime = runtime
        self.notices = Notices(self._launcher, agent, clock, self.flush)
        self._use = HostUse(PortUse(), devices, self.environments, prober, notices=self.notices)
        self.attempts = RunningAttempts()
        self.finisher = Finisher(
            agent,
            clock,
            self._launcher,
            uploader,
            attempts=self.attempts,
            logs=self.logs,
            slots=self.slots,
            flush=self.flush,
            checks=checks,
        )
        self.requests = StartRequests(
            settings,
            clock,
            self.containers,
            self._isolation,
            isolated=summary(self._isolation, trouble=""),
        )
        self._adoption = Adoption(
            agent,
            clock,
            self._use,
            self.attempts,
            containers=self.containers,
            logs=self.logs,
            slots=self.slots,
            finisher=self.finisher,
        )
        self.commands = CommandsBeside(self._launcher, self.attempts, self.containers)
        self.terminals = Terminals(self._launcher, self.attempts, settings.terminal_silent_s)
        self.starts = FailedStarts(settings.failed_starts_limit, on.health)
        self.watch = LauncherWatch(settings, self._launcher, self.attempts, clock)
        self.slot_templates = SlotTemplates(self._launcher.send_now, self._isolation.uid_of)
        self.call_memory = LibraryBuilder(
            settings.root / "library", is_wanted=settings.restored_calls != "off"
        )
        self.preloading = Preloading(
            self._launcher,
            agent,
            clock,
            self.requests,
            attempts=self.attempts,
            logs=self.logs,
            slots=self.slot_templates,
            memory=self.call_memory,
            timeout_s=settings.build_timeout_s,
            on_change=self.flush,
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            Confined: self.confinement.on_confined,
            Spawned: self._on_spawned,
            Exited: self._on_exited,
            CommandExited: self.commands.on_exited,
            StoreTrouble: self.watch.on_trouble,
            Pinged: self.watch.on_pinged,
            Measured: self.attempts.on_measured,
            TemplateState: self.preloading.on_state,
            SlotEmptied: self.slot_templates.on_emptied,
        }

    # ── restarts of the worker ────────────────────────────────────────────────────────────────────

    async def recover(self) -> tuple[tuple[Started, ...], int]:
        """Adopt the attempts of the previous worker process; returns those that run, and how many
        have ended.

        Raises LauncherGone, OSError, BadSetting.
        """
        entries = await self._launcher.connect()
        self.requests.isolated = await self.confinement.begin(self.slots)
        self.requests.use_groups(self.cgroups)
        self.slot_templates.begin(
            empties=self._isolation.confines, outlived=self._launcher.outlived
        )
        alive, ended = self._adoption.adopt(entries, self._runtime, self._watch_adopted)
        early = self._early or []
        self._early = None
        self._on_answers(early)
        return alive, ended

    def _watch_adopted(self, attempt: RunningAttempt, entry: StoredProcess) -> None:
        started = entry.started
        self._watch(
            attempt,
            started,
            started.before_s,
            self._clock.wall_ms() - started.at_ms,
            notices=entry.notices,
        )
        if entry.is_build:  # the order that says what to start afterwards is lost
            attempt.on_build = lambda exit_: self._interrupted(attempt)
            self.kill(attempt.ref, 0, 0)
        if entry.exit is not None and attempt.container is not None:
            self._on_exited(Exited(attempt.ref, entry.exit))

    # ── the agent's instructions ──────────────────────────────────────────────────────────────────

    def launch(self, held: LocalAttempt) -> None:
        """Request the start of an attempt's process. An error becomes the attempt's end, never an
        exception.
        """
        template = held.template
        if template is None:
            return
        if (attempt := self.attempts.prepared(held.ref)) is not None:
            self._launch(held, template, attempt)
            return
        slot = self.slots.numbers.reserve()
        if (emptied := self.slot_templates.empty(slot, held.ref.job, template.user)) is None:
            if (attempt := self._give(slot, held, template)) is not None:
                self._launch(held, template, attempt)
        else:
            emptied.add_done_callback(
                lambda emptied: self._give_emptied(slot, held, template, emptied.result())
            )

    def _give_emptied(
        self, slot: int, held: LocalAttempt, template: TaskTemplate, trouble: str
    ) -> None:
        """A slot is empty: its attempt is launched when launches are allowed. With ``trouble``
        nobody gets the slot.
        """
        if trouble:
            self.slots.numbers.spoil(slot)
            self._agent.on_ended(
                held.ref, self.starts.refused(OSError(trouble)), self._clock.wall_ms()
            )
        elif held.stopping is not None:
            self.slots.numbers.give(slot)
            ended = Ended(held.stopping, error="stopped before it started")
            self._agent.on_ended(held.ref, ended, self._clock.wall_ms())
        elif self._give(slot, held, template) is not None:
            self._agent.postpone(held)
            self._on.room()
        self.flush()

    def _give(self, slot: int, held: LocalAttempt, template: TaskTemplate) -> RunningAttempt | None:
        """An attempt with an empty slot; None: it has ended."""
        try:
            return self._take(held.ref, template.user, slot)
        except OSError as error:
            self._agent.on_ended(held.ref, self.starts.refused(error), self._clock.wall_ms())
            return None

    def _launch(self, held: LocalAttempt, template: TaskTemplate, attempt: RunningAttempt) -> None:
        began_s = self._clock.steady_s()
        attempt.launched, attempt.needs = True, needs_of(template)
        if not self.logs.follows(held.ref):  # its environment was built, with output
            self.logs.follow(attempt.slot, began_s)
        attempt.slot.output = template.output
        attempt.slot.ends_s = 0.0
        attempt.slot.call = template.calls is not None
        try:
            if template.terminal:
                self.terminals.give(attempt)
            attempt.slot.give_directory()
            request = self.requests.of_task(held, template, attempt, began_s)
        except OSError as error:
            self.finisher.end(attempt, self.starts.refused(error, attempt.needs))
            return
        self.notices.launch(request.record, attempt.slot)
        self._start(attempt, request)

    def _start(self, attempt: RunningAttempt, request: StartProcess) -> None:
        self.attempts.requested(attempt, request)
        self.slots.begun(attempt.slot)
        self._launcher.send(request)

    def build(
        self, attempt: RunningAttempt, request: StartProcess, on_end: Callable[[Exit], None]
    ) -> None:
        """Run what builds the environment of a prepared attempt or pulls its image; its output is
        the beginning of the attempt's.
        """
        self.logs.follow(attempt.slot, self._clock.steady_s())
        attempt.on_build = on_end
        self._start(attempt, request)
        self.flush()

    @property
    def cgroups(self) -> CgroupSupport:
        """The control groups of attempts."""
        return self._launcher.cgroups if self._settings.cgroups else CgroupSupport(trouble="set so")

    @property
    def room(self) -> int:
        """How many attempts may be launched now."""
        return STARTS_AT_ONCE - self.attempts.starting

    def _on_answers(self, answers: Iterable[LauncherAnswer]) -> None:
        """What is said of attempts before they are adopted waits for that."""
        for answer in answers:
            if self._early is None or isinstance(answer, Confined):
                self._handlers[type(answer)](answer)
            else:
                self._early.append(answer)
        self.flush()

    def _on_spawned(self, spawned: Spawned) -> None:
        ref = spawned.ref
        now_s = self._clock.steady_s()
        attempt = self.attempts.by_ref[ref]
        attempt.pid = spawned.pid
        started = self.attempts.answered(attempt)
        if attempt.on_build is None and started is not None:
            notes = (attempt.fresh or spawned.note, attempt.interpreter)
            self._agent.on_started(ref, spawned.at_ms, "; ".join(filter(None, notes)))
            self._on.started(now_s - started.after_s)
            self.starts.started(attempt.needs)
            self._watch(attempt, started, spawned.before_s)
        self._on.room()

    def _watch(
        self,
        attempt: RunningAttempt,
        started: Started,
        before_s: float,
        ran_ms: int | None = None,
        notices: Sequence[GivenNotice] = (),
    ) -> None:
        """Limit the time of a process, give its notices, and probe it, until it has ended.
        ``ran_ms``, ``notices``: of one that is adopted.
        """
        if (longest_s := limit_s(started)) is not None:
            self._on.limited(started.ref, longest_s - (ran_ms or 0) / 1000)
        self.notices.begin(started, attempt.slot, before_s, notices)
        if (stored := started.probe) is not None:
            probe = stored.probe
            ports = started.ports
            start = partial(self.commands.probe, started.ref, stored)
            serves = ports.get(stored.serves or probe.port, 0)
            adopted = ran_ms is not None
            self._prober.begin(
                started.ref,
                probe,
                ports.get(probe.port, 0),
                serves,
                user=attempt.slot.user,
                start=start,
                began_s=started.after_s,
                adopted=adopted,
            )

    def renew_token(self, ref: AttemptRef, grant: TaskGrant) -> None:
        """Replace the token of a running attempt; what fails is tried again by the next renewal."""
        if (attempt := self.attempts.living(ref)) is not None:
            with contextlib.suppress(OSError):
                write_token(attempt.slot, task_tokens.token(grant, ref))

    def kill(
        self, ref: AttemptRef, grace_ms: int, settle_ms: int, reason: NoticeReason | None = None
    ) -> None:
        """Stop an attempt; ``reason``: of a notice that takes the place of its stop signal, where
        its job has one.
        """
        left_s = (grace_ms + settle_ms) / 1000
        if (
            self.finisher.skip_check(ref)
            or self._uploader.limit(ref, left_s)
            or self.preloading.kill(ref)
        ):
            return
        if (attempt := self.attempts.living(ref)) is not None:
            attempt.slot.ends_s = self._clock.steady_s() + left_s
        noticed = reason is not None and self.notices.give(ref, reason, left_s)
        self._launcher.send(StopProcess(ref, grace_ms, settle_ms, noticed))

    def kill_all(self) -> None:
        """Kill all processes at once, without a grace period."""
        self._uploader.end_all()
        self._launcher.send_now(KillAll())

    @property
    def running(self) -> int:
        """Attempts with a process that has not ended, or is being started, or of which something is
        being stored.
        """
        return self.attempts.alive + len(self._uploader)

    async def prepare(self, ref: AttemptRef, user: str = "", *, shares: bool = False) -> Workspace:
        """The directory for the bundle of an attempt of the submitting ``user``, not given to it.
        Raises OSError.

        ``shares``: it may have a slot together with others of its job.
        """
        self.finisher.make_way(ref.job)
        slot = self.slots.numbers.reserve(ref.job if shares else 0)
        if (emptied := self.slot_templates.empty(slot, ref.job, user)) is not None and (
            trouble := await emptied
        ):
            self.slots.numbers.spoil(slot)
            raise OSError(trouble)
        return self._take(ref, user, slot).slot

    def _take(self, ref: AttemptRef, user: str, slot: int) -> RunningAttempt:
        """An attempt with this slot, which belongs to the user it runs as. Raises OSError."""
        attempt = self.attempts.add(RunningAttempt(self.slots.take(ref, slot), self._use))
        attempt.slot.user = user
        try:
            attempt.slot.give_files_to(owner_of(self._isolation.sandbox(attempt.slot.number, user)))
        except OSError:
            self.finisher.discard(attempt)
            raise
        return attempt

    def discard(self, ref: AttemptRef) -> None:
        """Delete what was prepared for an attempt that will not start."""
        if self.end_prepared(ref, Ended(Cause.CANCELLED)):
            return
        self.environments.release(ref)
        if (attempt := self.attempts.prepared(ref)) is not None:
            self.finisher.discard(attempt)

    def _interrupted(self, attempt: RunningAttempt) -> None:
        """The build of an earlier worker process has ended."""
        if directory := attempt.environment:
            self.environments.discard(directory)
        self.finisher.end(attempt, INTERRUPTED)

    def end_prepared(self, ref: AttemptRef, ended: Ended) -> bool:
        """End a prepared attempt with output of its build; False when it has none."""
        attempt = self.attempts.prepared(ref)
        if attempt is None or not self.logs.follows(ref):
            return False
        self.finisher.end(attempt, ended)
        return True

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def _on_exited(self, exited: Exited) -> None:
        attempt = self.attempts.by_ref[exited.ref]
        if attempt.container is not None:
            container = attempt.container
            attempt.container = None
            self.containers.collect(
                container, exited.exit, lambda ended: self._on_answers([Exited(exited.ref, ended)])
            )
            return
        self.attempts.exited(attempt)
        self.starts.exited(exited.exit, attempt.needs)
        if exited.exit.full:
            self.slots.numbers.retire(attempt.slot.number)
        exit_ = attempt.blamed or exited.exit
        attempt.blamed = None
        attempt.usage = None
        if attempt.on_exit is not None:
            attempt.on_exit(exit_)
        on_build = attempt.on_build
        attempt.on_build = None
        was_starting = self.attempts.answered(attempt) is not None
        if on_build is not None:
            if exit_.code == 0:  # the next record of the attempt is that of its own process
                self._launcher.record(Gone((attempt.ref,)))
            on_build(exit_)
        elif attempt.leaves_output(exit_):
            self.finisher.store(attempt, describe(attempt.slot, exit_))
        else:
            self.finisher.end(attempt, describe(attempt.slot, exit_))
        if was_starting:
            self._on.room()

    def acknowledged(self, refs: Iterable[AttemptRef]) -> None:
        """Ends are committed: drop the attempts."""
        self._launcher.record(Gone(tuple(refs)))

    @property
    def usage(self) -> tuple[LiveUsage, ...]:
        """What running attempts use, as it was measured last."""
        measured = (attempt.usage for attempt in self.attempts.all_living())
        return (*(live for live in measured if live is not None), *self.containers.usage)

    def trouble(self) -> str:
        """The fault of this host, empty when it is healthy; also pings the launcher, and tries once
        more to delete what could not be deleted.
        """
        faults = (
            self.watch.ask(),
            self.finisher.trouble(),
            self.containers.trouble,
            self.slots.trouble,
        )
        return next(filter(None, faults), self.starts.trouble)

    def flush(self) -> None:
        """End of a round: send what the launcher is to do."""
        self._launcher.flush()
        self._on.change()

    def flush_records(self) -> bool:
        """Have the launcher record what has happened since the last call: at intervals, as it is
        woken for it; False: it takes no more now.
        """
        return self._launcher.flush_records()

    def close(self) -> None:
        self.containers.close()
        self._launcher.close()
        self.slots.close({attempt.slot.below for attempt in self.attempts.all_living()})
        os.close(self._tokens)
        self.commands.close()
