"""B1b: B1 with 100,000 and 1,000,000 tasks: how the cost of a task grows, and the memory of a
finished one.

The value is the rate of the largest round as a share of the rate of 10,000 tasks on the same
cluster just before.
"""

from __future__ import annotations

import asyncio

from benchmarks import noop
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher

GOAL = 0.8
GOAL_BYTES = 1_000
SMALL = 10_000
LARGE = (100_000, 1_000_000)


def run(quick: bool = False) -> Row:
    """The largest round's rate by B1's; the rates, and resident bytes of each service a task, in
    the detail.
    """
    sizes = LARGE[:1] if quick else LARGE
    with cluster(programs=noop.PROGRAMS, workers=noop.WORKERS, state=noop.WINDOW) as made:
        small, large, weights = asyncio.run(_rounds(made, sizes))
        rss = made.rss_bytes()
    base = median([r.rate for r in small])
    return Row(
        row="B1b",
        what=f"rate of {sizes[-1]:,} no-op tasks by that of {SMALL:,}",
        value=round(large[-1].rate / base, 3),
        unit="x B1",
        goal=GOAL,
        rss_bytes=max(rss.values()),
        runs=[round(r.rate / base, 3) for r in large],
        detail={
            "tasks_per_s": {
                str(n): round(r.rate, 1)
                for n, r in zip((SMALL, *sizes), (small[-1], *large), strict=True)
            },
            "cpu_us_per_task": {
                str(n): r.cpu_us for n, r in zip((SMALL, *sizes), (small[-1], *large), strict=True)
            },
            "state_bytes_per_finished_task": {
                str(n): each["state"] for n, each in zip(sizes, weights, strict=True)
            },
            "bytes_per_finished_task": dict(zip(map(str, sizes), weights, strict=True)),
            "state_bytes_goal": GOAL_BYTES,
            "rss_bytes": rss,
        },
    )


Weights = list[dict[str, int]]


async def _rounds(
    made: Cluster, sizes: tuple[int, ...]
) -> tuple[list[noop.Round], list[noop.Round], Weights]:
    gateway = Gateway(made.url)
    gateway.until_workers(noop.HOSTS)
    async with Watcher(made.nats_url) as watcher:
        small = [
            await noop.run_round(made, gateway, watcher, f"small-{n}", tasks=SMALL)
            for n in range(4)
        ][1:]
        large: list[noop.Round] = []
        weights: Weights = []
        for size in sizes:
            before = made.rss_bytes()
            large.append(await noop.run_round(made, gateway, watcher, f"large-{size}", tasks=size))
            weights.append(
                {
                    name: round((grown - before[name]) / size)
                    for name, grown in made.rss_bytes().items()
                }
            )
    return small, large, weights
