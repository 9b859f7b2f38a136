"""What a call was given in its directory, and whether the next call of its job may have that too.

The user of a call may have changed all of it, and the worker may be root: nothing here follows a link.
Source: docs/adr/0104-a-call-has-the-directory-of-the-one-before.md.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

DIRECTORY = ".iris-call"
RUNNER, FUNCTION, ITEMS = "run.py", "function", "items"
RESULT = "result"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE, _WRITABLE = stat.S_IFDIR | 0o700, stat.S_IFREG | 0o600


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """``items``: the file of its arguments, open. ``inodes``: of the files by name; none of them is the user's."""

    items: int
    inodes: dict[str, int]

    @classmethod
    def of(cls, items: int, directory: str) -> GivenFiles:
        """Those in a directory that is not the user's yet. Raises OSError."""
        return cls(items, {name: os.stat(f"{directory}/{name}").st_ino for name in (RUNNER, FUNCTION, ITEMS)})

    def put(self, data: bytes) -> None:
        """Replace the arguments. Raises OSError.

        The file is not emptied first: ext4 stores a file at once that was empty in between.
        """
        at = 0
        while at < len(data):
            at += os.pwrite(self.items, data[at:] if at else data, at)
        os.ftruncate(self.items, at)


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
    def given(self) -> str: ...
    @property
    def token_file(self) -> str: ...
    @property
    def owner(self) -> tuple[int, int] | None: ...
    @property
    def left_file(self) -> bool: ...


def is_as_given(slot: Directories, files: GivenFiles) -> bool:
    """Whether a call that has ended has left nothing but its result; its token is taken away."""
    try:
        if list(_inodes(slot.workdir, 1)) != [DIRECTORY] or not _is_private(os.stat(slot.workdir), slot.owner):
            return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(slot.token_file)
        if os.listdir(slot.given):
            return False
        directory = os.open(f"{slot.workdir}/{DIRECTORY}", _OPEN)
    except OSError:
        return False
    try:
        wanted = files.inodes
        if slot.left_file:
            result = os.stat(RESULT, dir_fd=directory, follow_symlinks=False)
            if result.st_mode != _WRITABLE:
                return False
            wanted = {**wanted, RESULT: result.st_ino}
        return _inodes(directory, len(wanted)) == wanted and _is_private(os.fstat(directory), slot.owner)
    except OSError:
        return False
    finally:
        os.close(directory)


def _inodes(directory: str | int, most: int) -> dict[str, int]:
    """Those of the files by name; of a task that left millions of files only one more than ``most`` are read."""
    with os.scandir(directory) as entries:
        return {entry.name: entry.inode() for entry in islice(entries, most + 1)}


def _is_private(found: os.stat_result, owner: tuple[int, int] | None) -> bool:
    return found.st_mode == _PRIVATE and (found.st_uid, found.st_gid) == owner
