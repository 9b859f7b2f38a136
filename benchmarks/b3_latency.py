"""B3: one process task at a time on an idle cluster. Submission to the public event that it runs, and that it ended.

Three fsynced commits lie on the way. Times are taken by one clock in this process: when the request is sent, and
when the event arrives. In the detail is also what the peers' figures are: the task's own clock, as it begins.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.cluster import cluster
from benchmarks.http import Gateway, Submitter
from benchmarks.row import Row, median
from iris_bus.contract import Message
from iris_bus.jetstream import connect
from iris_gateway.client import Client

GOAL_MS = 3.0


def run(quick: bool = False, tasks: int = 300) -> Row:
    """Milliseconds, p50 submit to started; p99 and submit to known finished are in the detail, runs are thirds."""
    if quick:
        tasks = 150
    with cluster(workers=[("worker.id=host-0", "worker.cpu_millis=8000")]) as made:
        started, finished = asyncio.run(_rounds(made.url, made.nats_url, tasks))
        began = asyncio.run(_begun(made.url, tasks // 3))
        rss = made.rss_bytes()
    return Row(
        row="B3",
        what="one process on an idle cluster, submit to started",
        value=round(median(started), 2),
        unit="ms",
        goal=GOAL_MS,
        better="less",
        rss_bytes=max(rss.values()),
        runs=[round(median(started[n * tasks // 3 : (n + 1) * tasks // 3]), 2) for n in range(3)],
        detail={
            "started_ms": _spread(started),
            "finished_ms": _spread(finished),
            "own_clock_ms": _spread(began),
            "rss_bytes": rss,
            "goals_ms": {"started": [3, 10], "finished": [5, 15]},
        },
    )


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"p50": round(median(ordered), 2), "p99": round(ordered[int(len(ordered) * 0.99) - 1], 2)}


async def _rounds(url: str, nats_url: str, tasks: int) -> tuple[list[float], list[float]]:
    Gateway(url).until_workers(1)
    connection = await connect(nats_url, name="bench")
    seen: dict[str, asyncio.Future[float]] = {}

    def note(message: Message) -> None:
        moment = time.perf_counter()
        waiting = seen.get(message.subject)
        if waiting is not None and not waiting.done():
            waiting.set_result(moment)

    await connection.bus.subscribe("task.state.*", note)
    await connection.bus.flush()
    started, finished = [], []
    async with Submitter(url) as submitter:
        for number in range(tasks + 20):
            loop = asyncio.get_running_loop()
            seen = {f"task.state.{state}": loop.create_future() for state in ("running", "succeeded")}
            began = time.perf_counter()
            await submitter.submit(name=f"/b3-{number}", command=["/bin/true"])
            running = await asyncio.wait_for(seen["task.state.running"], 30)
            ended = await asyncio.wait_for(seen["task.state.succeeded"], 30)
            if number >= 20:
                started.append((running - began) * 1000)
                finished.append((ended - began) * 1000)
    await connection.close()
    return started, finished


async def _begun(url: str, tasks: int) -> list[float]:
    """Milliseconds from the request to what the task's own process finds the time to be, first of all."""
    found = []
    async with Submitter(url) as submitter:
        for number in range(tasks):
            began = time.time()
            await submitter.submit(name=f"/b3-own-{number}", command=["/bin/date", "+%s.%N"])
            said = await asyncio.to_thread(_said, url, f"/b3-own-{number}")
            found.append((float(said) - began) * 1000)
    return found


def _said(url: str, name: str) -> str:
    """What a job prints, once it has ended."""
    with Client(url) as client:
        job = client.job(name)
        job.wait()
        return "".join(line.line for line in client.logs(name, follow=False))
