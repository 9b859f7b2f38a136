"""How quickly commits may follow one another: at once on a quiet cluster, spaced under load so that each holds more.

A commit costs an fsync and a message to every follower however little it holds; a few at once are free, so one job
on an idle cluster never waits. No clock here: the caller says what time it is. Source: performance.md "decide in
batches"; docs/adr/0004-commit-spacing.md.
"""

from __future__ import annotations


class Pace:
    """A bucket of commits that refills with time.

    Args:
        burst: how many commits may follow one another at once.
        spacing_s: how long one commit takes to come back.
    """

    def __init__(self, burst: int, spacing_s: float) -> None:
        self._burst = float(burst)
        self._spacing_s = spacing_s
        self._left = float(burst)
        self._at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long the next commit should wait; 0 when it may come at once."""
        self._refill(now_s)
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) * self._spacing_s

    def committed(self, now_s: float) -> None:
        """One commit has been made."""
        self._refill(now_s)
        self._left = max(0.0, self._left - 1.0)

    def _refill(self, now_s: float) -> None:
        if self._spacing_s > 0:
            self._left = min(self._burst, self._left + (now_s - self._at_s) / self._spacing_s)
        else:
            self._left = self._burst
        self._at_s = now_s
