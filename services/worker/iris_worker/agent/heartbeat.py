"""Schedules heartbeats, detects that this process was suspended, and tracks whether its orders are
confirmed.

Pure; times are monotonic.

A worker that was suspended and resumes may find orders in its socket that were revoked long ago. So
after a pause, and before it launches anything without recent contact, it is unconfirmed until the
state service has answered it. Out of scope: what an unconfirmed agent does. Source:
docs/design/semantics.md#constraints-and-resources; docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from iris_core.messages.state_worker import HeartbeatMessage, LiveUsage, ProbeResult, Stage


@dataclass(slots=True)
class StallDetector:
    """Tracks suspensions and the last contact with the state service.

    Attributes:
        pause_s: a longer stall of the event loop means that this process was suspended.
        fresh_s: no attempt is launched when the last contact is older.
    """

    pause_s: float = 3.0
    fresh_s: float = 10.0
    ticked_s: float = 0.0
    contact_s: float = 0.0

    def begin(self, now_s: float) -> None:
        """The worker starts now."""
        self.ticked_s = self.contact_s = now_s

    def tick(self, now_s: float) -> bool:
        """Called several times a second; returns whether this process was suspended since the last
        call.
        """
        slept = self.slept(now_s)
        self.ticked_s = now_s
        return slept

    def slept(self, now_s: float) -> bool:
        return now_s - self.ticked_s > self.pause_s

    def touch(self, now_s: float) -> None:
        """The state service has answered, or a confirmed order has arrived."""
        self.contact_s = now_s

    def may_launch(self, now_s: float) -> bool:
        """Whether the last contact is recent enough to launch attempts."""
        return not self.slept(now_s) and now_s - self.contact_s <= self.fresh_s


EARLY = 10
"""Early heartbeats per interval, at most: with thousands of attempts each is a large message."""


@dataclass(slots=True)
class HeartbeatSchedule:
    """Heartbeats are numbered and due at fixed times, so that a late one does not delay the
    next.
    """

    worker: str
    incarnation: str
    interval_s: float
    sequence: int = 0
    due_s: float = 0.0
    sent_s: float = 0.0
    warnings: dict[str, str] = field(default_factory=dict)

    def wait_s(self, now_s: float) -> float:
        return max(0.0, self.due_s - now_s)

    def advance(self, now_s: float) -> None:
        """A change should be sent early: the next heartbeat is due now, or shortly after the last
        one.
        """
        if self.due_s:
            self.due_s = min(self.due_s, max(now_s, self.sent_s + self.interval_s / EARLY))

    def heartbeat(
        self,
        attempts: tuple[Stage, ...],
        now_s: float,
        now_ms: int,
        detail: str = "",
        probes: tuple[ProbeResult, ...] = (),
        usage: tuple[LiveUsage, ...] = (),
        timeouts: dict[int, int] | None = None,
        output_bytes: dict[int, int] | None = None,
        muted: Collection[int] = (),
    ) -> tuple[HeartbeatMessage, float]:
        """The next heartbeat and its delay in seconds.

        ``detail`` is the host's fault; empty: healthy.
        """
        lag = max(0.0, now_s - self.due_s) if self.due_s else 0.0
        self.due_s = (
            max(self.due_s + self.interval_s, now_s) if self.due_s else now_s + self.interval_s
        )
        if lag > self.interval_s:
            self.due_s = now_s + self.interval_s
        self.sequence = self.sequence + 1
        self.sent_s = now_s
        monotonic_ms = to_ms(now_s)
        heartbeat = HeartbeatMessage(
            self.worker,
            self.incarnation,
            self.sequence,
            now_ms,
            attempts=attempts,
            healthy=not detail,
            detail=detail,
            monotonic_ms=monotonic_ms,
            probes=probes,
            usage=usage,
            warnings=self.warnings,
            timeouts=timeouts or {},
            output_bytes=output_bytes or {},
            muted=tuple(sorted(muted)),
        )
        return heartbeat, lag


def to_ms(steady_s: float) -> int:
    """A monotonic time in ms as messages hold it; never 0, which means unknown."""
    return max(1, int(steady_s * 1000))
