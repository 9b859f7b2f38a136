"""Control groups of attempts: one holds all processes of an attempt, limits them together, and ends
them together.

A process is born in the group of its parent, so the launcher waits in an empty group, and the
process that it starts is a member from its first instruction. The launcher moves on before the next
start, or a moment after this one (`leave`), and limits that could hit the launcher are set then. A
task that has ended before leaves its group to the next one.

To move a process holds up every fork and exit of the host, for a grace period of RCU (8 ms) when
nothing was moved lately. Version 1 has a hierarchy for each controller, but moves single threads,
which holds up nobody. Only files that were used lately stay open: each process that is started gets
a copy of all descriptors, and closes them. Out of scope: whose group it is, and when it ends
    (runner).
Source: docs/design/isolation.md#control-groups.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from msgspec import structs

from iris_worker.launcher.cgroups import abandoned, access, files
from iris_worker.launcher.cgroups.files import (
    UNIFIED,
    Cgroup,
    CgroupSupport,
    CgroupValues,
    GroupFile,
    GroupUsage,
)
from iris_worker.launcher.cgroups.group import Group

_REUSE_BYTES = 32 << 20
_LEFT_BYTES = 1 << 20
"""A group with a higher peak, which cannot be reset, would hide the peak of the next task."""
_SPARES = 64
_DIGITS = 32
_LINES = 4096
OPEN_FILES = 192
"""Files of groups that stay open: eight for each of the two dozen that short tasks use in turns.
With fewer than are used in turns, none is found open again.
"""
_NOTHING = Cgroup()
_OWN_HOME = "launcher"
"""The group of a launcher that may not return to where it was started, beside those of attempts."""
T = TypeVar("T")


class NoGroups(Exception):
    """Control groups cannot be made here; the text says why."""


class Base(NamedTuple):
    """The directory of a launcher's groups in one hierarchy, and a descriptor that holds it
    (`abandoned.hold`).
    """

    path: str
    fd: int


class Cgroups:
    """The groups of one launcher, which is this process. Raises OSError.

    Args:
        version: of the controllers. homes: where the launcher was started, by controller.
        bases: the directories of its groups, by controller.
    """

    def __init__(self, version: int, homes: Mapping[str, str], bases: dict[str, Base]) -> None:
        self._version = version
        self._bases = {key: base.path for key, base in bases.items()}
        self._directories = tuple(dict.fromkeys(self._bases.values()))
        self._fds = {key: base.fd for key, base in bases.items()}
        self._entries = tuple(dict.fromkeys(self._fds.values()))
        self._members = self._bases.get(UNIFIED) or self._bases.get("pids") or self._directories[0]
        self._entry = files.ENTRY[version]
        self._unlimited = files.late_files(0, 0, version)
        self._here: Group | None = None
        self._open: dict[tuple[int, str], int] = {}
        self._spares: list[Group] = []
        self._next = 1 + max(
            (number for base in self._directories for number in access.numbers(base)), default=-1
        )
        for key, path in self._bases.items():
            self._set_up(key, path)
        self._homes = tuple(
            dict.fromkeys(self._home(homes[key], path) for key, path in self._bases.items())
        )
        self._kills = os.path.exists(f"{self._members}/{self._move().number}/cgroup.kill")
        self.go_home()

    @property
    def support(self) -> CgroupSupport:
        return CgroupSupport(
            self._version, tuple(name for name in self._bases if name not in (UNIFIED, "cpuacct"))
        )

    # ── the life of a group ───────────────────────────────────────────────────────────────────────

    def take(self, limits: Cgroup) -> Group:
        """A group for the next process that is started: this process is in it now. Raises
        OSError.
        """
        group = self._here
        if group is None or group.limits is not None or group.spoilt:
            group = self._retried(self._move)
        group.limits = self._begin(group, limits)
        return group

    def _home(self, started: str, base: str) -> str:
        """Where this process is while it starts nothing of an attempt: where it was started, if it
        may return there.

        A user to whom a group was given owns its directory, not always its files. Raises OSError.
        """
        try:
            access.put(f"{started}/{self._entry}", "0")
        except PermissionError:
            home = f"{base}/{_OWN_HOME}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(home, 0o755)
            return home
        return started

    def _retried(self, enter: Callable[[], T]) -> T:
        """Enter a group, once more where something else on this host has removed directories, as it
        may while no process is in them. Raises OSError.
        """
        try:
            return enter()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            self._restore()
            return enter()

    def _restore(self) -> None:
        """Make the directories of all groups anew that are gone, and forget the groups that are.
        Raises OSError.
        """
        gone = {key: path for key, path in self._bases.items() if not os.path.isdir(path)}
        until_s = time.monotonic() + abandoned.LOCK_S
        held = {path: abandoned.hold(path, until_s) for path in set(gone.values())}
        closed = {self._fds[key] for key in gone}
        for key, path in gone.items():
            self._fds[key] = held[path]
            self._set_up(key, path)
            if f"{path}/{_OWN_HOME}" in self._homes:
                os.makedirs(f"{path}/{_OWN_HOME}", exist_ok=True)
        self._entries = tuple(dict.fromkeys(self._fds.values()))
        for file in [file for file in self._open if file[0] in closed]:
            os.close(self._open.pop(file))
        for fd in closed:
            os.close(fd)
        spares = self._spares
        self._spares = []
        for group in spares:
            self._remove(group.number)

    def _set_up(self, key: str, path: str) -> None:
        """Prepare the directory of all groups in one hierarchy."""
        if self._version == 2:
            enable_controllers(path)
        elif (
            key == "cpu"
        ):  # all tasks together weigh what all processors do, not what one process beside them does
            access.put(f"{path}/cpu.shares", str(1024 * (os.cpu_count() or 1)))

    def _begin(self, group: Group, limits: Cgroup) -> Cgroup:
        """Set what no member has to be there for; the limits of the group, with what it has used
        before.
        """
        early = files.early_files(limits.cpu_share_millis, limits.pids, self._version)
        if group.early is not early:
            self._write(group, early)
            group.early = early
        cpu_us = group.cpu_us if group.cpu_us is not None else self._cpu_us(group)
        group.cpu_us = None
        return structs.replace(
            limits, number=group.number, cpu_us=cpu_us, io=self._io(group.number) or (0, 0)
        )

    def place(self, pid: int, limits: Cgroup) -> Group:
        """A group for a process that has one thread, and is in another group of this launcher.
        Raises OSError.
        """
        return self._retried(lambda: self._place(pid, limits))

    def _place(self, pid: int, limits: Cgroup) -> Group:
        group = self._spares.pop() if self._spares else self._make()
        try:
            group.limits = self._begin(group, limits)
            self._limit(group, group.limits)
            path = f"{group.number}/{self._entry}"
            for base in self._entries:
                access.write_to(self._file(path, base, os.O_WRONLY), path, str(pid))
        except OSError:
            group.spoilt = True
            self.give(group)
            raise
        return group

    def renew(self, group: Group, used: GroupUsage) -> None:
        """Its attempt has ended and has used this; the next one of its process begins with that."""
        before = group.limits
        assert before is not None
        io = (
            before.io if used.io is None else (before.io[0] + used.io[0], before.io[1] + used.io[1])
        )
        group.limits = structs.replace(before, cpu_us=before.cpu_us + used.cpu_us, io=io)

    def holds_others(self, group: Group, pid: int) -> bool:
        """Whether another process is in it than this one."""
        return self._number(group, files.COUNT) != 1 and any(
            one != pid for one in self._pids(group.number)
        )

    def has_members(self, group: Group) -> bool:
        """Whether a process is in it besides this one."""
        return not self._is_empty(group) and bool(self._pids(group.number))

    def leave(self) -> None:
        """Leave a group that is taken, so that its limits can be set."""
        if self._here is not None and self._here.limits is not None:
            with contextlib.suppress(OSError):  # the next start moves, or is refused
                try:
                    self._move()
                except OSError:
                    self.go_home()

    def go_home(self) -> None:
        """Leave the groups of attempts, so that what is started next is in none. Raises OSError."""
        if self._here is not None:
            self._retried(self._return)

    def end(self, group: Group) -> GroupUsage:
        """Give a group back, and return what its processes have used.

        Files that they have left in memory stay charged to it, so no other attempt has it then.
        """
        usage = self.usage(group)
        group.left_bytes = self._left_bytes(group) if usage.peak_bytes > _LEFT_BYTES else 0
        group.spoilt |= group.left_bytes > _LEFT_BYTES
        if group is not self._here and group.limits is not None:
            group.cpu_us = group.limits.cpu_us + usage.cpu_us
        self.give(group)
        return usage

    def give(self, group: Group) -> None:
        """No process is left in it: the next attempt may have it."""
        group.limits = None
        if group is not self._here:
            self._keep(group)

    def adopt(self, limits: Cgroup) -> Group | None:
        """The group of an attempt that an earlier launcher has started; None when it is not
        there.
        """
        if not os.path.isdir(f"{self._members}/{limits.number}"):
            return None
        group = Group(limits.number, limits, spoilt=True)
        self._limit(group, limits)
        return group

    def kill_others(self, alive: Collection[int]) -> int:
        """Kill what is in groups of earlier launchers but these; returns how many still hold a
        process.
        """
        kept = {group.number for group in self._spares} | set(alive)
        others = {number for base in self._directories for number in access.numbers(base)} - kept
        left = [number for number in others if self.kill(Group(number))]
        for number in others.difference(left):
            self._remove(number)
        return len(left)

    def of_others(self) -> list[str]:
        """The directories of groups that other launchers have made beside those of this one."""
        found = abandoned.find({os.path.dirname(base) for base in self._directories})
        return [base for base in found if base not in self._directories]

    def close(self) -> None:
        """Remove all groups that are empty, unless the next launcher has them already."""
        with contextlib.suppress(OSError):  # what cannot be removed stays for the next launcher
            self.go_home()
        for controller, base in self._bases.items():
            if abandoned.is_alone(self._fds[controller]):
                access.remove(base)

    def _move(self) -> Group:
        """Enter an empty group."""
        group = self._spares.pop() if self._spares else self._make()
        try:
            if group.late is not self._unlimited:
                self._write(group, self._unlimited)
                group.late = self._unlimited
            path = f"{group.number}/{self._entry}"
            for base in self._entries:
                access.write_to(self._file(path, base, os.O_WRONLY), path, "0")
        except OSError:
            with contextlib.suppress(OSError):
                self._return()
            self._remove(group.number)
            raise
        self._enter(group)
        return group

    def _return(self) -> None:
        for home in self._homes:
            access.put(f"{home}/{self._entry}", "0")
        self._enter(None)

    def _enter(self, group: Group | None) -> None:
        """This process is in ``group`` now, and its old one can be limited or used again."""
        old = self._here
        self._here = group
        if old is not None and old.limits is not None:
            self._limit(old, old.limits)
        elif old is not None:
            old.cpu_us = None
            self._keep(old)

    def _limit(self, group: Group, limits: Cgroup) -> None:
        """Set the limits under which this process must not come."""
        late = files.late_files(limits.memory_limit_bytes, limits.cpu_limit_millis, self._version)
        if group.late is late:
            return
        group.late = None
        for key, value in late.items():
            try:
                self._write(group, {key: value})
            except OSError as error:  # otherwise a group above has a lower limit, which version 1 does not let exceed
                group.over |= error.errno == errno.EBUSY
        if group.over:
            self.kill(group)

    def _keep(self, group: Group) -> None:
        if group.spoilt or len(self._spares) >= _SPARES:
            self._remove(group.number)
        else:
            self._spares.append(group)

    def _make(self) -> Group:
        group = Group(self._next, late=self._unlimited, cpu_us=0)
        self._next += 1
        abandoned.hold_again(self._entries)
        for base in self._directories:
            os.mkdir(f"{base}/{group.number}", 0o755)
        for (controller, name), value in files.ONCE[self._version].items():
            with contextlib.suppress(OSError):
                access.put(f"{self._bases.get(controller)}/{group.number}/{name}", value)
        return group

    def _remove(self, number: int) -> None:
        for base in self._directories:
            access.remove(f"{base}/{number}")

    def _write(self, group: Group, values: CgroupValues) -> None:
        for (controller, name), value in values.items():
            if (fd := self._fds.get(controller)) is not None:
                access.put(f"{group.number}/{name}", value, fd)

    # ── what is in it ─────────────────────────────────────────────────────────────────────────────

    def kill(self, group: Group) -> bool:
        """Kill all its processes; False when there was none."""
        if self._is_empty(group) or not (pids := self._pids(group.number)):
            return False
        if group is self._here:
            self.leave()
        with contextlib.suppress(OSError):
            if self._kills:
                access.put(f"{self._members}/{group.number}/cgroup.kill", "1")
                return True
            group.early = None
            self._write(group, {("pids", "pids.max"): "0"})  # none is born while they are killed
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return True

    def _is_empty(self, group: Group) -> bool:
        """Whether nobody is in it but this process; False also where that takes a search."""
        return self._number(group, files.COUNT) == int(group is self._here)

    def _pids(self, number: int) -> list[int]:
        """Its members, and those of groups that they have made in it, without this process."""
        me = os.getpid()
        found = (
            access.get(f"{path}/cgroup.procs").split()
            for path in access.tree(f"{self._members}/{number}")
        )
        return [int(pid) for pids in found for pid in pids if int(pid) != me]

    def usage(self, group: Group, *, now: bool = False, peaks: bool = True) -> GroupUsage:
        """What its processes have used since `take`; ``now``: and what they hold now; ``peaks``:
        and the most.
        """
        before = group.limits or _NOTHING
        io = self._io(group.number)
        peak = (self._number(group, ("memory", files.PEAK[self._version])) or 0) if peaks else 0
        killed = group.over or bool(before.memory_limit_bytes and self._was_killed(group))
        group.spoilt |= killed or peak > _REUSE_BYTES
        cache = self._cache_bytes(group) if peak > _REUSE_BYTES else 0
        return GroupUsage(
            cpu_us=max(0, self._cpu_us(group) - before.cpu_us),
            peak_bytes=peak if killed else max(0, peak - cache),
            limit_bytes=before.memory_limit_bytes if killed else 0,
            io=(io[0] - before.io[0], io[1] - before.io[1]) if io is not None else None,
            rss_bytes=self.held_bytes(group, _REUSE_BYTES) if now else 0,
        )

    def held_bytes(self, group: Group, most: float) -> int:
        """The memory that its processes hold now; the cache of files is left out where it is more
        than ``most``.
        """
        held = self._number(group, ("memory", files.NOW[self._version])) or 0
        return held if held <= most else max(0, held - self._cache_bytes(group))

    def _cache_bytes(self, group: Group) -> int:
        return self._stat_bytes(group, files.FILE_CACHE)

    def _left_bytes(self, group: Group) -> int:
        """Files in memory that its processes have left, which are looked for only if more than a
        little is charged.
        """
        held = self._number(group, ("memory", files.NOW[self._version])) or 0
        return self._stat_bytes(group, files.IN_MEMORY) if held > _LEFT_BYTES else 0

    def _stat_bytes(self, group: Group, names: Mapping[int, tuple[str, ...]]) -> int:
        text = access.get(
            f"{self._bases.get('memory', '')}/{group.number}/{files.STAT[self._version]}"
        )
        table = files.flat_keyed(text)
        return sum(table.get(name, 0) for name in names[self._version])

    def _was_killed(self, group: Group) -> bool:
        """Whether one of its processes was killed for the limit of memory."""
        return bool(self._table(group, ("memory", files.OOM[self._version])).get("oom_kill"))

    def _cpu_us(self, group: Group) -> int:
        if self._version == 1:
            return (self._number(group, files.CPU_NS) or 0) // 1000
        return self._table(group, files.CPU_STAT).get("usage_usec", 0)

    def _io(self, number: int) -> tuple[int, int] | None:
        base = self._bases.get("io")
        return files.io_bytes(access.get(f"{base}/{number}/io.stat")) if base is not None else None

    def _number(self, group: Group, file: GroupFile) -> int | None:
        """What a file with one number says; None when it is not there."""
        try:
            return int(self._read(group, file, _DIGITS))
        except ValueError:
            return None

    def _table(self, group: Group, file: GroupFile) -> dict[str, int]:
        """What a file of few lines says."""
        return files.flat_keyed(self._read(group, file, _LINES).decode())

    def _read(self, group: Group, file: GroupFile, size: int) -> bytes:
        """The beginning of a file, which stays open; nothing when it is not there."""
        if (base := self._fds.get(file[0])) is None:
            return b""
        try:
            return os.pread(self._file(f"{group.number}/{file[1]}", base, os.O_RDONLY), size, 0)
        except OSError:  # its group was removed
            return b""

    def _file(self, path: str, base: int, flags: int) -> int:
        """A file of a group, which stays open until others have been used more lately. Raises
        OSError.
        """
        key = (base, path)
        fd = self._open.pop(key, -1)
        if fd < 0:
            fd = os.open(path, flags | os.O_CLOEXEC, dir_fd=base)
            if len(self._open) >= OPEN_FILES:
                os.close(self._open.pop(next(iter(self._open))))
        self._open[key] = fd
        return fd


def enable_controllers(parent: str) -> None:
    """Let groups in this one have controllers, where it has them itself."""
    for controller in files.WANTED[2]:
        with contextlib.suppress(OSError):
            access.put(f"{parent}/cgroup.subtree_control", f"+{controller}")
