"""Sending what tasks print into the log stream. Part of the shell: it waits for the stream.

See also: `logs` says whose output is sent when, `workshop` what follows for an end that waited for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

from iris_bus.contract import Connection, Full, Unavailable
from iris_worker.clock import Clock
from iris_worker.heartbeat import Pulse
from iris_worker.logs import TICK_S, Batch
from iris_worker.metrics import WorkerMetrics
from iris_worker.noop import NoopWorkshop
from iris_worker.workshop import Workshop

log = logging.getLogger(__name__)

_AGAIN_S = 0.2
_ANSWER_S = 2.0


class Spout:
    """One batch after the other, each message of it confirmed or sent again.

    Args:
        ask: has the state service answer, which moves the contact of ``pulse``.
        patience_s: how long an end waits for output that cannot be stored though the state service can be reached.
    """

    def __init__(
        self,
        workshop: Workshop | NoopWorkshop,
        connection: Connection,
        clock: Clock,
        metrics: WorkerMetrics,
        pulse: Pulse,
        ask: Callable[[], None],
        patience_s: float,
    ) -> None:
        self._workshop = workshop
        self._logs = workshop.logs
        self._streams = connection.streams
        self._clock = clock
        self._metrics = metrics
        self._pulse = pulse
        self._ask = ask
        self._patience_s = patience_s
        self._printed = asyncio.Event()
        self._resting = False
        self._alone_s = 0.0

    def wake(self) -> None:
        """Attempts have begun, or ended."""
        if self._logs.is_urgent or (self._resting and len(self._logs)):
            self._printed.set()

    async def run(self) -> None:
        """For ever: at once for attempts that have ended, in ticks for those that run, not at all for nobody."""
        while True:
            await self._rest()
            batch = self._logs.collect(self._clock.steady_s(), self._clock.wall_ms())
            self._metrics.dropped(self._logs.dropped())
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
        """Store a batch, however long that takes; disks are kept from filling meanwhile."""
        sending = asyncio.ensure_future(self._store(batch.messages))
        try:
            while not (await asyncio.wait({sending}, timeout=_AGAIN_S))[0]:
                self._logs.accept()
                self._metrics.dropped(self._logs.dropped())
            await sending
        finally:
            sending.cancel()
        self._workshop.stored(batch)

    async def _store(self, messages: list[tuple[str, bytes]]) -> None:
        """Return when every message is confirmed; those that are not are sent again."""
        asked_s = math.inf
        while messages:
            found = await asyncio.gather(*(self._publish(*message) for message in messages))
            failed = [error for error in found if error is not None]
            messages = [message for message, error in zip(messages, found, strict=True) if error is not None]
            if failed:
                log.warning("output could not be stored: %s", failed[0])
                asked_s = self._give_up(asked_s)
                await asyncio.sleep(_AGAIN_S)

    async def _publish(self, subject: str, data: bytes) -> Exception | None:
        try:
            await self._streams.publish(subject, data, timeout=_ANSWER_S)
        except (Unavailable, Full) as error:
            return error
        return None

    def _give_up(self, asked_s: float) -> float:
        """Report ends without their output when the state service answered all the while they waited.

        ``asked_s`` is when it was asked last. Returns when it is asked again, which is now.
        """
        now_s = self._clock.steady_s()
        if self._pulse.contact_s < asked_s:
            self._alone_s = now_s
        if self._alone_s < now_s - self._patience_s:
            self._workshop.give_up_logs(now_s - self._patience_s)
        if self._logs.is_urgent:
            self._ask()
        return now_s
