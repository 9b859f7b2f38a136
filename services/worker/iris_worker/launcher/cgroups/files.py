"""The files of control groups: what is written for a limit, and what is read of their use. Pure.

Source: Documentation/admin-guide/cgroup-v2.rst and Documentation/admin-guide/cgroup-v1 of Linux.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

UNIFIED = ""
"""The key of the hierarchy of version 2 beside the names of controllers."""
WANTED = {1: ("cpu", "cpuacct", "memory", "pids"), 2: ("cpu", "io", "memory", "pids")}
"""The controllers that are used, by version."""
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000
_SHARES = range(2, 262_145)
GroupFile = tuple[str, str]
"""A controller, and the name of a file."""
CgroupValues = dict[GroupFile, str]
"""What is written."""


class CgroupSupport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The control groups of attempts: the version of their controllers, and which there are; or why
    there are none.
    """

    version: int = 0
    controllers: tuple[str, ...] = ()
    trouble: str = ""

    def __str__(self) -> str:
        return (
            f"none: {self.trouble}"
            if self.trouble
            else " ".join((f"v{self.version}", *self.controllers))
        )


class Cgroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an attempt's group is limited to, and which group it is.

    Attributes:
        memory_limit_bytes, cpu_limit_millis, pids: of all its processes together; 0: no limit.
        cpu_share_millis: its share of the processors when they are short.
        number: its directory; -1 before the start.
        cpu_us, io: what the group had used before the start; as in `GroupUsage`.
    """

    memory_limit_bytes: int = 0
    cpu_share_millis: int = 0
    cpu_limit_millis: int = 0
    pids: int = 0
    number: int = -1
    cpu_us: int = 0
    io: tuple[int, int] = (0, 0)


class GroupUsage(msgspec.Struct, frozen=True, gc=False):
    """What the processes of an attempt use together.

    Attributes:
        rss_bytes: the memory they hold now, if that was asked, and ``peak_bytes`` the most they
            held, both without the cache of files as far as that is known.
        limit_bytes: the memory limit for which one of them was killed; 0: none was. The peak is
            then with that cache.
        io: bytes read and written; None: the host does not count them.
    """

    cpu_us: int
    peak_bytes: int
    limit_bytes: int
    io: tuple[int, int] | None
    rss_bytes: int = 0


# ── the files of both versions ────────────────────────────────────────────────────────────────────


@lru_cache
def early_files(cpu_share_millis: int, pids: int, version: int) -> CgroupValues:
    """The limits that are set before the start: the launcher can bear them. The same ones are the
    same object.
    """
    shares = min(max(cpu_share_millis * 1024 // 1000, _SHARES.start), _SHARES.stop - 1)
    if version == 1:
        return {("cpu", "cpu.shares"): str(shares), ("pids", "pids.max"): str(pids or "max")}
    weight = 1 + (shares - 2) * 9999 // 262_142  # the mapping of Kubernetes
    return {("cpu", "cpu.weight"): str(weight), ("pids", "pids.max"): str(pids or "max")}


@lru_cache
def late_files(memory_limit_bytes: int, cpu_limit_millis: int, version: int) -> CgroupValues:
    """The limits that are set once the launcher has left the group. The same ones are the same
    object.
    """
    quota = max(cpu_limit_millis * _PERIOD_US // 1000, _LEAST_QUOTA_US) if cpu_limit_millis else 0
    if version == 1:
        return {
            ("cpu", "cpu.cfs_quota_us"): str(quota or -1),
            ("memory", "memory.limit_in_bytes"): str(memory_limit_bytes or -1),
        }
    return {
        ("cpu", "cpu.max"): f"{quota or 'max'} {_PERIOD_US}",
        ("memory", "memory.max"): str(memory_limit_bytes or "max"),
    }


ONCE: dict[int, CgroupValues] = {
    1: {("memory", "memory.swappiness"): "0"},
    2: {("memory", "memory.swap.max"): "0"},
}
"""Written when a group is made, where the host has the file: what is limited is not swapped out
instead.
"""
ENTRY = {1: "tasks", 2: "cgroup.procs"}
"""To which 0 is written to enter: in version 1 by this thread alone."""
COUNT: GroupFile = ("pids", "pids.current")
"""Its processes, those included that have ended and that nobody has waited for."""
FAVORDYNMODS_SINCE = 6
"""The first kernel, by its major number, with that option of a mount."""
CPU_NS: GroupFile = ("cpuacct", "cpuacct.usage")
CPU_STAT: GroupFile = (UNIFIED, "cpu.stat")
PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
NOW = {1: "memory.usage_in_bytes", 2: "memory.current"}
OOM = {1: "memory.oom_control", 2: "memory.events"}
STAT = {1: "memory.stat", 2: "memory.stat"}
FILE_CACHE = {1: ("total_inactive_file", "total_active_file"), 2: ("inactive_file", "active_file")}
IN_MEMORY = {1: ("total_shmem",), 2: ("shmem",)}


def flat_keyed(text: str) -> dict[str, int]:
    """``oom_kill 3`` on a line as a number by its name; other lines are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def io_bytes(text: str) -> tuple[int, int]:
    """Bytes read and written, of all devices in ``io.stat``."""
    pairs = [word.partition("=") for line in text.splitlines() for word in line.split()[1:]]
    read, written = (
        sum(int(value) for key, _, value in pairs if key == name) for name in ("rbytes", "wbytes")
    )
    return read, written


def slow_moves(mountinfo: str, release: str) -> str:
    """Where version 2 is mounted beside version 1 without `favordynmods`, which its kernel knows;
    empty: it is not so.

    Without it a process that is moved into a group after a rest waits for a grace period of the
    kernel. The option counts for the hierarchies of version 1 too.

    Args:
        mountinfo: /proc/<pid>/mountinfo. release: of the kernel, such as ``6.8.0-45-generic``.
    """
    if int(release.partition(".")[0]) < FAVORDYNMODS_SINCE:
        return ""
    mounts = [line.partition(" - ")[::2] for line in mountinfo.splitlines()]
    found = [(mount.split()[4], *kind.split(" ", 2)) for mount, kind in mounts]
    limited = any(
        kind == "cgroup" and {*options.split(",")} & {*WANTED[1]} for _, kind, _, options in found
    )
    unified = [
        path
        for path, kind, _, options in found
        if kind == "cgroup2" and "favordynmods" not in options.split(",")
    ]
    return unified[0] if limited and unified else ""


def own_directories(mountinfo: str, membership: str) -> dict[str, str]:
    """Where a process is in the hierarchies that it can see: a directory by controller, and by
    `UNIFIED`.

    Args:
        mountinfo: /proc/<pid>/mountinfo. membership: /proc/<pid>/cgroup.
    """
    paths: dict[str, str] = {}
    for line in membership.splitlines():
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), f"{path.rstrip('/')}/")
    found: dict[str, str] = {}
    for line in mountinfo.splitlines():
        mount, _, kind = line.partition(" - ")
        root, directory = mount.split()[3:5]
        root = f"{root.rstrip('/')}/"
        kind, _, options = kind.split(" ", 2)  # the source may be empty
        for name in {"cgroup": options.split(","), "cgroup2": [UNIFIED]}.get(kind, []):
            if paths.get(name, "").startswith(root):
                found.setdefault(name, f"{directory}/{paths[name][len(root) :]}".rstrip("/"))
    return found
