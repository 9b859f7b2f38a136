"""Pauses between tries: each twice as long as the one before, up to a longest one. Pure."""

from __future__ import annotations


class Backoff:
    """The pauses of one series of tries, in seconds.

    Attributes:
        pause_s: the pause before the next try.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.pause_s = first_s

    def next_s(self) -> float:
        """The pause before the next try; the one after that is twice as long."""
        pause_s = self.pause_s
        self.pause_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """A try has succeeded: the next pause is the first one again."""
        self.pause_s = self._first_s
