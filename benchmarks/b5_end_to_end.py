"""B5e: gangs of 4 end to end with real processes, over pods of 4 hosts, each a worker process of
its own.

Every gang is a job of its own, submitted over HTTP from a few clients, and asks for hosts that
share a pod: all four members are prepared, started together and run /bin/true. A host has room for
many members at once. From the first submission until the public events say that every gang has
ended. In the detail: gangs whose members read a bundle and leave files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from benchmarks import account, floor
from benchmarks.b2_processes import FILES, FLOOR, TRUE, bundle
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher

GOAL = 300.0
MEMBERS = 4
PODS = 2
CPUS = 64
CLIENTS = 4
GANGS = 600
WINDOW = (f"state.max_building={CPUS}",)
GROUP = {"group_by": "pod"}


def run(quick: bool = False) -> Row:
    """Gangs a second, median of the rounds on one cluster after one that is not counted."""
    gangs = GANGS // 3 if quick else GANGS
    with cluster(workers=pods(PODS), state=WINDOW) as made:
        runs, detail = asyncio.run(_rounds(made, "gang", gangs, 3, spec=TRUE))
        with_bundles, _ = asyncio.run(
            _rounds(made, "bundle", gangs // 2, 2, spec={**FILES, "bundle": bundle(made)})
        )
        rss = made.rss_bytes()
    bare = floor.isolate(FLOOR)
    return Row(
        row="B5e",
        what=f"{gangs:,} gangs of {MEMBERS} end to end with real processes on {PODS} pods of {MEMBERS} hosts",
        value=round(median(runs), 1),
        unit="gangs/s",
        goal=GOAL,
        of_floor={"isolate": round(MEMBERS * median(runs) / bare.rate, 3)}
        if bare is not None
        else {},
        rss_bytes=max(rss.values()),
        runs=[round(r, 1) for r in runs],
        detail={
            **detail,
            "with_bundles_gangs_per_s": round(median(with_bundles), 1),
            "rss_bytes": rss,
        },
    )


def pods(count: int) -> list[tuple[str, ...]]:
    """Settings of the hosts of that many pods."""
    return [
        (
            f"worker.id=pod-{n}-{member}",
            f"worker.cpu_millis={CPUS * 1000}",
            f"worker.attributes=pod=pod-{n}",
        )
        for n in range(count)
        for member in range(MEMBERS)
    ]


async def _rounds(
    made: Cluster, name: str, gangs: int, repeat: int, spec: Mapping[str, Any]
) -> tuple[list[float], dict[str, object]]:
    Gateway(made.url).until_workers(PODS * MEMBERS)
    async with Watcher(made.nats_url) as watcher:
        await round_of(made.url, watcher, name, gangs, spec=spec)
        before = await account.read(made, watcher)
        rates = [
            await round_of(made.url, watcher, f"{name}-{n}", gangs, spec=spec)
            for n in range(repeat)
        ]
        return rates, (await account.read(made, watcher)).per(before, gangs * repeat, "gang")


async def round_of(
    url: str, watcher: Watcher, name: str, gangs: int, spec: Mapping[str, Any]
) -> float:
    """Gangs a second of as many jobs. Raises RuntimeError when not all succeeded."""
    names = [f"/{name}-{number}" for number in range(gangs)]
    began = time.perf_counter()
    shares = [names[first::CLIENTS] for first in range(CLIENTS)]
    await asyncio.gather(*(asyncio.to_thread(_submit, url, share, spec) for share in shares))
    ended = await watcher.until_ended(set(names), within_s=60 + gangs / 5)
    failed = {
        job: state for job, state in watcher.states.items() if job in names and state != "succeeded"
    }
    if failed:
        raise RuntimeError(f"{len(failed)} gangs did not succeed, {next(iter(failed.items()))}")
    return gangs / (ended - began)


def _submit(url: str, names: Sequence[str], spec: Mapping[str, Any]) -> None:
    with closing(Gateway(url)) as client:
        for name in names:
            client.submit(name=name, replicas=MEMBERS, coscheduling=GROUP, **spec)
