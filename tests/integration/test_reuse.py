"""Processes that make several calls of a job: which calls they get, what they keep, and what ends
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.launcher import rescue
from iris_worker.launcher.cgroups.files import Cgroup
from iris_worker.launcher.records.records import (
    EmptySlot,
    EndTemplate,
    Pinged,
    PingLauncher,
    Sandbox,
    SlotEmptied,
    Spawned,
    Started,
    StartProcess,
    StartTemplate,
    StopProcess,
    TemplateState,
)
from tests.integration.test_templates import CLOCK, MIB, Host, host_in, lives, ready, waits
from tests.support import worker

pytestmark = pytest.mark.integration

KEEPS = (
    "import json, os; json.kept = getattr(json, 'kept', 0) + 1\n"
    "print(json.kept, os.getcwd(), os.environ.get('IRIS_TASK_INDEX'), os.environ.get('LEFT'))\n"
)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with host_in(tmp_path) as made:
        yield made


async def spawned(host: Host, slot) -> Spawned:
    return await host.until(lambda m: isinstance(m, Spawned) and m.ref == slot.ref)


async def made_by(host: Host, text: str, **options) -> tuple[int, str]:
    """The process of a call that ends with 0, and what it printed."""
    slot = host.call(text, reuse=10, **options)
    found = await host.exit(slot)
    assert (found.code, found.error) == (0, ""), host.err(slot)
    return await host.pid(slot), host.out(slot)


def wait_for_end(pid: int) -> None:
    """Wait for the end of a process, which may be over."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)


async def test_calls_that_follow_one_another_share_a_process(host: Host):
    await ready(host, "json")
    slots = []
    for number in (1, 2, 3):
        slot = host.call(KEEPS + "os.environ['LEFT'] = 'x'; os.chdir('/')", reuse=3)
        assert (await host.exit(slot)).code == 0, host.err(slot)
        assert host.out(slot) == f"{number} {slot.workdir} {slot.ref.index} None\n"
        slots.append(slot)
    assert len({await host.pid(slot) for slot in slots}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "os.environ['LEFT'] = os.environ.pop('IRIS_TASK_INDEX')",
        "os.environ = dict(os.environ, LEFT='x', IRIS_TASK_INDEX='x')",
        "os.environ.clear()",
    ],
)
async def test_each_call_and_what_it_starts_has_its_own_variables(host: Host, text: str):
    await ready(host, "json")
    started = "import subprocess; print(subprocess.check_output(['sh', '-c', 'echo $IRIS_TASK_INDEX.$LEFT'], text=True))\n"
    slots = []
    for _ in range(3):
        slot = host.call(f"{KEEPS}{started}{text}", reuse=3)
        assert (await host.exit(slot)).code == 0, host.err(slot)
        assert host.out(slot).split()[1:] == [
            slot.workdir,
            str(slot.ref.index),
            "None",
            f"{slot.ref.index}.",
        ]
        slots.append(slot)
    assert len({await host.pid(slot) for slot in slots}) == 1


async def test_a_process_makes_as_many_calls_as_were_allowed(host: Host):
    await ready(host, "json")
    pids = []
    for _ in range(5):
        slot = host.call("pass", reuse=2)
        assert (await host.exit(slot)).code == 0
        pids.append(await host.pid(slot))
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert not psutil.pid_exists(pids[0])


async def test_calls_that_were_not_to_share_a_process_do_not(host: Host):
    await ready(host, "json")
    first, _ = await made_by(host, "pass")
    slot = host.call("pass")
    assert (await host.exit(slot)).code == 0
    assert await host.pid(slot) != first


async def test_calls_at_the_same_time_have_processes_of_their_own(host: Host):
    await ready(host, "json")
    await made_by(host, "pass")
    pids = []
    slots = [host.call(waits(host.root / "go"), reuse=10) for _ in range(3)]
    for slot in slots:
        await host.pid(slot)
    (host.root / "go").touch()
    for slot in slots:
        assert (await host.exit(slot)).code == 0
        pids.append(await host.pid(slot))
    assert len(set(pids)) == 3


async def test_a_call_gets_the_process_of_the_call_before_in_its_directory(host: Host):
    await ready(host, "json")
    slots = [host.call(waits(host.root / "go"), reuse=10) for _ in range(3)]
    pids = [await host.pid(slot) for slot in slots]
    (host.root / "go").touch()
    for slot in slots:
        assert (await host.exit(slot)).code == 0
    following = [replace(slot, ref=AttemptRef(1, 100 + slot.ref.index, 0)) for slot in slots]
    for slot in following:
        host.call("pass", slot=slot, reuse=10)
    assert [await host.pid(slot) for slot in following] == pids


