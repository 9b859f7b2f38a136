"""Sending what tasks print into the log stream. Part of the shell: it waits for the stream.

Not in this room: whose output is sent when (logs), and what an end that waited for it means (workshop).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from iris_bus.contract import Connection, Unavailable
from iris_worker.clock import Clock
from iris_worker.logs import TICK_S, Batch
from iris_worker.metrics import WorkerMetrics
from iris_worker.noop import NoopWorkshop
from iris_worker.workshop import Workshop

log = logging.getLogger(__name__)

_AGAIN_S = 0.2


class Spout:
    """One batch after the other.

    Args:
        patience_s: how long an end waits for output that cannot be stored.
    """

    def __init__(
        self,
        workshop: Workshop | NoopWorkshop,
        connection: Connection,
        clock: Clock,
        metrics: WorkerMetrics,
        patience_s: float,
    ) -> None:
        self._workshop = workshop
        self._logs = workshop.logs
        self._connection = connection
        self._clock = clock
        self._metrics = metrics
        self._patience_s = patience_s
        self._printed = asyncio.Event()
        self._resting = False

    def wake(self) -> None:
        """Attempts have begun, or ended."""
        if self._logs.is_urgent or (self._resting and len(self._logs)):
            self._printed.set()

    async def run(self) -> None:
        """For ever: at once for attempts that have ended, in ticks for those that run, not at all for nobody."""
        while True:
            await self._rest()
            batch = self._logs.collect(self._clock.steady_s(), self._clock.wall_ms())
            self._metrics.dropped(batch.dropped)
            if batch.messages or batch.ended:
                await self._send(batch)

    async def _rest(self) -> None:
        if not self._logs.is_urgent:
            self._resting = not len(self._logs)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._resting else TICK_S):
                    await self._printed.wait()
        self._resting = False
        self._printed.clear()

    async def _send(self, batch: Batch) -> None:
        """Store a batch: the last message is acknowledged, and so are all before it on the same connection."""
        try:
            for subject, data in batch.messages[:-1]:
                self._connection.bus.publish(subject, data)
            for subject, data in batch.messages[-1:]:
                await self._connection.streams.publish(subject, data)
        except Unavailable as error:
            log.warning("output could not be stored: %s", error)
            self._logs.unsent(batch)
            self._workshop.give_up_logs(self._patience_s)
            await asyncio.sleep(_AGAIN_S)
        else:
            self._workshop.stored(batch)
