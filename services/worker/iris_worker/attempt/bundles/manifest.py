"""What a bundle may contain: every entry is admitted here before a byte of it is written. Pure.

Names and links are those of `iris_core.admission.archive_paths`, and the parents of a path are
directories of the bundle, never links. Devices, pipes and sockets are refused, as is more than the
limits allow.
Source: docs/design/reliability.md#security.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from iris_core.admission.archive_paths import InvalidArchive, check_link, names
from iris_worker.limits import BundleLimits

EntryKind = Literal["file", "dir", "symlink", "hardlink", "other"]


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
        """The entry's path below the root, one name per element; empty for the root itself. Raises
        InvalidArchive.
        """
        self._count(entry)
        path = names(entry.name)
        if entry.kind == "other":
            raise InvalidArchive(f"{entry.name[:200]!r} is neither a file, a directory nor a link")
        if not path:
            if entry.kind != "dir":
                raise InvalidArchive(f"{entry.name[:200]!r} has no name")
            return path
        self._admit_parents(path)
        known = self._kinds.get(path)
        if known is not None and not (known == "dir" and entry.kind == "dir"):
            raise InvalidArchive(f"{entry.name[:200]!r} appears twice")
        if entry.kind == "symlink":
            check_link(path, entry.target)
        if entry.kind == "hardlink" and self._kinds.get(names(entry.target)) != "file":
            raise InvalidArchive(
                f"{entry.name[:200]!r} is a link, and its target is not an earlier file of the archive"
            )
        self._kinds[path] = "file" if entry.kind == "hardlink" else entry.kind
        return path

    def _count(self, entry: ArchiveEntry) -> None:
        self._entries += 1
        self._bytes += max(0, entry.size)
        if self._entries > self._limits.entries:
            raise InvalidArchive(f"more than {self._limits.entries} entries")
        if entry.size < 0 or self._bytes > self._limits.bytes:
            raise InvalidArchive(f"more than {self._limits.bytes} bytes unpacked")
        if (
            self._bytes > self._limits.ratio_from
            and self._bytes > self._packed * self._limits.ratio
        ):
            raise InvalidArchive(f"unpacks to more than {self._limits.ratio} times its size")

    def _admit_parents(self, path: tuple[str, ...]) -> None:
        for length in range(1, len(path)):
            if self._kinds.setdefault(path[:length], "dir") != "dir":
                raise InvalidArchive(
                    f"{'/'.join(path)[:200]!r} is below an entry that is not a directory"
                )
