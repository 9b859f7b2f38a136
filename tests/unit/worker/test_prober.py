"""Running probes: started when due, counted in the metrics, and cancelled when their attempt
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.spec.jobs import Probe
from iris_worker.attempt.probes.check import KillCommand
from iris_worker.attempt.probes.prober import Prober
from iris_worker.clock import HostClock
from iris_worker.launcher.records.records import Exit
from iris_worker.metrics import WorkerMetrics

A = AttemptRef(1, 0, 0)


class Commands:
    """Commands of probes, in place of processes; each hangs until the test ends it."""

    def __init__(self) -> None:
        self.killed = 0
        self.endings: list[Callable[[Exit], None]] = []
        self.started = asyncio.Event()

    def start(self, stderr: int, on_end: Callable[[Exit], None]) -> KillCommand:
        self.endings.append(on_end)
        self.started.set()
        return self.kill

    def kill(self) -> None:
        self.killed += 1


class Probing:
    """A prober that runs, and what it has to say."""

    def __init__(self) -> None:
        self.clock, self.metrics, self.commands = HostClock(), WorkerMetrics(lambda: 0), Commands()
        self.news = asyncio.Event()
        self.prober = Prober("127.0.0.1", self.clock, self.metrics, self.news.set)

    def begin(self, probe: Probe, port: int = 80, serves: int = 80) -> None:
        self.prober.begin(
            A, probe, port, serves, "ada", start=self.commands.start, began_s=self.clock.steady_s()
        )

    def count(self, result: str) -> float:
        found = self.metrics.registry.get_sample_value(
            "iris_route_probe_seconds_count", {"result": result}
        )
        assert found is not None
        return found


@pytest.fixture
async def probing() -> AsyncIterator[Probing]:
    made = Probing()
    running = asyncio.create_task(made.prober.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_each_probe_is_measured_by_its_result(probing: Probing):
    probing.begin(Probe(kind="command", interval_s=0.1))
    for code in (1, 0):
        async with asyncio.timeout(60):
            await probing.commands.started.wait()
        probing.commands.started.clear()
        probing.commands.endings.pop()(Exit(code))
    async with asyncio.timeout(60):
        await probing.news.wait()
    assert (probing.count("failed"), probing.count("passed")) == (1, 1)
    [result] = probing.prober.results()
    assert (result.ref, result.address, result.passes, result.failures) == (A, "127.0.0.1:80", 1, 0)


async def test_a_probe_ends_with_its_attempt(probing: Probing):
    probing.begin(Probe(kind="command"))
    async with asyncio.timeout(60):
        await probing.commands.started.wait()
    probing.prober.end(A)
    async with asyncio.timeout(60):
        while not probing.commands.killed:
            await asyncio.sleep(0)
    assert probing.prober.results() == ()


async def test_a_route_without_its_port_has_no_address(probing: Probing):
    probing.begin(Probe(kind="tcp", port="web", failures=1), port=0, serves=0)
    async with asyncio.timeout(60):
        await probing.news.wait()
    [result] = probing.prober.results()
    assert (result.address, result.failures, result.detail) == ("", 1, "the job has no port 'web'")
