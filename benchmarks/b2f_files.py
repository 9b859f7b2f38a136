"""B2f: tasks as people write them: each reads a bundle, writes a file, prints ten lines and leaves
an output directory.

Its goal is a share of B2's, measured in the same run and on the same cluster. A loop in C that
starts the same processes (``same_processes``) shows how much of that share Iris can reach at all.
"""

from __future__ import annotations

import asyncio

import msgspec

from benchmarks.b2_processes import (
    FILES,
    HOSTS,
    TRUE,
    WINDOW,
    bundle,
    hosts,
    round_of,
    row,
    spawned_files,
)
from benchmarks.cluster import cluster
from benchmarks.http import Gateway
from benchmarks.result import Row
from benchmarks.watch import Watcher

SHARE_OF_B2 = 0.7


def run(quick: bool = False, tasks: int = 2_000) -> Row:
    """Tasks a second, median of the jobs on one cluster; the rate of /bin/true there is in the
    detail.
    """
    with cluster(workers=hosts(), state=WINDOW) as made:
        plain = asyncio.run(_plain(made.url, made.nats_url, tasks))
        spec = {**FILES, "bundle": bundle(made)}
        what = f"{tasks:,} tasks that read a bundle, write files, print ten lines and leave an output directory"
        measured = row(
            "B2f",
            what,
            made,
            spec,
            tasks=tasks,
            repeat=2 if quick else 4,
            goal=round(SHARE_OF_B2 * plain, 1),
        )
        same = spawned_files()
    detail = {
        **measured.detail,
        "plain_tasks_per_s": round(plain, 1),
        "of_plain": round(measured.value / plain, 3),
    }
    of_floor = {"same_processes": round(measured.value / same.rate, 3)} if same is not None else {}
    return msgspec.structs.replace(
        measured, detail=detail, of_floor={**measured.of_floor, **of_floor}
    )


async def _plain(url: str, nats_url: str, tasks: int) -> float:
    gateway = Gateway(url)
    gateway.until_workers(HOSTS)
    async with Watcher(nats_url) as watcher:
        rates = [await round_of(gateway, watcher, f"/plain-{n}", tasks, TRUE) for n in range(2)]
    return rates[-1]
