"""What restores the memory of a process of calls: each hazard in a process of its own, which verifies
all pages after each restore.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iris_worker.launcher.templates import memory_library, template_memory
from iris_worker.launcher.templates.memory_library import LibraryBuilder, NotBuilt, build

needs_compiler = pytest.mark.needs("cc")

PROGRAM = """
import ctypes, os, sys
sys.path.insert(0, {modules!r})
from template_memory import CallMemory, OtherState
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = libc.malloc.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.madvise.argtypes = libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.malloc.argtypes = (ctypes.c_size_t,)
PAGE, READ, WRITE, ANONYMOUS, FIXED = 4096, 1, 2, 0x22, 0x32


def mapped(pages, at=None, flags=ANONYMOUS, mode=READ | WRITE):
    address = libc.mmap(at, pages * PAGE, mode, flags, -1, 0)
    assert address and address != 2**64 - 1
    return address


def put(address, data):
    ctypes.memmove(address, data, len(data))


def at(address, size=5):
    return ctypes.string_at(address, size)


def figures():
    found = (ctypes.c_long * 6)()
    memory._api.memory_figures(found)
    return dict(zip(("round", "pages", "own", "copied", "wiped", "unmapped"), found))


memory = CallMemory(os.open({library!r}, os.O_RDONLY), True)
kept = {{"calls": 0}}
{setup}
memory.copy_template()
memory.open(2)
state = OtherState(2)
done = memory.take()
assert kept == {{"calls": 0}}, kept
kept["calls"] += 1
{call}
if done < {rounds}:
    memory.restore(b"%d" % done)
os.write(1, b"done")
os._exit(0)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


