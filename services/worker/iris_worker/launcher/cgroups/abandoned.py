"""Removes groups of launchers that have ended, as where their data directories were deleted, and
tokens in memory.

A launcher holds a lock on the directories of its groups while it lives. One without a lock is
removed as far as no process is in it, so what a task runs in stays, for the launcher that adopts
it. A launcher that starts again later makes its directories anew. A worker holds such a lock on the
directory of its tokens, which has the name of its launcher's groups, and is removed with them.
Out of scope: the groups of this launcher (`cgroup`).
Source: docs/design/isolation.md#control-groups.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable

from iris_worker.data_directory import MEMORY
from iris_worker.launcher.cgroups import access

_NAME = re.compile(r"iris-[0-9a-f]+-[0-9a-f]+")
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TRY_S = 0.025
LOCK_S = 3.0
"""What a launcher waits for its locks. No other one has them for so long, but any user may lock a
directory.
"""
AT_ONCE = 16
"""Groups that are removed while the lock is held, which a launcher that starts waits for."""


def hold(directory: str, until_s: float | None = None, mode: int = 0o755) -> int:
    """Create the directory if missing, and return a descriptor that holds a shared lock: other
    launchers remove only unlocked directories.

    If the lock is not free until then, by the monotonic clock, or for LOCK_S, the descriptor is
    returned without it. Raises OSError.
    """
    until_s = time.monotonic() + LOCK_S if until_s is None else until_s
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, mode)
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            fd = os.open(directory, _READ)
            if (_lock(fd, fcntl.LOCK_SH) or time.monotonic() >= until_s) and _is_there(
                directory, fd
            ):
                return fd
            os.close(fd)
        time.sleep(_TRY_S)


def hold_again(fds: Iterable[int]) -> None:
    """Take the locks of these descriptors that were not free before."""
    for fd in fds:
        _lock(fd, fcntl.LOCK_SH)


def is_alone(fd: int) -> bool:
    """Whether no other launcher holds the directory, which none gets from then on."""
    return _lock(fd, fcntl.LOCK_EX)


def find(parents: Iterable[str]) -> list[str]:
    """The directories of groups of all launchers; none of a parent that cannot be read."""
    found: list[str] = []
    for parent in parents:
        with contextlib.suppress(OSError):
            found += [f"{parent}/{name}" for name in os.listdir(parent) if _NAME.fullmatch(name)]
    return found


def remove(directory: str, memory: str = MEMORY) -> bool:
    """Remove a few groups that no process is in, unless the launcher lives; returns whether more
    may be removed.

    What cannot be removed stays for the next launcher.
    """
    with contextlib.suppress(OSError):
        fd = os.open(directory, _READ)
        try:
            if _lock(fd, fcntl.LOCK_EX):
                removed = access.remove(directory, AT_ONCE)
                if os.path.exists(directory):
                    return removed == AT_ONCE
                remove_tokens(f"{memory}/{os.path.basename(directory)}")
        finally:
            os.close(fd)
    return False


def remove_tokens(directory: str) -> None:
    """Remove the tokens that a worker has left in memory, unless it lives. Others may have made
    something there.
    """
    with contextlib.suppress(OSError):
        fd = os.open(directory, _READ | os.O_NOFOLLOW)
        try:
            if os.fstat(fd).st_uid == os.geteuid() and _lock(fd, fcntl.LOCK_EX):
                shutil.rmtree(directory)
        finally:
            os.close(fd)


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(directory: str, fd: int) -> bool:
    """Whether the directory is the one that was opened: it may have been removed before it was
    locked.
    """
    try:
        return os.path.samestat(os.stat(directory), os.fstat(fd))
    except FileNotFoundError:
        return False
