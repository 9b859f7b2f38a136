"""Processes that restore their memory after each call: what the next call sees, and what ends
them. Each restore is verified.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.launcher.records.records import Spawned, StopProcess, TemplateState
from iris_worker.launcher.templates import reuse
from iris_worker.launcher.templates.memory_library import build
from tests.integration.test_templates import MIB, Host, host_in, lives
from tests.support.suspend import suspended

pytestmark = [pytest.mark.integration, pytest.mark.needs("cc")]

KEEPS = (
    "import json, os; json.kept = getattr(json, 'kept', 0) + 1\n"
    "print(json.kept, os.getcwd(), os.environ.get('IRIS_TASK_INDEX'), os.environ.get('LEFT'))\n"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture
async def host(tmp_path: Path, library: Path) -> AsyncIterator[Host]:
    async with host_in(tmp_path) as made:
        made.preload("json", library=library)
        assert await made.state() == TemplateState("1", ready=True)
        yield made


async def made_by(host: Host, text: str, **options) -> tuple[int, str]:
    """The process of a call that ends with 0, and what it printed."""
    slot = host.call(text, restores=True, **options)
    found = await host.exit(slot)
    assert (found.code, found.error) == (0, ""), (host.err(slot), found)
    return await host.pid(slot), host.out(slot)


async def note_of(host: Host, slot) -> str:
    answer: Spawned = await host.until(lambda m: isinstance(m, Spawned) and m.ref == slot.ref)
    return answer.note


async def test_calls_share_a_process_and_none_sees_another(host: Host):
    slots = []
    for _ in range(5):
        slot = host.call(KEEPS + "os.environ['LEFT'] = 'x'; os.chdir('/')", restores=True)
        assert (await host.exit(slot)).code == 0, host.err(slot)
        assert host.out(slot) == f"1 {slot.workdir} {slot.ref.index} None\n"
        slots.append(slot)
    assert len({await host.pid(slot) for slot in slots}) == 1


LEAVES = {
    "globals": "json.kept = 5; sys.modules['json'].__dict__['dumps'] = None",
    "patches": "import builtins, posix; builtins.print = None; os.stat = posix.stat = None",
    "memory": "json.left = [bytes(1000) for _ in range(20_000)]; json.more = bytearray(40 << 20)",
    "objects": "json.left = [object() for _ in range(100_000)]",
    "modules": "import decimal; decimal.getcontext().prec = 3; sys.path.append('/x')",
    "a stack": "sys.setrecursionlimit(10**6)\ndef f(n): return n and f(n - 1)\nf(5000)",
    "garbage": "import gc; gc.disable(); gc.unfreeze(); gc.collect()",
    "standard output": "sys.stdout = None; sys.stderr.write = None",
    "rounding": "import ctypes; assert ctypes.CDLL('libm.so.6').fesetround(0x800) == 0",
    "a map": "import mmap; json.left = mmap.mmap(-1, 1 << 20); json.left[:5] = b'there'",
    "locale": "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    "C's variables": "import ctypes; ctypes.CDLL(None).setenv(b'LEFT', b'x', 1)",
    "trace": "sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)",
}


@pytest.mark.parametrize("left", LEAVES.values(), ids=LEAVES.keys())
async def test_what_a_call_leaves_in_memory_is_gone(host: Host, left: str):
    first, _ = await made_by(host, "import json, os, sys\n" + left)
    second, out = await made_by(
        host,
        KEEPS
        + "import sys, ctypes, json\n"
        + "assert json.dumps({}) == '{}' and not hasattr(json, 'left')\n"
        + "assert 'decimal' not in sys.modules and sys.path[-1] != '/x'\n"
        + "assert ctypes.CDLL('libm.so.6').fegetround() == 0\n"
        + "assert not ctypes.CDLL(None).getenv(b'LEFT') and not sys.gettrace()\n"
        + "import gc; assert gc.isenabled() and gc.get_freeze_count() > 100\n",
    )
    assert (second, out[:2]) == (first, "1 ")


DIFFERS = {
    "open files": ("json.left = open('/dev/null')", "it left 1 open files"),
    "a socket": ("import socket; json.left = socket.socket()", "it left 1 open files"),
    "an epoll set": ("import select; json.left = select.epoll()", "it left 1 open files"),
    "closed input": ("os.close(0)", "it changed open files"),
    "another input": ("os.dup2(os.open('/dev/zero', 0), 0)", "open files"),
    "a blocking mode": ("os.set_blocking(0, False)", "it changed open files"),
    "an umask": ("os.umask(0o77)", "it changed its umask"),
    "a signal handler": ("signal.signal(10, lambda *a: 0)", "it changed a signal handler"),
    "an ignored signal": ("signal.signal(10, signal.SIG_IGN)", "it changed a signal handler"),
    "SIGINT's handler": (
        "import ctypes; ctypes.CDLL(None).signal(2, ctypes.c_void_p(1))",
        "it changed a signal handler",
    ),
    "a blocked signal": ("signal.pthread_sigmask(0, {10})", "it changed its signal mask"),
    "a timer": ("signal.setitimer(signal.ITIMER_REAL, 1000)", "it changed its timers"),
    "a limit": (
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
        "it changed resource limits",
    ),
    "a priority": ("os.nice(1)", "it changed its priority"),
    "processors": (
        "import ctypes; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
        "it changed Cpus_allowed",
    ),
    "a thread": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "it left 1 thread",
    ),
    "a name": ("import ctypes; ctypes.CDLL(None).prctl(15, b'other')", "it changed its name"),
    "a dead child": ("os.posix_spawn('/bin/true', ['true'], {}); time.sleep(0.2)", "its children"),
    "a namespace": ("import ctypes; ctypes.CDLL(None).unshare(0x10000000)", "it changed "),
    "an attribute": (
        "import ctypes; ctypes.CDLL(None).prctl(1, 9)",
        "it changed its attributes",
    ),
    "closed output": ("os.close(1)", "it closed its output"),
    "locked memory": (
        "import ctypes, mmap; x = mmap.mmap(-1, 4096)\n"
        "assert ctypes.CDLL(None).mlock(ctypes.byref(ctypes.c_char.from_buffer(x)), 4096) == 0\n"
        "json.left = x",
        "it changed locked memory",
    ),
}


@pytest.mark.parametrize(("left", "why"), DIFFERS.values(), ids=DIFFERS.keys())
async def test_a_process_that_differs_makes_no_further_call(host: Host, left: str, why: str):
    first, _ = await made_by(host, "import json, os, signal, sys, time\n" + left)
    slot = host.call(KEEPS, restores=True)
    assert (await host.exit(slot)).code == 0
    assert host.out(slot).startswith("1 ")
    assert why in await note_of(host, slot)
    assert await host.pid(slot) != first


async def test_calls_in_one_directory_and_in_others_share_a_process(host: Host):
    first = host.call("print('a')", restores=True)
    assert (await host.exit(first)).code == 0
    second = host.call("print('b')", restores=True)
    assert (await host.exit(second)).code == 0
    again = [replace(second, ref=AttemptRef(1, number, 0)) for number in (100, 101)]
    for slot in again:
        host.call("print('c')", slot=slot, restores=True)
        assert (await host.exit(slot)).code == 0
    assert host.out(second) == "b\nc\nc\n"
    assert len({await host.pid(slot) for slot in (first, second, *again)}) == 1


async def test_the_end_of_a_process_is_that_of_its_call_only(host: Host):
    first, _ = await made_by(host, "pass")
    bad = host.call("import os; os._exit(7)", restores=True)
    found = await host.exit(bad)
    assert (await host.pid(bad), found.code) == (first, 7)
    after, out = await made_by(host, KEEPS)
    assert after != first
    assert out.startswith("1 ")


async def test_a_cancelled_call_is_killed_and_the_next_has_another_process(host: Host):
    first, _ = await made_by(host, "pass")
    slot = host.call("import time\nwhile True: time.sleep(1)", restores=True)
    assert await host.pid(slot) == first
    host.launcher.send(StopProcess(slot.ref, 0, 0))
    host.launcher.flush()
    assert (await host.exit(slot)).signal == signal.SIGKILL
    assert not psutil.pid_exists(first)
    after, _ = await made_by(host, "pass")
    assert after != first


async def test_what_atexit_registered_runs_at_the_end_of_its_call(host: Host):
    for _ in range(3):
        _, out = await made_by(host, "import atexit; atexit.register(print, 'end')")
        assert out == "end\n"


async def test_random_state_differs_between_calls(tmp_path: Path, library: Path):
    async with host_in(tmp_path) as host:
        host.preload("random", "ssl", "uuid", "tempfile", library=library)
        assert await host.state() == TemplateState("1", ready=True)
        texts = (
            "import random; print(random.random())",
            "import ssl; print(ssl.RAND_bytes(8))",
            "import uuid; print(uuid.uuid4())",
            "import tempfile; print(next(tempfile._get_candidate_names()))",
        )
        for text in texts:
            made = [await made_by(host, text) for _ in range(4)]
            assert len({pid for pid, _ in made}) == 1, text
            assert len({out for _, out in made}) == 4, text


async def test_a_call_over_its_memory_limit_ends_alone(host: Host):
    first, _ = await made_by(host, "pass", memory=64 * MIB)
    second, _ = await made_by(host, "x = bytearray(48 << 20)", memory=64 * MIB)
    third, _ = await made_by(host, "x = bytearray(48 << 20)", memory=64 * MIB)
    assert first == second == third
    bad = host.call("x = bytearray(200 << 20)", restores=True, memory=64 * MIB)
    assert (await host.exit(bad)).signal == signal.SIGKILL
    await made_by(host, "pass", memory=64 * MIB)


async def test_a_template_without_a_library_forks_and_says_why(host: Host, library: Path):
    host.preload("json", key="2", bare="other", library=Path("/nowhere/library.so"))
    assert await host.state("2") == TemplateState("2", ready=True)
    pids = set()
    for _ in range(2):
        slot = host.call(KEEPS, key="2", restores=True)
        assert (await host.exit(slot)).code == 0
        assert host.out(slot).startswith("1 ")
        assert "its memory is not restored: /nowhere/library.so" in await note_of(host, slot)
        pids.add(await host.pid(slot))
    assert len(pids) == 2


async def test_calls_that_always_leave_something_are_forked_at_last(host: Host):
    leaves = "import json\njson.left = open('/dev/null')"
    notes = []
    for _ in range(12):
        slot = host.call(leaves, restores=True)
        assert (await host.exit(slot)).code == 0
        notes.append(await note_of(host, slot))
    assert notes[1].endswith("was not reused: it left 1 open files")
    assert notes[-1].endswith(
        "is not restored: of 8 calls in a row each said: it left 1 open files"
    )


async def test_a_bare_template_that_began_without_a_library_is_made_again(
    tmp_path: Path, library: Path
):
    async with host_in(tmp_path) as host:
        bare = await host.bare()
        host.preload("json", library=library)
        assert await host.state() == TemplateState("1", ready=True)
        assert not lives(bare)
        made = [await made_by(host, KEEPS) for _ in range(2)]
        assert len({pid for pid, _ in made}) == 1


HIDDEN_PAGE = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
def hide():
    page = ctypes.c_void_p(libc.mmap(None, 4096, 3, 0x22, -1, 0))
    ctypes.memset(page, 1, 4096)
    libc.mprotect(page, 4096, 0)
"""


