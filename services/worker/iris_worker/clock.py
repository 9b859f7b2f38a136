"""The two clocks of a worker. Part of the shell: other modules get the time as an argument."""

from __future__ import annotations

import time


class HostClock:
    """Wall time for display, and time since boot, which includes suspends, for everything else."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
