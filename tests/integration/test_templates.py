"""Templates: attempts that are cloned from a process which has preloaded modules."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.attempt.slots.workspaces import Workspace, Workspaces
from iris_worker.clock import HostClock
from iris_worker.data_directory import data_id
from iris_worker.launcher import rescue
from iris_worker.launcher.cgroups.files import Cgroup
from iris_worker.launcher.client import LauncherClient
from iris_worker.launcher.records.records import (
    EndTemplate,
    Exit,
    Exited,
    Sandbox,
    Spawned,
    Started,
    StartProcess,
    StartTemplate,
    StopProcess,
    TemplateState,
)
from tests.support.worker import until

pytestmark = pytest.mark.integration

CLOCK = HostClock()
PYTHON = os.path.dirname(os.path.realpath(os.__file__))
MIB = 1 << 20


class Host:
    """A launcher, and what a worker would keep of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.slots = Workspaces(root)
        self.answers: list[Any] = []
        self.launcher = LauncherClient(root, self.answers.extend, lambda error: None)
        self._next = 0

    async def begin(self) -> None:
        await self.launcher.connect()

    def take(self) -> Workspace:
        self._next += 1
        return self.slots.take(AttemptRef(1, self._next, 0))

    def preload(
        self,
        *modules: str,
        slot: Workspace | None = None,
        key: str = "1",
        bare: str = "bare",
        sandbox: Sandbox | None = None,
        grouped: bool = True,
        function: bool = False,
        library: Path | None = None,
        **files: str,
    ) -> Workspace:
        slot = slot or self.take()
        for name, text in files.items():
            Path(slot.workdir, f"{name}.py").write_text(text)
        env = self.env(slot)
        request = StartTemplate(
            *(key, slot.number, slot.below, ("python3",), env, modules, function),
            cgroup=Cgroup(pids=100) if grouped else None,
            sandbox=sandbox,
            bare=bare,
            restores=library is not None,
            library=str(library or ""),
            checks=library is not None,
        )
        self.launcher.send(request)
        self.launcher.flush()
        return slot

    def env(self, slot: Workspace) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "IRIS_WORKDIR": slot.workdir,
            "IRIS_TASK_INDEX": str(slot.ref.index),
        }

    def call(
        self,
        text: str,
        *,
        key: str = "1",
        memory: int = 0,
        slot: Workspace | None = None,
        reuse: int = 1,
        restores: bool = False,
        sandbox: Sandbox | None = None,
        grouped: bool = True,
    ) -> Workspace:
        """Clone a process that runs a script."""
        slot = slot or self.take()
        Path(slot.workdir, "call.py").write_text(text)
        record = Started(
            *(slot.ref, 0, slot.number, CLOCK.steady_s(), 0.0, CLOCK.wall_ms(), None),
            sandbox=sandbox,
            directory=slot.directory,
        )
        cgroup = Cgroup(memory_limit_bytes=memory, pids=100) if grouped else None
        self.launcher.send(
            StartProcess(
                record,
                ("python3", "call.py", "a"),
                self.env(slot),
                cgroup=cgroup,
                template=key,
                reuse=reuse,
                restores=restores,
            )
        )
        self.launcher.flush()
        return slot

    async def until(self, found: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(60):
            while True:
                for answer in self.answers:
                    if found(answer):
                        return answer
                await asyncio.sleep(0.002)

    async def until_gone(self, processes: Iterable[psutil.Process]) -> None:
        await until(lambda: not any(map(lives, processes)))

    async def state(self, key: str = "1") -> TemplateState:
        state: TemplateState = await self.until(
            lambda m: isinstance(m, TemplateState) and m.key == key
        )
        self.answers.remove(state)
        return state

    async def exit(self, slot: Workspace) -> Exit:
        answer: Exited = await self.until(lambda m: isinstance(m, Exited) and m.ref == slot.ref)
        return answer.exit

    async def pid(self, slot: Workspace) -> int:
        answer: Spawned = await self.until(lambda m: isinstance(m, Spawned) and m.ref == slot.ref)
        return answer.pid

    def process(self) -> psutil.Process:
        """The launcher's."""
        [launcher] = rescue._processes(self.root)
        return psutil.Process(launcher)

    def templates(self) -> list[psutil.Process]:
        """The living processes that are no attempts."""
        attempts = [answer.pid for answer in self.answers if isinstance(answer, Spawned)]
        return [one for one in self.process().children() if one.pid not in attempts and lives(one)]

    async def bare(self) -> psutil.Process:
        """Start a bare template."""
        self.preload(key="bare")
        assert await self.state("bare") == TemplateState("bare", ready=True)
        [process] = self.templates()
        return process

    def out(self, slot: Workspace) -> str:
        return os.pread(slot.out, 1 << 16, 0).decode()

    def err(self, slot: Workspace) -> str:
        return os.pread(slot.err, 1 << 16, 0).decode()


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextlib.asynccontextmanager
async def host_in(root: Path) -> AsyncIterator[Host]:
    """A host without anything of an earlier one, whose directory may have had the same number."""
    made, memory = Host(root), f"/dev/shm/iris-{data_id(root)}"
    shutil.rmtree(memory, ignore_errors=True)
    await made.begin()
    try:
        yield made
    finally:
        made.launcher.close()
        begun = [
            one
            for pid in rescue._processes(root)
            for one in psutil.Process(pid).children(recursive=True)
        ]
        rescue.end(root)
        for process in begun:  # attempts, and templates that a test has suspended
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(memory, ignore_errors=True)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with host_in(tmp_path) as made:
        yield made


async def ready(host: Host, *modules: str, **files: str) -> None:
    host.preload(*modules, **files)
    assert await host.state() == TemplateState("1", ready=True)


def waits(gate: Path) -> str:
    """A script's lines that end once there is a file."""
    return f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"


LOOKS = """import os, sys
print(os.getppid(), os.getcwd(), sys.argv, os.environ['IRIS_TASK_INDEX'], 'json' in sys.modules)
print({name for name in os.environ if name not in {'PATH', 'IRIS_WORKDIR', 'IRIS_TASK_INDEX'}})
"""


async def test_a_clone_is_the_launchers_child_with_its_own_variables(host: Host):
    await ready(host, "json")
    slot = host.call(LOOKS)
    assert (await host.exit(slot)).code == 0
    [launcher] = rescue._processes(host.root)
    assert (
        host.out(slot)
        == f"{launcher} {slot.workdir} ['call.py', 'a'] {slot.ref.index} True\nset()\n"
    )


async def test_others_read_the_variables_of_a_clone(host: Host):
    await ready(host, "json")
    slot = host.call("import time; time.sleep(100)")
    process = psutil.Process(await host.pid(slot))
    await until(lambda: process.environ().get("IRIS_WORKDIR") == slot.workdir)
    assert process.environ() == host.env(slot)


async def test_what_a_module_has_put_into_the_search_path_ends_no_call(host: Host):
    await ready(
        host, "sets", sets="import pathlib, sys\nsys.path.append(pathlib.Path('/elsewhere'))"
    )
    slot = host.take()
    Path(slot.workdir, "mine.py").write_text("number = 1")
    host.call("import mine; print(mine.number)", slot=slot)
    assert (await host.exit(slot)).code == 0, host.err(slot)
    assert host.out(slot) == "1\n"


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [
        ("import os; os._exit(7)", 7, None),
        ("import sys; sys.exit(3)", 3, None),
        ("raise ValueError('no')", 1, None),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
        ("import os\nif not os.fork(): os._exit(1)\nos.wait()", 0, None),
        (
            "import os\nfor fd in range(64):\n    try: os.close(fd)\n    except OSError: pass",
            0,
            None,
        ),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(0.1,)).start()",
            0,
            None,
        ),
        ("import sys\nfor _ in range(1 << 7): sys.stdout.write('x' * (1 << 20))", 0, None),
    ],
    ids=[
        "exits",
        "exit",
        "raises",
        "kills itself",
        "forks",
        "closes its descriptors",
        "threads",
        "prints 128 MB",
    ],
)
async def test_what_a_clone_does_is_its_own_end_only(
    host: Host, text: str, code: int | None, number: int | None
):
    await ready(host, "json")
    bad, good = host.call(text), host.call("print('fine')")
    assert (await host.exit(good)).code == 0
    assert host.out(good) == "fine\n"
    found = await host.exit(bad)
    assert (found.code, found.signal, found.error) == (code, number, "")
    os.ftruncate(bad.out, 0)


