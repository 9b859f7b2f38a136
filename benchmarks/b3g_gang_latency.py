"""B3g: one gang of four at a time on an idle cluster: from submission to the public events that its
members started.

As B3, with the barrier: all members are prepared before any of them starts.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks import account
from benchmarks.b3_latency import spread
from benchmarks.b5_end_to_end import GROUP, MEMBERS, pods
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway, Submitter
from benchmarks.result import Row, median
from benchmarks.watch import Watcher
from iris_bus.contract import Message
from iris_bus.jetstream import connect

GOAL_MS = 20.0


def run(quick: bool = False) -> Row:
    """Milliseconds, p50 submit to the last member's start; p99 and submit to known finished are in
    the detail.
    """
    gangs = 60 if quick else 200
    with cluster(workers=pods(1)) as made:
        asyncio.run(_rounds(made, "/warm", 20))
        started, finished, detail = asyncio.run(_rounds(made, "/b3g", gangs))
        rss = made.rss_bytes()
    return Row(
        row="B3g",
        what=f"one gang of {MEMBERS} on an idle cluster, submit to all started",
        value=round(median(started), 2),
        unit="ms",
        goal=GOAL_MS,
        better="less",
        rss_bytes=max(rss.values()),
        runs=[round(median(started[n * gangs // 3 : (n + 1) * gangs // 3]), 2) for n in range(3)],
        detail={
            "started_ms": spread(started),
            "finished_ms": spread(finished),
            **detail,
            "rss_bytes": rss,
        },
    )


async def _rounds(
    made: Cluster, name: str, gangs: int
) -> tuple[list[float], list[float], dict[str, object]]:
    """Milliseconds to the start and to the end of each gang, submitted one after another, and what
    a gang costs.
    """
    Gateway(made.url).until_workers(MEMBERS)
    connection = await connect(made.nats_url, name="bench")
    moments: dict[str, list[float]] = {"running": [], "succeeded": []}
    ended = asyncio.Event()

    def note(message: Message) -> None:
        times = moments.get(message.subject.rpartition(".")[2])
        if times is not None:
            times.append(time.perf_counter())
            if len(moments["succeeded"]) == MEMBERS:
                ended.set()

    await connection.bus.subscribe("task.state.*", note)
    started, finished = [], []
    async with Submitter(made.url) as submitter, Watcher(made.nats_url) as watcher:
        before = await account.read(made, watcher)
        for number in range(gangs):
            for times in moments.values():
                times.clear()
            ended.clear()
            began = time.perf_counter()
            await submitter.submit(
                name=f"{name}-{number}", command=["/bin/true"], replicas=MEMBERS, coscheduling=GROUP
            )
            await asyncio.wait_for(ended.wait(), 30)
            started.append((max(moments["running"]) - began) * 1000)
            finished.append((max(moments["succeeded"]) - began) * 1000)
        detail = (await account.read(made, watcher)).per(before, gangs, "gang")
    await connection.close()
    return started, finished, detail
