"""Finds the processes that left their task's group, and the attempt of each. Linux only, by /proc.

The worker is a subreaper: a process whose parents have died becomes its child, so a double fork
does not detach it. Its attempt follows from its session and, when it left that too, from its
initial environment. Out of scope: killing; the runner decides what must end.
"""

from __future__ import annotations

import os

from iris_worker.environment import BESIDE

_PAGE = 1 << 16
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_DIGITS = 10
WORKDIR = "IRIS_WORKDIR"
_WORKDIR = f"{WORKDIR}=".encode()
_BESIDE = tuple(f"{name}=".encode() for name in BESIDE)
_PARENT = 4 - 3
_GROUP = 5 - 3
_CPU_TICKS = slice(14 - 3, 16 - 3)
_SESSION = 6 - 3
_START_TIME = 22 - 3
_RESIDENT = 24 - 3
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_EXIT_CODE = 52 - 3


class Children:
    """The children of a process."""

    def __init__(self, of: int) -> None:
        try:
            self._fd = os.open(f"/proc/{of}/task/{of}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # the kernel does not provide it
            self._fd = -1

    def pids(self) -> set[int]:
        """Their process ids, zombies included; empty when it has ended, and where the kernel does
        not provide them.
        """
        if self._fd < 0:
            return set()
        try:
            found = data = os.pread(self._fd, _PAGE, 0)
            while len(data) == _PAGE:
                data = os.pread(self._fd, _PAGE, len(found))
                found += data
        except ProcessLookupError:
            return set()
        return set(map(int, found.split()))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def children(pid: int) -> set[int]:
    """The children of a process, as `Children.pids`."""
    found = Children(pid)
    try:
        return found.pids()
    finally:
        found.close()


def session_of(pid: int) -> int:
    """Its session, which is the process id of its task's first process; 0 when it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def slot_of(pid: int, attempts: str) -> int | None:
    """The slot below directory ``attempts`` in which ``pid`` was started, by its initial
    environment.
    """
    for entry in environ(pid):
        if entry.startswith(_WORKDIR):
            path = entry[len(_WORKDIR) :].decode(errors="replace")
            name = path.removeprefix(f"{attempts}/").partition("/")[0]
            return (
                int(name)
                if path.startswith(f"{attempts}/") and name.isdecimal() and len(name) < _DIGITS
                else None
            )
    return None


def marked(workdir: str) -> dict[str, str]:
    """An environment by which `slot_of` knows a process that is none of a task."""
    return {WORKDIR: workdir}


def user_of(pid: int) -> int:
    """Its user; -1 when it has ended."""
    for line in _status(pid):
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return -1


def process_namespace(pid: int) -> int:
    """The id of its process namespace; 0 when it has ended, or cannot be determined."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def namespace_inits() -> dict[int, int]:
    """The first processes of the process namespaces below this process' own, by the ids of
    these.
    """
    found = {process_namespace(pid): pid for pid in all_pids() if _is_init(pid)}
    found.pop(0, None)
    return found


def is_beside(pid: int) -> bool:
    """Whether it is a command beside an attempt's process, or a descendant of one."""
    return any(entry.startswith(_BESIDE) for entry in environ(pid))


def environment(pid: int) -> dict[str, str]:
    """Its initial environment; empty when it has ended, or belongs to another user."""
    entries = (os.fsdecode(entry).partition("=") for entry in environ(pid))
    return {name: value for name, equals, value in entries if name and equals}


def group_lives(group: int) -> bool:
    """Whether a process group has a member that is not an unreaped zombie. Reads every process."""
    wanted = str(group).encode()
    return any(
        len(fields) > _GROUP and fields[_GROUP] == wanted and fields[0] != b"Z"
        for fields in map(_stat, all_pids())
    )


class UsedStorage:
    """What a process has read from storage and written to it."""

    def __init__(self, of: int) -> None:
        try:
            self._fd = os.open(f"/proc/{of}/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it has ended
            self._fd = -1

    def read(self) -> tuple[int, int]:
        """The bytes so far; zeros when it has ended, or belongs to another user."""
        try:
            words = os.pread(self._fd, _PAGE, 0).split()
        except OSError:
            return 0, 0
        found = dict(zip(words[::2], words[1::2], strict=True))
        return int(found.get(b"read_bytes:", 0)), int(found.get(b"write_bytes:", 0))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def cpu_ms(pid: int) -> int:
    """The time that a live process has run, to a tick of the clock; 0 when it has ended."""
    fields = _stat(pid)
    return sum(map(int, fields[_CPU_TICKS])) * 1000 // _TICKS_PER_S if fields else 0


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    return _stat(pid)[:1] not in ([], [b"Z"])


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped it, or a tracer."""
    return _stat(pid)[:1] in ([b"T"], [b"t"])


def parent(pid: int) -> int:
    """Its parent; 0 when it has ended."""
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else 0


def command(pid: int) -> list[bytes]:
    """Its program and arguments; empty when it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return file.read(_PAGE).split(b"\0")[:-1]
    except OSError:
        return []


def all_pids() -> list[int]:
    """Every visible process of this host."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def peak_rss_bytes(pid: int) -> int:
    """The peak memory of a live process in bytes; 0 when it has ended."""
    return next(
        (int(line.split()[1]) * 1024 for line in _status(pid) if line.startswith(b"VmHWM:")), 0
    )


def resident() -> dict[int, tuple[int, int]]:
    """The session of every process, and its resident bytes: what it shares with others counts for
    each of them. Reads every process.
    """
    found = {}
    for pid in all_pids():
        fields = _stat(pid)
        if len(fields) > _RESIDENT:
            found[pid] = int(fields[_SESSION]), int(fields[_RESIDENT]) * _PAGE_BYTES
    return found


def proportional_bytes(pid: int) -> int:
    """Its resident bytes, of what it shares with others its share; all of them where the kernel
    does not tell, 0 when it has ended.
    """
    for line in _page(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    fields = _stat(pid)
    return int(fields[_RESIDENT]) * _PAGE_BYTES if len(fields) > _RESIDENT else 0


def started_ticks(pid: int) -> int:
    """Its start time in clock ticks since boot; 0 when it has ended."""
    fields = _stat(pid)
    return int(fields[_START_TIME]) if fields else 0


def zombie_status(pid: int) -> int | None:
    """The wait status of a process that has ended and is not reaped; None for any other, and when
    it is not shown.
    """
    fields = _stat(pid)
    if fields[:1] != [b"Z"]:
        return None
    try:
        os.readlink(f"/proc/{pid}/ns/user")  # the same right; without it the status reads as 0
    except OSError:
        return None
    return int(fields[_EXIT_CODE])


def _is_init(pid: int) -> bool:
    """Whether it is the first process of another process namespace than this process'."""
    ids = next((line.split()[1:] for line in _status(pid) if line.startswith(b"NSpid:")), [])
    return len(ids) > 1 and ids[-1] == b"1"


def own_bytes(pid: int) -> int:
    """The memory that a process holds and no file does, also what it shares with those that it has
    forked; 0 when it has ended.
    """
    kinds = (b"RssAnon:", b"RssShmem:")
    return sum(int(line.split()[1]) * 1024 for line in _status(pid) if line.startswith(kinds))


def _status(pid: int) -> list[bytes]:
    """The lines of /proc/<pid>/status; empty when it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            return file.read().splitlines()
    except OSError:
        return []


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the third on; empty when it has ended."""
    return _page(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _page(path: str) -> bytes:
    """A small file; empty when its process has ended, or belongs to another user."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _PAGE)
    except OSError:
        return b""
    finally:
        os.close(fd)


def environ(pid: int) -> list[bytes]:
    """Its initial environment as ``NAME=VALUE``; empty when it has ended, or belongs to another
    user.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return file.read(1 << 20).split(b"\0")
    except OSError:
        return []
