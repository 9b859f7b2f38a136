"""Reads journal messages from the files of a NATS server that is not running. Pure.

A server that starts on a damaged file truncates it after the first message it cannot read, and all
later messages are lost. So the files of a stopped server are read here first: each message is found
by its subject and verified by its checksum (`framing`) and by the sequence it was to follow, which
is in its headers. A record is: length (top bit: has headers), sequence, time in ns, length of the
subject, subject, [length of the headers, headers], body, 8 bytes of the server's own checksum;
little-endian. Out of scope: what a running server can read (`raw`).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from iris_bus.connection.headers import parse
from iris_bus.contract import DamagedCommit
from iris_bus.journal.framing import verify
from iris_core.subjects import JOURNAL_SUBJECT

_HEAD = struct.Struct("<IQQH")
_LENGTH = struct.Struct("<I")
_HAS_HEADERS = 1 << 31
_CHECKSUM_BYTES = 8
_DELETED_BYTES = _HEAD.size + _CHECKSUM_BYTES
_SUBJECT = JOURNAL_SUBJECT.encode()
_MARK = struct.pack("<H", len(_SUBJECT)) + _SUBJECT
_BEFORE_MARK = _HEAD.size - 2


class Record(NamedTuple):
    """One message: its sequence, when the server stored it (Unix, ms), its body."""

    sequence: int
    stored_ms: int
    data: bytes


class Files(NamedTuple):
    """The journal's messages by ascending sequence, and the first and last sequence of each missing
    range.

    Where the first message is not whole, that one is missing. A last one that is not may never have
    been acknowledged.
    """

    records: dict[int, Record]
    missing: list[tuple[int, int]]


def records(block: bytes) -> Iterator[Record]:
    """Every whole message of the journal in one ``.blk`` file, in the order of the file."""
    at = block.find(_MARK)
    while at >= 0:
        found = _record(block, at - _BEFORE_MARK) if at >= _BEFORE_MARK else None
        if found is not None:
            yield found[0]
        at = block.find(_MARK, found[1] if found is not None else at + 1)


def _record(block: bytes, start: int) -> tuple[Record, int] | None:
    """The message whose record begins at ``start``, and the offset after it; None when the record
    is incomplete or damaged.
    """
    length, sequence, stored_ns, _ = _HEAD.unpack_from(block, start)
    if not block.startswith(_MARK, start + _BEFORE_MARK):
        return None
    end = start + (length & ~_HAS_HEADERS)
    body = start + _HEAD.size + len(_SUBJECT)
    if not length & _HAS_HEADERS or end > len(block) or body + _LENGTH.size > end:
        return None
    headers = body + _LENGTH.size
    body = headers + _LENGTH.unpack_from(block, body)[0]
    if parse(block[headers:body]).get("Nats-Expected-Last-Sequence") != str(sequence - 1):
        return None
    data = block[body : end - _CHECKSUM_BYTES]
    try:
        verify(sequence, data)
    except DamagedCommit:
        return None
    return Record(sequence, stored_ns // 1_000_000, data), end


def journal(blocks: Iterable[bytes]) -> Files:
    """The messages of all files, and the ranges missing between them."""
    found: dict[int, Record] = {}
    headless: list[int] = []
    for block in blocks:
        of_block = {record.sequence: record for record in records(block)}
        if of_block and not _begins_whole(block):
            headless.append(min(of_block) - 1)
        found |= of_block
    missing = [
        (before + 1, behind - 1)
        for before, behind in itertools.pairwise(sorted(found))
        if behind > before + 1
    ]
    if headless and not missing and min(headless) < min(found):
        missing = [(min(headless), min(headless))]
    return Files(dict(sorted(found.items())), missing)


def _begins_whole(block: bytes) -> bool:
    """Whether the first record of a file is intact, after the marks of deleted messages."""
    at = 0
    while len(block) >= at + _HEAD.size and _HEAD.unpack_from(block, at)[0] == _DELETED_BYTES:
        at += _DELETED_BYTES
    return len(block) >= at + _HEAD.size and _record(block, at) is not None