def run(
    library: Path, setup: str, call: str, rounds: int = 3, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    modules = str(Path(template_memory.__file__).parent)
    program = PROGRAM.format(
        modules=modules, library=str(library), setup=setup, call=call, rounds=rounds
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


RESTORED = {
    "a page that is given back": (
        "here = mapped(4); put(here, b'there')",
        "assert at(here) == b'there'; put(here, b'wrong')\n"
        "assert libc.madvise(here, 4 * PAGE, 4) == 0; assert at(here) == bytes(5)",
    ),
    "a page that was never there": (
        "here = mapped(400)",
        "assert at(here) == at(here + 300 * PAGE) == bytes(5)\n"
        "put(here, b'wrong'); put(here + 100 * PAGE, bytes([7]) * 250 * PAGE)",
    ),
    "protection that is changed and changed back": (
        "here = mapped(4); put(here, b'there')",
        "assert at(here) == b'there'; assert libc.mprotect(here, PAGE, READ) == 0\n"
        "assert libc.mprotect(here, PAGE, READ | WRITE) == 0; put(here, b'wrong')",
    ),
    "huge pages": (
        "here = mapped(2048); here += -here % 2**21; assert libc.madvise(here, 2**21, 14) == 0\n"
        "put(here, bytes([5]) * 2**21)",
        "assert at(here + 2**20, 2**20) == bytes([5]) * 2**20; put(here + 2**20, b'wrong')",
    ),
    "a new huge page": (
        "here = mapped(2048); here += -here % 2**21; assert libc.madvise(here, 2**21, 14) == 0",
        "assert at(here + 2**20) == bytes(5); put(here + 2**20, b'wrong')",
    ),
    "memory that a fork would wipe": (
        "here = mapped(1); assert libc.madvise(here, PAGE, 18) == 0; put(here, b'there')",
        "assert at(here) == (bytes(5) if done else b'there'); put(here, b'wrong')",
    ),
    "a stack that grew": (
        "class Large(ctypes.Structure): _fields_ = [('bytes', ctypes.c_char * (1 << 20))]\n"
        "def stack(): return [line for line in open('/proc/self/maps') if '[stack]' in line]\n"
        "large, small = Large(), stack()",
        "libc.getpid(large)  # an argument by value lies on the stack\nassert stack() != small",
    ),
    "the heap of C": (
        "libc.mallopt(-3, 1 << 30)",
        "blocks = [libc.malloc(100_000) for _ in range(100)]\n"
        "for block in blocks: put(block, bytes([7]) * 1000)",
    ),
    "new mappings": (
        "",
        "here = mapped(100); put(here, b'there'); assert libc.madvise(here, PAGE, 14) == 0\n"
        "mapped(100, mode=0); mapped(10, flags=0x21)",
    ),
    "a mapping that is not accessible": (
        "here = mapped(1 << 20, flags=0x4022); libc.mprotect(here, PAGE << 20, 0)",
        "assert libc.mprotect(here, PAGE << 20, READ | WRITE) == 0; assert at(here) == bytes(5)\n"
        "put(here, b'wrong'); assert libc.mprotect(here, PAGE << 20, 0) == 0",
    ),
    "a child that shares pages": (
        "here = mapped(4); put(here, b'there')",
        "assert at(here) == b'there'; put(here, b'wrong')\n"
        "if not os.fork(): put(here, b'child'); os._exit(0)\n"
        "os.wait(); put(here + PAGE, b'wrong')",
    ),
    "a read of the kernel into memory": (
        "here = mapped(4); put(here, b'there'); zero = os.open('/dev/zero', os.O_RDONLY)",
        "assert at(here) == b'there'; assert libc.read(zero, ctypes.c_void_p(here), PAGE) == PAGE",
    ),
    "more pages than are protected each time": (
        "here = mapped(4000); put(here, bytes([5]) * 4000 * PAGE)",
        "assert at(here + 3999 * PAGE, PAGE) == bytes([5]) * PAGE\n"
        "if done % 2: put(here, bytes([6]) * 4000 * PAGE)",
    ),
    "the number of the processor": (
        "cpus = sorted(os.sched_getaffinity(0))",
        "os.sched_setaffinity(0, {cpus[done % len(cpus)]})\n"
        "assert libc.sched_getcpu() == cpus[done % len(cpus)]",
    ),
    "a module in C": ("", "import _decimal, _struct"),
    "signals in the middle": (
        "import signal\nheard = []\nsignal.signal(signal.SIGALRM, lambda *a: heard.append(1))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.00013)",
        "for _ in range(200): pass",
    ),
}


@needs_compiler
@pytest.mark.parametrize(("setup", "call"), RESTORED.values(), ids=RESTORED.keys())
def test_memory_is_that_of_the_snapshot_again(library: Path, setup: str, call: str):
    rounds = 500 if "SIGALRM" in setup else 6
    found = run(library, setup, call, rounds)
    assert (found.returncode, found.stdout, found.stderr) == (0, "done", "")


ENDS = {
    "unmaps memory of the snapshot": (
        "here = mapped(4)",
        "libc.munmap(here + PAGE, PAGE)",
        "it changed mappings of the snapshot",
    ),
    "moves memory of the snapshot": (
        "here = mapped(4)",
        "assert libc.mremap(here, 4 * PAGE, 400 * PAGE, 1)",
        "it changed mappings of the snapshot",
    ),
    "maps other memory in its place": (
        "here = mapped(6, mode=READ); mapped(4, here + PAGE, FIXED); put(here + PAGE, b'there')",
        "mapped(4, here + PAGE, FIXED)",
        "it replaced a mapping of the snapshot",
    ),
    "maps a file in its place": (
        "here = mapped(4)",
        "fd = os.open('/bin/sh', 0); libc.mmap(here, PAGE, READ, 0x12, fd, 0)",
        "it changed mappings of the snapshot",
    ),
    "leaves it read-only": (
        "here = mapped(4)",
        "libc.mprotect(here, PAGE, READ)",
        "it changed mappings of the snapshot",
    ),
    "writes what is read-only": (
        "here = mapped(4); put(here, b'there'); libc.mprotect(here, 4 * PAGE, READ)",
        "fd = os.open('/proc/self/mem', os.O_RDWR); os.pwrite(fd, b'wrong', here)",
        "it wrote memory that is read-only",
    ),
    "changes code": (
        "import re\nline = next(line for line in open('/proc/self/maps') if 'r-xp' in line)\n"
        "here = int(line.split('-')[0], 16); at(here)",
        "fd = os.open('/proc/self/mem', os.O_RDWR); os.pwrite(fd, at(here, 1)[::-1] + b'x', here)",
        "a page differs from the snapshot",
    ),
    "closes what notes the pages": (
        "",
        "os.closerange(3, 100)",
        "it replaced a mapping of the snapshot",
    ),
}


@needs_compiler
@pytest.mark.parametrize(("setup", "call", "why"), ENDS.values(), ids=ENDS.keys())
def test_what_cannot_be_put_back_ends_the_process(library: Path, setup: str, call: str, why: str):
    found = run(library, setup, call)
    assert (found.returncode, found.stdout, found.stderr) == (1, "", f"l{why}")


@needs_compiler
def test_pages_that_the_kernel_may_take_away_are_found(library: Path):
    found = run(
        library,
        "here = mapped(4); put(here, b'there')",
        "assert state.difference() == '', state.difference()\n"
        "assert libc.madvise(here, 4 * PAGE, 8) == 0\n"
        "assert state.difference() == 'it changed pages that may vanish', state.difference()",
        rounds=0,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "done", "")


@needs_compiler
def test_only_what_the_template_does_not_have_is_copied_again(library: Path):
    found = run(
        library,
        "here = mapped(3000); put(here, bytes([5]) * 3000 * PAGE)",
        "found = figures()\nassert found['pages'] > 3000 and found['own'] < 1000, found",
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "done", "")


KILLED = """
import signal, time
for number in range(60):
    pid = os.fork()
    if not pid:
        memory.copy_template()
        memory.open(2)
        done = memory.take()
        assert kept == {"calls": 0}
        kept["calls"] = [0] * 10_000
        memory.restore(b"")
    time.sleep(0.01 + number * 0.000_173)
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
"""


@needs_compiler
def test_a_process_is_killed_at_any_time_and_harms_no_other(library: Path):
    found = run(library, KILLED, "")
    assert (found.returncode, found.stdout, found.stderr) == (0, "done", "")


USES = """
import json
json.kept = getattr(json, "kept", 0) + 1
assert json.kept == 1
json.left = [bytes(100) for _ in range(2000)]
"""


@needs_compiler
def test_hundreds_of_calls_have_equal_pages(library: Path):
    found = run(library, "import json", USES, rounds=300)
    assert (found.returncode, found.stdout, found.stderr) == (0, "done", "")


@needs_compiler
@pytest.mark.soak
def test_a_hundred_thousand_calls_have_equal_pages(library: Path):
    found = run(library, "import json", USES, rounds=100_000, timeout=3000)
    assert (found.returncode, found.stdout, found.stderr) == (0, "done", "")


# ── where it is built ─────────────────────────────────────────────────────────────────────────────


@needs_compiler
def test_a_library_is_built_once(tmp_path: Path):
    first = build(tmp_path / "new")
    before = first.stat()
    assert build(tmp_path / "new") == first
    assert first.stat() == before
    assert [one.name for one in first.parent.iterdir()] == [first.name]


async def test_without_a_compiler_there_is_none_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(memory_library, "kernel_refusal", lambda: "")
    with pytest.raises(NotBuilt, match="there is no compiler: none of cc, gcc, clang"):
        build(tmp_path)
    builder = LibraryBuilder(tmp_path, is_wanted=True)
    found = await builder.library()
    assert (found.path, found.why) == ("", builder.refusal)
    assert found.why.startswith("there is no compiler")


async def test_an_operator_may_want_none(tmp_path: Path):
    builder = LibraryBuilder(tmp_path, is_wanted=False)
    assert (await builder.library()).why == builder.refusal == "restored_calls of [worker] is off"


@needs_compiler
async def test_a_source_that_does_not_compile_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = tmp_path / "call_memory.c"
    source.write_text('#error "not here"\n')
    monkeypatch.setattr(memory_library, "SOURCE", source)
    with pytest.raises(NotBuilt, match=r"failed: .*not here"):
        build(tmp_path)