async def test_another_job_gets_no_process_of_this_one(host: Host):
    await ready(host, "json")
    host.preload("json", key="2")
    await host.state("2")
    mine, _ = await made_by(host, KEEPS)
    other, out = await made_by(host, KEEPS, key="2")
    assert other != mine
    assert out.startswith("1 ")


async def test_a_process_with_other_limits_is_not_reused(host: Host):
    await ready(host, "json")
    first, _ = await made_by(host, "pass", memory=64 * MIB)
    second, _ = await made_by(host, "pass", memory=128 * MIB)
    assert first != second


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [
        ("import os; os._exit(7)", 7, None),
        ("import sys; sys.exit(3)", 3, None),
        ("raise KeyboardInterrupt", 1, None),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL),
    ],
    ids=["exits", "exit", "interrupts", "kills itself"],
)
async def test_a_call_that_ends_its_process_ends_alone(
    host: Host, text: str, code: int | None, number: int | None
):
    await ready(host, "json")
    before, _ = await made_by(host, "pass")
    bad = host.call(text, reuse=10)
    found = await host.exit(bad)
    assert (await host.pid(bad), found.code, found.signal, found.error) == (
        before,
        code,
        number,
        "",
    )
    after, out = await made_by(host, KEEPS)
    assert after != before
    assert out.startswith("1 ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\nfor fd in range(64):\n    try: os.close(fd)\n    except OSError: pass", None),
        ("import os; os.closerange(3, 1000)", None),
        ("import sys; sys.stdout.close()", "it closed its output"),
        (
            "import os; os.close(1); here = open('x', 'w'); os.dup2(here.fileno(), 1)",
            "it closed its output",
        ),
        (
            "import threading\nthreading.Thread(target=threading.main_thread().join).start()",
            "it left 1 thread",
        ),
        (
            "import threading, time\n"
            "for _ in range(2): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "it left 2 threads",
        ),
        ("import json; json.left = [open('/dev/null') for _ in range(300)]", "open files"),
        (
            "import json, subprocess; json.left = subprocess.Popen(['sleep', '100'])",
            "it left processes",
        ),
        (
            "import subprocess; subprocess.run(['setsid', '-f', 'sleep', '100'])",
            "it left processes",
        ),
        ("import os\nif not os.fork():\n    import time\n    time.sleep(100)", "it left processes"),
    ],
    ids=[
        *(
            "closes its descriptors",
            "closes those it was given",
            "closes stdout",
            "replaces stdout",
        ),
        *("a thread", "daemon threads", "files", "a child", "a daemon", "a fork"),
    ],
)
async def test_what_leaves_something_running_or_open_is_not_reused(
    host: Host, text: str, said: str | None
):
    await ready(host, "json")
    bad = host.call(text, reuse=10)
    assert (await host.exit(bad)).code == 0
    good = host.call(KEEPS, reuse=10)
    assert (await host.exit(good)).code == 0
    assert host.out(good).startswith("1 ")
    note = (await spawned(host, good)).note
    assert said in note if said is not None else note == ""
    assert not psutil.pid_exists(await host.pid(bad))


@pytest.mark.parametrize(
    "then", ["", "; os.dup2(json.left, 0); os.close(json.left)"], ids=["beside", "as its input"]
)
async def test_a_process_that_left_an_accelerator_open_is_not_reused(
    host: Host, tmp_path: Path, then: str
):
    device, slot = tmp_path / "accel0", host.take()
    device.touch()
    command, env, devices = ("python3",), host.env(slot), (str(device),)
    host.launcher.send(
        StartTemplate(
            "1", slot.number, slot.below, command, env, ("json",), accelerators=devices, bare="bare"
        )
    )
    host.launcher.flush()
    assert await host.state() == TemplateState("1", ready=True)
    await made_by(host, f"import json, os; json.left = os.open({str(device)!r}, 0)" + then)
    good = host.call(KEEPS, reuse=10)
    assert (await host.exit(good)).code == 0
    assert (await spawned(host, good)).note.endswith(f"it left {device} open")


