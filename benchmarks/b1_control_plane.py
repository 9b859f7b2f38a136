"""B1: no-op tasks through the whole control plane, submission to all SUCCEEDED, every event
published and counted.
"""

from __future__ import annotations

import asyncio

from benchmarks import noop
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher

GOAL = 15_000
TASKS = 10_000


def run(quick: bool = False, tasks: int = TASKS) -> Row:
    """Tasks per second, median of the rounds on one cluster after one round that is not counted."""
    with cluster(programs=noop.PROGRAMS, workers=noop.WORKERS, state=noop.WINDOW) as made:
        rounds = asyncio.run(_rounds(made, tasks, 3 if quick else 5))
        rss = made.rss_bytes()
    return Row(
        row="B1",
        what=f"{tasks:,} no-op tasks, submit to all SUCCEEDED",
        value=round(median([r.rate for r in rounds]), 1),
        unit="tasks/s",
        goal=GOAL,
        rss_bytes=max(rss.values()),
        runs=[round(r.rate, 1) for r in rounds],
        detail={
            "cpu_us_per_task": rounds[-1].cpu_us,
            "commits_per_task": rounds[-1].commits,
            "journal_bytes_per_task": rounds[-1].journal_bytes,
            "rss_bytes": rss,
        },
    )


async def _rounds(made: Cluster, tasks: int, repeat: int) -> list[noop.Round]:
    gateway = Gateway(made.url)
    gateway.until_workers(noop.HOSTS)
    async with Watcher(made.nats_url) as watcher:
        return [
            await noop.run_round(made, gateway, watcher, f"b1-{n}", tasks=tasks)
            for n in range(repeat + 1)
        ][1:]