@pytest.mark.parametrize(
    ("hides", "where"),
    [("hide()", "template"), ("import os; os.register_at_fork(after_in_child=hide)", "clone")],
    ids=["template", "clone"],
)
async def test_calls_fork_where_a_snapshot_cannot_be_taken(
    tmp_path: Path, library: Path, hides: str, where: str
):
    async with host_in(tmp_path) as host:
        host.preload("json", "hidden", library=library, hidden=HIDDEN_PAGE + hides)
        assert await host.state() == TemplateState("1", ready=True), where
        pids = set()
        for _ in range(3):
            slot = host.call(KEEPS, restores=True)
            assert (await host.exit(slot)).code == 0
            assert host.out(slot).startswith("1 ")
            spawned = [m for m in host.answers if isinstance(m, Spawned) and m.ref == slot.ref]
            assert "it has memory that it may not read" in spawned[-1].note
            pids.add(spawned[-1].pid)
        assert len(pids) == 3


async def test_memory_is_given_back_before_it_is_put_back(tmp_path: Path, library: Path):
    gives_back = """
import ctypes, held
libc = ctypes.CDLL(None)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
assert bytes(held.data[-5:]) == b"there"
start = -(-held.address // 4096) * 4096
assert libc.madvise(start, 20 << 20, 4) == 0
fills = bytearray(56 << 20)
"""
    holds = """
import ctypes
data = bytearray(21 << 20)
data[-5:] = b"there"
address = ctypes.addressof(ctypes.c_char.from_buffer(data))
"""
    async with host_in(tmp_path) as host:
        host.preload("held", library=library, held=holds)
        assert await host.state() == TemplateState("1", ready=True)
        made = [await made_by(host, gives_back, memory=80 * MIB) for _ in range(3)]
        assert len({pid for pid, _ in made}) == 1


