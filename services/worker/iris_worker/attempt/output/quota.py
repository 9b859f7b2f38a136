"""Limits the output an attempt may send: a rate while it runs, and a total. Pure; times are
monotonic.
"""

from __future__ import annotations

from dataclasses import dataclass

from iris_worker.limits import LogLimits

CHUNK = 64 * 1024
"""Bytes of output in one message, at most."""


@dataclass(slots=True)
class LogQuota:
    """What an attempt may still send: ``now`` bytes at once, refilled with time, and ``ever`` bytes
    in total. ``limit``: what says so, for a person; empty: the settings.
    """

    limits: LogLimits
    now: float
    ever: int
    filled_s: float
    limit: str = ""

    @classmethod
    def full(cls, limits: LogLimits, now_s: float, used_bytes: int = 0) -> LogQuota:
        return cls(limits, limits.burst_bytes, max(0, limits.attempt_bytes - used_bytes), now_s)

    def refill(self, now_s: float) -> None:
        self.now = min(
            self.limits.burst_bytes, self.now + (now_s - self.filled_s) * self.limits.bytes_per_s
        )
        self.filled_s = now_s

    def accept(self, count: int) -> int:
        """How many of ``count`` newly printed bytes are kept."""
        kept = min(count, self.ever)
        self.ever -= kept
        return kept

    @property
    def words(self) -> str:
        """The limit by which output is dropped."""
        return self.limit or f"log_attempt_bytes = {self.limits.attempt_bytes:,}"

    def end(self, limit: str) -> None:
        """Keep nothing more, because of a limit."""
        if self.ever:
            self.ever, self.limit = 0, limit

    @property
    def must_wait(self) -> bool:
        """Whether the rate is used up, so that further output stays on disk for now."""
        return self.now < min(CHUNK, self.limits.burst_bytes)
