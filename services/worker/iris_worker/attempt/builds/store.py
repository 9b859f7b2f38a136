"""The virtual environments on this host's disk, by the key of their build; the least recently used
of the user who has most are deleted first.

Each is built in its own directory, where it stays, because its scripts hold its path. It counts
once a file named after the key says where it is; that file appears at once, by renaming it.
Whatever no such file names is deleted when a worker starts. Out of scope: what is built (plan), and
    by whom (builder).
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from iris_core import codec
from iris_core.messages.message import AttemptRef
from iris_worker.attempt.kept import Kept, surplus
from iris_worker.limits import EnvironmentLimits

_SUFFIX = ".json"


class Published(msgspec.Struct, frozen=True):
    """The content of a key's file. ``directory``: its name. ``bytes``: of all its files. ``user``:
    whose tasks use it.
    """

    directory: str
    bytes: int
    user: str = ""


class EnvironmentStore:
    """The directory ``environments`` of a worker. Raises OSError when the disk fails.

    Args:
        throw: moves a directory to the trash.
    """

    def __init__(
        self, root: Path, limits: EnvironmentLimits, throw: Callable[[str], object]
    ) -> None:
        self._root = root
        self._limits = limits
        self._throw = throw
        self._users: dict[AttemptRef, str] = {}
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o711)  # the users of tasks pass to their own

    def begin(self, used: Iterable[tuple[AttemptRef, str]]) -> None:
        """A worker starts: ``used`` are directories of attempts that live; unfinished builds are
        deleted.
        """
        self._users.update((ref, directory) for ref, directory in used if directory)
        known = {entry.directory for _, entry in self._entries()} | set(self._users.values())
        for path in self._root.iterdir():
            if path.is_dir() and path.name not in known:
                self._throw(str(path))

    def path(self, directory: str) -> str:
        return str(self._root / directory)

    def find(self, key: str) -> str | None:
        """The directory of a finished build, which counts as used now; None without one."""
        path = self._root / f"{key}{_SUFFIX}"
        with contextlib.suppress(FileNotFoundError, codec.Undecodable):
            directory = codec.from_json(path.read_bytes(), Published).directory
            os.utime(path)
            return directory if (self._root / directory).is_dir() else None
        return None

    def new(self) -> str:
        """The name of a new directory for a build."""
        return Path(tempfile.mkdtemp(prefix="", dir=self._root)).name

    def seal(self, directory: str) -> int:
        """Take a finished build from the user who built it, so that nobody changes it; returns its
        bytes. Slow, for a thread. Raises OSError.
        """
        left = [self.path(directory)]
        size = 0
        builder = os.lstat(left[0]).st_uid
        while left:  # without recursion: the build may have made directories of any depth
            size += _seal(path := left.pop(), builder)
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        size += _seal(entry.path, builder)
        return size

    def publish(self, key: str, directory: str, size: int, user: str) -> None:
        """The build is finished: keep it for a user, and delete what is beyond the limits."""
        file = self._root / f"{key}{_SUFFIX}"
        draft = file.with_suffix(".new")
        draft.write_bytes(codec.to_json(Published(directory, size, user)))
        draft.rename(file)
        self._make_room(key)

    def discard(self, directory: str) -> None:
        """The build has failed."""
        self._throw(self.path(directory))

    def use(self, ref: AttemptRef, directory: str) -> None:
        """An attempt needs an environment until it is released."""
        self._users[ref] = directory

    def used_by(self, ref: AttemptRef) -> str:
        """The directory that an attempt needs; empty when it needs none."""
        return self._users.get(ref, "")

    def release(self, ref: AttemptRef) -> None:
        self._users.pop(ref, None)

    def _make_room(self, newest: str) -> None:
        used = set(self._users.values())
        entries = {path.stem: (path, entry) for path, entry in self._entries()}
        kept = [
            Kept(
                key,
                entry.user,
                entry.bytes,
                path.stat().st_mtime_ns,
                in_use=entry.directory in used or key == newest,
            )
            for key, (path, entry) in entries.items()
        ]
        for key in surplus(kept, self._limits.count, self._limits.bytes):
            path, entry = entries[key]
            path.unlink()
            self._throw(self.path(entry.directory))

    def _entries(self) -> list[tuple[Path, Published]]:
        found = []
        for path in self._root.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(codec.Undecodable):
                found.append((path, codec.from_json(path.read_bytes(), Published)))
        return found


def _seal(path: str, builder: int) -> int:
    """Make this process' user the owner of a file, with no rights of others but to read; returns
    its bytes.

    A file with another name elsewhere may be that of somebody else, and is left alone unless it is
    the builder's: uv links the files of its cache, and a later task may have that user.
    """
    found = os.lstat(path)
    is_directory = stat.S_ISDIR(found.st_mode)
    size = 0 if is_directory else found.st_size
    is_builders = found.st_uid == builder != os.geteuid()
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and not is_builders:
        return size
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(path, (found.st_mode & 0o755) | (0o555 if is_directory else 0o444))
    if found.st_uid != os.geteuid():
        os.lchown(path, os.geteuid(), os.getegid())
    return size
