"""Sends deltas of commits to schedulers: at once while a task is pending, several together
otherwise. Shell.

While no task is pending there is nothing to plan, and a scheduler that is woken for every start and
end of a small job takes processor time from the other services. Out of scope: the content of deltas
    (`deltas`).
Source: docs/adr/0012-notify-schedulers-before-durability.md.
"""

from __future__ import annotations

import asyncio

from iris_bus.contract import Bus
from iris_core import subjects

COMPANY_S = 0.1
"""How long a delta that allows no plan may wait for others, in seconds; the draft of new tasks
takes it along.
"""


class SchedulerNotifications:
    """The deltas of one leader, in the order of its commits."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._immediately = False

    def add(self, delta: bytes, *, urgent: bool) -> None:
        """Queue the delta of a commit that is about to become durable; ``urgent`` when it may allow
        a plan.
        """
        self._waiting.append(delta)
        if urgent or self._immediately:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COMPANY_S, self.flush)

    def send_immediately(self, on: bool) -> None:
        """While a full snapshot is requested, send each delta at once, so that none it includes
        arrives after it.
        """
        self._immediately = on
        if on:
            self.flush()

    def flush(self) -> None:
        """Send the queued deltas."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = self._waiting
        self._waiting = []
        for delta in waiting:
            self._bus.publish(subjects.SNAPSHOT, delta)

    def close(self) -> None:
        """Stop sending."""
        self._waiting = []
        self.flush()
