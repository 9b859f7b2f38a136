"""Finds the whole commits of a journal in order, and the sequences that are lost. Pure.

Out of scope: reading the journal (`examine`), and applying the commits (`salvage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from iris_bus.contract import DamagedCommit
from iris_bus.journal.framing import Assembler, verify
from iris_core import codec
from iris_state.records.changes import Commit


class Found(NamedTuple):
    """One whole commit; ``sequence`` is that of its last message."""

    sequence: int
    commit: Commit


class Lost(NamedTuple):
    """A range of unreadable sequences, with the times (Unix, ms, 0: unknown) of the commits around
    it.
    """

    first: int
    last: int
    after_ms: int = 0
    before_ms: int = 0

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Survey(msgspec.Struct):
    """The journal after some sequence up to ``end``."""

    end: int
    commits: list[Found]
    lost: list[Lost]


def survey(messages: Mapping[int, bytes], after: int, end: int) -> Survey:
    """Assemble the readable messages into commits, and find the lost ranges.

    Args:
        messages: bodies by sequence, ascending.
        end: the last sequence that is known to have existed.

    A message of an unfinished commit, left by a leader that ended, is neither.
    """
    commits: list[Found] = []
    gone: list[tuple[int, int]] = []
    assembler = Assembler()
    begun = 0
    last = after
    for sequence, data in messages.items():
        if not after < sequence <= end:
            continue
        if sequence > last + 1:
            gone.append((begun or last + 1, sequence - 1))
            assembler = Assembler()
            begun = 0
        last = sequence
        try:
            part, _ = verify(sequence, data)
            entry = assembler.add(sequence, data)
            if entry is not None:
                commits.append(Found(sequence, _decoded(sequence, entry.data)))
        except DamagedCommit:
            gone.append((begun or sequence, sequence))
            assembler = Assembler()
            begun = 0
            continue
        if part == 0:
            begun = sequence
        if entry is not None:
            begun = 0
    if last < end:
        gone.append((begun or last + 1, end))
    return Survey(end, commits, _dated(gone, commits))


def _decoded(sequence: int, data: bytes) -> Commit:
    try:
        return codec.unpack(data, Commit)
    except codec.Undecodable as error:
        raise DamagedCommit(sequence, str(error)) from error


def _dated(gone: list[tuple[int, int]], commits: list[Found]) -> list[Lost]:
    """Merge adjacent losses; each gets the times of the commits around it."""
    merged: list[tuple[int, int]] = []
    for first, last in gone:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    dated = []
    for first, last in merged:
        before = [found.commit.at_ms for found in commits if found.sequence < first]
        behind = [found.commit.at_ms for found in commits if found.sequence > last]
        dated.append(Lost(first, last, before[-1] if before else 0, behind[0] if behind else 0))
    return dated
