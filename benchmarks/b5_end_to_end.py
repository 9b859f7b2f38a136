"""B5e: gangs of 4 end to end with real processes, over pods of 4 hosts, each a worker process of its own.

Every gang is a job of its own, submitted over HTTP from a few clients, and asks for hosts that share a pod: all four
members are prepared, started together and run /bin/true. A host has room for many members at once. From the first
submission until the public events say that every gang has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

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


def run(quick: bool = False) -> Row:
    """Gangs a second, median of the rounds on one cluster after one that is not counted."""
    gangs = GANGS // 3 if quick else GANGS
    with cluster(workers=_hosts(), state=WINDOW) as made:
        runs, spent = asyncio.run(_rounds(made, gangs, 3))
        rss = made.rss_bytes()
    return Row(
        row="B5e",
        what=f"{gangs:,} gangs of {MEMBERS} end to end with real processes on {PODS} pods of {MEMBERS} hosts",
        value=round(median(runs), 1),
        unit="gangs/s",
        goal=GOAL,
        rss_bytes=max(rss.values()),
        runs=[round(r, 1) for r in runs],
        detail={**spent, "rss_bytes": rss},
    )


def _hosts() -> list[tuple[str, ...]]:
    return [
        (
            f"worker.id=pod-{n}-{member}",
            f"worker.cpu_millis={CPUS * 1000}",
            f"worker.attributes=pod=pod-{n}",
        )
        for n in range(PODS)
        for member in range(MEMBERS)
    ]


async def _rounds(made: Cluster, gangs: int, repeat: int) -> tuple[list[float], dict[str, object]]:
    clients = [Gateway(made.url) for _ in range(CLIENTS)]
    clients[0].until_workers(PODS * MEMBERS)
    async with Watcher(made.nats_url) as watcher:
        await _round(clients, watcher, "gang", gangs)
        cpu_s, (commits, _) = made.cpu_s(), await watcher.journal()
        rates = [await _round(clients, watcher, f"gang-{n}", gangs) for n in range(repeat)]
        commits_now, _ = await watcher.journal()
    all_gangs = gangs * repeat
    return rates, {
        "cpu_us_per_gang": {name: round((s - cpu_s[name]) / all_gangs * 1e6, 1) for name, s in made.cpu_s().items()},
        "commits_per_gang": round((commits_now - commits) / all_gangs, 3),
    }


async def _round(clients: Sequence[Gateway], watcher: Watcher, name: str, gangs: int) -> float:
    names = [f"/{name}-{number}" for number in range(gangs)]
    began = time.perf_counter()
    shares = [names[first :: len(clients)] for first in range(len(clients))]
    await asyncio.gather(
        *(asyncio.to_thread(_submit, client, share) for client, share in zip(clients, shares, strict=True))
    )
    ended = await watcher.until_ended(set(names), within_s=60 + gangs / 5)
    failed = {job: state for job, state in watcher.states.items() if job in names and state != "succeeded"}
    if failed:
        raise RuntimeError(f"{len(failed)} gangs did not succeed, {next(iter(failed.items()))}")
    return gangs / (ended - began)


def _submit(client: Gateway, names: Sequence[str]) -> None:
    for name in names:
        client.submit(name=name, command=["/bin/true"], replicas=MEMBERS, coscheduling={"group_by": "pod"})
