"""Rounds of no-op tasks through the whole control plane, for all rows that need load without
processes.

Simulated workers are separate processes with real messages; nothing is spawned. A round is over
when the public events say that every job has ended, and it counts only when the event stream then
keeps every event exactly once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.cluster import Cluster
from benchmarks.http import Gateway
from benchmarks.watch import Watcher

PER_JOB = 10_000
HOSTS = 2
WINDOW = ("state.max_building=1000",)
"""No-op tasks build nothing, so the building window, which protects hosts, is opened."""
WORKERS = tuple((f"worker.id=sim-{n}", "worker.cpu_millis=1000000") for n in range(HOSTS))
PROGRAMS = {"worker": "benchmarks.noop_worker"}
EVENTS = ("pending", "assigned", "building", "running", "succeeded")


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to: tasks a second, CPU microseconds a task by service, commits and their
    bytes a task.
    """

    rate: float
    cpu_us: dict[str, float]
    commits: float
    journal_bytes: float


async def run_round(
    made: Cluster, gateway: Gateway, watcher: Watcher, name: str, tasks: int
) -> Round:
    """Submit ``tasks`` and see them end. Raises RuntimeError when an event is missing or doubled,
    TimeoutError.
    """
    events, journal, cpu_s = await watcher.stored(), await watcher.journal(), made.cpu_s()
    sizes = [PER_JOB] * (tasks // PER_JOB) + ([tasks % PER_JOB] if tasks % PER_JOB else [])
    names = [f"/{name}-{part}" for part in range(len(sizes))]
    began = time.perf_counter()
    for job, size in zip(names, sizes, strict=True):
        await asyncio.to_thread(gateway.submit, key=job, name=job, command=["true"], replicas=size)
    ended = await watcher.until_ended(set(names), within_s=60 + tasks / 500)
    wanted = {
        f"task.state.{state}": events.get(f"task.state.{state}", 0) + tasks for state in EVENTS
    }
    await watcher.until_stored(wanted, within_s=30 + tasks / 2000)
    spent = {
        service: round((s - cpu_s[service]) / tasks * 1e6, 1) for service, s in made.cpu_s().items()
    }
    commits, size = (
        after - before for after, before in zip(await watcher.journal(), journal, strict=True)
    )
    return Round(tasks / (ended - began), spent, round(commits / tasks, 4), round(size / tasks, 1))
