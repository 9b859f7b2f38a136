"""The time stamp of a replica's commits: wall time that never goes backwards."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Wall time read once at the start, then advanced by the monotonic clock."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._steady_ns = steady_ns
        self._start_ns = steady_ns()
        self._wall_ns = wall_ns()

    def now_ms(self) -> int:
        return (self._wall_ns + self._steady_ns() - self._start_ns) // 1_000_000

    def start_after(self, at_ms: int) -> None:
        """Continue from the last recorded time when it is ahead of this clock."""
        self._wall_ns += max(0, at_ms - self.now_ms()) * 1_000_000
