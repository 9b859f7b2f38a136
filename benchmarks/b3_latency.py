"""B3: one process task at a time on an idle cluster: from submission to the public events of its
start and end.

Three fsynced commits lie on the way. Times are taken by one clock in this process: when the request
is sent, and when the event arrives. In the detail is also what the peers' figures are: the task's
own clock, as it begins.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from benchmarks import account, floor
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import TOKEN, Gateway, Submitter
from benchmarks.result import Row, median
from benchmarks.watch import Watcher
from iris import Client
from iris_bus.contract import Message
from iris_bus.jetstream import connect

GOAL_MS = 3.0
FLOOR = 500
"""Repetitions of each floor program."""
APPENDS = 3
ROUND_TRIPS = 3
"""Submission and answer, delta and plan, order and report."""


def run(quick: bool = False, tasks: int = 300) -> Row:
    """Milliseconds, p50 submit to started; p99 and submit to known finished are in the detail, runs
    are thirds.
    """
    if quick:
        tasks = 150
    with cluster(workers=[("worker.id=host-0", "worker.cpu_millis=8000")]) as made:
        asyncio.run(_rounds(made, "/warm", ["/bin/true"], 20))
        rounds, spent = asyncio.run(_accounted(made, tasks))
        rss = made.rss_bytes()
        bare = _floor_ms(made.nats_url)
        own_clock = _own_clock(
            made.url, asyncio.run(_rounds(made, "/b3-own", ["/bin/date", "+%s.%N"], tasks // 3))
        )
    started = [one.started_ms for one in rounds]
    return Row(
        row="B3",
        what="one process on an idle cluster, submit to started",
        value=round(median(started), 2),
        unit="ms",
        goal=GOAL_MS,
        better="less",
        of_floor={" + ".join(bare): round(median(started) / sum(bare.values()), 2)},
        rss_bytes=max(rss.values()),
        runs=[round(median(started[n * tasks // 3 : (n + 1) * tasks // 3]), 2) for n in range(3)],
        detail={
            "started_ms": spread(started),
            "finished_ms": spread([one.finished_ms for one in rounds]),
            "own_clock_ms": spread(own_clock),
            "floor_ms": {name: round(ms, 2) for name, ms in bare.items()},
            **spent,
            "rss_bytes": rss,
            "goals_ms": {"started": [3, 10], "finished": [5, 15]},
        },
    )


def _floor_ms(nats_url: str) -> dict[str, float]:
    """Milliseconds of the least that a start needs; what needs a C compiler only with one."""
    synced, started = floor.append(FLOOR), floor.spawn(FLOOR, at_once=1)
    rates = {"appends": synced and synced.rate, "spawn": started and started.rate}
    needed = {"appends": APPENDS, "spawn": 1, "round trips": ROUND_TRIPS}
    rates["round trips"] = floor.round_trip(nats_url, FLOOR)
    return {
        f"{needed[name]} {name}": 1000 * needed[name] / rate for name, rate in rates.items() if rate
    }


def spread(times: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    ordered = sorted(times)
    return {
        "p50": round(median(ordered), 2),
        "p99": round(ordered[int(len(ordered) * 0.99) - 1], 2),
    }


class Round(NamedTuple):
    """One job: its name, the time of day when it was sent, and how long it took from then."""

    name: str
    sent_s: float
    started_ms: float
    finished_ms: float


async def _accounted(made: Cluster, tasks: int) -> tuple[list[Round], dict[str, object]]:
    """The rounds that count, and what a job of them costs."""
    async with Watcher(made.nats_url) as watcher:
        before = await account.read(made, watcher)
        rounds = await _rounds(made, "/b3", ["/bin/true"], tasks)
        return rounds, (await account.read(made, watcher)).per(before, tasks, "job")


async def _rounds(made: Cluster, name: str, command: list[str], tasks: int) -> list[Round]:
    """Jobs of one task, each when the one before it has ended."""
    Gateway(made.url).until_workers(1)
    connection = await connect(made.nats_url, name="bench")
    seen: dict[str, asyncio.Future[float]] = {}

    def note(message: Message) -> None:
        moment = time.perf_counter()
        waiting = seen.get(message.subject)
        if waiting is not None and not waiting.done():
            waiting.set_result(moment)

    await connection.bus.subscribe("task.state.*", note)
    rounds = []
    async with Submitter(made.url) as submitter:
        for number in range(tasks):
            loop = asyncio.get_running_loop()
            seen = {
                f"task.state.{state}": loop.create_future() for state in ("running", "succeeded")
            }
            sent_s, began = time.time(), time.perf_counter()
            await submitter.submit(name=f"{name}-{number}", command=command)
            running, ended = await asyncio.wait_for(asyncio.gather(*seen.values()), 30)
            rounds.append(
                Round(f"{name}-{number}", sent_s, (running - began) * 1000, (ended - began) * 1000)
            )
    await connection.close()
    return rounds


def _own_clock(url: str, rounds: list[Round]) -> list[float]:
    """Milliseconds from each request to the time of day that the task's own process printed."""
    with Client(url, token=TOKEN) as client:
        said = [next(iter(client.logs(one.name, follow=False))).line for one in rounds]
    return [(float(line) - one.sent_s) * 1000 for line, one in zip(said, rounds, strict=True)]
