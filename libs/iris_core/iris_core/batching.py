"""Spaces commits, plans and reports, so that under load each of them holds more. Pure.

Each has a fixed cost, so many small ones are expensive. After an idle time a few are sent at once,
so a short task on a quiet cluster does not wait; later ones are spaced by an interval that grows
with the number of open attempts. The caller passes the time.
Source: docs/performance.md; docs/adr/0004-commit-spacing.md.
"""

from __future__ import annotations

_MANY = 100
_SHORTEST = 0.02


class Batcher:
    """Spaces what one sender sends.

    Args:
        longest_s: the longest interval in seconds, reached at 100 open attempts; 0 never waits.
        burst: how many are sent at once after an idle time.
    """

    def __init__(self, longest_s: float, burst: int) -> None:
        self._longest_s = longest_s
        self._burst = burst
        self._step_s = 0.0
        self._free_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next one may be sent; 0 when it may be sent now."""
        return max(0.0, self._free_s - self._step_s * (self._burst - 1) - now_s)

    def spend(self, now_s: float, attempts: int) -> None:
        """Record that one is sent now, with that many open attempts."""
        self._step_s = self._longest_s * min(1.0, max(_SHORTEST, attempts / _MANY))
        self._free_s = max(self._free_s, now_s) + self._step_s