async def test_many_calls_in_one_process_have_equal_pages(host: Host):
    pids = set()
    for _ in range(100):
        pid, out = await made_by(host, KEEPS + "import decimal; json.left = [0] * 10**5")
        assert out.startswith("1 ")
        pids.add(pid)
    assert len(pids) == 1


async def test_a_call_cannot_find_the_result_of_the_one_before(host: Host):
    """The bytes that survive a restore are removed before the next call begins."""
    looks = (
        "import re\nfound = 0\n"
        "for line in open('/proc/self/maps'):\n"
        "    where, mode = line.split()[:2]\n"
        "    start, end = (int(one, 16) for one in where.split('-'))\n"
        "    if 'rw-s' in mode:\n"
        "        with open('/proc/self/mem', 'rb', 0) as file:\n"
        "            file.seek(start); found += file.read(1 << 17).count(os.getcwd().encode()[:-4])\n"
        "print(found)\n"
    )
    outs = [await made_by(host, "import os\n" + looks) for _ in range(3)]
    assert [out for _, out in outs] == ["0\n"] * 3


CODE = """
import ctypes, os
line = next(line for line in open('/proc/self/maps') if 'r-xp' in line)
here = int(line.split('-')[0], 16)
def first_byte():
    return ctypes.string_at(here, 1)[0]
os.register_at_fork(after_in_child=first_byte)  # so that the snapshot has the page
"""
CHANGES_CODE = """
import code_page, os
fd = os.open('/proc/self/mem', os.O_RDWR)
os.pwrite(fd, bytes([code_page.first_byte() ^ 1]), code_page.here)
os.close(fd)
"""


