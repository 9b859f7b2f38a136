"""Gives an attempt its virtual environment, one that is kept or a new one, or its image. Part of
the shell: it waits.

A build is a process of the attempt that needs it first, started by the launcher in the attempt's
directory and with its limits; its output is the beginning of the attempt's. Attempts that need the
same environment wait for that build; when it is stopped, the next of them builds. An image that is
not on the host is pulled likewise. Out of scope: what is run (plan, runtimes), what is kept
    (store).
Source: docs/adr/0042-a-build-is-a-process-of-its-attempt.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import platform
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, TaskTemplate
from iris_core.spec.jobs import PACKAGE_FILES, Environment
from iris_core.states import Cause
from iris_core.units import show_bytes
from iris_worker.agent.agent import Agent
from iris_worker.attempt.builds.plan import BuildPlan, CannotBuild, Tools, plan_build
from iris_worker.attempt.executor import Executor
from iris_worker.attempt.images.containers import works
from iris_worker.attempt.images.runtimes import pull_command
from iris_worker.attempt.output.tail import last_lines
from iris_worker.attempt.running import RunningAttempt
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.clock import HostClock
from iris_worker.host import host
from iris_worker.launcher.records.records import Exit, StartProcess
from iris_worker.launcher.starts.spawn import NOT_FOUND
from iris_worker.metrics import WorkerMetrics

_GRACE_MS = 2000
_LIST_BYTES = 16 << 20


class Builder:
    """Builds environments and pulls images, each once at a time.

    Args:
        timeout_s: of one build. on_change: called when an attempt does something else than before.
    """

    def __init__(
        self,
        executor: Executor,
        agent: Agent,
        clock: HostClock,
        metrics: WorkerMetrics,
        timeout_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self._executor = executor
        self._store = executor.environments
        self._agent = agent
        self._clock = clock
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._one_by_one: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._holders: dict[str, str] = {}

    async def provide(
        self, ref: AttemptRef, template: TaskTemplate, wanted: Environment, slot: Workspace
    ) -> Ended | None:
        """Have an attempt use its environment; returns the end of the attempt when that failed."""
        if wanted.image:
            return await self._provide_image(ref, template, wanted.image)
        try:
            plan = await asyncio.to_thread(_plan, template, wanted, Path(slot.workdir))
            async with self._turn(plan.key, ref, template, f"builds {plan.title}"):
                if (directory := self._store.find(plan.key) or self._shown_in(slot)) is not None:
                    self._store.use(ref, directory)
                    return None
                return await self._build(ref, template, plan, slot)
        except CannotBuild as error:
            return Ended(Cause.EXITED, NOT_FOUND, error=f"environment: {error}")
        except OSError as error:
            if (
                error.errno == errno.ENAMETOOLONG
            ):  # the build has made directories that are too deep
                return Ended(Cause.EXITED, NOT_FOUND, error=f"environment: {error.strerror}")
            return Ended(Cause.INFRASTRUCTURE, error=f"environment: {error}")

    def _shown_in(self, slot: Workspace) -> str | None:
        """The environment of an attempt that runs in a shared slot, whose sandbox shows no other;
        None: none runs.
        """
        others = self._executor.attempts.by_ref.values()
        beside = (
            one.environment for one in others if one.slot.number == slot.number and one.launched
        )
        return next(filter(None, beside), None)

    @contextlib.asynccontextmanager
    async def _turn(
        self, key: str, ref: AttemptRef, template: TaskTemplate, doing: str
    ) -> AsyncIterator[None]:
        """Wait until no other attempt provides what ``key`` names."""
        lock = self._one_by_one.setdefault(key, asyncio.Lock())  # as long as an attempt needs it
        if lock.locked():
            other = self._holders.get(key, "another task")
            self._tell(ref, f"waits for {other}, which {doing}", waits=True)
        async with lock:
            self._holders[key] = f"{template.name}/{ref.index}"
            try:
                yield
            finally:
                del self._holders[key]

    async def _provide_image(
        self, ref: AttemptRef, template: TaskTemplate, image: str
    ) -> Ended | None:
        """Have an image on this host; what is there is not compared with what its registry has
        now.
        """
        containers = self._executor.containers
        if not (runtime := containers.runtime):
            return Ended(Cause.INFRASTRUCTURE, error="this host has no container runtime now")
        if await containers.has(image):
            return None
        async with self._turn(f"image {image}", ref, template, f"pulls image {image}"):
            if await containers.has(image):
                return None
            if not self._agent.on_building(ref):
                return Ended(Cause.CANCELLED, error="stopped before it started")
            began_s = self._clock.steady_s()
            self._tell(ref, f"pulls image {image}")
            command = pull_command(runtime, image)
            attempt = self._executor.attempts.by_ref[ref]
            exit_, late = await self._run(
                attempt, self._executor.requests.of_pull(attempt, command)
            )
            if late or exit_.code != 0:
                return _with_tail(attempt, await self._not_pulled(runtime, exit_, late, image))
            self._metrics.built("image", self._clock.steady_s() - began_s)
        return None

    async def _not_pulled(self, runtime: str, exit_: Exit, late: bool, image: str) -> Ended:
        """An image that is not there, or not for us, is its owner's failure; that of the host is a
        silent runtime.
        """
        if late:
            error = f"image {image} was not pulled within {self._timeout_s:g} s"
            return Ended(Cause.EXITED, exit_.code, exit_.signal, error)
        if exit_.error and exit_.code is None:
            return Ended(
                Cause.INFRASTRUCTURE,
                error=f"image {image} could not be pulled on this host: {exit_.error}",
            )
        if not await works(runtime):
            return Ended(
                Cause.INFRASTRUCTURE,
                error=f"image {image} could not be pulled: {runtime} does not answer",
            )
        return Ended(
            Cause.EXITED,
            exit_.code,
            exit_.signal,
            f"image {image} could not be pulled: {_how(exit_)}",
        )

    async def _build(
        self, ref: AttemptRef, template: TaskTemplate, plan: BuildPlan, slot: Workspace
    ) -> Ended | None:
        """Build, and publish the result. Raises OSError."""
        began_s = self._clock.steady_s()
        directory = self._store.new()
        self._store.use(ref, directory)
        try:
            place = Path(self._store.path(directory))
            await asyncio.to_thread(_copy, Path(slot.workdir), place, plan.files, slot.owner)
            if not self._agent.on_building(ref):
                return Ended(Cause.CANCELLED, error="stopped before it started")
            self._tell(ref, f"builds its environment: {plan.title}")
            attempt = self._executor.attempts.by_ref[ref]
            attempt.slot.give_directory()
            exit_, late = await self._run(
                attempt, self._executor.requests.of_build(attempt, template, plan, place)
            )
            if (ended := self._verdict(exit_, late, plan, place)) is not None:
                return _with_tail(attempt, ended)
            size = await asyncio.to_thread(self._store.seal, directory)
            self._store.publish(plan.key, directory, size, template.user)
        finally:
            if self._store.find(plan.key) != directory:
                self._store.release(ref)
                self._store.discard(directory)
        self._metrics.built("environment", self._clock.steady_s() - began_s)
        return None

    async def _run(self, attempt: RunningAttempt, request: StartProcess) -> tuple[Exit, bool]:
        """The exit of a process that prepares an attempt, and whether it was stopped because it
        took too long.
        """
        over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._executor.build(
            attempt, request, lambda exit_: None if over.done() else over.set_result(exit_)
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(over), False
        except TimeoutError:
            self._executor.kill(attempt.ref, _GRACE_MS, 0)
            self._executor.flush()
            return await over, True

    def _verdict(self, exit_: Exit, late: bool, plan: BuildPlan, place: Path) -> Ended | None:
        """How the attempt ends after a failed build: the owner's failure, unless this host is
        broken.

        It is when its disk is full, when the process could not be started, and when its own Python
        cannot make an empty environment. A network that fails looks to us as a package that does
        not exist; the output says which.
        """
        if late:
            error = f"its environment was not built within {self._timeout_s:g} s: {plan.title}"
            return Ended(Cause.EXITED, exit_.code, exit_.signal, error)
        if exit_.code == 0:
            return None
        if exit_.error and exit_.code is None:
            return Ended(
                Cause.INFRASTRUCTURE,
                error=f"its environment could not be built on this host: {exit_.error}",
            )
        if trouble := host.trouble(place):
            return Ended(
                Cause.INFRASTRUCTURE, error=f"its environment could not be built: {trouble}"
            )
        if (
            plan.any_python
            and exit_.code != NOT_FOUND
            and not os.path.lexists(place / "venv" / "bin" / "python")
        ):
            return Ended(
                Cause.INFRASTRUCTURE, error="python3 of this host cannot make virtual environments"
            )
        error = f"its environment could not be built ({plan.title}): {_how(exit_)}"
        return Ended(Cause.EXITED, exit_.code, exit_.signal, error)

    def _tell(self, ref: AttemptRef, detail: str, *, waits: bool = False) -> None:
        self._agent.on_detail(ref, detail, self._clock.wall_ms(), waits=waits)
        self._on_change()


def _with_tail(attempt: RunningAttempt, ended: Ended) -> Ended:
    """The end of an attempt with the last lines of its build."""
    return structs.replace(ended, stderr_tail=last_lines(attempt.slot.err))


def _how(exit_: Exit) -> str:
    return f"killed by signal {exit_.signal}" if exit_.code is None else f"exit code {exit_.code}"


def _plan(template: TaskTemplate, wanted: Environment, workdir: Path) -> BuildPlan:
    """The plan for this host. Raises CannotBuild, OSError."""
    texts: dict[str, bytes] = {}
    for name in PACKAGE_FILES[wanted.packages]:
        if (path := workdir / name).is_file():
            texts[name] = _list(path)
    return plan_build(template, wanted, texts, tools(wanted.python))


def _list(path: Path) -> bytes:
    """A list of packages. Raises CannotBuild, OSError."""
    with path.open("rb") as file:
        text = file.read(_LIST_BYTES + 1)
    if len(text) > _LIST_BYTES:
        raise CannotBuild(f"{path.name} has more than {show_bytes(_LIST_BYTES)}")
    return text


def tools(version: str) -> Tools:
    """What this host builds with."""
    path = host.variables()["PATH"]
    found = shutil.which(f"python{version}" if version else "python3", path=path)
    return Tools(
        python=os.path.realpath(found) if found else "",
        platform="-".join((platform.system(), platform.machine(), *platform.libc_ver())),
    )


def _copy(
    workdir: Path, place: Path, files: tuple[str, ...] | None, owner: tuple[int, int] | None
) -> None:
    """Give a build its own copy of the bundle, or of a few files, and make its user the owner."""
    target = place / "workdir"
    if files is None:
        shutil.copytree(workdir, target, symlinks=True)
    else:
        target.mkdir()
        for name in files:
            shutil.copyfile(workdir / name, target / name)
    os.chmod(place, 0o755)
    if owner is not None:
        for path in reversed(
            (place, target, *target.rglob("*"))
        ):  # what its user could replace comes last
            os.lchown(path, *owner)
