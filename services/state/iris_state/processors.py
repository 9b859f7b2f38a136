"""Measures whether this process has to wait for a processor, because other processes use them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

_SCHEDSTAT = Path("/proc/self/schedstat")
PERIOD_S = 0.1
"""Length of one measurement, in seconds."""
SHORT = 0.1
"""The share of runnable time spent waiting for a processor at which processors are short."""


def times_ns() -> tuple[int, int] | None:
    """How long the main thread has run and has waited to run since its start, in ns; None where
    that is not counted.
    """
    with contextlib.suppress(OSError, ValueError):
        ran, waited, _ = map(int, _SCHEDSTAT.read_bytes().split())
        return ran, waited
    return None


class Processors:
    """Measures the shortage of processors.

    Args:
        clock: monotonic seconds.
        times_ns: how long this thread has run and has waited; None when unknown.
    """

    def __init__(
        self, clock: Callable[[], float], times_ns: Callable[[], tuple[int, int] | None] = times_ns
    ) -> None:
        self._clock = clock
        self._times_ns = times_ns
        self._before = times_ns()
        self._look_again_s = clock() + PERIOD_S
        self._short = False

    def are_short(self) -> bool:
        """Whether this process had to wait during the last period; true where that is not
        counted.
        """
        if self._clock() >= self._look_again_s:
            self._look_again_s = self._clock() + PERIOD_S
            before = self._before
            self._before = self._times_ns()
            self._short = before is None or self._before is None or _is_short(before, self._before)
        return self._short


def _is_short(before: tuple[int, int], now: tuple[int, int]) -> bool:
    ran = now[0] - before[0]
    waited = now[1] - before[1]
    return waited > SHORT * (ran + waited)