async def test_a_fork_that_returns_beside_its_call_does_not_speak_for_it(host: Host):
    await ready(host, "json")
    slot = host.call(
        "import os, time\npid = os.fork()\nif not pid: os._exit(5)\nos.waitpid(pid, 0)", reuse=10
    )
    assert (await host.exit(slot)).code == 0


async def test_a_process_that_holds_much_memory_is_not_reused(host: Host):
    await ready(host, "json")
    await made_by(host, "import json; json.left = bytearray(40 << 20)", memory=64 * MIB)
    good = host.call(KEEPS, reuse=10, memory=64 * MIB)
    assert (await host.exit(good)).code == 0
    assert "of memory" in (await spawned(host, good)).note
    assert host.out(good).startswith("1 ")


async def test_a_call_over_the_memory_limit_ends_alone(host: Host):
    await ready(host, "json")
    await made_by(host, "pass", memory=64 * MIB)
    bad = host.call("x = bytearray(200 << 20)", reuse=10, memory=64 * MIB)
    found = await host.exit(bad)
    assert found.signal == signal.SIGKILL
    assert found.usage is not None
    assert found.usage.memory_limit_bytes == 64 * MIB
    await made_by(host, "pass", memory=64 * MIB)


async def test_each_call_is_charged_for_its_own_use(host: Host):
    await ready(host, "json")
    burns = (
        "import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass"
    )
    used = []
    for text in (burns, "pass"):
        slot = host.call(text, reuse=10)
        found = await host.exit(slot)
        assert found.usage is not None
        used.append(found.usage.cpu_ms)
    assert used[0] >= 250
    assert used[1] < 100


async def test_a_call_is_stopped_with_its_process_and_the_next_has_another(host: Host):
    await ready(host, "json")
    before, _ = await made_by(host, "pass")
    slot = host.call("import time\nprint('there', flush=True)\nwhile True: time.sleep(1)", reuse=10)
    assert await host.pid(slot) == before
    host.launcher.send(StopProcess(slot.ref, 100, 0))
    host.launcher.flush()
    assert (await host.exit(slot)).signal in (signal.SIGTERM, signal.SIGKILL)
    after, _ = await made_by(host, "pass")
    assert after != before


async def test_a_process_that_gets_no_call_ends_with_what_it_registered(host: Host):
    await ready(host, "json")
    pid, _ = await made_by(
        host, f"import atexit; atexit.register(open, {str(host.root / 'ended')!r}, 'w')"
    )
    wait_for_end(pid)
    assert (host.root / "ended").exists()


async def test_a_process_that_waits_ends_with_its_template(host: Host):
    await ready(host, "json")
    pid, _ = await made_by(host, "pass")
    host.launcher.send(EndTemplate("1"))
    host.launcher.flush()
    wait_for_end(pid)


CONFINED = Sandbox(os.getuid(), os.getgid())


async def emptied(host: Host, slot: int, kept: str = "") -> SlotEmptied:
    host.launcher.send(EmptySlot(slot, kept))
    host.launcher.flush()
    answer: SlotEmptied = await host.until(lambda m: isinstance(m, SlotEmptied) and m.slot == slot)
    host.answers.remove(answer)
    return answer


async def test_a_confined_process_ends_before_another_job_has_its_slot(host: Host):
    slot = host.preload("json", key="1/0", sandbox=CONFINED)
    assert await host.state("1/0") == TemplateState("1/0", ready=True)
    first, _ = await made_by(host, "pass", key="1/0", slot=slot, sandbox=CONFINED)
    host.slots.pass_on(slot)
    second, out = await made_by(host, KEEPS, key="1/0", slot=host.take(), sandbox=CONFINED)
    assert (second, out.startswith("1 ")) == (first, True)
    waiting = [psutil.Process(first), *host.templates()]
    assert len(waiting) == 3
    assert await emptied(host, slot.number + 1) == SlotEmptied(slot.number + 1)
    assert all(map(lives, waiting))
    assert await emptied(host, slot.number, "bare") == SlotEmptied(slot.number)
    assert [psutil.pid_exists(one.pid) for one in waiting].count(True) == 1
    assert await emptied(host, slot.number) == SlotEmptied(slot.number)
    assert not any(psutil.pid_exists(one.pid) for one in waiting)


