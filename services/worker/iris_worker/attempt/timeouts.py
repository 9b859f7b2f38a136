"""Ends attempts that run well past their timeout when the state service does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from iris_core.messages.message import AttemptRef
from iris_worker.agent.instructions import SetTimeout
from iris_worker.clock import HostClock


class AttemptTimeouts:
    """A timer for each running attempt that has a timeout.

    Args:
        slack_s: so long past its timeout the state service may take. on_over: called when that is
            over too.
    """

    def __init__(
        self, clock: HostClock, slack_s: float, on_over: Callable[[AttemptRef], None]
    ) -> None:
        self._clock = clock
        self._slack_s = slack_s
        self._on_over = on_over
        self._timers: dict[AttemptRef, asyncio.TimerHandle | None] = {}

    def begin(self, ref: AttemptRef, left_s: float) -> None:
        """An attempt runs, with so long until its timeout, unless an order has changed that
        meanwhile.

        One that is past it may have got another timeout, which this process was not told yet.
        """
        if ref not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[ref] = loop.call_later(
                max(0.0, left_s) + self._slack_s, self._on_over, ref
            )

    def change(self, wanted: SetTimeout) -> None:
        """An attempt has another timeout now, or none."""
        self.end(wanted.ref)
        if wanted.timeout_ms is None:
            self._timers[wanted.ref] = None
        else:
            self.begin(
                wanted.ref, (wanted.started_ms + wanted.timeout_ms - self._clock.wall_ms()) / 1000
            )

    def end(self, ref: AttemptRef) -> None:
        """An attempt has ended."""
        if (timer := self._timers.pop(ref, None)) is not None:
            timer.cancel()
