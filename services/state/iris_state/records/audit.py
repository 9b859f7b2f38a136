"""The audit: the newest commands that changed something, with their actors.

`apply` writes it, `retention` bounds it. Entries are kept packed: they are read seldom, and a
snapshot copies them.
Source: docs/adr/0055-changes-record-their-actor.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from iris_core import codec
from iris_state.records.changes import Audited

ENTRY_BYTES = 250
"""Bytes of memory of an entry, besides its text: measured, rounded up."""


class AuditEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One command; numbers are consecutive."""

    number: int
    at_ms: int
    done: Audited


class AuditLog:
    """The entries that are kept, by number, oldest first.

    Attributes:
        next_number: of the next entry. bytes: of memory of all entries.
    """

    def __init__(self) -> None:
        self.next_number = 1
        self.bytes = 0
        self._entries: dict[int, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, done: Audited, at_ms: int) -> None:
        self._keep(AuditEntry(self.next_number, at_ms, done))

    def drop(self) -> None:
        """Delete the oldest entry."""
        _, data = self._entries.pop(next(iter(self._entries)))
        self.bytes -= ENTRY_BYTES + len(data)

    def sizes(self) -> Iterator[tuple[int, int]]:
        """The time, ms, and the bytes of memory of each entry, oldest first."""
        return ((at_ms, ENTRY_BYTES + len(data)) for at_ms, data in self._entries.values())

    def newest_first(self, below: int | None = None) -> Iterator[AuditEntry]:
        """The entries with a number below a given one, newest first."""
        first = self.next_number - len(self._entries)
        last = self.next_number if below is None else min(below, self.next_number)
        for number in range(last - 1, first - 1, -1):
            yield codec.unpack(self._entries[number][1], AuditEntry)

    def stored(self) -> list[bytes]:
        """All entries for a snapshot."""
        return [data for _, data in self._entries.values()]

    def restore(self, stored: Iterable[bytes], next_number: int) -> None:
        """Read the entries of a snapshot into an empty audit."""
        for data in stored:
            self._keep(codec.unpack(data, AuditEntry))
        self.next_number = next_number

    def _keep(self, entry: AuditEntry) -> None:
        data = codec.pack(entry)
        self._entries[entry.number] = (entry.at_ms, data)
        self.bytes += ENTRY_BYTES + len(data)
        self.next_number = entry.number + 1
