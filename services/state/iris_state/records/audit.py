"""The audit: the newest commands that changed something, with their actors.

`apply` writes it, `retention` bounds it. A command that repeats one on record is counted there.
Entries are kept packed: they are read seldom, and a snapshot copies them.
Sources: docs/adr/0055-changes-record-their-actor.md,
docs/adr/0021-bound-everything-by-age-and-size.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from math import inf

import msgspec

from iris_core import codec
from iris_core.access.rights import ADMIN
from iris_state.records.changes import Audited

ENTRY_BYTES = 400
"""Bytes of memory of an entry, besides its text: measured, rounded up."""
Holder = tuple[bool, str]
"""Whether an entry is of an admin, and whose it is."""


class AuditEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A command; numbers ascend. ``times``: how often it was given, first at ``first_ms``."""

    number: int
    at_ms: int
    done: Audited
    times: int = 1
    first_ms: int = 0


class AuditLog:
    """The entries that are kept, by number, oldest first.

    Attributes:
        next_number: of the next entry. bytes: of memory of all entries. bytes_of: of each holder's.
    """

    def __init__(self) -> None:
        self.next_number = 1
        self.bytes = 0
        self.bytes_of: Counter[Holder] = Counter()
        self._entries: dict[int, tuple[int, bytes, Holder]] = {}
        self._of: dict[Holder, dict[int, None]] = {}
        self._same: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest_ms(self) -> float:
        """When the oldest entry was made; infinite without any."""
        return next((at_ms for at_ms, _, _ in self._entries.values()), inf)

    def add(self, done: Audited, at_ms: int) -> None:
        """Add a command, or count it where the same one is on record."""
        times = 1
        first_ms = at_ms
        number = self._same.get(hash(done))
        if number is not None:
            before = codec.unpack(self._entries[number][1], AuditEntry)
            if before.done == done:
                times = before.times + 1
                first_ms = before.first_ms or before.at_ms
                self.drop(number)
        self._keep(AuditEntry(self.next_number, at_ms, done, times, first_ms=first_ms))

    def drop(self, number: int) -> None:
        """Delete an entry, if it is there."""
        if number not in self._entries:
            return
        _, data, holder = self._entries.pop(number)
        self.bytes -= ENTRY_BYTES + len(data)
        self.bytes_of[holder] -= ENTRY_BYTES + len(data)
        del self._of[holder][number]
        if not self._of[holder]:
            del self._of[holder], self.bytes_of[holder]
        same = hash(codec.unpack(data, AuditEntry).done)
        if self._same.get(same) == number:
            del self._same[same]

    def surplus(self, keep_bytes: int, oldest_ms: int, most: int) -> list[int]:
        """The numbers of entries to delete: those that are too old, and of what is too much the
        oldest of the user who has most. What an admin did stays while there is another's.
        """
        gone: dict[int, None] = {}
        for number, (at_ms, _, _) in self._entries.items():
            if at_ms >= oldest_ms or len(gone) == most:
                break
            gone[number] = None
        left = self.bytes - sum(self._size(number) for number in gone)
        if left <= keep_bytes:
            return list(gone)
        held = Counter(self.bytes_of)
        for number in gone:
            held[self._entries[number][2]] -= self._size(number)
        oldest = {
            holder: iter([number for number in numbers if number not in gone])
            for holder, numbers in self._of.items()
        }
        while left > keep_bytes and len(gone) < most:
            holder = max(oldest, key=lambda one: (not one[0], held[one], one))
            found = next(oldest[holder], None)
            if found is None:
                del oldest[holder]
                continue
            gone[found] = None
            left -= self._size(found)
            held[holder] -= self._size(found)
        return list(gone)

    def _size(self, number: int) -> int:
        return ENTRY_BYTES + len(self._entries[number][1])

    def newest_first(self, below: int | None = None) -> Iterator[AuditEntry]:
        """The entries with a number below a given one, newest first."""
        numbers = reversed(self._entries)
        for number in dropwhile(lambda one: below is not None and one >= below, numbers):
            yield codec.unpack(self._entries[number][1], AuditEntry)

    def stored(self) -> list[bytes]:
        """All entries for a snapshot."""
        return [data for _, data, _ in self._entries.values()]

    def restore(self, stored: Iterable[bytes], next_number: int) -> None:
        """Read the entries of a snapshot into an empty audit."""
        for data in stored:
            self._keep(codec.unpack(data, AuditEntry))
        self.next_number = next_number

    def _keep(self, entry: AuditEntry) -> None:
        data = codec.pack(entry)
        holder = (entry.done.by.role == ADMIN, entry.done.by.user)
        self._entries[entry.number] = (entry.at_ms, data, holder)
        self._of.setdefault(holder, {})[entry.number] = None
        self._same[hash(entry.done)] = entry.number
        self.bytes += ENTRY_BYTES + len(data)
        self.bytes_of[holder] += ENTRY_BYTES + len(data)
        self.next_number = entry.number + 1
