"""The output directory of an attempt: made for its task, and packed after the end as tar.gz.

A task may put anything there, and the worker may be root. So every step is by descriptor and
follows no link, and only what belongs to the owner of the attempt's directory is read: a hard link
to a file of another user is left out, as are links that lead out, pipes, sockets and devices. Only
one piece is held in memory, and the names of the directories on the way. Source:
    docs/adr/0048-artifacts-are-a-stream.md. Out of scope: storing it (uploader).
"""

from __future__ import annotations

import os
import stat
import tarfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from iris_core.admission.archive_paths import MAX_DEPTH, MAX_PATH, leads_out
from iris_core.units import show_bytes
from iris_worker.limits import ArtifactLimits

PIECE_BYTES = 1 << 20
_READ_BYTES = 256 << 10
_SHOWN = 5
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GZIP = 31
_LEVEL = 1
"""Checkpoints hardly compress; the quickest level is a fifth of the time of the usual one."""


class NoDirectory(OSError):
    """A bundle or a build has put something else in the place of an output directory; the text says
    so.
    """


class NotStored(Exception):
    """An output directory that is not kept; the text says why."""


@dataclass(slots=True)
class LeftOut:
    """What was not packed."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, name: str, why: str) -> None:
        self.count += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{as_text(name)[-80:]} ({why})")

    def __str__(self) -> str:
        if not self.count:
            return ""
        more = f" and {self.count - len(self.shown)} more" if self.count > len(self.shown) else ""
        return f"left out: {', '.join(self.shown)}{more}"


@dataclass(frozen=True, slots=True)
class OutputEntry:
    """Something in the directory: its path, and the open directory that it is in."""

    path: str
    name: str
    parent: int
    info: os.stat_result


def make_directory(workdir: str, path: str) -> str:
    """Make the output directory below an attempt's directory, with the same owner; returns it.

    A bundle or a build may have put anything there. Raises NoDirectory, OSError.
    """
    here = os.open(workdir, _DIRECTORY)
    try:
        owner = os.fstat(here)
        for name in path.split("/"):
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=here)
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=here)
            except (NotADirectoryError, PermissionError) as error:
                raise NoDirectory(
                    f"--output {path}: {name} is not a directory in the bundle: {error.strerror}"
                ) from error
            os.close(here)
            here = inner
            if os.fstat(here).st_uid != owner.st_uid:
                os.fchown(here, owner.st_uid, owner.st_gid)
    finally:
        os.close(here)
    return f"{workdir}/{path}"


class OutputDirectory:
    """An output directory of an attempt that has ended. For a thread: all of it waits for the disk.

    Attributes:
        files: how many files and links have been packed, and packed_bytes: of the files. left_out:
            what has not been.

    Raises NotStored when it is not there, or what is there may not be read.
    """

    def __init__(self, workdir: str, path: str, limits: ArtifactLimits) -> None:
        self.files = self.packed_bytes = 0
        self.left_out = LeftOut()
        self._limits = limits
        self._seen = 0
        here = os.open(workdir, _DIRECTORY)
        self._owner = os.fstat(here).st_uid
        for name in path.split("/"):
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=here)
            except OSError as error:
                raise NotStored(f"{path} is no longer a directory: {error.strerror}") from error
            finally:
                os.close(here)
            here = inner
        self._root = here
        if os.fstat(here).st_uid != self._owner:
            self.close()
            raise NotStored(f"{path} belongs to another user")

    def close(self) -> None:
        os.close(self._root)

    def measure(self) -> int:
        """The bytes of its files. Raises NotStored when there is more than the limits allow."""
        size = 0
        for entry in self._walk():
            size += entry.info.st_size if stat.S_ISREG(entry.info.st_mode) else 0
            self._check(size)
        self.left_out = LeftOut()
        return size

    def _check(self, size: int) -> None:
        if size > self._limits.bytes:
            limit = show_bytes(self._limits.bytes)
            raise NotStored(
                f"its files have more than {limit}, the limit of this worker (artifact_bytes)"
            )

    def pack(self) -> Generator[bytes, None, None]:
        """Its content as tar.gz, in pieces of about `PIECE_BYTES`. Raises NotStored, OSError."""
        squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        piece = bytearray()
        for block in self._blocks():
            piece += squeeze.compress(block)
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece) + squeeze.flush()

    def _blocks(self) -> Iterator[bytes]:
        for entry in self._walk():
            self.packed_bytes += entry.info.st_size if stat.S_ISREG(entry.info.st_mode) else 0
            self._check(
                self.packed_bytes
            )  # another process may have written to it since it was measured
            yield from self._packed(entry)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _packed(self, entry: OutputEntry) -> Iterator[bytes]:
        mode = entry.info.st_mode
        made = tarfile.TarInfo(entry.path)
        made.mode, made.mtime = stat.S_IMODE(mode) & 0o777, int(entry.info.st_mtime)
        if stat.S_ISDIR(mode):
            made.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(mode):
            made.type, made.linkname = tarfile.SYMTYPE, os.readlink(entry.name, dir_fd=entry.parent)
            if leads_out(tuple(entry.path.split("/")), made.linkname):
                self.left_out.add(entry.path, "a link out of the directory")
                return
            self.files += 1
        else:
            yield from self._file(entry, made)
            return
        yield _header(made)

    def _file(self, entry: OutputEntry, made: tarfile.TarInfo) -> Iterator[bytes]:
        try:
            file = os.open(entry.name, _FILE, dir_fd=entry.parent)
        except OSError as error:
            self.left_out.add(entry.path, str(error.strerror))
            return
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != self._owner:
                self.left_out.add(entry.path, "it was replaced meanwhile")
                return
            made.size = left = entry.info.st_size
            yield _header(made)
            while left:
                data = os.read(file, min(left, _READ_BYTES))
                if not data:
                    raise NotStored(f"{as_text(entry.path)} changed while it was read")
                left -= len(data)
                yield data
            yield bytes(-made.size % tarfile.BLOCKSIZE)
            self.files += 1
        finally:
            os.close(file)

    def _walk(self) -> Iterator[OutputEntry]:
        """Everything below it that may be packed, in one order, directories before their content.
        Raises NotStored when it has more entries than the limits allow, with those that are left
        out.
        """
        self._seen = 0
        names = self._names(self._root)
        stack = [(os.dup(self._root), "", names)]
        try:
            while stack:
                parent, below, names = stack[-1]
                if not names:
                    os.close(stack.pop()[0])
                    continue
                entry = self._entry(parent, below, names.pop())
                if entry is None:
                    continue
                yield entry
                if stat.S_ISDIR(entry.info.st_mode):
                    self._enter(entry, stack)
        finally:
            for parent, _, _ in stack:
                os.close(parent)

    def _enter(self, entry: OutputEntry, stack: list[tuple[int, str, list[str]]]) -> None:
        if len(stack) >= MAX_DEPTH:
            self.left_out.add(f"{entry.path}/", "too deep")
            return
        try:
            inner = os.open(entry.name, _DIRECTORY, dir_fd=entry.parent)
        except OSError as error:
            self.left_out.add(f"{entry.path}/", str(error.strerror))
            return
        stack.append((inner, f"{entry.path}/", []))
        if os.fstat(inner).st_uid == self._owner:
            stack[-1] = (inner, f"{entry.path}/", self._names(inner))

    def _names(self, directory: int) -> list[str]:
        """The names in a directory, last one first; no more of them are read than all directories
        may have.
        """
        names: list[str] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > self._limits.entries:
                    raise NotStored(f"it has more than {self._limits.entries:,} entries")
                names.append(entry.name)
        return sorted(names, reverse=True)

    def _entry(self, parent: int, below: str, name: str) -> OutputEntry | None:
        """One name of a directory, unless it is left out."""
        path = f"{below}{name}"
        try:
            info = os.lstat(name, dir_fd=parent)
        except OSError as error:
            self.left_out.add(path, str(error.strerror))
            return None
        kind = stat.S_IFMT(info.st_mode)
        if info.st_uid != self._owner:
            self.left_out.add(path, "it belongs to another user")
        elif kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            self.left_out.add(path, "neither a file, a directory nor a link")
        elif len(path) > MAX_PATH:
            self.left_out.add(path, "its path is too long")
        else:
            return OutputEntry(path, name, parent, info)
        return None


def as_text(name: str) -> str:
    """A name in words for people: what of it is no UTF-8 cannot be sent."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _header(made: tarfile.TarInfo) -> bytes:
    return made.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
