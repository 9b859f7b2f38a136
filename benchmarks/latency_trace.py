"""``python -m benchmarks.latency_trace``: when each message of one small job passes NATS, on an
idle cluster.

A plain subscriber outside notes everything; the services are as they are. Printed are medians, from
the moment the submission is sent, and each step's share of the way to the event that the task runs.
It is what a flame graph is for row B3, whose time lies between processes and not in one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import nats
from nats.aio.msg import Msg

from benchmarks.cluster import cluster
from benchmarks.http import Gateway
from benchmarks.result import median

JOBS = 200
WARM = 20
STEPS = (
    ("the gateway has read the request", "iris.state.command.submit"),
    ("the scheduler has a plan", "iris.state.plan"),
    ("the first commit is on its way: admitted and assigned", "iris.journal"),
    ("it is durable, and the host is ordered", "iris.worker.host-0.order"),
    ("the process has started", "iris.worker.host-0.report"),
    ("the second commit is on its way: running", "iris.journal"),
    ("it is durable, and the public is told", "task.state.running"),
)
"""What each message means, and its subject; in the order in which they must come."""


def main() -> None:
    """Run jobs one after another and print their way."""
    with cluster(workers=[("worker.id=host-0", "worker.cpu_millis=8000")]) as made:
        ways = asyncio.run(_ways(made.url, made.nats_url))
    whole = median([way[-1] for way in ways])
    before = 0.0
    for place, (meaning, subject) in enumerate(STEPS):
        at = median([way[place] for way in ways])
        print(f"{at:6.2f} ms  {(at - before) / whole:4.0%}  {subject:26} {meaning}")
        before = at
    print(
        f"medians of {len(ways)} jobs; the messages of {JOBS - len(ways)} others came in another order"
    )


async def _ways(url: str, nats_url: str) -> list[list[float]]:
    """Milliseconds at which each step was seen, by job; jobs that had their messages in another
    order are left out.
    """
    gateway = Gateway(url)
    gateway.until_workers(1)
    client = await nats.connect(nats_url)
    seen: list[tuple[float, str]] = []
    ended = asyncio.Event()

    async def note(message: Msg) -> None:
        seen.append((time.perf_counter(), message.subject))
        if message.subject.startswith("job.state.succeeded"):
            ended.set()

    for subject in sorted({subject for _, subject in STEPS} | {"job.state.succeeded"}):
        await client.subscribe(subject, cb=note)
    await client.flush()
    ways = []
    for number in range(JOBS + WARM):
        seen.clear()
        ended.clear()
        began = time.perf_counter()
        await asyncio.to_thread(gateway.submit, name=f"/way-{number}", command=["/bin/true"])
        await asyncio.wait_for(ended.wait(), 30)
        with contextlib.suppress(ValueError):
            way = _in_order(seen)
            if number >= WARM:
                ways.append([(at - began) * 1000 for at in way])
    await client.close()
    return ways


def _in_order(seen: Sequence[tuple[float, str]]) -> list[float]:
    """When each step came, behind the one before it. Raises ValueError when one is missing."""
    way, place = [], 0
    subjects = [subject for _, subject in seen]
    for _, subject in STEPS:
        place = subjects.index(subject, place) + 1
        way.append(seen[place - 1][0])
    return way


if __name__ == "__main__":
    main()
