"""B2: real processes. 5,000 x /bin/true through the whole system, submission to all SUCCEEDED."""

from __future__ import annotations

import asyncio
import time

from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher

GOAL = 2_500
HOSTS = 4
"""A worker starts one process at a time and waits until it has become the program; a few share the cores better."""
CPUS = 64
WINDOW = (f"state.max_building={CPUS}",)
"""Nothing is downloaded or installed, so each host may start as many at once as it may run."""


def run(quick: bool = False, tasks: int = 5_000) -> Row:
    """Processes per second, median of the jobs on one cluster after one that is not counted."""
    workers = [(f"worker.id=host-{n}", f"worker.cpu_millis={CPUS * 1000}") for n in range(HOSTS)]
    with cluster(workers=workers, state=WINDOW) as made:
        runs, spent = asyncio.run(_rounds(made, tasks, 3 if quick else 5))
        rss = made.rss_bytes()
    return Row(
        row="B2",
        what=f"{tasks:,} x /bin/true",
        value=round(median(runs), 1),
        unit="tasks/s",
        goal=GOAL,
        rss_bytes=max(rss.values()),
        runs=[round(r, 1) for r in runs],
        detail={**spent, "rss_bytes": rss},
    )


async def _rounds(made: Cluster, tasks: int, repeat: int) -> tuple[list[float], dict[str, object]]:
    gateway = Gateway(made.url)
    gateway.until_workers(HOSTS)
    async with Watcher(made.nats_url) as watcher:
        await _round(gateway, watcher, "/b2", tasks)
        cpu_s, (commits, size) = made.cpu_s(), await watcher.journal()
        rates = [await _round(gateway, watcher, f"/b2-{n}", tasks) for n in range(repeat)]
        commits_now, size_now = await watcher.journal()
    all_tasks = tasks * repeat
    return rates, {
        "cpu_us_per_task": {name: round((s - cpu_s[name]) / all_tasks * 1e6, 1) for name, s in made.cpu_s().items()},
        "commits_per_task": round((commits_now - commits) / all_tasks, 4),
        "journal_bytes_per_task": round((size_now - size) / all_tasks, 1),
    }


async def _round(gateway: Gateway, watcher: Watcher, name: str, tasks: int) -> float:
    """Tasks a second of one job. Raises RuntimeError when not all succeeded."""
    began = time.perf_counter()
    await asyncio.to_thread(gateway.submit, name=name, command=["/bin/true"], replicas=tasks)
    ended = await watcher.until_ended({name}, within_s=60 + tasks / 50)
    counts = gateway.job(name)["task_counts"]
    if counts != {"succeeded": tasks}:
        raise RuntimeError(f"{name} did not succeed: {counts}")
    return tasks / (ended - began)
