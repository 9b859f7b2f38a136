"""Composes the requests by which the launcher starts the processes of attempts."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from iris_core.access import task_tokens
from iris_core.messages.state_worker import TaskTemplate
from iris_core.spec.resources import ResourceRequest
from iris_service.settings import BadSetting
from iris_worker import environment
from iris_worker.agent.local_attempt import LocalAttempt
from iris_worker.attempt.artifacts.directory import make_directory
from iris_worker.attempt.builds.plan import BuildPlan
from iris_worker.attempt.calls.interpreter import PYTHON, CallUser, Interpreter, choose_interpreter
from iris_worker.attempt.images.containers import Containers, client_environment
from iris_worker.attempt.notices import NOTICE_FILE
from iris_worker.attempt.running import RunningAttempt
from iris_worker.attempt.slots.error_file import ERROR_FILE
from iris_worker.attempt.slots.isolation import Isolated, Isolation
from iris_worker.attempt.slots.workspaces import write_host_file, write_token
from iris_worker.clock import HostClock
from iris_worker.host import host
from iris_worker.host.limits_in_force import (
    SAMPLED,
    LimitsInForce,
    limits_in_force,
    refusal,
)
from iris_worker.launcher.cgroups.files import Cgroup, CgroupSupport
from iris_worker.launcher.cgroups.limits import (
    Limits,
    group_limits,
    memory_limits,
    process_limits,
    sampled_limit,
)
from iris_worker.launcher.records.records import (
    Sandbox,
    Started,
    StartProcess,
    StartTemplate,
    StoredEnvironment,
    StoredProbe,
)
from iris_worker.launcher.starts.sandbox import TRIED
from iris_worker.launcher.templates.memory_library import NO_LIBRARY, MemoryLibrary
from iris_worker.settings import WorkerSettings

BARE_KEY = "bare/"
"""How the keys of bare templates begin."""
_SEARCHED = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
_JOBS_KEPT = 100
"""Jobs whose environment is cached, of up to 256 KiB each."""

_INTERPRETER_S = 10.0
"""For so long a choice holds: interpreters come and go."""
_INTERPRETERS = 1000


class StartRequests:
    """What is to be started for an attempt.

    Attributes:
        cgroups: what the launcher has said of its control groups. isolated: how tasks are confined.

    Raises BadSetting for a ``ca_file`` that cannot be used.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        clock: HostClock,
        containers: Containers,
        isolation: Isolation,
        isolated: Isolated,
    ) -> None:
        self.cgroups = CgroupSupport()
        self.isolated = isolated
        self._settings, self._ports = settings, settings.ports()
        self._clock = clock
        self._containers = containers
        self._isolation = isolation
        own = host.variables(isolation.confines)
        self._place = environment.Place(
            worker=host.worker_id(settings),
            gateway_url=settings.gateway_url,
            host=own,
            ca=host.authority(settings.ca_file),
        )
        self._in_image = replace(self._place, host={})
        self._shared: dict[int, dict[str, str]] = {}
        self._interpreters: dict[tuple[str, CallUser, str], tuple[Interpreter, float]] = {}

    @property
    def confines(self) -> bool:
        """Whether tasks have a sandbox, or another user than the worker."""
        return self._isolation.confines

    @property
    def in_force(self) -> LimitsInForce:
        """Which limits hold the tasks of this host, and by what."""
        sandboxed = self.isolated.sandboxed
        return limits_in_force(
            self.cgroups.controllers,
            self._settings.limit_memory,
            self._settings.pids_limit,
            users=self._isolation.has_users(sandboxed),
            sandboxed=sandboxed,
        )

    def of_task(
        self, held: LocalAttempt, template: TaskTemplate, attempt: RunningAttempt, began_s: float
    ) -> StartProcess:
        """The request for the process of an attempt; it has its ports and devices then. Raises
        OSError.
        """
        slot = attempt.slot
        use = attempt.use
        limits, cgroup = self._limits(template.resources)
        ports = self._take_ports(held, template.ports, attempt)
        device = template.resources.device
        devices = use.devices.assign(held.ref, device.count if device is not None else 0)
        check_devices(use.devices.own_files(devices))
        in_image = template.environment is not None and template.environment.image != ""
        env = self._environment(held, template, attempt, ports, in_image=in_image)
        env |= use.devices.variables(devices, hidden=in_image or self.isolated.sandboxed)
        files = use.devices.files(devices)
        sandbox = self.sandbox(attempt, template, files)
        directory = attempt.environment
        started = Started(
            held.ref,
            0,
            slot.number,
            began_s,
            before_s=0.0,
            at_ms=self._clock.wall_ms(),
            timeout_ms=template.timeout_ms,
            ports=ports,
            probe=stored_probe(template, env, limits),
            devices=devices,
            environment=StoredEnvironment(directory) if directory else None,
            sandbox=sandbox,
            output=slot.output,
            directory=slot.directory,
            call=slot.call,
            trace=template.traceparent,
            task=f"{template.name}/{held.ref.index}" if template.traceparent else "",
            stop_signal=template.stop_signal
            or (signal.SIGHUP if template.terminal else signal.SIGTERM),
            early=slot.previous_output_pending,
            terminal=template.terminal,
            notice=template.notice,
            deadline_s=held.gang.deadline_ms / 1000 if held.gang is not None else 0.0,
            sampled_limit_bytes=sampled_limit(template.resources)
            if self.in_force.memory == SAMPLED and not in_image
            else 0,
            user=template.user,
        )
        reuse = template.calls.reuse if template.calls is not None else 1
        command = template.command
        if not in_image:
            command, attempt.interpreter = self._command(attempt, template, env, sandbox)
        request = StartProcess(
            started,
            command,
            env,
            limits,
            cgroup=cgroup,
            template=attempt.template,
            reuse=reuse,
            restores=template.calls is not None and template.calls.restores_memory,
        )
        return self._containers.contain(request, template, slot, files) if in_image else request

    def sandbox(
        self, attempt: RunningAttempt, template: TaskTemplate, files: tuple[str, ...] = ()
    ) -> Sandbox | None:
        """How an attempt's processes are confined. ``files``: of its devices. Raises OSError."""
        sandbox = self._isolation.sandbox(attempt.slot.number, template.user, files)
        if attempt.environment and sandbox is not None:
            return structs.replace(
                sandbox, reads=(attempt.use.environments.path(attempt.environment),)
            )
        return sandbox

    def of_template(
        self,
        key: str,
        attempt: RunningAttempt,
        template: TaskTemplate,
        library: MemoryLibrary = NO_LIBRARY,
    ) -> StartTemplate:
        """The request for a template; its variables are those that all attempts of the job have.

        ``library``: by which its clones restore their memory. The key of the bare one that it is
        made from tells what those have in common that may share it: the user who has submitted
        them, and all that a process gets when it starts. Raises OSError.
        """
        slot, (limits, cgroup) = attempt.slot, self._limits(template.resources)
        env = environment.common(self._place, template)
        if self._isolation.confines:
            env = environment.personal(slot.workdir, self._isolation.name(template.user)) | env
        if directory := attempt.environment:
            env |= environment.virtual(
                env["PATH"], f"{attempt.use.environments.path(directory)}/venv"
            )
        sandbox = self.sandbox(attempt, template)
        command, _ = self._command(attempt, template, env, sandbox)
        shared = {name: value for name, value in env.items() if name not in environment.OF_A_JOB}
        job = template.job if is_relative(command[0], env) else None
        same = repr(
            (
                job,
                template.user,
                command[0],
                sorted(shared.items()),
                limits,
                cgroup,
                sandbox,
            )
        ).encode()
        bare = f"{BARE_KEY}{hashlib.sha256(same).hexdigest()}" + (
            f"/{slot.number}" if sandbox is not None else ""
        )
        return StartTemplate(
            key or bare,
            slot.number,
            slot.below,
            command,
            env=env,
            preload=template.preload,
            function=template.calls is not None,
            limits=limits,
            cgroup=cgroup,
            sandbox=sandbox,
            accelerators=attempt.use.devices.all_files,
            bare=bare,
            restores=template.calls is not None and template.calls.restores_memory,
            library=library.path,
            no_library=library.why,
            checks=self._settings.restored_calls == "checked",
            user=template.user,
        )

    def of_build(
        self, attempt: RunningAttempt, template: TaskTemplate, plan: BuildPlan, place: Path
    ) -> StartProcess:
        """The request for the build of an attempt's environment in ``place``. Raises OSError."""
        slot = attempt.slot
        sandbox = self._isolation.sandbox(slot.number, template.user)
        home = dict[str, str]()
        if sandbox is not None:
            sandbox = structs.replace(sandbox, writes=(str(place),))
            home = environment.personal(slot.workdir, self._isolation.name(template.user))
        started = structs.replace(
            self._preparing(attempt),
            sandbox=sandbox,
            environment=StoredEnvironment(place.name, building=True),
        )
        env = environment.of_build(
            self._place.host, home, plan.variables, slot.workdir, f"{place}/venv"
        )
        limits, cgroup = self._limits(template.resources)
        return StartProcess(
            started, (*plan.command, f"{place}/workdir"), env, limits, cgroup=cgroup
        )

    def of_pull(self, attempt: RunningAttempt, command: tuple[str, ...]) -> StartProcess:
        """The request for the command that pulls an attempt's image."""
        started = structs.replace(
            self._preparing(attempt), environment=StoredEnvironment("", building=True)
        )
        return StartProcess(started, command, client_environment(attempt.slot.workdir))

    @property
    def any_user(self) -> str:
        """A submitting user whose tasks run here."""
        return self._isolation.any_user

    def of_trial(self, attempt: RunningAttempt) -> StartProcess:
        """The request for a program that does nothing, started as those of tasks are. Raises
        OSError.
        """
        check_devices(attempt.use.devices.own_files(attempt.use.devices.every))
        sandbox = self._isolation.sandbox(attempt.slot.number, self.any_user)
        started = structs.replace(
            self._preparing(attempt),
            sandbox=sandbox,
            environment=StoredEnvironment("", building=True),
        )
        limits, cgroup = self._limits(ResourceRequest())
        return StartProcess(started, TRIED, dict(self._place.host), limits, cgroup=cgroup)

    def _preparing(self, attempt: RunningAttempt) -> Started:
        """The record of a process that runs before the attempt's own."""
        slot = attempt.slot
        now_s = self._clock.steady_s()
        return Started(
            slot.ref,
            0,
            slot.number,
            now_s,
            before_s=0.0,
            at_ms=self._clock.wall_ms(),
            timeout_ms=None,
            directory=slot.directory,
            early=slot.previous_output_pending,
        )

    def use_groups(self, cgroups: CgroupSupport) -> None:
        """Limit tasks by these control groups. Raises BadSetting where limits have to be enforced
        and are not.
        """
        settings = self._settings
        wanted = self._settings.require_limits
        self.cgroups = cgroups
        if wanted == "auto":
            limits = settings.cgroups and settings.limit_memory != "off"
            wanted = limits and self._isolation.changes_user
        if wanted and (words := refusal(self.in_force, str(cgroups), settings.pids_limit)):
            raise BadSetting(words)

    def _command(
        self,
        attempt: RunningAttempt,
        template: TaskTemplate,
        env: Mapping[str, str],
        sandbox: Sandbox | None,
    ) -> tuple[tuple[str, ...], str]:
        """The command of a task, and a note when another interpreter runs a call than it names."""
        if template.calls is None or template.command[0] != PYTHON or attempt.environment:
            return template.command, ""  # no other has the packages of an environment
        # a sandbox of bubblewrap has directories of its own above what it binds: who may enter
        # those of the host says nothing there
        has_host_paths = sandbox is not None and not self.isolated.sandboxed
        user = CallUser()
        if sandbox is not None and has_host_paths:
            user = CallUser(sandbox.uid, sandbox.gid or 0, sandbox.groups)
        key = (env.get("PATH", ""), user, attempt.slot.code_version)
        now_s = self._clock.steady_s()
        found, until_s = self._interpreters.get(key, (Interpreter(PYTHON), 0.0))
        if now_s >= until_s:
            found = choose_interpreter(*key)
            if len(self._interpreters) >= _INTERPRETERS:
                self._interpreters.clear()
            self._interpreters[key] = found, now_s + _INTERPRETER_S
        return (found.program, *template.command[1:]), found.note

    def _limits(self, ask: ResourceRequest) -> tuple[Limits, Cgroup | None]:
        """The limits of each process of an attempt, and of its control group."""
        found = self.cgroups
        how = self._settings.limit_memory
        limits = memory_limits(ask) if how == "rlimit" and "memory" not in found.controllers else ()
        if "pids" not in found.controllers and self._isolation.has_users(self.isolated.sandboxed):
            limits += process_limits(self._settings.pids_limit)
        if found.trouble:
            return limits, None
        return limits, group_limits(ask, self._settings.pids_limit, memory=how != "off")

    def _take_ports(
        self, held: LocalAttempt, names: tuple[str, ...], attempt: RunningAttempt
    ) -> dict[str, int]:
        """An attempt's ports by name; the first of a gang also reserves its gang's coordinator
        port. Raises OSError.
        """
        now_s = self._clock.steady_s()
        use = attempt.use.ports
        reserved = []
        if held.gang is not None and held.ref.index == 0:
            for port in environment.gang_ports(held.gang):
                check_coordinator_port(port, use.rest_s(port, now_s))
                reserved.append(port)

        def rest_s(port: int) -> float:
            return math.inf if port in reserved else use.rest_s(port, now_s)

        ports = host.free_ports(names, self._ports, rest_s) if names else {}
        if names or reserved:
            use.hold(held.ref, (*ports.values(), *reserved))
        return ports

    def _environment(
        self,
        held: LocalAttempt,
        template: TaskTemplate,
        attempt: RunningAttempt,
        ports: dict[str, int],
        in_image: bool,
    ) -> dict[str, str]:
        shared = self._shared.get(held.ref.job)
        slot = attempt.slot
        if shared is None:
            if len(self._shared) >= _JOBS_KEPT:
                self._shared.clear()
            shared = self._shared[held.ref.job] = environment.common(
                self._in_image if in_image else self._place, template
            )
        if in_image or self._isolation.confines:
            shared = (
                environment.personal(slot.workdir, self._isolation.name(template.user)) | shared
            )
        env = environment.own(
            shared, held.ref, slot.workdir, f"{slot.workdir}/{ERROR_FILE}", ports=ports
        )
        env |= environment.values(template, held.ref.index, slot.line)
        if template.notice is not None:
            env[environment.NOTICE_VARIABLE] = f"{slot.given}/{NOTICE_FILE}"
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
        if directory := attempt.environment:
            env |= environment.virtual(
                env["PATH"], f"{attempt.use.environments.path(directory)}/venv"
            )
        return env


