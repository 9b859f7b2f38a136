"""How much an attempt may print: a rate after a burst, and all in all. Pure; times are steady."""

from __future__ import annotations

from dataclasses import dataclass

CHUNK = 64 * 1024
"""Of output, the most one message holds."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much one attempt may print before the rest is dropped: a rate after a burst, and all in all."""

    bytes_per_s: int = 1024 * 1024
    burst_bytes: int = 8 * 1024 * 1024
    attempt_bytes: int = 64 * 1024 * 1024


@dataclass(slots=True)
class Budget:
    """What an attempt may still tell: ``now`` bytes at once, refilled with time, and ``ever`` in all."""

    limits: LogLimits
    now: float
    ever: int
    filled_s: float

    @classmethod
    def full(cls, limits: LogLimits, now_s: float) -> Budget:
        return cls(limits, limits.burst_bytes, limits.attempt_bytes, now_s)

    def refill(self, now_s: float) -> None:
        self.now = min(self.limits.burst_bytes, self.now + (now_s - self.filled_s) * self.limits.bytes_per_s)
        self.filled_s = now_s

    def spend(self, count: int) -> None:
        """Take ``count`` bytes; a negative count gives back what did not arrive."""
        self.now -= count
        self.ever -= count

    @property
    def is_spent(self) -> bool:
        return min(self.now, self.ever) < CHUNK
