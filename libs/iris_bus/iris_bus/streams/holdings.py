"""Bounds what the readers of one connection hold together and nobody has taken.

The server has all of it, so a reader may drop what it holds and request it again once its user
comes back. Beyond the limit the reader does so whose user has not come for the longest time. Out of
scope: what one reader requests (`reader`).
"""

from __future__ import annotations

from typing import Protocol

MOST_BYTES = 64 << 20
"""Of three readers that are full, or thirty that hold little."""


class HoldingReader(Protocol):
    """A reader that holds messages."""

    def keep_first(self) -> None:
        """Drop all but the first message, and request the others again after it was taken."""
        ...


class Holdings:
    """The bytes that readers hold, of whom the one that was not asked for the longest time is first.

    A message that is left to a reader after it has dropped the others is not counted.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: dict[HoldingReader, int] = {}
        self._total = 0

    def add(self, holder: HoldingReader, size: int) -> None:
        """A message of ``size`` bytes has arrived for a reader."""
        self._held[holder] = self._held.get(holder, 0) + size
        self._total += size
        while self._total > self._most_bytes:
            idle = next(iter(self._held))
            self._total -= self._held.pop(idle)
            idle.keep_first()

    def take(self, holder: HoldingReader, left: int) -> None:
        """A reader's user was there; ``left`` bytes are still held for it."""
        self._total += left - self._held.pop(holder, 0)
        if left:
            self._held[holder] = left
