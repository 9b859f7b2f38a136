"""Runs the probe of each route when it is due. Part of the shell: it waits for answers.

Out of scope: due times (schedule), and the probe itself (check).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import ProbeResult
from iris_core.spec.jobs import Probe
from iris_worker.attempt.probes.check import ProbeTarget, StartCommand, check, netloc
from iris_worker.attempt.probes.schedule import ProbeSchedule
from iris_worker.clock import HostClock
from iris_worker.metrics import WorkerMetrics


class Prober:
    """Every probe of this worker.

    Args:
        host: the address at which other hosts reach this one; it is probed, because a service on
            loopback is not reachable.
        on_news: called when a result should be sent before the next heartbeat.
    """

    def __init__(
        self, host: str, clock: HostClock, metrics: WorkerMetrics, on_news: Callable[[], None]
    ) -> None:
        self._host = host
        self._clock = clock
        self._metrics = metrics
        self._on_news = on_news
        self._schedule = ProbeSchedule()
        self._targets: dict[AttemptRef, ProbeTarget] = {}
        self._under_way: dict[AttemptRef, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def begin(
        self,
        ref: AttemptRef,
        probe: Probe,
        port: int,
        serves: int,
        user: str,
        start: StartCommand,
        began_s: float,
        adopted: bool = False,
    ) -> None:
        """Probe an attempt from now on, whose process runs since ``began_s``.

        Args:
            port: the probed port. user: who has submitted its job.
            serves: the port of requests. Each is 0 when the attempt has no such port.
        """
        self._targets[ref] = ProbeTarget(probe, self._host, port, start)
        self._schedule.begin(
            ref,
            probe,
            netloc(self._host, serves) if serves else "",
            began_s,
            adopted=adopted,
            user=user,
        )
        self._changed.set()

    def end(self, ref: AttemptRef) -> None:
        """Its process has ended: stop probing it."""
        self._schedule.end(ref)
        self._targets.pop(ref, None)
        if (task := self._under_way.pop(ref, None)) is not None:
            task.cancel()

    def results(self) -> tuple[ProbeResult, ...]:
        """The newest result of each attempt that is probed."""
        return self._schedule.results(self._clock.steady_s())

    async def run(self) -> None:
        """Run probes when they are due, until cancelled; then no probe is left running."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                for ref in self._schedule.take_due(self._clock.steady_s()):
                    self._under_way[ref] = group.create_task(self._probe(ref, self._targets[ref]))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._schedule.wait_s(self._clock.steady_s())):
                        await self._changed.wait()

    async def _probe(self, ref: AttemptRef, target: ProbeTarget) -> None:
        began_s = self._clock.steady_s()
        outcome = await check(target)
        now_s = self._clock.steady_s()
        self._metrics.probed(not outcome.failure, now_s - began_s)
        self._under_way.pop(ref, None)
        if self._schedule.on_outcome(ref, outcome, now_s):
            self._on_news()
        self._changed.set()