RUNNER = """
import os

def prepare_path(workdir): pass

def load_function(path): return None

def outcome_of(function, items, index, here):
    {}
    return 0, b"vdone"

def leave(result, here):
    with open(f"{{here}}/result", "wb") as file:
        file.write(result)
"""


@pytest.mark.parametrize(
    ("text", "sent", "left"),
    [("pass", b"vdone", []), ("os.closerange(3, 64)", b"", [b"vdone"])],
    ids=["returns", "closes its descriptors"],
)
async def test_the_result_of_a_call_is_sent_or_left_in_a_file(
    host: Host, text: str, sent: bytes, left: list[bytes]
):
    slot = host.take()
    calls = Path(slot.workdir, ".iris-call")
    calls.mkdir()
    (calls / "run.py").write_text(RUNNER.format(text))
    host.preload(slot=slot, function=True)
    assert await host.state() == TemplateState("1", ready=True)
    host.call("", slot=slot)
    found = await host.exit(slot)
    assert (found.code, found.result) == (0, sent), host.err(slot)
    assert [one.read_bytes() for one in calls.glob("result")] == left


async def test_a_clone_over_its_memory_limit_ends_alone(host: Host):
    await ready(host, "json")
    bad = host.call("x = bytearray(200 << 20)", memory=64 * MIB)
    good = host.call("x = bytearray(20 << 20)", memory=64 * MIB)
    assert (await host.exit(good)).code == 0
    found = await host.exit(bad)
    assert found.signal == signal.SIGKILL
    assert found.usage is not None
    assert found.usage.memory_limit_bytes == 64 * MIB


