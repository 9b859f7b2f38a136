"""The containers of one worker: each is named before its client starts, and is removed before its
end is reported.

The client of the runtime is the attempt's process; it forwards output and signals, and ends with
the exit code. What it is the client of may outlive it, and the worker: the launcher's record of the
start names the container. Out of scope: pulling (builder), starting (executor).
Source: docs/adr/0047-one-client-process-per-container.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from iris_core.messages.state_worker import LiveUsage, TaskTemplate, TaskUsage
from iris_worker.attempt.images import runtimes
from iris_worker.attempt.images.runtimes import RUNTIMES, Container, ContainerState, HostRuntime
from iris_worker.attempt.images.usage import RunningContainer, measure
from iris_worker.attempt.slots.isolation import owner_of, read_binds
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.data_directory import data_id
from iris_worker.environment import BESIDE
from iris_worker.launcher.cgroups.files import Cgroup
from iris_worker.launcher.cgroups.limits import group_limits
from iris_worker.launcher.kernel.tree import marked
from iris_worker.launcher.records.records import Exit, Started, StartProcess, StoredContainer
from iris_worker.settings import WorkerSettings

_ANSWER_S = 30.0
_RETRY_S = 1.0
_MEASURE_S = 2.0
_OOM_S = 0.5
"""How long after the end of a container its runtime may hear that memory was the cause."""
_SIGNALLED = 128
_KILLED = _SIGNALLED + signal.SIGKILL
_INITS = ("/usr/libexec/podman/catatonit", "catatonit", "tini", "docker-init")
_BESIDE = (*BESIDE, "TERM")


class Silent(Exception):
    """The runtime does not answer; the text says how."""


class Containers:
    """The containers of one worker.

    Attributes:
        host: the runtime of new ones; None: there is none now.
        trouble: why the end of a container is not known; empty otherwise.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._directory = settings.root / "containers"
        self._label = data_id(settings.root)
        self._attempts = str(settings.root / "attempts")
        self._running: dict[str, RunningContainer] = {}
        self._measuring = False
        self._sweeping = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.trouble = ""
        self._doubted = False
        self.host: HostRuntime | None = None

    def begin(self, live: Iterable[Started], runtime: str) -> None:
        """A worker starts with these attempts of earlier ones, and with this runtime."""
        for record in live:
            self._hold(record)
        self.use(runtime)

    def use(self, runtime: str) -> None:
        """New containers are of this runtime, empty: there are none. Remove its containers of no
        attempt.
        """
        self.host = None
        self._doubted = False
        if runtime in RUNTIMES:
            init = next((path for path in map(shutil.which, _INITS) if path), "")
            self.host = HostRuntime(runtime, init, self._label, os.geteuid() != 0)
            for directory in self._directory.glob("*"):
                if directory.name not in self._running:
                    shutil.rmtree(directory, ignore_errors=True)
            self._spawn(self._clean(runtime))

    @property
    def runtime(self) -> str:
        """The name of the runtime of new containers; empty: there is none now."""
        return self.host.name if self.host is not None else ""

    @property
    def proven(self) -> str:
        """The runtime, unless something speaks against it since it was asked in full."""
        return "" if self.trouble or self._doubted else self.runtime

    def confirm(self) -> None:
        """The runtime was asked, and answers."""
        self._doubted = False

    def _hold(self, record: Started) -> None:
        """A container is to run until it is collected."""
        if record.container is not None:
            self._running[record.container.name] = RunningContainer(record.ref, record.slot)
            if not self._measuring:
                self._measuring = True
                self._spawn(self._measure())

    async def _measure(self) -> None:
        while self._running:
            await asyncio.sleep(_MEASURE_S)
            await asyncio.to_thread(measure, self._attempts, tuple(self._running.values()))
        self._measuring = False

    @property
    def usage(self) -> tuple[LiveUsage, ...]:
        """What containers use, as it was measured last."""
        return tuple(one.usage for one in self._running.values() if one.usage is not None)

    # ── starting ──────────────────────────────────────────────────────────────────────────────────

    def contain(
        self, request: StartProcess, template: TaskTemplate, slot: Workspace, files: tuple[str, ...]
    ) -> StartProcess:
        """The request for the client that runs in a container what ``request`` would start here.
        Raises OSError.

        Args:
            files: of the devices that are assigned.
        """
        if self.host is None or template.environment is None:
            raise OSError("it has no container runtime now")
        sandbox = request.record.sandbox
        ask = template.resources
        ref = request.record.ref
        name = f"iris-{ref.job}-{ref.index}-{ref.attempt}-{self._label}"
        directory = self._directory / name
        is_gpu = ask.device is not None and ask.device.kind == "gpu"
        limits = self._limits(template)
        binds = ((path, how == "--bind") for path, how in read_binds(self._settings.binds))
        container = Container(
            name=name,
            task=f"{template.name}/{ref.index}",
            image=template.environment.image,
            command=request.command,
            workdir=slot.workdir,
            env_file=_write(directory, request.env),
            user=owner_of(sandbox) or (os.geteuid(), os.getegid()),
            groups=sandbox.groups if sandbox is not None else (),
            mounts=((slot.workdir, True), (slot.given, False), *binds),
            devices=() if is_gpu else files,
            gpus=request.record.devices if is_gpu else (),
            memory_limit_bytes=limits.memory_limit_bytes,
            cpu_share_millis=limits.cpu_share_millis,
            cpu_limit_millis=limits.cpu_limit_millis,
            pids=limits.pids,
            terminal=template.terminal,
            shm_bytes=limits.memory_limit_bytes
            or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2,
        )
        stored = StoredContainer(self.host.name, name, limits.memory_limit_bytes)
        record = structs.replace(request.record, sandbox=None, container=stored)
        self._hold(record)
        command = runtimes.inside(str(directory), runtimes.run_command(self.host, container))
        return StartProcess(record, command, client_environment(slot.workdir))

    def _limits(self, template: TaskTemplate) -> Cgroup:
        settings = self._settings
        memory = settings.limit_memory != "off"
        return (
            group_limits(template.resources, settings.pids_limit, memory=memory)
            if settings.cgroups
            else Cgroup()
        )

    def beside(
        self,
        held: StoredContainer,
        command: tuple[str, ...],
        env: Mapping[str, str],
        slot: Workspace,
        *,
        tty: bool,
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """The command that executes another one in a container, and its environment."""
        given = {name: env[name] for name in _BESIDE if name in env}
        words = runtimes.exec_command(held.runtime, held.name, command, given, tty=tty)
        return words, client_environment(slot.workdir) | given

    # ── images ────────────────────────────────────────────────────────────────────────────────────

    async def has(self, image: str) -> bool:
        """Whether an image is on this host."""
        with contextlib.suppress(Silent):
            return self.host is not None and bool(
                await ask(runtimes.has_command(self.host.name, image))
            )
        return False

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def collect(
        self, container: StoredContainer, exit_: Exit, done: Callable[[Exit], None]
    ) -> None:
        """The client has ended: remove the container, and call ``done`` with the exit of what ran
        in it.
        """
        self._spawn(self._collect(container, exit_, done))

    async def _collect(
        self, container: StoredContainer, exit_: Exit, done: Callable[[Exit], None]
    ) -> None:
        """A runtime that does not answer may still run it, so its end is not reported before it
        does.
        """
        ended = None
        gone = False
        silent = False
        held = self._running.get(container.name)
        used = held.usage if held is not None else None
        while ended is None or not gone:
            try:
                ended = ended or exit_of(
                    container, exit_, await self._state(container, exit_), used, silent=silent
                )
                self._running.pop(container.name, None)
                await self._sweep(container.runtime, container.name)
                gone = True
            except Silent as error:
                silent = True
                self.trouble = f"{container.runtime}: {error}"
                await asyncio.sleep(_RETRY_S)
        self.trouble = ""
        self._doubted |= exit_.code == runtimes.NOT_RUN and bool(ended.error)
        shutil.rmtree(self._directory / container.name, ignore_errors=True)
        done(ended)

    async def _state(self, container: StoredContainer, exit_: Exit) -> ContainerState | None:
        """How a container ended; None when it never ran. Raises Silent."""
        if container.name not in await self._listed(container.runtime):
            return None
        state = await self._inspect(container)
        killed = state is not None and state.exit_code == _KILLED and not state.out_of_memory
        if killed and container.memory_limit_bytes and exit_.signal is None:
            await asyncio.sleep(_OOM_S)
            state = await self._inspect(container)
        return state

    async def _inspect(self, container: StoredContainer) -> ContainerState | None:
        state = runtimes.read_state(
            await ask(runtimes.inspect_command(container.runtime, container.name))
        )
        if (
            state is not None
            and (self._directory / container.name / runtimes.OUT_OF_MEMORY).exists()
        ):
            return replace(state, out_of_memory=True)
        return state

    async def _clean(self, runtime: str) -> None:
        """Remove what earlier workers left."""
        with contextlib.suppress(Silent):  # the end of the next container tries again
            await self._sweep(runtime)

    async def _sweep(self, runtime: str, one: str = "") -> None:
        """Remove the containers of no attempt. Raises Silent when ``one`` of them is left, or the
        runtime silent.
        """
        async with self._sweeping:  # it refuses what it is removing already
            left = [name for name in await self._listed(runtime) if name not in self._running]
            try:
                if left:
                    await ask(runtimes.remove_command(runtime, left))
            except Silent:
                if one in await self._listed(runtime):
                    raise

    async def _listed(self, runtime: str) -> list[str]:
        return (await ask(runtimes.list_command(runtime, self._label))).split()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def _write(directory: Path, env: Mapping[str, str]) -> str:
    """Write the variables of a container where only this user reads them; returns the file. Raises
    OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / "env"
    path.write_text(runtimes.env_lines(env), encoding="utf-8")
    return str(path)


def client_environment(workdir: str) -> dict[str, str]:
    """What a runtime's client is told: how to reach its runtime, and nothing of the task, which it
    could trip over.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("IRIS_")}
    return own | marked(workdir)


