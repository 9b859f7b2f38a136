"""The files of maps on this host, by digest, and those that one call is given.

The function and the runner are links to this host's copies where the call's user cannot change
them, and copies where it could; of the arguments a call gets its own. Out of scope: fetching (the
shell's, from the object store).
Source: docs/design/calls.md#arguments.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from iris_core.admission.archive_paths import InvalidArchive
from iris_core.spec.calls import Calls, inlined, is_inline
from iris_worker.attempt.calls.given import DIRECTORY, FUNCTION, ITEMS, RUNNER, GivenFiles
from iris_worker.attempt.holds import Holds
from iris_worker.attempt.kept import Kept, surplus

_HEAD = 4
_OFFSET = 8
_KEPT_BYTES = 1 << 20
_MAKES_FUNCTION = b"_make_function"
_LONGEST_VERSION = 8
_VERSION = re.compile(r"3\.[0-9]{1,3}")


class CallFiles:
    """Files of maps. Beyond ``limit`` bytes the least recently used of the user who has most are
    deleted; whose they are is told as for bundles.

    Attributes:
        holds: those that a call is about to be given; they are not deleted.
    """

    def __init__(self, root: Path, limit: int = 1 << 30) -> None:
        self._root = root
        self._limit = limit
        self.holds = Holds()
        self._adding = threading.Lock()
        self._last = ("", b"")
        self._user_of: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._bytes = {path.name: path.stat().st_size for path in sorted(root.iterdir(), key=_age)}
        for name in [name for name in self._bytes if "." in name]:
            self._delete(name)

    def has(self, digest: str) -> bool:
        """Whether it is here; it is then the most recently used."""
        found = self._bytes.pop(digest, None)
        if found is not None:
            self._bytes[digest] = found
        return found is not None

    def use(self, digest: str, user: str) -> None:
        """A call of this user has a file that is here."""
        self._user_of[digest] = user

    def path(self, digest: str) -> str:
        return f"{self._root}/{digest}"

    def add(self, digest: str, data: bytes, user: str = "") -> None:
        """Keep a file for a call of this user; slow, for a thread. Raises InvalidArchive when it is
        another one, OSError.
        """
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise InvalidArchive(f"its digest is {found}, not {digest}")
        draft = f"{self.path(digest)}.new"
        with open(draft, "wb") as file:
            file.write(data)
        os.chmod(draft, 0o444)
        os.rename(draft, self.path(digest))
        with self._adding:
            self._bytes[digest] = len(data)
            self.use(digest, user)
            held = list(self._bytes.items())  # the least recently used comes first
            kept = [
                Kept(
                    name,
                    self._user_of.get(name, ""),
                    size,
                    place,
                    in_use=name == digest or name in self.holds,
                )
                for place, (name, size) in enumerate(held)
            ]
            for name in surplus(kept, len(kept), self._limit):
                with self.holds.lock:
                    if name not in self.holds:  # unless a call has come for it meanwhile
                        self._delete(name)

    def code_version(self, function: str) -> str:
        """Of which Python the code in the file of a function is, as its client has said; empty when
        it has none, or the file is not here any more.
        """
        if function not in self._versions:
            if function not in self._bytes:
                return ""
            self._versions[function] = code_version(self.path(function))
        return self._versions[function]

    def _delete(self, name: str) -> None:
        del self._bytes[name]
        self._user_of.pop(name, None)
        self._versions.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def give(
        self,
        calls: Calls,
        index: int,
        workdir: str,
        owner: tuple[int, int] | None = None,
        before: GivenFiles | None = None,
        *,
        keeps: bool = False,
    ) -> GivenFiles | None:
        """Put what the call of task ``index`` reads into its directory, which its ``owner`` does
        not reach yet, or where the call ``before`` of its job was given the same. With ``keeps`` it
        returns what the next one may have, where that user cannot change it. Raises InvalidArchive,
        OSError.
        """
        segment, at = calls.place(index)
        arguments = table([self._entry(segment, at)])
        if before is not None:
            before.put(arguments)
            return before
        there = f"{workdir}/{DIRECTORY}"
        try:
            os.mkdir(there, 0o700)
        except FileExistsError:  # a bundle may have put anything there
            if stat.S_ISDIR(os.lstat(there).st_mode):
                shutil.rmtree(there)
            else:
                os.unlink(there)
            os.mkdir(there, 0o700)
        foreign = owner is not None and owner[0] != os.geteuid()
        place = os.link if foreign else shutil.copyfile
        place(self.path(calls.runner), f"{there}/{RUNNER}")
        place(self.path(calls.function), f"{there}/{FUNCTION}")
        items = os.open(
            f"{there}/{ITEMS}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444
        )
        try:
            given = GivenFiles.of(items, there) if foreign and keeps else GivenFiles(items, {})
            given.put(arguments)
            os.fchmod(items, 0o444)  # whatever the umask is
            if owner is not None:
                os.chown(there, *owner)
        except OSError:
            os.close(items)
            raise
        if foreign and keeps:
            return given
        os.close(items)
        return None

    def _entry(self, segment: str, at: int) -> bytes:
        """The arguments of one call; the next call mostly has its own in the same file, so a small
        one stays read.
        """
        if is_inline(segment):
            return entry_of(inlined(segment), at)
        if self._last[0] != segment:
            if self._bytes.get(segment, _KEPT_BYTES + 1) > _KEPT_BYTES:
                return entry(self.path(segment), at)
            with open(self.path(segment), "rb") as file:
                self._last = (segment, file.read())
        return entry_of(self._last[1], at)


def table(blobs: list[bytes]) -> bytes:
    """A table file: how many blobs, the offset of each and of the end, then the blobs."""
    at = _HEAD + _OFFSET * (len(blobs) + 1)
    parts = [len(blobs).to_bytes(_HEAD, "little")]
    for blob in (*blobs, b""):
        parts.append(at.to_bytes(_OFFSET, "little"))
        at += len(blob)
    return b"".join((*parts, *blobs))


def entry(path: str, index: int) -> bytes:
    """One blob of a table file, by two reads. Raises InvalidArchive when it has none there,
    OSError.
    """
    with open(path, "rb", buffering=0) as file:
        return _entry(partial(os.pread, file.fileno()), os.fstat(file.fileno()).st_size, index)


def entry_of(data: bytes, index: int) -> bytes:
    """One blob of what a table file holds. Raises InvalidArchive when it has none there."""
    return _entry(lambda size, at: data[at : at + size], len(data), index)


def code_version(path: str) -> str:
    """Of which Python the code in a function's file is, such as ``3.11``; empty: it has none.

    Cloudpickle names what makes a function or class of it. A name that is there for another reason
    costs a call no more than another interpreter of the version that its client has.
    """
    try:
        packed, constant, _, version = (entry(path, index) for index in range(4))
    except (InvalidArchive, OSError):
        return ""
    said = version[:_LONGEST_VERSION].decode(errors="replace")
    of_code = any(_MAKES_FUNCTION in data for data in (packed, constant))
    return said if of_code and _VERSION.fullmatch(said) else ""


def _entry(read: Callable[[int, int], bytes], size: int, index: int) -> bytes:
    """``read``: so many bytes from a place."""
    count = int.from_bytes(read(_HEAD, 0), "little")
    where = read(2 * _OFFSET, _HEAD + _OFFSET * index)
    start = int.from_bytes(where[:_OFFSET], "little")
    end = int.from_bytes(where[_OFFSET:], "little")
    if not (index < count and start <= end <= size):
        raise InvalidArchive(f"the arguments have no entry {index}")
    return read(end - start, start)


def _age(path: Path) -> float:
    return path.stat().st_mtime
