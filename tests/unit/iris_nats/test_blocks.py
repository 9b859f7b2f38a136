"""The reader of the server's files finds the journal's messages and detects missing ones."""

import struct

import pytest

from iris_bus.journal.framing import split
from iris_nats.blocks import Record, journal

SUBJECT = b"iris.journal"


def record(sequence: int, body: bytes) -> bytes:
    """As a server writes it."""
    headers = b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n\r\n" % (sequence - 1)
    head = struct.pack("<I", len(headers)) + headers
    rest = SUBJECT + head + body + b"checksum"
    length = 22 + len(rest) | 1 << 31
    return struct.pack("<IQQH", length, sequence, sequence * 1_000_000, len(SUBJECT)) + rest


def body(sequence: int) -> bytes:
    """One that holds the subject itself, as a job's environment may."""
    return next(split(struct.pack("<H", len(SUBJECT)) + SUBJECT + b"x" * sequence, 1 << 20))


DELETED = struct.pack("<IQQH", 30, 1 << 62, 0, 0) + b"checksum"
FILES = [
    b"".join(record(s, body(s)) for s in (1, 2, 3)),
    b"".join(record(s, body(s)) for s in (4, 5)),
]


def test_every_message_of_every_file_is_found():
    found = journal(FILES)
    assert found.records == {s: Record(s, s, body(s)) for s in (1, 2, 3, 4, 5)}
    assert found.missing == []


@pytest.mark.parametrize("at", range(len(record(2, body(2))) - 8))
def test_a_flipped_bit_in_a_message_loses_that_message_only(at: int):
    start = len(record(1, body(1)))
    hurt = bytearray(FILES[0])
    hurt[start + at] ^= 0x10
    found = journal([bytes(hurt), FILES[1]])
    intact = {1, 3, 4, 5}
    assert set(found.records) >= intact
    assert found.missing == ([(2, 2)] if 2 not in found.records else [])
    assert found.records.get(2, Record(2, 0, body(2))).data == body(2)


def test_a_file_that_is_gone_is_noticed_between_others():
    assert journal([FILES[0], record(9, body(9))]).missing == [(4, 8)]


def test_a_first_message_that_is_not_whole_is_noticed():
    assert journal([b"\0" + FILES[0][1:]]).missing == [(1, 1)]


def test_a_journal_that_was_trimmed_has_nothing_missing():
    assert journal([DELETED * 2 + record(3, body(3)), FILES[1]]).missing == []


def test_a_last_message_that_was_not_written_to_its_end_is_none():
    assert journal([FILES[0], FILES[1][:-9]]).missing == []
