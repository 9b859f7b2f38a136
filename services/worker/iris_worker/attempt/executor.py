"""Executes the agent's instructions: processes, workspaces, output and the process store.

Nothing here waits. Out of scope: which instructions (agent), and when (the shell).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import math
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from iris_core import task_tokens
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact, Ended, LiveUsage, Stage, TaskGrant, TaskTemplate
from iris_core.resources import ResourceRequest
from iris_core.states import Cause
from iris_core.units import show_bytes
from iris_service.settings import BadSetting
from iris_worker.agent import host
from iris_worker.agent.agent import Agent, LocalAttempt, end_stage
from iris_worker.attempt import environment
from iris_worker.attempt.artifacts.directory import make_directory
from iris_worker.attempt.artifacts.uploader import Uploader
from iris_worker.attempt.builds.plan import BuildPlan
from iris_worker.attempt.builds.store import EnvironmentStore
from iris_worker.attempt.devices import Devices
from iris_worker.attempt.ends import INTERRUPTED, cannot_start, describe, was_started
from iris_worker.attempt.images.containers import Containers, client_environment
from iris_worker.attempt.isolation import Isolation, allow_task_users, owner_of, summary
from iris_worker.attempt.output.logs import Batch, OutputLogs
from iris_worker.attempt.output.tail import last_lines
from iris_worker.attempt.ports import PortUse
from iris_worker.attempt.probes.prober import Prober
from iris_worker.attempt.workspaces import (
    ERROR_FILE,
    Workspace,
    Workspaces,
    write_host_file,
    write_token,
)
from iris_worker.clock import HostClock
from iris_worker.launcher import rescue
from iris_worker.launcher.cgroup_files import Cgroup
from iris_worker.launcher.client import LauncherClient, LauncherGone
from iris_worker.launcher.limits import Limits, group_limits, memory_limits, process_limits
from iris_worker.launcher.records import (
    STOPS_OTHERS,
    CgroupSupport,
    CommandExited,
    Confine,
    Confined,
    Exit,
    Exited,
    Gone,
    KillAll,
    LauncherAnswer,
    Measured,
    Over,
    Pinged,
    PingLauncher,
    Read,
    SignalCommand,
    SpawnCommand,
    Spawned,
    Started,
    StartProcess,
    StopProcess,
    StoredContainer,
    StoredEnvironment,
    StoredProbe,
    StoredProcess,
    StoreTrouble,
)
from iris_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

STARTS_AT_ONCE = 32
"""Requested of the launcher and not answered yet: enough to keep it busy, and few to begin on an old order."""
_REPLACED_AFTER = 5
"""After so many times the silence that is a fault of the host, a launcher is replaced."""
_CONFINE_S = 30.0
_JOBS_KEPT = 100
"""Jobs whose environment is cached, of up to 256 KiB each."""


@dataclass(slots=True)
class AttemptReport:
    """An attempt that has ended and whose output is not stored completely; its end is reported afterwards."""

    slot: Workspace
    ended: Ended
    since_s: float


class Executor:
    """Runs real processes, by a launcher.

    Args:
        prober: runs the probes of attempts. uploader: stores their output directories. devices: of this host.
        on_started: called with the seconds a start took.
        on_room: called when `room` has grown.
        on_limited: called with the seconds until an attempt has passed its timeout.
        on_change: called at the end of each round in which there may be something to report.
        on_gone: called when the launcher is gone; nothing can be started or stopped any more.
        isolation: how tasks are to be confined.
        runtime: of this host's containers as the worker starts; empty: none.

    Attributes:
        isolated: how they are.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        agent: Agent,
        clock: HostClock,
        prober: Prober,
        uploader: Uploader,
        devices: Devices,
        on_started: Callable[[float], None],
        on_room: Callable[[], None],
        on_limited: Callable[[AttemptRef, float], None],
        on_change: Callable[[], None],
        on_gone: Callable[[LauncherGone], None],
        isolation: Isolation | None = None,
        runtime: str = "",
    ) -> None:
        root = settings.root
        worker = host.worker_id(settings)
        self.logs = OutputLogs(worker, settings.log_limits)
        self.slots = Workspaces(root)
        self.environments = EnvironmentStore(root / "environments", settings.environment_limits, self._throw)
        self.has_trash = False
        self._trouble = ""
        self._silent_after_s = settings.pause_s
        self._pinged_s: float | None = None
        self._silent_s = 0.0
        self._blamed: dict[AttemptRef, Exit] = {}
        self._agent = agent
        self._clock = clock
        self._prober = prober
        self._uploader = uploader
        self._devices = devices
        self._on_started = on_started
        self._on_room = on_room
        self._on_limited = on_limited
        self._on_change = on_change
        self._launcher = LauncherClient(root, self._on_answers, on_gone)
        self._settings = settings
        self._isolation = isolation or Isolation()
        self.isolated = summary(self._isolation, "")
        self._confined: asyncio.Future[Confined] = asyncio.get_running_loop().create_future()
        self._place = environment.Place(worker, settings.gateway_url, host.variables(self._isolation.confines))
        self._in_image = environment.Place(worker, settings.gateway_url, {})
        self.containers, self._runtime = Containers(settings), runtime
        self._contained: dict[AttemptRef, StoredContainer] = {}
        self._shared: dict[int, dict[str, str]] = {}
        self._ports = PortUse()
        self._prepared: dict[AttemptRef, Workspace] = {}
        self._usage: dict[AttemptRef, LiveUsage] = {}
        self._starting: dict[AttemptRef, Started] = {}
        self._running: dict[AttemptRef, Workspace] = {}
        self._builds: dict[AttemptRef, Callable[[Exit], None]] = {}
        self._null = os.open(os.devnull, os.O_RDWR)
        self._numbers = itertools.count(1)
        self._commands: dict[int, Callable[[Exit], None]] = {}
        self._probing: dict[AttemptRef, int] = {}
        self._report: dict[AttemptRef, AttemptReport] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            Confined: self._on_confined,
            Spawned: self._on_spawned,
            Exited: self._on_exited,
            CommandExited: self._on_command_exited,
            StoreTrouble: self._on_trouble,
            Measured: self._on_measured,
            Pinged: self._on_pinged,
        }

    # ── restarts of the worker ──────────────────────────────────────────────────────────────────────────────────

    async def recover(self) -> tuple[int, int]:
        """Adopt the attempts of the previous worker process; returns how many run, and how many have ended.

        Raises LauncherGone, OSError, BadSetting.
        """
        entries = await self._launcher.connect()
        await self._confine()
        ended = {ref: entry for ref, entry in entries.items() if entry.has_ended}
        alive = {ref: entry for ref, entry in entries.items() if ref not in ended}
        self.slots.begin(
            {entry.started.slot for entry in entries.values() if entry.over is None},
            {entry.started.slot for entry in ended.values() if not entry.reused},
        )
        self.has_trash = True
        self.environments.begin(
            (ref, entry.started.environment.directory) for ref, entry in alive.items() if entry.started.environment
        )
        self.containers.begin((entry.started for entry in alive.values()), self._runtime)
        for ref, entry in alive.items():
            self._adopt(ref, entry)
        for ref, entry in ended.items():
            self._adopt_end(ref, entry)
        self._launcher.flush()
        return len(alive), len(ended)

    async def _confine(self) -> None:
        """Have the launcher confine what it starts, as far as this host allows. Raises LauncherGone, BadSetting."""
        wanted = structs.replace(self._isolation.wanted, tokens=self.slots.tokens)
        confined = await self._try(wanted)
        trouble = confined.error or self._isolation.trouble
        if trouble and self._isolation.required:
            raise BadSetting(f"[worker] sandbox: it is required, and cannot be made: {trouble}")
        if trouble and wanted.bubblewrap:
            confined = await self._try(structs.replace(wanted, bubblewrap=()))
        if self._isolation.changes_user and (trouble or not wanted.bubblewrap):
            allow_task_users(self.slots.attempts)
        self.isolated = summary(self._isolation, trouble, confined.unscoped)

    async def _try(self, wanted: Confine) -> Confined:
        self._confined = asyncio.get_running_loop().create_future()
        self._launcher.send(wanted)
        self._launcher.flush()
        try:
            async with asyncio.timeout(_CONFINE_S):
                return await self._confined
        except TimeoutError:
            raise LauncherGone("the launcher does not confine tasks; end the tasks of its older version") from None

    def _on_confined(self, confined: Confined) -> None:
        self._confined.set_result(confined)

    def _adopt(self, ref: AttemptRef, entry: StoredProcess) -> None:
        slot = self._running[ref] = self.slots.open(ref, entry.started.slot, entry.started.directory)
        slot.output = entry.started.output
        probe = entry.started.probe
        self._agent.adopt(was_started(entry), settle_ms=probe.settle_ms if probe is not None else 0)
        self.logs.follow(slot, self._clock.steady_s(), entry.positions)
        self._ports.hold(ref, entry.started.ports.values())
        self._devices.hold(ref, entry.started.devices)
        if entry.started.timeout_ms is not None:
            self._on_limited(ref, (entry.started.at_ms + entry.started.timeout_ms - self._clock.wall_ms()) / 1000)
        if probe is not None:
            self._probe(entry.started, probe, adopted=True)
        if entry.is_build:  # the order that says what to start afterwards is lost
            self._builds[ref] = lambda exit_: self._interrupted(slot)
            self.kill(ref, 0, 0)
        if entry.started.container is not None:
            self._contained[ref] = entry.started.container
            if entry.exit is not None:
                self._on_exited(Exited(ref, entry.exit))

    def _adopt_end(self, ref: AttemptRef, entry: StoredProcess) -> None:
        """Report an end with the registration, and send the output that is not stored yet."""
        self._ports.hold(ref, entry.started.ports.values())
        self._ports.free(ref, self._clock.steady_s())
        stage = entry.over
        if entry.reused and stage is not None:
            self._agent.adopt(was_started(entry), stage)
            return
        slot = self.slots.open(ref, entry.started.slot, entry.started.directory)
        slot.output = entry.started.output
        self.logs.follow(slot, self._clock.steady_s(), entry.positions)
        if stage is None and entry.exit is not None and slot.output and not (entry.is_build or entry.exit.error):
            self._agent.adopt(was_started(entry))
            self._store(slot, describe(slot, entry.exit))
            return
        if stage is None and entry.exit is not None:
            stage = self._over(slot, INTERRUPTED if entry.is_build else describe(slot, entry.exit))
        assert stage is not None
        assert stage.ended is not None
        self._agent.adopt(was_started(entry), stage)
        self._finish(slot, stage.ended)

    # ── the agent's instructions ────────────────────────────────────────────────────────────────────────────────

    def launch(self, held: LocalAttempt) -> None:
        """Request the start of an attempt's process. An error becomes the attempt's end, never an exception."""
        template = held.template
        if template is None:
            return
        began_s = self._clock.steady_s()
        try:
            slot = self._prepared.pop(held.ref, None) or self._take(held.ref, template.user)
        except OSError as error:
            self._agent.on_ended(held.ref, cannot_start(error), self._clock.wall_ms())
            return
        if not self.logs.follows(held.ref):  # its environment was built, with output
            self.logs.follow(slot, began_s)
        slot.output, slot.ends_s = template.output, 0.0
        try:
            limits, cgroup = self._limits(template.resources)
            ports = self._take_ports(held, template.ports)
            device = template.resources.device
            devices = self._devices.assign(held.ref, device.count if device is not None else 0)
            in_image = template.environment is not None and template.environment.image != ""
            env = self._environment(held, template, slot, ports, in_image)
            env |= self._devices.variables(devices, hidden=in_image or self.isolated.sandboxed)
            files = self._devices.files(devices)
            sandbox = self._isolation.sandbox(slot.number, template.user, files)
        except OSError as error:
            self._end(slot, cannot_start(error))
            return
        directory = self.environments.used_by(held.ref)
        if directory and sandbox is not None:
            sandbox = structs.replace(sandbox, reads=(self.environments.path(directory),))
        started = Started(
            *(held.ref, 0, slot.number, began_s, 0.0, self._clock.wall_ms()),
            *(template.timeout_ms, ports, stored_probe(template, env, limits), devices),
            environment=StoredEnvironment(directory) if directory else None,
            sandbox=sandbox,
            output=slot.output,
            directory=slot.directory,
        )
        request = StartProcess(started, template.command, env, limits, cgroup)
        if in_image:
            try:
                request = self.containers.contain(request, template, slot, files)
            except OSError as error:
                self._end(slot, cannot_start(error))
                return
        self._start(slot, request)

    def _start(self, slot: Workspace, request: StartProcess) -> None:
        self._starting[slot.ref], self._running[slot.ref] = request.record, slot
        if request.record.container is not None:
            self._contained[slot.ref] = request.record.container
        self._launcher.send(request)

    def build(
        self, ref: AttemptRef, template: TaskTemplate, plan: BuildPlan, place: Path, on_end: Callable[[Exit], None]
    ) -> None:
        """Run the build of a prepared attempt's environment in ``place``; it has the limits of the attempt, and its
        output is the beginning of the attempt's. Raises OSError.
        """
        slot, now_s = self._prepared[ref], self._clock.steady_s()
        sandbox, home = self._isolation.sandbox(slot.number, template.user), dict[str, str]()
        if sandbox is not None:
            sandbox = structs.replace(sandbox, writes=(str(place),))
            home = environment.personal(slot.workdir, self._isolation.name(template.user))
        self.logs.follow(slot, now_s)
        started = Started(
            *(ref, 0, slot.number, now_s, 0.0, self._clock.wall_ms(), None),
            sandbox=sandbox,
            environment=StoredEnvironment(place.name, building=True),
            directory=slot.directory,
        )
        env = environment.of_build(self._place.host, home, plan.variables, slot.workdir, f"{place}/venv")
        limits, cgroup = self._limits(template.resources)
        self._builds[ref] = on_end
        self._start(slot, StartProcess(started, (*plan.command, f"{place}/workdir"), env, limits, cgroup))
        self.flush()

    def pull(self, ref: AttemptRef, command: tuple[str, ...], on_end: Callable[[Exit], None]) -> None:
        """Run the command that pulls the image of a prepared attempt; its output is the beginning of the attempt's."""
        slot, now_s = self._prepared[ref], self._clock.steady_s()
        self.logs.follow(slot, now_s)
        started = Started(
            *(ref, 0, slot.number, now_s, 0.0, self._clock.wall_ms(), None),
            environment=StoredEnvironment("", building=True),
            directory=slot.directory,
        )
        self._builds[ref] = on_end
        self._start(slot, StartProcess(started, command, client_environment(slot.workdir)))
        self.flush()

    def owner(self, ref: AttemptRef, template: TaskTemplate) -> tuple[int, int] | None:
        """User and group that a prepared attempt's processes run as; None for the worker's. Raises OSError."""
        return owner_of(self._isolation.sandbox(self._prepared[ref].number, template.user))

    @property
    def cgroups(self) -> CgroupSupport:
        """The control groups of attempts."""
        return self._launcher.cgroups if self._settings.cgroups else CgroupSupport(trouble="set so")

    def _limits(self, ask: ResourceRequest) -> tuple[Limits, Cgroup | None]:
        """The limits of each process of an attempt, and of its control group."""
        found, how = self.cgroups, self._settings.limit_memory
        limits = memory_limits(ask) if how == "rlimit" and "memory" not in found.controllers else ()
        if "pids" not in found.controllers and self._isolation.has_users(self.isolated.sandboxed):
            limits += process_limits(self._settings.pids_limit)
        if found.trouble:
            return limits, None
        return limits, group_limits(ask, self._settings.pids_limit, memory=how != "off")

    @property
    def room(self) -> int:
        """How many attempts may be launched now."""
        return STARTS_AT_ONCE - len(self._starting)

    def _on_answers(self, answers: Iterable[LauncherAnswer]) -> None:
        for answer in answers:
            self._handlers[type(answer)](answer)
        self.flush()

    def _on_spawned(self, spawned: Spawned) -> None:
        ref, now_s = spawned.ref, self._clock.steady_s()
        started = self._starting.pop(ref)
        if ref in self._builds:
            self._on_room()
            return
        self._agent.on_started(ref, spawned.at_ms)
        self._on_started(now_s - started.after_s)
        if started.timeout_ms is not None:
            self._on_limited(ref, started.timeout_ms / 1000)
        if started.probe is not None:
            self._probe(started, started.probe)
        self._on_room()

    def _probe(self, started: Started, stored: StoredProbe, adopted: bool = False) -> None:
        """Probe a process until it has ended."""
        probe, ports = stored.probe, started.ports
        start = partial(self._start_probe, started.ref, stored)
        serves = ports.get(stored.serves or probe.port, 0)
        self._prober.begin(started.ref, probe, ports.get(probe.port, 0), serves, start, started.after_s, adopted)

    def _start_probe(
        self, ref: AttemptRef, stored: StoredProbe, stderr: int, on_end: Callable[[Exit], None]
    ) -> Callable[[], None]:
        """Start the command of an attempt's probe; returns what kills it. Raises OSError."""
        if self._probing.get(ref) in self._commands:
            raise OSError("the last probe could not be killed")
        stdio = (self._null, self._null, stderr)
        number = self.start_command(ref, stored.probe.command, stdio, on_end, env=stored.env, limits=stored.limits)
        self._probing[ref] = number
        return partial(self.signal_command, number, signal.SIGKILL)

    def start_command(
        self,
        ref: AttemptRef,
        command: tuple[str, ...],
        stdio: Sequence[int],
        on_end: Callable[[Exit], None],
        *,
        env: dict[str, str],
        limits: Limits = (),
        inherits: bool = False,
        tty: bool = False,
    ) -> int:
        """Start a command beside an attempt, with its own descriptors; returns its number. Raises OSError.

        ``inherits``: its environment is that of the attempt's process, and ``env`` on top.
        """
        if ref not in self._running or ref in self._starting:
            raise ProcessLookupError("the task does not run here")
        if (container := self._contained.get(ref)) is not None:
            command, env = self.containers.beside(container, command, env, self._running[ref], tty=tty)
            limits, inherits = (), False
        number = next(self._numbers)
        self._launcher.send_with(SpawnCommand(ref, number, command, env, limits, inherits, tty), stdio)
        self._commands[number] = on_end
        return number

    def signal_command(self, number: int, signal_number: int) -> None:
        """Signal the group of such a command; nothing when it has ended."""
        if number in self._commands:
            self._launcher.send(SignalCommand(number, signal_number))
            self._launcher.flush()

    def _on_command_exited(self, exited: CommandExited) -> None:
        if (on_end := self._commands.pop(exited.number, None)) is not None:
            on_end(exited.exit)

    def _take_ports(self, held: LocalAttempt, names: tuple[str, ...]) -> dict[str, int]:
        """An attempt's ports by name; the first of a gang also reserves its gang's coordinator port. Raises OSError."""
        now_s = self._clock.steady_s()
        reserved = []
        if held.gang is not None and held.ref.index == 0:
            port = environment.coordinator_port(held.gang)
            check_coordinator_port(port, self._ports.rest_s(port, now_s))
            reserved.append(port)
        ports = host.free_ports(names, lambda port: self._ports.rest_s(port, now_s)) if names else {}
        if names or reserved:
            self._ports.hold(held.ref, (*ports.values(), *reserved))
        return ports

    def _environment(
        self, held: LocalAttempt, template: TaskTemplate, slot: Workspace, ports: dict[str, int], in_image: bool
    ) -> dict[str, str]:
        shared = self._shared.get(held.ref.job)
        if shared is None:
            if len(self._shared) >= _JOBS_KEPT:
                self._shared.clear()
            shared = self._shared[held.ref.job] = environment.common(
                self._in_image if in_image else self._place, template
            )
        if in_image or self._isolation.confines:
            shared = environment.personal(slot.workdir, self._isolation.name(template.user)) | shared
        env = environment.own(shared, held.ref, slot.workdir, f"{slot.workdir}/{ERROR_FILE}", ports)
        if template.traceparent:
            env.setdefault("TRACEPARENT", template.traceparent)
        if held.gang is not None:
            hosts = write_host_file(slot, environment.host_lines(held.gang, template.resources))
            env |= environment.gang_words(held.gang, held.ref.index, hosts)
        if slot.output:
            env[environment.OUTPUT_VARIABLE] = make_directory(slot.workdir, slot.output)
        if template.grant is not None:
            token = task_tokens.token(template.grant, held.ref)
            write_token(slot, token)
            env |= environment.token_variables(shared, token, slot.token_file)
        if directory := self.environments.used_by(held.ref):
            env |= environment.virtual(env["PATH"], f"{self.environments.path(directory)}/venv")
        return env

    def renew_token(self, ref: AttemptRef, grant: TaskGrant) -> None:
        """Replace the token of a running attempt; what fails is tried again by the next renewal."""
        if (slot := self._running.get(ref)) is not None:
            with contextlib.suppress(OSError):
                write_token(slot, task_tokens.token(grant, ref))

    def kill(self, ref: AttemptRef, grace_ms: int, settle_ms: int) -> None:
        left_s = (grace_ms + settle_ms) / 1000
        if self._uploader.limit(ref, left_s):
            return
        if (slot := self._running.get(ref)) is not None:
            slot.ends_s = self._clock.steady_s() + left_s
        self._launcher.send(StopProcess(ref, grace_ms, settle_ms))

    def kill_all(self) -> None:
        """Kill all processes at once, without a grace period."""
        self._uploader.end_all()
        self._launcher.send(KillAll())
        self._launcher.flush()

    @property
    def running(self) -> int:
        """Attempts with a process that has not ended, or is being started, or of which something is being stored."""
        return len(self._running) + len(self._uploader)

    def prepare(self, ref: AttemptRef, user: str = "") -> str:
        """The directory for the bundle of an attempt of the submitting ``user``. Raises OSError."""
        slot = self._prepared[ref] = self._take(ref, user)
        return slot.workdir

    def _take(self, ref: AttemptRef, user: str) -> Workspace:
        """A slot that belongs to the user the attempt runs as. Raises OSError."""
        slot = self.slots.take(ref)
        try:
            slot.give_to(owner_of(self._isolation.sandbox(slot.number, user)))
        except OSError:
            self._clean(slot)
            self._give(slot)
            raise
        return slot

    def discard(self, ref: AttemptRef) -> None:
        """Delete what was prepared for an attempt that will not start."""
        if self.end_prepared(ref, Ended(Cause.CANCELLED)):
            return
        self.environments.release(ref)
        slot = self._prepared.pop(ref, None)
        if slot is not None:
            self._clean(slot)
            self._give(slot)

    def with_tail(self, ref: AttemptRef, ended: Ended) -> Ended:
        """The end of a prepared attempt with the last lines of its build."""
        return structs.replace(ended, stderr_tail=last_lines(self._prepared[ref].err))

    def _interrupted(self, slot: Workspace) -> None:
        """The build of an earlier worker process has ended."""
        if directory := self.environments.used_by(slot.ref):
            self.environments.discard(directory)
        self._end(slot, INTERRUPTED)

    def _throw(self, path: str) -> None:
        self.slots.throw(path)
        self.has_trash = True

    def end_prepared(self, ref: AttemptRef, ended: Ended) -> bool:
        """End a prepared attempt with output of its build; False when it has none."""
        if not self.logs.follows(ref) or ref not in self._prepared:
            return False
        self._end(self._prepared.pop(ref), ended)
        return True

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_exited(self, exited: Exited) -> None:
        ref = exited.ref
        if (container := self._contained.pop(ref, None)) is not None:
            self.containers.collect(container, exited.exit, partial(self._on_collected, ref))
            return
        slot = self._running.pop(ref)
        exited = Exited(ref, self._blamed.pop(ref, exited.exit))
        self._usage.pop(ref, None)
        if (on_end := self._builds.pop(ref, None)) is not None:
            if exited.exit.code == 0:  # the next record of the attempt is that of its own process
                self._launcher.record(Gone((ref,)))
            on_end(exited.exit)
        elif slot.output and not exited.exit.error:
            self._store(slot, describe(slot, exited.exit))
        else:
            self._end(slot, describe(slot, exited.exit))
        if self._starting.pop(ref, None) is not None:
            self._on_room()

    def _on_collected(self, ref: AttemptRef, exit_: Exit) -> None:
        """The container of an attempt is gone."""
        self._on_exited(Exited(ref, exit_))
        self.flush()

    def _store(self, slot: Workspace, ended: Ended) -> None:
        """Store the output directory of an attempt whose processes have ended; its end is reported afterwards.

        One that is stopped has for it what is left of its grace period.
        """
        ref = slot.ref
        self._agent.on_exited(ref)
        said, done = partial(self._on_measured_output, ref), partial(self._on_stored, slot, ended)
        self._uploader.begin(ref, slot.workdir, slot.output, said, done)
        if slot.ends_s:
            self._uploader.limit(ref, max(0.0, slot.ends_s - self._clock.steady_s()))

    def _on_measured_output(self, ref: AttemptRef, size: int) -> None:
        self._agent.on_detail(ref, f"{show_bytes(size)} of output are being stored", self._clock.wall_ms())
        self.flush()

    def _on_stored(self, slot: Workspace, ended: Ended, artifact: Artifact) -> None:
        self._end(slot, structs.replace(ended, artifact=artifact))
        self.flush()

    def _end(self, slot: Workspace, ended: Ended) -> None:
        """An attempt has ended: report it at once when it has no output, otherwise when its output is stored."""
        self._prober.end(slot.ref)
        self._probing.pop(slot.ref, None)
        self._ports.free(slot.ref, self._clock.steady_s())
        self._devices.free(slot.ref)
        self.environments.release(slot.ref)
        self._over(slot, self._agent.as_reported(slot.ref, ended))
        self._finish(slot, ended)

    def _over(self, slot: Workspace, ended: Ended) -> Stage:
        """Take the directories of an attempt that has ended away, and record its end as it is reported."""
        self._clean(slot)
        stage = end_stage(slot.ref, ended, self._clock.wall_ms())
        self._launcher.record(Over(stage))
        return stage

    def _finish(self, slot: Workspace, ended: Ended) -> None:
        if self.logs.finish(slot.ref):
            self._agent.on_ended(slot.ref, ended, self._clock.wall_ms())
            self._give(slot)
        else:
            self._report[slot.ref] = AttemptReport(slot, ended, self._clock.steady_s())

    def _give(self, slot: Workspace) -> None:
        self.slots.give(slot)
        self.has_trash = True

    def _clean(self, slot: Workspace) -> None:
        try:
            self.slots.clean(slot)
        except OSError as error:
            self._trouble = f"attempts: {error.strerror}"
            slot.broken = True

    def stored(self, batch: Batch) -> None:
        """A batch of output is stored: report the ends that waited for it."""
        self._launcher.record(*(Read(*position) for position in self.logs.stored(batch)))
        for tail in batch.ended:
            self._reported(tail.ref, tail.dropped)
        self.flush()

    def give_up_logs(self, before_s: float) -> int:
        """Report the ends that have waited for their output since before this time without it; returns how many."""
        late = [ref for ref, report in self._report.items() if report.since_s < before_s]
        for ref in late:
            self._reported(ref, self.logs.forget(ref))
        self.flush()
        return len(late)

    def _reported(self, ref: AttemptRef, dropped_bytes: int) -> None:
        report = self._report.pop(ref, None)
        if report is not None:
            ended = structs.replace(report.ended, dropped_bytes=dropped_bytes)
            self._agent.on_ended(ref, ended, self._clock.wall_ms())
            self._give(report.slot)

    def acknowledged(self, refs: Iterable[AttemptRef]) -> None:
        """Ends are committed: drop the attempts."""
        self._launcher.record(Gone(tuple(refs)))

    def _on_measured(self, measured: Measured) -> None:
        self._usage |= {live.ref: live for live in measured.usage if live.ref in self._running}

    @property
    def usage(self) -> tuple[LiveUsage, ...]:
        """What running attempts use, as it was measured last."""
        return (*self._usage.values(), *self.containers.usage)

    def _on_trouble(self, trouble: StoreTrouble) -> None:
        self._trouble = trouble.text

    def trouble(self) -> str:
        """The fault of this host, empty when it is healthy; also pings the launcher."""
        now_s = self._clock.steady_s()
        if self._pinged_s is None:
            self._pinged_s = now_s
            self._launcher.send(PingLauncher())
            self._launcher.flush()
        silent_s = now_s - self._pinged_s
        if silent_s > self._silent_after_s:
            return f"the launcher has not answered for {silent_s:.0f} s"
        return self._trouble or self.containers.trouble or self.slots.trouble

    def watch_launcher(self, interval_s: float) -> None:
        """Help a launcher that does not answer. To be called at intervals: a pause of this process is no silence of it.

        The attempt for which a stopped process was being started ends as its owner's failure. A launcher that nothing
        helps is ended, and with it this process; the next one adopts the attempts.
        """
        if self._pinged_s is not None:
            self._silent_s += interval_s
        if self._silent_s < self._silent_after_s:
            return
        if self._silent_s >= _REPLACED_AFTER * self._silent_after_s:
            log.error("the launcher has not answered for %.0f s and is replaced", self._silent_s)
            rescue.end(self._settings.root)
            return
        slots = rescue.resume(self._settings.root)
        for slot in [one for one in self._running.values() if one.number in slots]:
            log.error("a task stops what is started beside it, and is ended", extra={"attempt": str(slot.ref)})
            self._blamed[slot.ref] = Exit(128 + signal.SIGKILL, error=STOPS_OTHERS)
            self._launcher.send(StopProcess(slot.ref, 0, 0))
            self._launcher.flush()

    def _on_pinged(self, pinged: Pinged) -> None:
        self._pinged_s, self._silent_s = None, 0.0

    def flush(self) -> None:
        """End of a round: send what the launcher is to do."""
        self._launcher.flush()
        self._on_change()

    def flush_records(self) -> None:
        """Have the launcher record what has happened since the last call: at intervals, as it is woken for it."""
        self._launcher.flush_records()

    def close(self) -> None:
        self.containers.close()
        self._launcher.close()
        self.slots.close()
        os.close(self._null)


def stored_probe(template: TaskTemplate, env: dict[str, str], limits: Limits) -> StoredProbe | None:
    """The probe of a route as stored for the next worker process; only a command needs the environment."""
    probe = template.probe
    if probe is None:
        return None
    stored = StoredProbe(probe, template.serves, settle_ms=template.settle_ms)
    if probe.kind != "command":
        return stored
    return structs.replace(stored, env={**env, environment.PROBE_VARIABLE: "1"}, limits=limits)


def check_coordinator_port(port: int, rest_s: float) -> None:
    """The first of a gang is to listen on a port that all members know already. Raises OSError when it is taken.

    Args:
        rest_s: infinite while an attempt of this worker has it, which may not listen yet; see `PortUse`.
    """
    if rest_s == math.inf or not host.is_free(port):
        raise OSError(
            errno.EADDRINUSE, f"port {port}, its gang's coordinator port, is in use; another attempt has another"
        )