async def test_a_clone_that_never_returns_is_stopped(host: Host):
    await ready(host, "json")
    slot = host.call("import time\nwhile True: time.sleep(1)")
    pid = await host.pid(slot)
    host.launcher.send(StopProcess(slot.ref, 100, 0))
    host.launcher.flush()
    assert (await host.exit(slot)).signal in (signal.SIGTERM, signal.SIGKILL)
    assert not psutil.pid_exists(pid)


async def test_descendants_end_with_the_clone(host: Host):
    await ready(host, "json")
    slot = host.call("import subprocess\nprint(subprocess.Popen(['setsid', 'sleep', '100']).pid)")
    assert (await host.exit(slot)).code == 0
    assert not psutil.pid_exists(int(host.out(slot)))


async def test_a_failed_preload_is_said_with_its_traceback(host: Host):
    slot = host.preload("broken", broken="print('said')\nraise RuntimeError('no such device')")
    failed = TemplateState(
        "1", failed=True, text="RuntimeError: no such device", directory=slot.below
    )
    assert await host.state() == failed
    assert host.out(slot) == "said\n"
    assert "Traceback" in host.err(slot)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os; os._exit(3)", "preloading was ended: exit code 3"),
        ("import os; os.abort()", "preloading was ended: signal 6"),
    ],
)
async def test_a_preload_that_ends_the_template_is_its_owners_failure(
    host: Host, text: str, said: str
):
    slot = host.preload("broken", broken=text)
    assert await host.state() == TemplateState("1", failed=True, text=said, directory=slot.below)


