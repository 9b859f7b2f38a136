"""Every number the state service decides with; each is a key of `[state]` in iris.toml. Defaults: semantics.md."""

from __future__ import annotations

import msgspec

from iris_core.states import SessionStatus
from iris_core.tables.session import Patience


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and patience, all times in seconds."""

    tries: int = 5
    max_reschedules: int = 100
    scheduled_patience_s: float = 60.0
    preparing_patience_s: float = 900.0
    prepared_patience_s: float = 60.0
    creating_patience_s: float = 600.0
    terminating_patience_s: float = 120.0
    order_timeout_s: float = 5.0
    order_retry_s: float = 1.0
    beat_interval_s: float = 5.0
    missed_beats: int = 3
    worker_grace_s: float = 30.0
    max_building: int = 8
    avoid_s: float = 5.0
    avoid_longest_s: float = 300.0
    stop_grace_s: float = 5.0

    @property
    def patience(self) -> Patience:
        return Patience(
            scheduled_ms=int(self.scheduled_patience_s * 1000),
            preparing_ms=int(self.preparing_patience_s * 1000),
            prepared_ms=int(self.prepared_patience_s * 1000),
            creating_ms=int(self.creating_patience_s * 1000),
            terminating_ms=int(self.terminating_patience_s * 1000),
        )

    @property
    def lost_after_ms(self) -> int:
        """A worker not heard of for longer than this, by message time, is LOST."""
        return int(max(self.missed_beats * self.beat_interval_s, self.worker_grace_s) * 1000)

    @property
    def stall_ms(self) -> int:
        """A pause of the service itself longer than this says nothing about workers."""
        return int(self.beat_interval_s * 1000)

    def avoid_ms(self, times: int) -> int:
        """How long a task stays off a worker that failed it for the ``times``-th time; doubles up to a longest."""
        return int(min(self.avoid_s * 2 ** min(times, 16), self.avoid_longest_s) * 1000)

    def patience_of(self, status: SessionStatus) -> int | None:
        return self.patience.of(status)
