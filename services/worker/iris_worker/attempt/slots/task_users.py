"""Which users of this host the tasks of one worker run as, and no other worker's.

Each user is a byte of one file of the host, and who has a range of users holds a lock on its bytes:
workers of other clusters and of other data directories see it. The worker takes the lock, and hands
the descriptor to its launcher, so the range stays taken while tasks run that have lost their
worker; the next worker finds in its data directory which range its launcher holds. Containers with
a directory of their own in place of `DIRECTORY` see the locks in there only.
Out of scope: who has which user of the range (isolation).
Source: docs/design/isolation.md#users.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iris_bus.connection.keys import write_private
from iris_service.settings import BadSetting
from iris_worker.data_directory import data_id
from iris_worker.launcher import rescue

DIRECTORY = Path("/run/iris")
"""On all hosts the same, and writable for root only."""
_FILE = "task-users"
_RECORD = "task-users"
_WAIT_S = 10.0
_TRY_S = 0.1
"""How long a launcher may hold the users of its tasks after its worker has ended."""
_FLOCK = "hhqqi4x"
"""struct flock: type, whence, start, length, and a process id."""


@dataclass(frozen=True, slots=True)
class UserPool:
    """Users that tasks may run as.

    Attributes:
        users: all of them. share: how many a worker takes.
    """

    users: range
    share: int

    def ranges(self, key: str) -> Iterator[range]:
        """What a worker may take, in the order in which it tries them: one with another ``key``
        begins elsewhere, so that it seldom finds files of users that another worker has left.
        """
        count = len(self.users) // self.share
        begin = zlib.crc32(key.encode()) % count
        for number in (*range(begin, count), *range(begin)):
            yield self.users[number * self.share : (number + 1) * self.share]


@dataclass(frozen=True, slots=True)
class TaskUsers:
    """A range of users, while ``lock`` is open; -1: the launcher of this worker holds it."""

    users: range
    lock: int = -1


async def take_users(pool: UserPool, root: Path, directory: Path = DIRECTORY) -> TaskUsers:
    """Take users for the worker whose data directory, which it has locked, is ``root``.

    Those it had before, if they are free. Waits for users that no other worker holds, since one
    that has just ended may have left them to its launcher. Raises BadSetting.
    """
    until_s = time.monotonic() + _WAIT_S
    while (found := _take(pool, root, directory)) is None:
        if time.monotonic() >= until_s:
            first = pool.users[0]
            last = pool.users[-1]
            raise BadSetting(
                f"[worker] run_as: no users are left on this host for the tasks of this worker: "
                f"others have those of {first} to {last}; end one of them, or name other users, "
                "as pool:1000-1999, of which each worker with pool:1000-1999/100 takes 100"
            )
        await asyncio.sleep(_TRY_S)
    return found


def _take(pool: UserPool, root: Path, directory: Path) -> TaskUsers | None:
    """None: other workers have all users of the pool. Raises BadSetting."""
    lock = _open(directory)
    key = data_id(root)
    before = _recorded(root)
    if before in pool.ranges(key):
        if _lock(lock, before):
            return TaskUsers(before, lock)
        if str(root) in rescue.living():
            os.close(lock)
            return TaskUsers(before)
    for users in pool.ranges(key):
        if _lock(lock, users):
            _record(root, users)
            return TaskUsers(users, lock)
    os.close(lock)
    return None


def _recorded(root: Path) -> range:
    """What the worker with this data directory had last; empty: nothing."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        first, _, last = (root / _RECORD).read_text().partition("-")
        return range(int(first), int(last) + 1)
    return range(0)


def _record(root: Path, users: range) -> None:
    """Raises BadSetting."""
    try:
        write_private(root / _RECORD, f"{users[0]}-{users[-1]}\n")
    except OSError as error:
        raise BadSetting(f"[worker] data: {root / _RECORD}: {error.strerror}") from error


def _open(directory: Path) -> int:
    """The file of the host. Raises BadSetting."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = directory.lstat()
        if found.st_uid != 0 or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
            raise BadSetting(
                f"[worker] run_as: {directory} must be a directory that only root may write to: there "
                "the workers of a host lock the users of their tasks"
            )
        options = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(directory / _FILE, options, 0o600)
    except OSError as error:
        raise BadSetting(
            f"[worker] run_as: {directory / _FILE}, where the workers of a host lock the users of "
            f"their tasks: {error.strerror}{_remedy(error, directory)}"
        ) from error


def _remedy(error: OSError, directory: Path) -> str:
    if error.errno != errno.EROFS:
        return ""
    return f": mount a tmpfs at {directory.parent}, the same for all workers of the host"


def _lock(descriptor: int, users: range) -> bool:
    """Lock the bytes of these users for whoever has the open file; whether nobody else had."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, users[0], len(users), 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):
        return False
    return True
