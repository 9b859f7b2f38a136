"""B1: no-op tasks through the whole control plane, submission to all SUCCEEDED, every event published and counted.

Simulated workers are separate processes with real messages; nothing is spawned. The event stream's own count of each
subject says that all was told. B1b is the same with more tasks.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.row import Row, median
from benchmarks.watch import Watcher

GOAL = 15_000
PER_JOB = 10_000
WORKERS = 2
WINDOW = ("state.max_building=1000",)
"""No-op tasks build nothing, so the building window, which protects hosts, is opened."""
EVENTS = ("pending", "assigned", "building", "running", "succeeded")


def run(quick: bool = False, tasks: int = 10_000, repeat: int = 3) -> Row:
    """Tasks per second, median of ``repeat`` rounds on one cluster after one round that is not counted."""
    if quick:
        repeat = 2
    workers = [(f"worker.id=sim-{n}", "worker.runner=noop", "worker.cpu_millis=1000000") for n in range(WORKERS)]
    with cluster(workers=workers, state=WINDOW) as made:
        runs, cpu, rss = asyncio.run(_rounds(made, tasks, repeat))
    return Row(
        row="B1",
        what=f"{tasks} no-op tasks, submit to all SUCCEEDED",
        value=round(median(runs), 1),
        unit="tasks/s",
        goal=GOAL,
        rss_bytes=max(rss.values()),
        runs=[round(r, 1) for r in runs],
        detail={"cpu_us_per_task": cpu, "rss": rss},
    )


async def _rounds(made: Cluster, tasks: int, repeat: int) -> tuple[list[float], dict[str, float], dict[str, int]]:
    gateway = Gateway(made.url)
    gateway.until_workers(WORKERS)
    rates: list[float] = []
    spent: dict[str, float] = {}
    async with Watcher(made.nats_url) as watcher:
        for number in range(repeat + 1):
            before = made.cpu_s()
            seconds = await _round(made, gateway, watcher, f"b1-{number}", tasks)
            if number:
                rates.append(tasks / seconds)
                after = made.cpu_s()
                spent = {name: round((after[name] - before[name]) / tasks * 1e6, 1) for name in after}
    return rates, spent, made.rss_bytes()


async def _round(made: Cluster, gateway: Gateway, watcher: Watcher, name: str, tasks: int) -> float:
    """One round; raises RuntimeError when an event is missing or doubled."""
    before = await watcher.stored()
    sizes = [PER_JOB] * (tasks // PER_JOB) + ([tasks % PER_JOB] if tasks % PER_JOB else [])
    began = time.perf_counter()
    jobs = set()
    for part, size in enumerate(sizes):
        await asyncio.to_thread(gateway.submit, name=f"/{name}-{part}", command=["true"], replicas=size)
        jobs.add(f"/{name}-{part}")
    ended = await watcher.until_ended(jobs, within_s=60 + tasks / 500)
    subjects = [f"task.state.{state}" for state in EVENTS]
    await watcher.until_stored({subject: before.get(subject, 0) + tasks for subject in subjects})
    return ended - began
