"""The files of maps on this host, by digest, and those that one call is given.

The function and the runner are links to this host's copies where the call's user cannot change them, and copies where
it could; of the arguments a call gets its own. Out of scope: fetching (the shell's, from the object store).
Source: docs/adr/0075-give-each-call-its-own-arguments.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from iris_core.admission.archive_paths import InvalidArchive
from iris_core.spec.calls import Calls, inlined, is_inline

DIRECTORY = ".iris-call"
RUNNER, FUNCTION, ITEMS = "run.py", "function", "items"
_HEAD, _OFFSET = 4, 8


class CallFiles:
    """Files of maps, the least recently used of which are deleted beyond ``limit`` bytes."""

    def __init__(self, root: Path, limit: int = 1 << 30) -> None:
        self._root = root
        self._limit = limit
        self._adding = threading.Lock()
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

    def path(self, digest: str) -> str:
        return f"{self._root}/{digest}"

    def add(self, digest: str, data: bytes) -> None:
        """Keep a file; slow, for a thread. Raises InvalidArchive when it is another one, OSError."""
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
            while len(self._bytes) > 1 and sum(list(self._bytes.values())) > self._limit:
                self._delete(next(iter(self._bytes)))

    def _delete(self, name: str) -> None:
        del self._bytes[name]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def give(self, calls: Calls, index: int, workdir: str, owner: tuple[int, int] | None = None) -> None:
        """Put what the call of task ``index`` reads into its directory, which its ``owner`` does not reach yet. Raises
        InvalidArchive, OSError.
        """
        segment, at = calls.place(index)
        arguments = entry_of(inlined(segment), at) if is_inline(segment) else entry(self.path(segment), at)
        there = f"{workdir}/{DIRECTORY}"
        shutil.rmtree(there, ignore_errors=True)  # a bundle may have put anything there
        os.mkdir(there, 0o700)
        foreign = owner is not None and owner[0] != os.geteuid()
        place = os.link if foreign else shutil.copyfile
        place(self.path(calls.runner), f"{there}/{RUNNER}")
        place(self.path(calls.function), f"{there}/{FUNCTION}")
        with open(f"{there}/{ITEMS}", "wb") as file:
            file.write(table([arguments]))
        if owner is not None:
            os.chown(f"{there}/{ITEMS}", *owner)
            os.chown(there, *owner)


def table(blobs: list[bytes]) -> bytes:
    """A table file: how many blobs, the offset of each and of the end, then the blobs."""
    at = _HEAD + _OFFSET * (len(blobs) + 1)
    parts = [len(blobs).to_bytes(_HEAD, "little")]
    for blob in (*blobs, b""):
        parts.append(at.to_bytes(_OFFSET, "little"))
        at += len(blob)
    return b"".join((*parts, *blobs))


def entry(path: str, index: int) -> bytes:
    """One blob of a table file, by two reads. Raises InvalidArchive when it has none there, OSError."""
    with open(path, "rb", buffering=0) as file:
        return _entry(partial(os.pread, file.fileno()), os.fstat(file.fileno()).st_size, index)


def entry_of(data: bytes, index: int) -> bytes:
    """One blob of what a table file holds. Raises InvalidArchive when it has none there."""
    return _entry(lambda size, at: data[at : at + size], len(data), index)


def _entry(read: Callable[[int, int], bytes], size: int, index: int) -> bytes:
    """``read``: so many bytes from a place."""
    count, where = int.from_bytes(read(_HEAD, 0), "little"), read(2 * _OFFSET, _HEAD + _OFFSET * index)
    start, end = int.from_bytes(where[:_OFFSET], "little"), int.from_bytes(where[_OFFSET:], "little")
    if not (index < count and start <= end <= size):
        raise InvalidArchive(f"the arguments have no entry {index}")
    return read(end - start, start)


def _age(path: Path) -> float:
    return path.stat().st_mtime