async def test_a_template_with_threads_is_not_cloned(host: Host):
    slot = host.preload(
        "busy",
        busy="import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    )
    assert await host.state() == TemplateState(
        "1", text="preloading left 2 threads", directory=slot.below
    )
    slot = host.call("print('anyway')")
    assert (await host.exit(slot)).code == 0
    assert host.out(slot) == "anyway\n"


async def test_a_template_with_an_open_accelerator_is_not_cloned(host: Host, tmp_path: Path):
    device = tmp_path / "accel0"
    device.touch()
    slot = host.take()
    Path(slot.workdir, "cuda.py").write_text(f"held = open({str(device)!r})")
    host.launcher.send(
        StartTemplate(
            *("1", slot.number, slot.below, ("python3",), host.env(slot), ("cuda",)),
            accelerators=(str(device),),
            bare="bare",
        )
    )
    host.launcher.flush()
    assert await host.state() == TemplateState(
        "1", text=f"preloading opened {device}", directory=slot.below
    )


async def test_a_large_template_ends_soon_after_its_clones(host: Host):
    """What it holds is in no account, since its job holds nothing."""
    host.preload(key="2", bare="bare", small="")
    assert await host.state("2") == TemplateState("2", ready=True)
    small = {one.pid for one in host.templates()}
    host.preload("large", large="held = b'x' * (1 << 30)\n")
    assert await host.state() == TemplateState("1", ready=True)
    slot = host.call(waits(host.root / "go"))
    await host.pid(slot)
    (host.root / "go").touch()
    assert (await host.exit(slot)).code == 0
    assert await host.state() == TemplateState("1")
    assert small <= {one.pid for one in host.templates()}


async def test_clones_outlive_their_template(host: Host):
    await ready(host, "json")
    slot = host.call(waits(host.root / "go") + "print('on')")
    await host.pid(slot)
    for template in host.templates():
        template.kill()
    assert await host.state() == TemplateState("1")
    (host.root / "go").touch()
    assert (await host.exit(slot)).code == 0
    assert host.out(slot) == "on\n"
    again = host.call("print('by its command')")
    assert (await host.exit(again)).code == 0
    assert host.out(again) == "by its command\n"


async def test_a_template_that_does_not_answer_is_replaced(host: Host):
    await ready(host, "json")
    for template in host.templates():
        template.suspend()
    slot = host.call("print('late')")
    assert "has not answered" in (await host.exit(slot)).error
    assert await host.state() == TemplateState("1")


async def test_the_next_launcher_adopts_clones_and_ends_templates(host: Host):
    await ready(host, "json")
    slot = host.call(waits(host.root / "go") + "print('adopted')")
    pid = await host.pid(slot)
    templates = host.templates()
    rescue.end(host.root)
    host.launcher.close()
    after = Host(host.root)
    entries = await after.launcher.connect()
    assert entries[slot.ref].started.pid == pid
    assert len(templates) == 2
    await host.until_gone(templates)
    (host.root / "go").touch()
    await after.exit(slot)
    assert host.out(slot) == "adopted\n"
    after.launcher.close()


async def test_a_template_that_is_ended_can_be_made_again(host: Host):
    await ready(host, "json")
    host.launcher.send(EndTemplate("1"))
    host.launcher.flush()
    assert await host.state() == TemplateState("1")
    await ready(host, "json")


async def test_a_template_that_is_ended_while_it_is_cloned_is_made_again(host: Host):
    bare = await host.bare()
    bare.suspend()
    slot = host.preload("json")
    host.launcher.send(EndTemplate("1"))
    host.launcher.flush()
    assert await host.state() == TemplateState("1")
    shutil.rmtree(slot.workdir)
    bare.resume()
    await ready(host, "json")


async def test_a_bare_template_that_cannot_begin_is_not_its_owners_failure(host: Host):
    bare = host.take()
    Path(bare.workdir, "python3").write_text("#!/bin/sh\nexit 3")
    Path(bare.workdir, "python3").chmod(0o755)
    request = StartTemplate(
        "1", bare.number, bare.below, ("./python3",), host.env(bare), ("json",), bare="bare"
    )
    host.launcher.send(request)
    host.launcher.flush()
    ended = TemplateState("1", text="its interpreter ended: exit code 3", directory=bare.below)
    assert await host.state() == ended


# ── bare templates ────────────────────────────────────────────────────────────────────────────────

HAS = "import sys; print('json' in sys.modules, 'decimal' in sys.modules)"


async def test_templates_of_two_jobs_share_nothing_but_a_bare_one(host: Host):
    bare = await host.bare()
    await ready(host, "json")
    host.preload("decimal", key="2")
    assert await host.state("2") == TemplateState("2", ready=True)
    first, second = host.call(HAS), host.call(HAS, key="2")
    assert [(await host.exit(slot)).code for slot in (first, second)] == [0, 0]
    assert (host.out(first), host.out(second)) == ("True False\n", "False True\n")
    assert len(host.templates()) == 3
    assert bare in host.templates()


async def test_a_bare_template_outlives_those_of_jobs(host: Host):
    bare = await host.bare()
    await ready(host, "json")
    others = [one for one in host.templates() if one != bare]
    host.launcher.send(EndTemplate("1"))
    host.launcher.flush()
    assert await host.state() == TemplateState("1")
    await host.until_gone(others)
    assert host.templates() == [bare]
    await ready(host, "decimal")
    assert bare in host.templates()


async def test_templates_end_before_another_owner_has_their_slot(host: Host):
    slot = host.preload("json", sandbox=Sandbox())
    assert await host.state() == TemplateState("1", ready=True)
    first = host.templates()
    host.preload("decimal", key="2", slot=slot, sandbox=Sandbox())
    assert await host.state() == TemplateState("1")
    assert await host.state("2") == TemplateState("2", ready=True)
    assert len({*first, *host.templates()}) == 3
    host.preload("json", key="3", bare="of another", slot=slot, sandbox=Sandbox())
    assert await host.state("3") == TemplateState("3", ready=True)
    await host.until_gone(first)
    assert len(host.templates()) == 2
    last = host.templates()
    assert (await host.exit(host.call("print('on')", key="", slot=slot))).code == 0
    assert await host.state("3") == TemplateState("3")
    await host.until_gone(last)


async def test_who_waits_for_a_bare_template_that_ends_is_told(host: Host):
    bare = await host.bare()
    bare.suspend()
    host.preload("json")
    bare.kill()
    assert await host.state() == TemplateState("1")
    await ready(host, "json")


async def test_a_template_that_cannot_be_recorded_is_not_made(host: Host):
    bare = await host.bare()
    shutil.rmtree(host.root / "templates")
    (host.root / "templates").touch()
    host.preload("json")
    assert await host.state() == TemplateState("1")
    assert bare in host.templates()
    await host.until_gone(
        one for one in host.templates() if one != bare
    )  # what was cloned was killed
    bare.kill()
    assert await host.state("bare") == TemplateState("bare")
    slot = host.preload("json")
    text = "a template cannot be started: [Errno 17] File exists"
    found = await host.state()
    assert (found.ready, found.text.startswith(text), found.directory) == (False, True, slot.below)
    slot = host.call("print('anyway')")
    assert (await host.exit(slot)).code == 0
