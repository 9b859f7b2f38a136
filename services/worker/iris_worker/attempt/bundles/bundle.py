"""The code bundle of a job: checked against its digest, unpacked once per host, copied for each
attempt.

Accepts tar (plain, or with gzip or bzip2) and zip (stored or deflated), which are read in bounded
memory whatever they
claim: xz, and other methods in a zip, need what the archive says. Out of scope: what an archive may
contain (manifest), and fetching (the shell's, from the object store).
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from iris_core.admission.archive_paths import InvalidArchive
from iris_core.admission.archive_reader import ArchiveReader
from iris_core.spec import array_values
from iris_worker.attempt.bundles.manifest import ArchiveEntry, EntryKind, Manifest
from iris_worker.attempt.holds import Holds
from iris_worker.attempt.kept import Kept, surplus
from iris_worker.limits import BundleLimits

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})\Z")
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
_COPY = 1024 * 1024
_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_ZIP_ENTRY = b"PK\x01\x02"
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_SENT = 1 << 30
_SMALL_ENTRIES = 16
_SMALL_BYTES = 64 << 10
_LINK_MODE = 0o120000
_UNPACKING = ".unpacking-"
_TYPE_MASK = 0o170000

ArchiveStream = io.BytesIO | gzip.GzipFile | bz2.BZ2File
ArchiveMember = tuple[ArchiveEntry, int, IO[bytes] | None]
"""An entry, its permission bits, and its content when it is a file."""


def digest_of(bundle: str) -> str:
    """The hex SHA-256 by which a job names its bundle. Raises InvalidArchive when it is
    malformed.
    """
    match = _DIGEST.match(bundle)
    if match is None:
        raise InvalidArchive(f"not a SHA-256 digest: {bundle[:100]!r}")
    return match[1]


class BundleStore:
    """Unpacked bundles of this host, by digest; the least recently used of the user who has most
    are deleted first. A bundle is of the user whose task had it last; which that was before this
    process started is not known, and these are as one user's.

    Attributes:
        holds: those that an attempt is about to be given; they are not deleted.
    """

    def __init__(self, root: Path, limits: BundleLimits | None = None, keep: int = 16) -> None:
        self._root = root
        self._limits = limits or BundleLimits()
        self._keep = keep
        self.holds = Holds()
        self._adding = threading.Lock()
        self._small: set[str] = set()
        self._user_of: dict[str, str] = {}
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in root.glob(f"{_UNPACKING}*"):
            shutil.rmtree(left, ignore_errors=True)

    def has(self, digest: str) -> bool:
        return os.path.isdir(f"{self._root}/{digest}")

    def use(self, digest: str, user: str) -> None:
        """A task of this user has a bundle that is here."""
        self._user_of[digest] = user

    def add(self, digest: str, data: bytes, user: str = "") -> None:
        """Unpack an archive for a task of this user; slow, for a thread. Raises InvalidArchive, and
        OSError when the disk is full.
        """
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise InvalidArchive(f"its digest is {found}, not {digest}")
        target = Path(tempfile.mkdtemp(prefix=_UNPACKING, dir=self._root))
        try:
            unpack(data, target, self._limits)
            target.rename(self._root / digest)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        self.use(digest, user)
        self._make_room(digest)

    def is_small(self, digest: str) -> bool:
        """Whether to `copy` it takes no longer than a turn of a thread. False for one that was not
        copied yet.
        """
        return digest in self._small

    def copy(self, digest: str, workdir: str, owner: tuple[int, int] | None = None) -> None:
        """Give an attempt its own copy of an unpacked bundle, of which ``owner`` becomes the owner,
        but not of ``workdir``, where nobody else may reach it meanwhile; slow, for a thread, unless
        it is small. Raises OSError.
        """
        source = f"{self._root}/{digest}"
        if not os.path.isdir(workdir):
            os.makedirs(workdir)
        os.utime(source)
        copied = _Copied()
        _copy(source, workdir, owner, copied)
        if copied.entries <= _SMALL_ENTRIES and copied.size <= _SMALL_BYTES:
            self._small.add(digest)

    def line(self, digest: str, path: str, index: int) -> str:
        """A line of a file of an unpacked bundle; slow, for a thread. Raises InvalidArchive,
        OSError.
        """
        place = self._root / digest / path
        if not place.is_file():
            raise InvalidArchive(f"there is no file {path} in it")
        try:
            with place.open("rb") as file:
                return array_values.value_of(file, index)
        except ValueError as error:
            raise InvalidArchive(f"{path}: {error}") from None

    def _make_room(self, newest: str) -> None:
        with self._adding:
            kept = [
                Kept(
                    path.name,
                    self._user_of.get(path.name, ""),
                    0,
                    path.stat().st_mtime_ns,
                    in_use=path.name == newest or path.name in self.holds,
                )
                for path in self._root.iterdir()
                if not path.name.startswith(_UNPACKING)
            ]
            for name in surplus(kept, self._keep):
                self._delete(name)

    def _delete(self, name: str) -> None:
        """Unless an attempt has come for it meanwhile."""
        away = tempfile.mkdtemp(prefix=_UNPACKING, dir=self._root)
        with self.holds.lock:
            if name not in self.holds:
                self._small.discard(name)
                self._user_of.pop(name, None)
                os.rename(self._root / name, away)
        shutil.rmtree(away, ignore_errors=True)


@dataclass(slots=True)
class _Copied:
    """What was copied of a bundle."""

    entries: int = 0
    size: int = 0


def _copy(source: str, target: str, owner: tuple[int, int] | None, copied: _Copied) -> None:
    """Copy what is in a directory, with modes and times; ``owner`` becomes the owner of each entry.
    Raises OSError.
    """
    with os.scandir(source) as entries:
        for entry in entries:
            path = f"{target}/{entry.name}"
            info = entry.stat(follow_symlinks=False)
            copied.entries += 1
            if stat.S_ISREG(info.st_mode):
                _copy_file(entry.path, path, info, owner)
                copied.size += info.st_size
                continue
            if stat.S_ISDIR(info.st_mode):
                os.mkdir(path, 0o700)
                _copy(entry.path, path, owner, copied)
                os.chmod(path, stat.S_IMODE(info.st_mode))
            else:
                os.symlink(os.readlink(entry.path), path)
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns), follow_symlinks=False)
            if owner is not None:
                os.lchown(path, *owner)


def _copy_file(
    source: str, target: str, info: os.stat_result, owner: tuple[int, int] | None
) -> None:
    there = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if info.st_size:
            here = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            try:
                while os.sendfile(there, here, None, _SENT):
                    pass
            finally:
                os.close(here)
        if owner is not None:
            os.fchown(there, *owner)
        os.fchmod(there, stat.S_IMODE(info.st_mode))
        os.utime(there, ns=(info.st_atime_ns, info.st_mtime_ns))
    finally:
        os.close(there)


def unpack(data: bytes, root: Path, limits: BundleLimits) -> None:
    """Write an archive's entries below the empty directory ``root``. Raises InvalidArchive,
    OSError.
    """
    manifest = Manifest(len(data), limits)
    try:
        for entry, mode, content in _members(data, limits):
            path = root.joinpath(*manifest.admit(entry))
            _write(entry, mode, content, path, root=root)
    except InvalidArchive:
        raise
    except OSError as error:
        if error.errno is not None and not isinstance(error, EOFError):
            raise  # an error of the disk, not of the bundle
        raise InvalidArchive(f"broken archive: {error}") from error
    except _BROKEN as error:
        raise InvalidArchive(f"broken archive: {error}") from error


def _write(
    entry: ArchiveEntry, mode: int, content: IO[bytes] | None, path: Path, root: Path
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.kind == "dir":
        path.mkdir(exist_ok=True)
    elif entry.kind == "symlink":
        path.symlink_to(entry.target)
    elif entry.kind == "hardlink":
        os.link(root.joinpath(entry.target), path, follow_symlinks=False)
    elif content is not None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # follows no link
        with open(os.open(path, flags, 0o755 if mode & 0o111 else 0o644), "wb") as file:
            shutil.copyfileobj(content, file, _COPY)


def _members(data: bytes, limits: BundleLimits) -> Iterator[ArchiveMember]:
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        yield from _zip_members(data, limits)
    else:
        yield from _tar_members(data)


def _tar_members(data: bytes) -> Iterator[ArchiveMember]:
    source = ArchiveReader(_opened(data))
    with tarfile.open(fileobj=source, mode="r:") as archive:
        for member in archive:
            source.allow(member.size)
            if member.issparse():
                raise InvalidArchive(f"{member.name[:200]!r} is a sparse file")
            content = archive.extractfile(member) if member.isreg() else None
            yield (
                ArchiveEntry(member.name, _tar_kind(member), member.size, member.linkname),
                member.mode,
                content,
            )


def _opened(data: bytes) -> ArchiveStream:
    """The tar archive, decompressed."""
    file = io.BytesIO(data)
    if data.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)
    return bz2.BZ2File(file) if data.startswith(_BZIP2) else file


def _tar_kind(member: tarfile.TarInfo) -> EntryKind:
    if member.isreg():
        return "file"
    if member.isdir():
        return "dir"
    if member.issym():
        return "symlink"
    return "hardlink" if member.islnk() else "other"


def _zip_members(data: bytes, limits: BundleLimits) -> Iterator[ArchiveMember]:
    if data.count(_ZIP_ENTRY) > limits.entries:  # before `zipfile` makes an object of each
        raise InvalidArchive(f"more than {limits.entries} entries")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if info.compress_type not in _ZIP_METHODS:
                raise InvalidArchive(f"{info.filename[:200]!r} is neither stored nor deflated")
            mode = info.external_attr >> 16
            if info.is_dir():
                yield ArchiveEntry(info.filename, "dir"), mode, None
            elif mode & _TYPE_MASK == _LINK_MODE:
                target = (
                    archive.read(info).decode(errors="replace") if info.file_size < 4096 else ""
                )
                yield ArchiveEntry(info.filename, "symlink", target=target), mode, None
            else:
                with archive.open(info) as content:
                    yield ArchiveEntry(info.filename, "file", info.file_size), mode, content
