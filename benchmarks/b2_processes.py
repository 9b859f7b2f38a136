"""B2: real processes. 5,000 x /bin/true through the whole system, submission to all SUCCEEDED."""

from __future__ import annotations

import asyncio
import time

from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.row import Row, median
from benchmarks.watch import Watcher

GOAL = 2_500
WORKERS = 2
CPUS = 32
WINDOW = ("state.max_building=32",)
"""Nothing is downloaded or installed, so each host may start as many at once as it may run."""


def run(quick: bool = False, tasks: int = 5_000, repeat: int = 3) -> Row:
    """Processes per second, median of ``repeat`` jobs on one cluster after one that is not counted."""
    if quick:
        tasks, repeat = 2_000, 2
    workers = [(f"worker.id=host-{n}", f"worker.cpu_millis={CPUS * 1000}") for n in range(WORKERS)]
    with cluster(workers=workers, state=WINDOW) as made:
        runs, cpu = asyncio.run(_rounds(made, tasks, repeat))
        rss = made.rss_bytes()
    return Row(
        row="B2",
        what=f"{tasks} x /bin/true",
        value=round(median(runs), 1),
        unit="tasks/s",
        goal=GOAL,
        rss_bytes=max(rss.values()),
        runs=[round(r, 1) for r in runs],
        detail={"cpu_us_per_task": cpu, "rss": rss},
    )


async def _rounds(made: Cluster, tasks: int, repeat: int) -> tuple[list[float], dict[str, float]]:
    gateway = Gateway(made.url)
    gateway.until_workers(WORKERS)
    rates: list[float] = []
    before: dict[str, float] = {}
    async with Watcher(made.nats_url) as watcher:
        for number in range(repeat + 1):
            name = f"/b2-{number}"
            began = time.perf_counter()
            await asyncio.to_thread(gateway.submit, name=name, command=["/bin/true"], replicas=tasks)
            ended = await watcher.until_ended({name}, within_s=60 + tasks / 50)
            if gateway.job(name)["task_counts"] != {"succeeded": tasks}:
                raise RuntimeError(f"{name} did not succeed: {gateway.job(name)}")
            if number:
                rates.append(tasks / (ended - began))
            else:
                before = made.cpu_s()
    spent = {name: round((s - before[name]) / tasks / repeat * 1e6, 1) for name, s in made.cpu_s().items()}
    return rates, spent
