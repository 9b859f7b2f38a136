"""What a bundle may contain: every entry is admitted here before a byte of it is written. Pure.

A path is made of plain names below the bundle's root, and its parents are directories of the bundle, never links; a
link leads up only by its first steps and then down, so that, whatever it passes through, it stays inside. Devices,
pipes and sockets are refused, as is more than the limits allow.
Source: docs/design/reliability.md#security.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EntryKind = Literal["file", "dir", "symlink", "hardlink", "other"]
MAX_NAME = 255
MAX_PATH = 1024


class BadBundle(Exception):
    """A bundle that must not be unpacked; the text says which entry and why."""


@dataclass(frozen=True, slots=True)
class BundleLimits:
    """How big a bundle may be.

    Attributes:
        entries: files, directories and links. bytes: all files unpacked.
        ratio: unpacked by packed size, checked once more than ``ratio_from`` bytes are unpacked.
    """

    entries: int = 100_000
    bytes: int = 4 * 1024**3
    ratio: int = 200
    ratio_from: int = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One member of an archive with its own metadata; ``target`` is the target of a link."""

    name: str
    kind: EntryKind
    size: int = 0
    target: str = ""


class Manifest:
    """The entries admitted so far.

    Args:
        packed_bytes: size of the archive.
    """

    def __init__(self, packed_bytes: int, limits: BundleLimits | None = None) -> None:
        self._limits = limits or BundleLimits()
        self._packed = max(1, packed_bytes)
        self._kinds: dict[tuple[str, ...], EntryKind] = {(): "dir"}
        self._entries = 0
        self._bytes = 0

    def admit(self, entry: ArchiveEntry) -> tuple[str, ...]:
        """The entry's path below the root, one name per element; empty for the root itself. Raises BadBundle."""
        self._count(entry)
        path = names(entry.name)
        if entry.kind == "other":
            raise BadBundle(f"{entry.name[:200]!r} is neither a file, a directory nor a link")
        if not path:
            if entry.kind != "dir":
                raise BadBundle(f"{entry.name[:200]!r} has no name")
            return path
        self._admit_parents(path)
        known = self._kinds.get(path)
        if known is not None and not (known == "dir" and entry.kind == "dir"):
            raise BadBundle(f"{entry.name[:200]!r} is there twice")
        if entry.kind == "symlink":
            check_symlink(path, entry.target)
        if entry.kind == "hardlink" and self._kinds.get(names(entry.target)) != "file":
            raise BadBundle(f"{entry.name[:200]!r} is a link to what is no file before it")
        self._kinds[path] = "file" if entry.kind == "hardlink" else entry.kind
        return path

    def _count(self, entry: ArchiveEntry) -> None:
        self._entries += 1
        self._bytes += max(0, entry.size)
        if self._entries > self._limits.entries:
            raise BadBundle(f"more than {self._limits.entries} entries")
        if entry.size < 0 or self._bytes > self._limits.bytes:
            raise BadBundle(f"more than {self._limits.bytes} bytes unpacked")
        if self._bytes > self._limits.ratio_from and self._bytes > self._packed * self._limits.ratio:
            raise BadBundle(f"unpacks to more than {self._limits.ratio} times its size")

    def _admit_parents(self, path: tuple[str, ...]) -> None:
        for length in range(1, len(path)):
            if self._kinds.setdefault(path[:length], "dir") != "dir":
                raise BadBundle(f"{'/'.join(path)[:200]!r} lies below what is no directory")


def names(text: str) -> tuple[str, ...]:
    """The components of a relative path; ``.`` and repeated slashes are skipped. Raises BadBundle."""
    if text.startswith("/"):
        raise BadBundle(f"{text[:200]!r} is an absolute path")
    if len(text) > MAX_PATH:
        raise BadBundle(f"a path of {len(text)} characters")
    found = tuple(part for part in text.split("/") if part not in ("", "."))
    for part in found:
        if part == ".." or "\0" in part or len(part.encode(errors="surrogateescape")) > MAX_NAME:
            raise BadBundle(f"{text[:200]!r} holds a name that is not allowed")
    return found


def check_symlink(path: tuple[str, ...], target: str) -> None:
    """Refuse a symbolic link whose target may be outside the bundle. Raises BadBundle."""
    if not target or target.startswith("/") or "\0" in target or len(target) > MAX_PATH:
        raise BadBundle(f"{'/'.join(path)[:200]!r} is a link to {target[:200]!r}")
    steps = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(steps) and steps[ups] == "..":
        ups += 1
    if ups > len(path) - 1 or ".." in steps[ups:]:
        raise BadBundle(f"{'/'.join(path)[:200]!r} is a link to {target[:200]!r}")
