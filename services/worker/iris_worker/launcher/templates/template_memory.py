"""How the process of calls puts itself back: its memory, and what else a call may have changed.

Memory is restored (call_memory.c). All else that the kernel keeps of a process is compared after
each call, and a process in which it differs makes no further one. The launcher sends this source to
each template before that of template_process, so it imports as little as that does.
Out of scope: which process makes which call (template_process).
Source: docs/adr/0162-calls-restore-their-memory.md.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import posix
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SYSTEM = SimpleNamespace(**posix.__dict__)
_TIMER = _signal.getitimer
"""As they are before a call, which may replace what modules have."""
_OF_ITS_OWN = (
    (b"Name", b"\nState"),
    (b"Uid", b"\nFDSize"),
    (b"Groups", b"\nVmPeak"),
    (b"VmLck", b"\nVmHWM"),
    (b"HugetlbPages", b"\nSigQ"),
    (b"SigPnd", b"\nvoluntary"),
)
"""From which line to which one ``status`` tells what only this process changes."""
_NAMES = {
    b"Umask": "its umask",
    b"Threads": "threads",
    b"SigPnd": "a pending signal",
    b"ShdPnd": "a pending signal",
    b"SigBlk": "its signal mask",
    b"SigIgn": "a signal handler",
    b"SigCgt": "a signal handler",
    b"VmLck": "locked memory",
    b"Name": "its name",
}
"""What lines of ``status`` are about, for a person."""
_NAMESPACES = ("user", "mnt", "net", "ipc", "uts", "cgroup", "pid_for_children")
"""All others are only entered by those who have a capability, or the namespace of a user."""
_CAP_SYS_ADMIN = 21
_PAGE_BYTES = 4096
_MADV_COLD = 20
_READ_BYTES = 1 << 16
_RT_SIGACTION, _GET_MEMPOLICY, _KEYCTL, _IOPRIO_GET = 13, 239, 250, 252
"""System calls of x86_64."""
_WRITTEN_BY_PRCTL = (2, 37, 25)
"""The signal at the parent's end, whether it reaps, whether it may read time stamps."""
_RETURNED_BY_PRCTL = (3, 7, 27, 30)
"""Whether it may be dumped, capabilities that it keeps, secure bits, the slack of its timers."""


class CannotRestore(Exception):
    """This process cannot put its memory back."""


class CallMemory:
    """The library that restores memory, in this process. Raises CannotRestore.

    Args:
        library: a descriptor of it. checks: whether each restore is verified.
    """

    def __init__(self, library: int, checks: bool) -> None:
        try:
            import ctypes

            self._api = ctypes.PyDLL(f"/proc/self/fd/{library}")
        except (ImportError, OSError) as error:
            raise CannotRestore(f"{type(error).__name__}: {error}") from None
        self._api.memory_why.restype = ctypes.c_char_p
        self._api.memory_snapshot.restype = self._api.memory_kept.restype = ctypes.c_long
        self._api.memory_restore.argtypes = (ctypes.c_char_p, ctypes.c_long)
        self._string_at = ctypes.string_at
        self._memset = ctypes.memset
        self._kept = ctypes.c_void_p()
        self._pointer = ctypes.byref(self._kept)
        self._checks = checks

    def copy_template(self) -> None:
        """Copy the memory of a template, which its clones compare theirs with."""
        if self._api.memory_of_template(self._checks):
            raise CannotRestore(self._api.memory_why().decode())

    def open(self, link: int) -> None:
        """Open what a snapshot needs. ``link``: where a restore that fails says why."""
        if self._api.memory_open(link, self._checks):
            raise CannotRestore(self._api.memory_why().decode())

    def take(self) -> int:
        """Take the snapshot; returns 0, and after each `restore` here again: how many there
        were.
        """
        restores: int = self._api.memory_snapshot()
        if restores < 0:
            raise CannotRestore(self._api.memory_why().decode())
        return restores

    def restore(self, kept: bytes) -> None:
        """Go on at `take`, with nothing but these bytes. Does not return."""
        self._api.memory_restore(kept, len(kept))

    def kept(self) -> bytes:
        """What the last `restore` was given."""
        size = self._api.memory_kept(self._pointer)
        return self._string_at(self._kept, size)

    def forget(self) -> None:
        """Remove what the last `restore` was given: the next call must not see it."""
        size = self._api.memory_kept(self._pointer)
        self._memset(self._kept, 0, size)


