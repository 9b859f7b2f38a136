"""The times of records: they pass as the monotonic clock of the leader does, also from one leader
to the next, so that setting a host's wall clock ends, bills and starts nothing.

Source: docs/adr/0154-times-of-records-pass-steadily.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from iris_service.boot import since_boot_ns

STEP_MS = 2000
"""By so much the wall clock must have been set for it to be said: a clock that is disciplined moves
by less.
"""
_READINGS = 3
_NS = 1_000_000


class Clock:
    """Wall time read once at the start, then advanced by the time since boot.

    Args:
        boot: identifies the boot of the host that ``steady_ns`` counts from; empty: unknown, and
            then nothing is known of how times passed before this process.

    Attributes:
        ignores_others: it keeps the wall time that it has read, unless that would go backwards.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = since_boot_ns,
        boot: str = "",
        *,
        ignores_others: bool = False,
    ) -> None:
        self.boot = boot
        self.ignores_others = ignores_others
        self._follows = False
        self._read_wall_ns = wall_ns
        self._steady_ns = steady_ns
        _, self._start_ns, self._wall_ns = min(_read(wall_ns, steady_ns) for _ in range(_READINGS))

    def now_ms(self) -> int:
        return (self._wall_ns + self._steady_ns() - self._start_ns) // _NS

    def boot_ms(self) -> int:
        """The time of records at which this host would have booted."""
        return (self._wall_ns - self._start_ns) // _NS

    def ahead_ms(self) -> int:
        """By how much the times of records are ahead of the host's wall clock now."""
        return self.now_ms() - self._read_wall_ns() // _NS

    def start_after(self, at_ms: int) -> None:
        """Continue from the last recorded time when it is ahead of this clock."""
        self._wall_ns += max(0, at_ms - self.now_ms()) * _NS

    def continue_for(self, boots: Mapping[str, int]) -> None:
        """Let times pass as they did for a leader in this boot, if there was one, and nobody has
        been followed since. ``boots``: the times of records at which each began.
        """
        boot_ms = boots.get(self.boot)
        if boot_ms is not None and not self._follows and not self.ignores_others:
            self._wall_ns = boot_ms * _NS + self._start_ns

    def follow(self, leader_ms: int) -> None:
        """Have the time that the leader has just said; 0: it did not say one."""
        if leader_ms and not self.ignores_others:
            self._wall_ns += (leader_ms - self.now_ms()) * _NS
            self._follows = True


def step_to_say(said_ms: int, ahead_ms: int) -> str:
    """What to say of times that are so far ahead of the wall clock; empty when they are about as
    far as was said last.
    """
    if abs(ahead_ms - said_ms) < STEP_MS:
        return ""
    off = f"{abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'}"
    if abs(ahead_ms) < STEP_MS:
        return "the host's clock was set: times of records agree with it again"
    return (
        f"the host's clock was set, or was wrong: times of records are {off} it, and stay so; nothing "
        "is billed, ended or started for it. See docs/troubleshooting.md#a-clock-is-off"
    )


def _read(wall_ns: Callable[[], int], steady_ns: Callable[[], int]) -> tuple[int, int, int]:
    """Both clocks at one time, after how long that took: another process may run in between."""
    start_ns = steady_ns()
    found_ns = wall_ns()
    return steady_ns() - start_ns, start_ns, found_ns
