"""What a call was given in its directory, and whether the next call of its job may have that too.

The user of a call may have changed all of it, and the worker may be root: nothing here follows a
    link.
Source: docs/design/calls.md#directories.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

DIRECTORY = ".iris-call"
RUNNER = "run.py"
FUNCTION = "function"
ITEMS = "items"
RESULT = "result"
SETTLED_NS = 100_000_000
"""Changes of a directory that are so far apart have different times, where these are not of whole
seconds.
"""
_SECOND_NS = 1_000_000_000
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE = stat.S_IFDIR | 0o700


@dataclass(slots=True)
class GivenFiles:
    """``items``: the file of its arguments, open. ``inodes``: of the files by name; none of them is
    the user's.

    ``size``: of the arguments. ``listed``: the time of the last change (ctime) of each directory,
    by inode, when it was listed; only where no later change can have the same time, unless the
    clock is set back.
    """

    items: int
    inodes: dict[str, int]
    size: int = -1
    listed: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, items: int, directory: str) -> GivenFiles:
        """Those in a directory that is not the user's yet. Raises OSError."""
        return cls(
            items,
            {name: os.stat(f"{directory}/{name}").st_ino for name in (RUNNER, FUNCTION, ITEMS)},
        )

    def put(self, data: bytes) -> None:
        """Replace the arguments. Raises OSError.

        The file is not emptied first: ext4 stores a file at once that was empty in between.
        """
        before = self.size
        self.size = -1
        at = 0
        while at < len(data):
            at += os.pwrite(self.items, data[at:] if at else data, at)
        if at != before:
            os.ftruncate(self.items, at)
        self.size = at

    def is_unchanged(self, directory: os.stat_result) -> bool:
        """Whether nothing was made, deleted or renamed in a directory since it was listed."""
        return self.listed.get(directory.st_ino) == directory.st_ctime_ns

    def note_listed(self, directory: os.stat_result) -> None:
        """It was listed after this was read. ``items``, which was written before the call, tells
        the time there.

        Nobody can set the time of a change, but several within a tick of the kernel's clock, or
        within a second on some file systems, have the same.
        """
        changed_ns = directory.st_ctime_ns
        if changed_ns % _SECOND_NS and os.fstat(self.items).st_mtime_ns - changed_ns > SETTLED_NS:
            self.listed[directory.st_ino] = changed_ns


@contextlib.contextmanager
def call_directory(workdir: str) -> Iterator[int]:
    """That of a call below its own, open. Raises OSError."""
    directory = os.open(f"{workdir}/{DIRECTORY}", _OPEN)
    try:
        yield directory
    finally:
        os.close(directory)


class Directories(Protocol):
    """Those of an attempt, as a workspace has them."""

    @property
    def workdir(self) -> str: ...
    @property
    def token_file(self) -> str: ...
    @property
    def owner(self) -> tuple[int, int] | None: ...


def is_as_given(slot: Directories, files: GivenFiles) -> bool:
    """Whether a call that has ended has left nothing; its token is taken away."""
    try:
        above = os.stat(slot.workdir)
        if not _is_private(above, slot.owner):
            return False
        if not files.is_unchanged(above):
            if list(_inodes(slot.workdir, 1)) != [DIRECTORY]:
                return False
            files.note_listed(above)
        here = os.lstat(f"{slot.workdir}/{DIRECTORY}")
        if not _is_private(here, slot.owner):
            return False
        if not files.is_unchanged(here):
            with call_directory(slot.workdir) as directory:
                if _inodes(directory, len(files.inodes)) != files.inodes:
                    return False
            files.note_listed(here)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(slot.token_file)
    except OSError:
        return False
    return True


def _inodes(directory: str | int, most: int) -> dict[str, int]:
    """Those of the files by name; of a task that left millions of files only one more than ``most``
    are read.
    """
    with os.scandir(directory) as entries:
        return {entry.name: entry.inode() for entry in islice(entries, most + 1)}


def _is_private(found: os.stat_result, owner: tuple[int, int] | None) -> bool:
    return found.st_mode == _PRIVATE and (found.st_uid, found.st_gid) == owner
