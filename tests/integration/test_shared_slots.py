"""Attempts of one job that share a slot, and so a template, on the kinds of host that confine tasks
as root.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Stop
from iris_core.spec.jobs import Environment
from iris_core.states import Cause
from tests.integration.test_sandbox import CLONES, PYTHON, own_users
from tests.integration.test_templates import lives
from tests.support.hosts import command, on_hosts, until, until_gone, worker_of
from tests.support.state import FakeState, template
from tests.support.worker import WorkerProcess

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("root"),
]

JOB = 7
COUNTED = """import os, threading, time
open(f"SHARED/import-{os.urandom(8).hex()}", "w").close()
if THREADS:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""
WAITS = """import os, subprocess, time
index = os.environ["IRIS_TASK_INDEX"]
if index == "0":
    subprocess.run(["setsid", "-f", "sleep", "MARK"], check=True)
print(os.getuid(), os.path.dirname(os.getcwd()), "template" in open("/proc/self/cmdline").read(), flush=True)
while not os.path.exists(f"SHARED/go-{index}"):
    time.sleep(0.01)
"""
LEAVES = """import os, time
open(f"/tmp/left-{os.getpid()}", "wb").write(bytes(40 << 20))
"""
ROOT = CLONES[:2]


class Shared:
    """A worker, and attempts of one job on it that run until they are told to end."""

    def __init__(self, state: FakeState, worker: WorkerProcess, place: Path) -> None:
        self.state = state
        self.worker = worker
        self.files = place / "shared"
        self._modules = str(place / "shown")

    async def begin(
        self,
        *indices: int,
        job: int = JOB,
        preload: tuple[str, ...] = ("counted",),
        script: str = "waits",
        **of_job: Any,
    ) -> list[AttemptRef]:
        """Returns once all of them have begun."""
        refs = [AttemptRef(job, index, 0) for index in indices]
        variables, path = {"PYTHONPATH": self._modules}, f"{self._modules}/{script}.py"
        work = template(
            PYTHON, path, job=job, preload=preload, env=variables, replicas=40, **of_job
        )
        await self.state.tell([work], run=refs)
        for ref in refs:
            await self.state.running(ref)
        return refs

    def sandboxes(self) -> list[psutil.Process]:
        """What holds them, of which each ends with all that is in its `/tmp`."""
        found = psutil.Process(self.worker.launcher_pid).children(recursive=True)
        return [one for one in found if lives(one) and command(one).endswith("sleep infinity")]

    async def said(self, ref: AttemptRef) -> tuple[str, str, str]:
        """Its user, its slot, and whether it is a clone."""
        user, slot, cloned = (await self.state.line(ref)).split()
        return user, slot, cloned

    async def end(self, ref: AttemptRef) -> None:
        (self.files / f"go-{ref.index}").touch()
        ended = await self.state.ended(ref)
        assert (ended.cause, ended.exit_code) == (Cause.EXITED, 0)

    def imports(self) -> int:
        return len(list(self.files.glob("import-*")))

    def templates(self) -> list[psutil.Process]:
        found = psutil.Process(self.worker.launcher_pid).children(recursive=True)
        return [one for one in found if lives(one) and "iris_template" in command(one)]


