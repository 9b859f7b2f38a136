"""Frames a commit as one or several journal messages, each with a header that verifies it. Pure.

The header holds a magic, the format version, the part's number and the number of parts, and a CRC32
of these and of the bytes after it, so a message can be verified without being decoded. The commit's
sequence is that of its last part. Parts are consecutive; an incomplete sequence of parts was left
by a leader that ended, and readers drop it. Out of
scope: what a commit means. Source: docs/adr/0015-commits-in-parts.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from iris_bus.contract import DamagedCommit, JournalEntry

PART_BYTES = 1 << 20
"""Largest part of a commit in one message."""
VERSION = 2
"""No release has written version 1, whose commits held a position in a stream of commands."""
_MAGIC = b"IRSJ"
_HEAD = struct.Struct("<4sBII")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CHECKSUM.size


def count(size: int, part_bytes: int) -> int:
    """How many messages a commit of that many bytes needs."""
    return max(1, -(-size // part_bytes))


def split(data: bytes, part_bytes: int) -> Iterator[bytes]:
    """The messages of a commit, in order."""
    parts = count(len(data), part_bytes)
    for part in range(parts):
        head = _HEAD.pack(_MAGIC, VERSION, part, parts)
        body = data[part * part_bytes : (part + 1) * part_bytes] if parts > 1 else data
        yield b"".join((head, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))), body))


def verify(sequence: int, data: bytes) -> tuple[int, int]:
    """The part number, from 0, and the number of parts of the message at ``sequence``. Raises
    DamagedCommit.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedCommit(sequence, f"{len(data)} bytes are not a part of a commit")
    magic, version, part, parts = _HEAD.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    if magic != _MAGIC:
        raise DamagedCommit(sequence, "it does not begin like a part of a commit")
    if zlib.crc32(memoryview(data)[HEADER_BYTES:], zlib.crc32(data[: _HEAD.size])) != checksum:
        raise DamagedCommit(sequence, "its checksum does not match")
    if version != VERSION:
        raise DamagedCommit(
            sequence, f"its format has version {version}, this release knows {VERSION}"
        )
    return part, parts


class Assembler:
    """Assembles the commits of a journal from its messages in order; the first message must begin a
    commit.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._total = 0

    @property
    def unfinished(self) -> bool:
        """Whether parts of a commit have been added without its last one."""
        return bool(self._parts)

    def add(self, sequence: int, data: bytes) -> JournalEntry | None:
        """The commit that the message at ``sequence`` completes, if it does. Raises
        DamagedCommit.
        """
        part, parts = verify(sequence, data)
        if part and (part, parts) != (len(self._parts), self._total):
            behind = (
                f"behind {len(self._parts)} of {self._total}"
                if self._parts
                else "behind a whole commit"
            )
            raise DamagedCommit(sequence, f"part {part + 1} of {parts} stands {behind}")
        if not part:
            self._parts = []
            self._total = parts
        self._parts.append(data[HEADER_BYTES:])
        if len(self._parts) < parts:
            return None
        whole = self._parts
        self._parts = []
        return JournalEntry(sequence, whole[0] if parts == 1 else b"".join(whole))
