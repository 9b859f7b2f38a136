"""A directory as one file: the same files always give the same bytes, so a bundle is known by its SHA-256.

Out of scope: sending it (`client`), unpacking it (the worker). What is never packed: version control, caches and
virtual environments (`SKIPPED`); links that lead outside and special files are refused. Source:
docs/design/interfaces.md#command-line, docs/design/interfaces.md#http, docs/design/reliability.md#security.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from iris.client.problems import InvalidOption

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".DS_Store"}
)
_CHUNK = 1 << 20


def pack_directory(root: Path, into: IO[bytes]) -> str:
    """Write ``root`` as tar.gz to ``into`` (a seekable file) and return the hex SHA-256 of what was written.

    Owners, times and all permission bits but the owner's execute bit are left out. Raises InvalidOption when ``root``
    is no directory or holds what cannot be packed.
    """
    if not root.is_dir():
        raise InvalidOption(f"{root} is not a directory")
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=into, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in list_files(root):
            add_entry(archive, root, path)
    into.seek(0)
    digest = hashlib.sha256()
    while chunk := into.read(_CHUNK):
        digest.update(chunk)
    into.seek(0)
    return digest.hexdigest()


def list_files(root: Path) -> Iterator[Path]:
    """Every directory, file and link below ``root`` in one fixed order, parents first."""
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if entry.name in SKIPPED:
            continue
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from list_files(Path(entry.path))


def add_entry(archive: tarfile.TarFile, root: Path, path: Path) -> None:
    """Add one file, directory or inner link. Raises InvalidOption for anything else."""
    found = path.lstat()
    entry = tarfile.TarInfo(path.relative_to(root).as_posix())
    if stat.S_ISREG(found.st_mode):
        entry.size = found.st_size
        entry.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
        with path.open("rb") as file:
            archive.addfile(entry, file)
        return
    if stat.S_ISDIR(found.st_mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISLNK(found.st_mode):
        entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, inner_link(root, path)
    else:
        raise InvalidOption(f"{path} is neither a file nor a directory and cannot be sent along")
    archive.addfile(entry)


def inner_link(root: Path, path: Path) -> str:
    """The target of a link. Raises InvalidOption when it is absolute or outside ``root``."""
    target = os.readlink(path)
    inside = os.path.normpath(path.parent.relative_to(root) / target)
    if os.path.isabs(target) or inside == ".." or inside.startswith("../"):
        raise InvalidOption(f"{path} links to {target}, outside of {root}; links may not leave the directory")
    return target