@asynccontextmanager
async def sharing(
    mode: str,
    state: FakeState,
    nats_url: str,
    place: Path,
    mark: str,
    *,
    threads: bool = False,
    **settings: object,
) -> AsyncIterator[Shared]:
    for name in ("shown", "shared"):
        (place / name).mkdir()
    (place / "shared").chmod(0o777)
    for name, text in (("counted", COUNTED), ("waits", WAITS), ("leaves", LEAVES + WAITS)):
        text = (
            text.replace("SHARED", str(place / "shared"))
            .replace("MARK", mark)
            .replace("THREADS", str(threads))
        )
        (place / "shown" / f"{name}.py").write_text(text)
    binds = f"{place / 'shown'}:ro,{place / 'shared'}"
    async with worker_of(
        mode, state, nats_url, place, binds=binds, **own_users(mode), **settings
    ) as worker:
        yield Shared(state, worker, place)


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_what_a_job_imports_is_imported_once_for_sixteen(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark) as host:
        refs = await host.begin(*range(18))
        said = [await host.said(ref) for ref in refs]
        assert host.imports() == 2
        assert sorted(said.count(one) for one in set(said)) == [2, 16]
        await asyncio.gather(*(host.end(ref) for ref in refs))


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_an_attempt_ends_alone_with_what_it_has_started(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark) as host:
        first, second, third = await host.begin(0, 1, 2)
        await host.end(first)
        await until_gone(mark)
        await state.tell(stop=[Stop(second, 1000)])
        assert (await state.ended(second)).signal == signal.SIGTERM
        [fourth] = await host.begin(3)
        assert {await host.said(third), await host.said(fourth)} == {await host.said(first)}
        await asyncio.gather(host.end(third), host.end(fourth))
        assert host.imports() == 1


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_an_attempt_takes_the_environment_that_its_slot_shows(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    """Another one was to be built: the Python of the host is a new one, or somebody has deleted
    what was kept.
    """
    async with sharing(mode, state, nats_url, place, mark) as host:
        [first] = await host.begin(1, environment=Environment())
        for kept in (host.worker.data / "environments").glob("*.json"):
            kept.unlink()
        [second] = await host.begin(2, environment=Environment())
        assert await host.said(first) == await host.said(second)
        await asyncio.gather(host.end(first), host.end(second))


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_another_job_has_another_slot_and_later_the_same_without_a_trace(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark) as host:
        [mine] = await host.begin(1)
        [other] = await host.begin(2, job=JOB + 1)
        assert (await host.said(mine))[1] != (await host.said(other))[1]
        await asyncio.gather(host.end(mine), host.end(other))
        before = host.templates()
        refs = await host.begin(*range(3, 6), job=JOB + 2, preload=())
        assert {(await host.said(ref))[1] for ref in refs} > {
            (await host.said(mine))[1],
            (await host.said(other))[1],
        }
        assert not [one for one in before if lives(one)]
        await asyncio.gather(*(host.end(ref) for ref in refs))


@pytest.mark.parametrize("also_launcher", [False, True])
@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_adopted_attempts_that_share_a_slot_end_one_by_one(
    mode: str, also_launcher: bool, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark) as host:
        first, second, third = await host.begin(0, 1, 2)
        slot = (await host.said(first))[1]
        if also_launcher:
            os.kill(host.worker.launcher_pid, signal.SIGKILL)
            await host.worker.ended()
        else:
            await host.worker.kill()
        await host.worker.start()
        await state.registration(2)
        (host.files / "go-0").touch()
        known = (Cause.EXITED, 0)
        ended = await state.ended(first)
        assert (ended.cause, ended.exit_code) in (
            {known, (Cause.WORKER_CRASHED, None)} if also_launcher else {known}
        )
        await until_gone(mark)
        [fourth] = await host.begin(3)
        assert (await host.said(fourth))[1] != slot
        await host.end(fourth)
        for ref in (second, third):
            assert state.end_of(ref) is None
            (host.files / f"go-{ref.index}").touch()
            assert (await state.ended(ref)).cause in {Cause.EXITED, Cause.WORKER_CRASHED}


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_attempts_outlive_the_template_that_they_share(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark) as host:
        first, second = await host.begin(0, 1)
        templates = [one for one in host.templates() if "IRIS_TASK" not in one.environ()]
        for one in templates:
            one.kill()
        await until(lambda: not any(map(lives, templates)))
        [third] = await host.begin(
            2
        )  # maybe by its command: the worker may not have heard of it yet
        [fourth] = await host.begin(3)
        refs = (first, second, third, fourth)
        assert len({(await host.said(ref))[:2] for ref in refs}) == 1
        assert ((await host.said(fourth))[2], host.imports()) == ("True", 2)
        await asyncio.gather(*(host.end(ref) for ref in refs))


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_processes_that_are_not_cloned_share_a_slot_as_well(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark, threads=True) as host:
        first, second = await host.begin(0, 1)
        [third] = await host.begin(2)
        await host.end(first)
        await until_gone(mark)
        assert [state.end_of(ref) for ref in (second, third)] == [None, None]
        assert {await host.said(first), await host.said(second)} == {await host.said(third)}
        assert (await host.said(first))[2] == "False"
        await asyncio.gather(host.end(second), host.end(third))


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_each_attempt_says_why_preloading_has_failed(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark):
        refs = [AttemptRef(JOB, index, 0) for index in range(3)]
        work = template(PYTHON, "waits.py", job=JOB, preload=("no_such_module",), replicas=3)
        await state.tell([work], run=refs)
        for ref in refs:
            ended = await state.ended(ref)
            assert (
                ended.error == "preloading: ModuleNotFoundError: No module named 'no_such_module'"
            )
            assert ended.stderr_tail.startswith("Traceback")
            assert (
                await state.output(ref, "stderr")
            ).decode().rstrip() == ended.stderr_tail.rstrip()


@pytest.mark.parametrize("mode", on_hosts(ROOT))
async def test_attempts_without_control_groups_share_nothing(
    mode: str, state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(mode, state, nats_url, place, mark, cgroups=False) as host:
        first, second = await host.begin(1, 2)
        assert (await host.said(first))[:2] != (await host.said(second))[:2]
        assert host.imports() == 2
        await asyncio.gather(host.end(first), host.end(second))


@pytest.mark.needs("bwrap")
async def test_files_that_ended_attempts_have_left_in_memory_end_with_their_slot(
    state: FakeState, nats_url: str, place: Path, mark: str
):
    async with sharing(ROOT[0], state, nats_url, place, mark) as host:
        first, second = await host.begin(1, 2, script="leaves")
        slot, before = (await host.said(first))[1], host.sandboxes()
        await host.end(first)
        [third] = await host.begin(3, script="leaves")
        assert (await host.said(third))[1] != slot
        await asyncio.gather(host.end(second), host.end(third))
        await until(lambda: not host.sandboxes())
        assert before
        [fourth] = await host.begin(4)
        assert (await host.said(fourth))[2] == "True"
        await host.end(fourth)
