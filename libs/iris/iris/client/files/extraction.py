"""Unpacks a tar stream of a task below a directory: nothing in it reaches anything outside of that.

Every parent is opened by its descriptor and never through a link, so neither the archive's links
nor those that were there before lead out. `tarfile` has filters for this since Python 3.11.4; this
works with every 3.11.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from iris_core.admission.archive_paths import InvalidArchive, check_link, names
from iris_core.admission.archive_reader import ArchiveReader

OnReplace = Callable[[str], None]
_COPY = 1 << 20
_BROKEN = (
    tarfile.TarError,
    gzip.BadGzipFile,
    EOFError,
    zlib.error,
    ValueError,
    OverflowError,
    RecursionError,  # `tarfile` calls itself for a header that is about the next one
)
_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def extract(
    archive: io.BufferedIOBase, directory: Path, on_replace: OnReplace | None = None
) -> int:
    """Unpack a tar stream below a directory that exists, and read it to its end; returns the number
    of files.

    ``on_replace``: called with the path of each file there that differed, by its size or time, and
    has been replaced.

    Files keep their times and permissions as far as the umask lets them; a file that is there
    already is replaced. Links that lead outside, devices, pipes and sockets are refused. Raises
    InvalidArchive, and OSError of this machine.
    """
    files = 0
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        source = ArchiveReader(archive)
        with tarfile.open(fileobj=source, mode="r:") as opened:
            for member in opened:
                source.allow(member.size)
                if _extract(opened, member, root) and on_replace is not None:
                    on_replace(member.name)
                files += not member.isdir()
        while archive.read(_COPY):
            pass  # to the end, where gzip has its checksum
    except _BROKEN as error:
        raise InvalidArchive(f"broken archive: {error}") from error
    finally:
        os.close(root)
    return files


def _extract(opened: tarfile.TarFile, member: tarfile.TarInfo, root: int) -> bool:
    """Unpack one entry; returns whether a file that differed was there."""
    path = names(member.name)
    if not path and member.isdir():
        return False
    with _parent(root, path) as (parent, name):
        if member.isdir():
            _directory(parent, name, member.mode)
            return False
        differed = _differs(parent, name, member)
        _remove(parent, name)
        if member.isreg() and not member.issparse():
            content = opened.extractfile(member)
            assert content is not None
            with open(
                os.open(name, _NEW, member.mode & 0o777 | 0o600, dir_fd=parent), "wb"
            ) as file:
                shutil.copyfileobj(content, file, _COPY)
                file.flush()
                os.utime(file.fileno(), (member.mtime, member.mtime))
        elif member.issym():
            check_link(path, member.linkname)
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.islnk():
            _link(root, member, parent, name)
        else:
            raise InvalidArchive(
                f"{member.name[:200]!r} is neither a plain file, a directory nor a link"
            )
        return differed


def _differs(parent: int, name: str, member: tarfile.TarInfo) -> bool:
    """Whether a file is there that is not as the entry."""
    try:
        there = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    if member.issym():
        return (
            not stat.S_ISLNK(there.st_mode) or os.readlink(name, dir_fd=parent) != member.linkname
        )
    return member.isreg() and (there.st_size, int(there.st_mtime)) != (
        member.size,
        int(member.mtime),
    )


def _remove(parent: int, name: str) -> None:
    """Make room for an entry. Raises InvalidArchive."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError) as error:
        raise InvalidArchive(f"{name!r} exists and cannot be replaced: {error.strerror}") from error


def _link(root: int, member: tarfile.TarInfo, parent: int, name: str) -> None:
    """Make a hard link to a file that is there already. Raises InvalidArchive."""
    with _parent(root, names(member.linkname)) as (other, source):
        try:
            if stat.S_ISREG(os.lstat(source, dir_fd=other).st_mode):
                os.link(source, name, src_dir_fd=other, dst_dir_fd=parent, follow_symlinks=False)
                return
        except FileNotFoundError:
            pass
    raise InvalidArchive(
        f"{member.name!r} is a link, and its target is not an earlier file of the archive"
    )


@contextmanager
def _parent(root: int, path: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The directory that an entry is in, made where it is missing, and the entry's own name. Raises
    InvalidArchive.
    """
    if not path:
        raise InvalidArchive("an entry has no name")
    here = os.dup(root)
    try:
        for name in path[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=here)
            try:
                inner = os.open(name, _INTO, dir_fd=here)
            except OSError as error:
                raise InvalidArchive(
                    f"{'/'.join(path)!r} is below {name!r}, which is not a directory: {error}"
                ) from error
            os.close(here)
            here = inner
        yield here, path[-1]
    finally:
        os.close(here)


def _directory(parent: int, name: str, mode: int) -> None:
    """Make a directory that its owner can write to; one that is there keeps its permissions. Raises
    InvalidArchive.
    """
    try:
        os.mkdir(name, mode & 0o777 | 0o700, dir_fd=parent)
    except FileExistsError:
        try:
            os.close(os.open(name, _INTO, dir_fd=parent))
        except OSError as error:
            raise InvalidArchive(f"{name!r} exists and is not a directory: {error}") from error
