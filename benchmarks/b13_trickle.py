"""B13: CPU a task where few arrive: 40 jobs of one task a second, real processes, an otherwise idle
cluster.

A saturated cluster decides about hundreds of tasks at once; one that people use decides about one
at a time. In the
detail: CPU by service and of everything that was started, messages and commits a task.
"""

from __future__ import annotations

import asyncio

from benchmarks import account
from benchmarks.b2_processes import TRUE, hosts
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway, Submitter
from benchmarks.result import Row
from benchmarks.watch import Watcher

PER_S = 40
GOAL_US = 5_000.0
SERVICES = ("state", "nats", "scheduler")


def run(quick: bool = False) -> Row:
    """CPU microseconds a task of the services that decide; all others are in the detail."""
    seconds = 10 if quick else 30
    with cluster(workers=hosts()) as made:
        asyncio.run(_trickle(made, "warm", 3))
        detail = asyncio.run(_trickle(made, "counted", seconds))
        rss = made.rss_bytes()
    cpu_us = detail["cpu_us_per_task"]
    assert isinstance(cpu_us, dict)
    return Row(
        row="B13",
        what=f"{PER_S} tasks a second for {seconds} s: CPU a task of {', '.join(SERVICES)}",
        value=round(sum(cpu_us[name] for name in SERVICES), 1),
        unit="us",
        goal=GOAL_US,
        better="less",
        rss_bytes=max(rss.values()),
        detail={**detail, "rss_bytes": rss},
    )


async def _trickle(made: Cluster, name: str, seconds: int) -> dict[str, object]:
    """What a task costs while they arrive at an even pace, until the last has ended."""
    await asyncio.to_thread(Gateway(made.url).until_workers, 1)
    loop = asyncio.get_running_loop()
    names = [f"/{name}-{number}" for number in range(PER_S * seconds)]
    async with Watcher(made.nats_url) as watcher, Submitter(made.url) as submitter:
        before, began = await account.read(made, watcher), loop.time()
        for number, job in enumerate(names):
            await asyncio.sleep(began + number / PER_S - loop.time())
            await submitter.submit(name=job, **TRUE)
        await watcher.until_ended(set(names), within_s=60)
        return (await account.read(made, watcher)).per(before, len(names))