def stored_probe(template: TaskTemplate, env: dict[str, str], limits: Limits) -> StoredProbe | None:
    """The probe of a route as stored for the next worker process; only a command needs the
    environment.
    """
    probe = template.probe
    if probe is None:
        return None
    stored = StoredProbe(probe, template.serves, settle_ms=template.settle_ms)
    if probe.kind != "command":
        return stored
    return structs.replace(stored, env={**env, environment.PROBE_VARIABLE: "1"}, limits=limits)


def check_coordinator_port(port: int, rest_s: float) -> None:
    """The first of a gang is to listen on a port that all members know already. Raises OSError when
    it is taken.

    Args:
        rest_s: infinite while an attempt of this worker has it, which may not listen yet; see
            `PortUse`.
    """
    if rest_s == math.inf or not host.is_free(port):
        raise OSError(
            errno.EADDRINUSE,
            f"port {port}, its gang's coordinator port, is in use; another attempt has another",
        )


def check_devices(files: tuple[str, ...]) -> None:
    """Raises OSError when one is gone: its driver was unloaded, or it has fallen off its bus."""
    for file in files:
        os.stat(file)


def is_relative(program: str, env: Mapping[str, str]) -> bool:
    """Whether what Python is started from depends on the directory of the job."""
    paths = [path for name in _SEARCHED if env.get(name) for path in env[name].split(":")]
    return not all(
        path.startswith("/") for path in [*paths, *([program] if "/" in program else [])]
    )
