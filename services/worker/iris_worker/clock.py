"""The two clocks of a worker. Part of the shell: other modules get the time as an argument."""

from __future__ import annotations

import time


class HostClock:
    """Wall time for people, and time since the host's boot, which goes on while it sleeps, for everything else."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
