"""The time stamp of a replica's commits: wall time that never goes backwards."""

from __future__ import annotations

import time
from collections.abc import Callable

_READINGS = 3


class Clock:
    """Wall time read once at the start, then advanced by the monotonic clock."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._steady_ns = steady_ns
        _, self._start_ns, self._wall_ns = min(_read(wall_ns, steady_ns) for _ in range(_READINGS))

    def now_ms(self) -> int:
        return (self._wall_ns + self._steady_ns() - self._start_ns) // 1_000_000

    def start_after(self, at_ms: int) -> None:
        """Continue from the last recorded time when it is ahead of this clock."""
        self._wall_ns += max(0, at_ms - self.now_ms()) * 1_000_000


def _read(wall_ns: Callable[[], int], steady_ns: Callable[[], int]) -> tuple[int, int, int]:
    """Both clocks at one time, after how long that took: another process may run in between."""
    start_ns = steady_ns()
    found_ns = wall_ns()
    return steady_ns() - start_ns, start_ns, found_ns