class OtherState:
    """What the kernel keeps of this process besides its memory, as it is before its calls.

    ``link``: the descriptor of the launcher's socket, which a call may close or change.
    """

    def __init__(self, link: int) -> None:
        import ctypes

        api = ctypes.PyDLL(None)
        self._prctl = api.prctl
        self._syscall = api.syscall
        self._alternate_stack = api.sigaltstack
        self._personality = api.personality
        self._buffer = ctypes.create_string_buffer(64)
        self._files = (0, link)
        self._process = _SYSTEM.open("/proc/self", _SYSTEM.O_PATH | _SYSTEM.O_CLOEXEC)
        self._madvise = api.madvise
        self._page = ctypes.create_string_buffer(2 * _PAGE_BYTES)
        self._address = ctypes.c_void_p(
            -(-ctypes.addressof(self._page) // _PAGE_BYTES) * _PAGE_BYTES
        )
        self._page_bytes = ctypes.c_size_t(_PAGE_BYTES)
        self._freed = self._freed_lazily()
        status = _lines(self._status())
        may_enter = int(status[b"CapEff"], 16) >> _CAP_SYS_ADMIN & 1
        self._namespaces = _NAMESPACES if may_enter else _NAMESPACES[:1]
        caught = int(status[b"SigCgt"], 16)
        self._caught = [number for number in range(1, 65) if caught >> (number - 1) & 1]
        self._before: dict[str, Any] = {}
        self._before = self._read()

    def difference(self) -> str:
        """What the call has left, for a person; empty: nothing."""
        try:
            now = self._read()
        except Exception as error:  # noqa: BLE001 - the call may have broken anything
            return f"its state cannot be read: {type(error).__name__}: {error}"
        if now == self._before:
            return ""
        if now["its status"] != self._before["its status"]:
            return _difference_of_status(
                *map(_lines, (self._before["its status"], now["its status"]))
            )
        if now["open files"][0] > self._before["open files"][0]:
            return f"it left {now['open files'][0] - self._before['open files'][0]} open files"
        return f"it changed {next(name for name in now if now[name] != self._before[name])}"

    def _read(self) -> dict[str, Any]:
        return {
            "its status": self._status(),
            "open files": (
                _SYSTEM.stat("/proc/self/fd").st_size,
                *[_description(fd) for fd in self._files],
            ),
            "its timers": (
                self._file("timers"),
                *[_TIMER(which) for which in range(3)],
            ),
            "resource limits": self._file("limits"),
            "its children": _has_children(),
            "its namespaces": [
                _SYSTEM.stat(f"ns/{name}", dir_fd=self._process).st_ino for name in self._namespaces
            ],
            "its root directory": _SYSTEM.stat("/")[1:3],
            "its priority": (
                _SYSTEM.getpriority(_SYSTEM.PRIO_PROCESS, 0),
                _SYSTEM.sched_getscheduler(0),
                self._syscall(_IOPRIO_GET, 1, 0),
                self._file("oom_score_adj"),
            ),
            "a signal handler": [
                self._written(self._syscall, _RT_SIGACTION, number, None, self._buffer, 8)
                for number in self._caught
            ],
            "its signal stack": self._written(self._alternate_stack, None, self._buffer),
            "its attributes": (
                self._personality(0xFFFF_FFFF),
                *[self._prctl(what) for what in _RETURNED_BY_PRCTL],
                *[self._written(self._prctl, what, self._buffer) for what in _WRITTEN_BY_PRCTL],
                *[self._syscall(_KEYCTL, 0, ring, 0) for ring in (-1, -2, -3)],
                self._written(self._syscall, _GET_MEMPOLICY, self._buffer, None, 0, 0, 0),
            ),
            "pages that may vanish": self._lazily_free_bytes(),
        }

    def _status(self) -> list[bytes]:
        """What ``status`` tells that only this process changes."""
        text = self._file("status")
        return [text[text.find(first) : text.find(last)] for first, last in _OF_ITS_OWN]

    def _file(self, name: str) -> bytes:
        """A file of this process in /proc."""
        return _content(name, self._process)

    def _written(self, function: Any, *arguments: Any) -> bytes:
        """What a function of C writes."""
        function(*arguments)
        written: bytes = self._buffer.raw
        return written

    def _freed_lazily(self) -> bytes:
        """How many pages of this host were given back by ``MADV_FREE``; those of this processor
        that were not counted yet are counted first.
        """
        self._madvise(self._address, self._page_bytes, _MADV_COLD)
        return _content("/proc/vmstat").partition(b"\npglazyfree ")[2].partition(b"\n")[0]

    def _lazily_free_bytes(self) -> bytes:
        """Pages that the kernel may take away at any time, although a snapshot has them."""
        if self._freed and self._freed_lazily() == self._freed:
            return b""
        lines = self._file("smaps_rollup").split(b"\n")
        return next((line for line in lines if line.startswith(b"LazyFree")), b"").strip(
            b"LazyFree: 0kB"
        )


def _lines(parts: list[bytes]) -> dict[bytes, bytes]:
    """The fields of ``status`` by name."""
    lines = [line.partition(b":") for line in b"\n".join(parts).split(b"\n")]
    return {name: value.strip() for name, _, value in lines}


def _difference_of_status(before: dict[bytes, bytes], now: dict[bytes, bytes]) -> str:
    name = next(line for line in now if now[line] != before.get(line))
    if name == b"Threads":
        count = int(now[name]) - 1
        return f"it left {count} {'thread' if count == 1 else 'threads'}"
    return f"it changed {_NAMES.get(name, name.decode())}"


def _content(path: str, directory: int | None = None) -> bytes:
    fd = _SYSTEM.open(path, _SYSTEM.O_RDONLY | _SYSTEM.O_CLOEXEC, dir_fd=directory)
    try:
        content: bytes = _SYSTEM.read(fd, _READ_BYTES)
        return content
    finally:
        _SYSTEM.close(fd)


def _description(fd: int) -> tuple[Any, ...]:
    """Which file a descriptor is of, and how it is open; empty: it is closed."""
    try:
        found = _SYSTEM.fstat(fd)
        return found.st_dev, found.st_ino, _SYSTEM.get_blocking(fd), _SYSTEM.get_inheritable(fd)
    except OSError:
        return ()


def _has_children() -> bool:
    """Whether it has a child, that has ended too."""
    try:
        _SYSTEM.waitid(_SYSTEM.P_ALL, 0, _SYSTEM.WEXITED | _SYSTEM.WNOHANG | _SYSTEM.WNOWAIT)
    except ChildProcessError:
        return False
    return True
