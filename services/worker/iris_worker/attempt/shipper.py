"""Sends tasks' output to the log stream. Part of the shell: it waits for the stream.

See also: `logs` schedules the output of attempts, `finish` reports the ends that waited for their
    output.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

from iris_bus.contract import Connection, Full, Unavailable
from iris_worker.agent.heartbeat import StallDetector
from iris_worker.attempt.finish import Finisher
from iris_worker.attempt.output.logs import GATHER_S, TICK_S, Batch, OutputLogs
from iris_worker.clock import HostClock
from iris_worker.metrics import WorkerMetrics

log = logging.getLogger(__name__)

_RETRY_S = 0.2
_ANSWER_S = 2.0


class LogShipper:
    """Sends one batch after the other; each message is repeated until it is confirmed.

    Args:
        ask: pings the state service, which updates the last contact of ``pulse``.
        retry_for_s: how long an end waits for output that cannot be stored while the state service
            can be reached.
    """

    def __init__(
        self,
        finisher: Finisher,
        logs: OutputLogs,
        connection: Connection,
        clock: HostClock,
        metrics: WorkerMetrics,
        stall_detector: StallDetector,
        ask: Callable[[], None],
        retry_for_s: float,
    ) -> None:
        self._finisher = finisher
        self._logs = logs
        self._streams = connection.streams
        self._clock = clock
        self._metrics = metrics
        self._stall_detector = stall_detector
        self._ask = ask
        self._retry_for_s = retry_for_s
        self._printed = asyncio.Event()
        self._resting = False
        self._alone_s = 0.0

    def wake(self) -> None:
        """Attempts have begun or ended."""
        if self._logs.is_hurried or (self._resting and len(self._logs)):
            self._printed.set()

    async def run(self) -> None:
        """Run until cancelled: at once for attempts that have ended, soon when others run in their
        place already, at intervals for running ones, idle without attempts.
        """
        while True:
            await self._rest()
            batch = self._logs.collect(self._clock.steady_s(), self._clock.wall_ms())
            self._metrics.dropped(self._logs.dropped())
            if batch.messages or batch.ended:
                await self._send(batch)

    async def _rest(self) -> None:
        if not self._logs.is_hurried:
            self._resting = not len(self._logs)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    None if self._resting else GATHER_S if self._logs.is_urgent else TICK_S
                ):
                    await self._printed.wait()
        self._resting = False
        self._printed.clear()

    async def _send(self, batch: Batch) -> None:
        """Store a batch, however long that takes; meanwhile output over the quotas is dropped."""
        self._accepting = asyncio.get_running_loop().call_later(_RETRY_S, self._accept)
        try:
            await self._store(batch.messages)
        finally:
            self._accepting.cancel()
        self._finisher.stored(batch)

    def _accept(self) -> None:
        self._logs.accept()
        self._metrics.dropped(self._logs.dropped())
        self._accepting = asyncio.get_running_loop().call_later(_RETRY_S, self._accept)

    async def _store(self, messages: list[tuple[str, bytes]]) -> None:
        """Return when every message is confirmed; unconfirmed ones are sent again."""
        probed_s = math.inf
        while messages:
            if len(messages) == 1:  # a task for it would be one turn of the loop more
                found = [await self._publish(*messages[0])]
            else:
                found = await asyncio.gather(*(self._publish(*message) for message in messages))
            failed = [error for error in found if error is not None]
            messages = [
                message for message, error in zip(messages, found, strict=True) if error is not None
            ]
            if failed:
                log.warning("output could not be stored: %s", failed[0])
                probed_s = self._give_up(probed_s)
                await asyncio.sleep(_RETRY_S)

    async def _publish(self, subject: str, data: bytes) -> Exception | None:
        try:
            await self._streams.publish(subject, data, timeout=_ANSWER_S)
        except (Unavailable, Full) as error:
            return error
        return None

    def _give_up(self, probed_s: float) -> float:
        """Report ends without their output when the state service could be reached all the time
        they waited.

        ``probed_s`` is the time of the last ping. Returns the time of this one.
        """
        now_s = self._clock.steady_s()
        if self._stall_detector.contact_s < probed_s:
            self._alone_s = now_s
        if self._alone_s < now_s - self._retry_for_s:
            self._finisher.give_up_logs(now_s - self._retry_for_s)
        if self._logs.is_urgent:
            self._ask()
        return now_s
