"""What attempts have left, out of the sight of the next ones until it is deleted.

What an attempt has left goes there before its end is recorded, and is deleted after it: a worker
that starts in between brings it back. The directory of a call whose result is being sent stays in
its place meanwhile. Out of scope: when the ends are recorded (the shell's).
Source: docs/design/calls.md#directories.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import stat
from collections.abc import Callable

_THROWN = itertools.count(1)
"""Numbers names in the trash."""


class Trash:
    """A directory on the disk of a worker. Raises OSError when that fails.

    Attributes:
        waits: something is to be deleted.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        self._path = path
        self._sent: list[str] = []
        self._before = {
            found: name for name in os.listdir(path) if (found := name.partition(".")[2])
        }
        self.waits = False

    def throw(self, path: str, name: str = "") -> str:
        """Move a file or directory here, and return its new path. The next worker may `restore` it
        by ``name``.
        """
        target = f"{self._path}/{os.getpid()}-{next(_THROWN)}{name and '.'}{name}"
        self.waits = True
        try:
            os.rename(path, target)
        except (
            PermissionError
        ):  # a directory without permissions, which only root can move as it is
            os.chmod(path, 0o700)
            os.rename(path, target)
        return target

    def delete(self, *paths: str) -> None:
        """Have files deleted with what is here."""
        self.waits = True
        self._sent += paths

    def restore(self, name: str, path: str) -> None:
        """Move back what an earlier worker has thrown away by this name, if that is still here and
        nothing is there.
        """
        if (found := self._before.pop(name, None)) is not None:
            with contextlib.suppress(OSError):
                os.rename(f"{self._path}/{found}", path)

    async def empty(self, record: Callable[[], bool]) -> None:
        """Delete all that is here, once ``record`` has recorded the ends of those who left it;
        False: it could not.
        """
        self.waits = False
        left = await asyncio.to_thread(os.listdir, self._path)
        if record():
            await asyncio.to_thread(self._delete, [f"{self._path}/{name}" for name in left])
        else:
            self.waits = True

    def _delete(self, left: list[str]) -> None:
        """Slow: some disks take 2 ms for a directory."""
        sent = self._sent
        self._sent = []
        left += sent
        while left:
            self._take_apart(left.pop(), left)

    def _take_apart(self, path: str, left: list[str]) -> None:
        """Delete a file, or a directory whose subdirectories are first moved beside it.

        This handles any depth and removed permissions; what cannot be deleted is tried again the
        next time. A process that has a directory open may rename what is in it, so nothing is
        deleted by a path through a subdirectory.
        """
        with contextlib.suppress(OSError):
            mode = os.lstat(path).st_mode
            if not stat.S_ISDIR(mode):
                os.unlink(path)
                return
            if mode & 0o700 != 0o700:
                os.chmod(path, 0o700)
            with os.scandir(path) as entries:
                for entry in entries:  # of which there may be millions
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            left.append(self.throw(entry.path))
                        else:
                            os.unlink(entry.path)
            os.rmdir(path)
