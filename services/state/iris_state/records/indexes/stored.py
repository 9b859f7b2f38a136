"""What jobs hold in the streams of artifacts, output and results: sums by user, and what deleted
jobs have left there.

Follows from the records of jobs, and is kept as changes are applied. What users hold in the store of
bundles follows from that store, which the leader lists. Out of scope: which of it is deleted, and
the deleting (`service.room`, `service.bundles`, `service.housekeeping`).
Source: docs/adr/0151-what-a-user-stores-is-a-share.md.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from iris_core.units import DAY_MS


class StoredKind(StrEnum):
    """Where it is kept: a stream each. The values are fields of `StoredBytes`."""

    ARTIFACTS = "artifacts"
    OUTPUT = "output"
    RESULTS = "results"


class StoredBytes(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Bytes by kind."""

    artifacts: int = 0
    output: int = 0
    results: int = 0

    def of(self, kind: StoredKind) -> int:
        found: int = getattr(self, kind)
        return found

    @property
    def total(self) -> int:
        return self.artifacts + self.output + self.results

    def plus(self, other: StoredBytes) -> StoredBytes:
        return StoredBytes(
            self.artifacts + other.artifacts,
            self.output + other.output,
            self.results + other.results,
        )

    def less(self, other: StoredBytes) -> StoredBytes:
        """What is left, at least 0 of each."""
        return StoredBytes(
            max(0, self.artifacts - other.artifacts),
            max(0, self.output - other.output),
            max(0, self.results - other.results),
        )


NONE_STORED = StoredBytes()
LEFTOVERS = 20_000
"""Deleted jobs of which the streams may still hold something, at most; those of earlier ones expire
by age. The leader deletes it within seconds.
"""


class StoredBundles(NamedTuple):
    """What users hold in the store of bundles, as the leader has listed it last; in memory only.

    Attributes:
        of_user: their bytes. users: who holds some, by name.
        day: of the list, since 1970, UTC. today: what was stored on it, by user.
        end: the position of the store; -1: it was not listed yet.
    """

    of_user: Mapping[str, int]
    users: Sequence[str]
    day: int
    today: Mapping[str, int]
    end: int


NOT_LISTED = StoredBundles({}, (), 0, {}, -1)


class Leftover(NamedTuple):
    """A deleted job, and where it may have stored something."""

    job: int
    kinds: tuple[StoredKind, ...]


def on_last_day(size: int, began_ms: int, ended_ms: int) -> int:
    """The part of something that grew from one time to another, which belongs to the day of the
    latter.
    """
    lasted_ms = max(1, ended_ms - began_ms)
    return size * min(lasted_ms, ended_ms % DAY_MS + 1) // lasted_ms


class StoredSums:
    """Sums over all jobs on record.

    Attributes:
        of_user: by user, then by kind; none that is 0. leftovers: oldest first.
        day: the day of ``today``, since 1970, UTC. today: what attempts that ended on it have
            stored on it, by user. bundles: of the store of bundles.
    """

    def __init__(self) -> None:
        self.of_user: dict[str, Counter[StoredKind]] = {}
        self.day = 0
        self.today: Counter[str] = Counter()
        self.leftovers: deque[Leftover] = deque(maxlen=LEFTOVERS)
        self.bundles = NOT_LISTED

    def count_today(self, user: str, size: int, began_ms: int, ended_ms: int) -> None:
        """An attempt has stored so much while it ran; it counts for the part of that time which is
        on the day of its end.
        """
        day = ended_ms // DAY_MS
        if day != self.day:
            self.day = day
            self.today.clear()
        self.today[user] += on_last_day(size, began_ms, ended_ms)

    def on_day(self, user: str, day: int) -> int:
        """What a user has stored on that day, today's or one that has just begun, without what
        runs.
        """
        ended = self.today[user] if day == self.day else 0
        return ended + (self.bundles.today.get(user, 0) if day == self.bundles.day else 0)

    def move(self, user: str, before: StoredBytes, after: StoredBytes) -> None:
        """A job of the user holds ``after`` in place of ``before``."""
        if before == after:
            return
        sums = self.of_user.setdefault(user, Counter())
        for kind in StoredKind:
            sums[kind] += after.of(kind) - before.of(kind)
            if not sums[kind]:
                del sums[kind]
        if not sums:
            del self.of_user[user]