async def test_a_difference_that_was_found_is_in_the_log_of_the_worker(
    tmp_path: Path, library: Path, capfd: pytest.CaptureFixture[str]
):
    async with host_in(tmp_path) as host:
        host.preload("code_page", "json", library=library, code_page=CODE)
        assert await host.state() == TemplateState("1", ready=True)
        first = host.call(CHANGES_CODE, restores=True)
        assert (await host.exit(first)).code == 0, host.err(first)
        second = host.call(KEEPS, restores=True)
        assert (await host.exit(second)).code == 0, host.err(second)
        assert reuse.DIFFERS in await note_of(host, second)
        assert host.out(second)[:2] == "1 "
    said = f"memory was not restored after a call of job {first.ref.job}: {reuse.DIFFERS}"
    assert f"iris launcher: {said}\n" in capfd.readouterr().err


WAITS = """
import time
while not os.path.exists("go"):
    time.sleep(0.01)
"""


async def test_what_a_process_said_before_its_end_is_read_after_it(tmp_path: Path, library: Path):
    """A launcher that was stopped finds a call's end, its process's, and the next call at once."""
    async with host_in(tmp_path) as host:
        host.preload("code_page", "json", library=library, code_page=CODE)
        assert await host.state() == TemplateState("1", ready=True)
        first = host.call(CHANGES_CODE + WAITS, restores=True)
        process = psutil.Process(await host.pid(first))
        with suspended([host.process().pid]):
            Path(first.workdir, "go").touch()
            await host.until_gone([process])
            second = host.call(KEEPS, restores=True)
        assert (await host.exit(first)).code == 0
        assert (await host.exit(second)).code == 0, host.err(second)
        assert reuse.DIFFERS in await note_of(host, second)