async def test_what_starts_beside_an_ordered_clone_leaves_its_template(host: Host):
    slot = host.preload("json", key="1/0", sandbox=CONFINED)
    await host.state("1/0")
    templates = host.templates()
    for one in templates:
        one.suspend()
    ordered = host.call("pass", key="1/0", slot=slot, sandbox=CONFINED)
    beside = replace(host.take(), number=slot.number, directory=slot.directory)
    host.call("pass", key="", slot=beside, sandbox=CONFINED)
    assert (await host.exit(beside)).code == 0
    for one in templates:
        one.resume()
    assert (await host.exit(ordered)).code == 0
    assert all(map(lives, templates))


async def test_a_slot_is_empty_when_a_template_that_is_being_made_is_gone_too(host: Host):
    bare = host.preload(key="bare", sandbox=CONFINED)
    assert await host.state("bare") == TemplateState("bare", ready=True)
    for template in host.templates():
        template.suspend()
    host.preload("json", key="1/0", slot=bare, sandbox=CONFINED)
    assert await emptied(host, bare.number, "bare") == SlotEmptied(bare.number)
    assert host.templates() == []
    assert await host.state("1/0") == TemplateState("1/0")


async def test_the_next_worker_gets_no_answer_to_what_the_last_one_asked(host: Host):
    slot = host.preload(key="bare", sandbox=CONFINED)
    assert await host.state("bare") == TemplateState("bare", ready=True)
    [template], [launcher] = host.templates(), map(psutil.Process, rescue._processes(host.root))
    launcher.suspend()
    host.launcher.send(EmptySlot(slot.number))
    host.launcher.flush()
    after = Host(host.root)
    connected = asyncio.ensure_future(after.begin())
    await asyncio.sleep(0)  # it waits to be accepted
    launcher.resume()
    await connected
    await after.until_gone([template])
    after.launcher.send(PingLauncher())
    after.launcher.flush()
    assert await after.until(lambda m: isinstance(m, SlotEmptied | Pinged)) == Pinged()
    after.launcher.close()


async def test_a_process_that_was_killed_while_it_waits_harms_no_call(host: Host):
    await ready(host, "json")
    pid, _ = await made_by(host, "pass")
    os.kill(pid, signal.SIGKILL)
    after, _ = await made_by(host, "pass")
    assert after != pid


async def test_the_next_worker_goes_on_with_what_waits(host: Host):
    await ready(host, "json")
    slot = host.call(waits(host.root / "go"), reuse=10)
    pid = await host.pid(slot)
    host.launcher.close()
    after = Host(host.root)
    entries = await after.launcher.connect()
    assert entries[slot.ref].started.pid == pid
    (host.root / "go").touch()
    assert (await after.exit(slot)).code == 0
    after._next = 100
    again, _ = await made_by(after, "pass")
    assert again == pid
    after.launcher.close()


async def test_the_next_launcher_adopts_a_reused_process(host: Host):
    await ready(host, "json")
    before, _ = await made_by(host, "pass")
    slot = host.call(waits(host.root / "go") + "print('adopted')", reuse=10)
    pid = await host.pid(slot)
    assert pid == before
    rescue.end(host.root)
    host.launcher.close()
    after = Host(host.root)
    entries = await after.launcher.connect()
    assert entries[slot.ref].started.pid == pid
    assert entries[slot.ref].exit is None
    (host.root / "go").touch()
    await after.exit(slot)
    assert host.out(slot) == "adopted\n"
    assert not worker.lives(pid)
    after.launcher.close()


@pytest.mark.parametrize("waiting", [1, 2])
async def test_a_call_that_ends_its_process_at_once_is_made_once(host: Host, waiting: int):
    """Its end is noticed while others are started, before the launcher has read that it had
    begun.
    """
    await ready(host, "json")
    begun = [host.call(waits(host.root / "go"), reuse=10) for _ in range(waiting)]
    for slot in begun:
        await host.pid(slot)
    (host.root / "go").touch()
    for slot in begun:
        await host.exit(slot)
    made = host.root / "made"
    flush, host.launcher.flush = host.launcher.flush, lambda: None
    text = f"import os\nwith open({str(made)!r}, 'a') as file: file.write('x')\nos._exit(3)"
    slot = host.call(text, reuse=10)
    for _ in range(20):
        other = host.take()
        started = (other.ref, 0, other.number, CLOCK.steady_s(), 0.0, CLOCK.wall_ms(), None)
        record = Started(*started, directory=other.directory)
        host.launcher.send(
            StartProcess(record, ("true",), host.env(other), cgroup=Cgroup(pids=100))
        )
    host.launcher.flush = flush
    flush()
    assert (await host.exit(slot)).code == 3
    assert made.read_text() == "x"