def exit_of(
    container: StoredContainer,
    exit_: Exit,
    state: ContainerState | None,
    used: LiveUsage | None = None,
    silent: bool = False,
) -> Exit:
    """The exit of what ran in a container, by the exit of its client and what its runtime says.

    A runtime tells of a signal by 128 and its number; one that was ``silent`` then had stopped, and
    killed it. What the client has used is not what the container has ``used``.
    """
    usage, peak = (used.usage, used.peak_bytes) if used is not None else (None, 0)
    if state is not None and state.ended:
        number = state.exit_code - _SIGNALLED
        if state.out_of_memory and state.exit_code and (limit := container.memory_limit_bytes):
            usage = structs.replace(usage or TaskUsage(), memory_limit_bytes=limit)
            peak = limit
        code, signalled = (
            (None, number) if number in signal.valid_signals() else (state.exit_code, None)
        )
        if silent and signalled and not state.out_of_memory:
            return Exit(known=False, peak_rss_bytes=peak, usage=usage)
        return Exit(code, signalled, peak, usage=usage)
    if exit_.error:
        return Exit(error=exit_.error)
    if exit_.code == runtimes.NOT_RUN:
        return Exit(
            error=f"{container.runtime} could not run its container; the end of its output says why"
        )
    return structs.replace(exit_, peak_rss_bytes=peak, usage=usage)


async def ask(command: tuple[str, ...]) -> str:
    """What a command of a runtime prints. Raises Silent when it fails, or does not end in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except OSError as error:
        raise Silent(str(error)) from error
    try:
        async with asyncio.timeout(_ANSWER_S):
            out, err = await process.communicate()
    except TimeoutError:
        raise Silent(f"no answer within {_ANSWER_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise Silent(
            " ".join(err.decode(errors="replace").split())[-300:]
            or f"exit code {process.returncode}"
        )
    return out.decode(errors="replace")


async def works(runtime: str, known: bool = False) -> bool:
    """Whether a runtime is installed and answers; ``known``: it did before."""
    if shutil.which(runtime) is None:
        return False
    row = RUNTIMES[runtime]
    with contextlib.suppress(Silent):
        return bool(await ask((runtime, *(row.still if known else row.probe))))
    return False


async def find_runtime(wanted: str, known: str = "") -> str:
    """The runtime of this host that the settings ask for, ``known`` to be there before; empty when
    there is none.
    """
    for runtime in RUNTIMES:
        if wanted in ("auto", runtime) and await works(runtime, runtime == known):
            return runtime
    return ""
