"""B6: 10,000 workers heartbeat every 5 s: CPU of the state service alone, and the loss of B1's
rate.

The workers are real agents with real messages in one process; they have no room, so B1 runs on
workers of its own.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks import noop
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher

GOAL_PERCENT = 10.0
WORKERS = 10_000
BEAT_S = 5.0
TASKS = 10_000


def run(quick: bool = False) -> Row:
    """Percent of a core that the state service spends on heartbeats while nothing else happens."""
    with cluster(programs=noop.PROGRAMS, workers=noop.WORKERS, state=noop.WINDOW) as made:
        quiet, beating, idle = asyncio.run(
            _measure(made, 3 if quick else 5, 5.0 if quick else 20.0)
        )
        rss = made.rss_bytes()
    before, after = median([r.rate for r in quiet]), median([r.rate for r in beating])
    return Row(
        row="B6",
        what=f"the state service under {WORKERS:,} workers that beat every {BEAT_S:g} s",
        value=round(idle["state"], 2),
        unit="% core",
        goal=GOAL_PERCENT,
        better="less",
        rss_bytes=max(rss.values()),
        detail={
            "percent_of_a_core": {name: round(share, 2) for name, share in idle.items()},
            "us_per_beat": round(idle["state"] / 100 / (WORKERS / BEAT_S) * 1e6, 1),
            "b1_loss_percent": round((1 - after / before) * 100, 1),
            "b1_loss_goal_percent": GOAL_PERCENT,
            "b1_tasks_per_s": {"without": round(before, 1), "with": round(after, 1)},
            "b1_cpu_us_per_task": {"without": quiet[-1].cpu_us, "with": beating[-1].cpu_us},
            "rss_bytes": rss,
        },
    )


async def _measure(
    made: Cluster, repeat: int, seconds: float
) -> tuple[list[noop.Round], list[noop.Round], dict[str, float]]:
    gateway = Gateway(made.url)
    gateway.until_workers(noop.HOSTS)
    async with Watcher(made.nats_url) as watcher:
        quiet = [
            await noop.run_round(made, gateway, watcher, f"quiet-{n}", tasks=TASKS)
            for n in range(repeat + 1)
        ][1:]
        alone = await _shares(made, seconds)
        await asyncio.to_thread(made.crowd, WORKERS, BEAT_S)
        crowded = await _shares(made, seconds)
        beating = [
            await noop.run_round(made, gateway, watcher, f"beating-{n}", tasks=TASKS)
            for n in range(repeat + 1)
        ][1:]
    return quiet, beating, {name: share - alone.get(name, 0.0) for name, share in crowded.items()}


async def _shares(made: Cluster, seconds: float) -> dict[str, float]:
    """Percent of a core that each service spends while nothing is asked of it."""
    before, began = made.cpu_s(), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    return {name: (s - before[name]) / took * 100 for name, s in made.cpu_s().items()}
