"""B14: how long open pages wait: 40 clients that fetch the home page or a list once a second each.

As people do who look at a cluster: at an even pace, whether the answer before was fast or not,
beside 2,400 tasks that run and 50,000 that wait. The clients share the machine's processors with
the services.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.b9_gateway import NO_LIMIT
from benchmarks.b11_reads import submit
from benchmarks.cluster import cluster
from benchmarks.http import Gateway, Submitter
from benchmarks.result import Row

CLIENTS = 40
PACE_S = 1.0
RUNNING, WAITING = 2_400, 50_000
HOSTS = 240
TASKS = 5
"""Of each job."""
_START_S = 120.0
GOAL_MS = 100.0
PATHS = ("/", "/v1/jobs?limit=100", "/jobs", "/v1/jobs?limit=100&state=pending&order=-submitted")


def run(quick: bool = False) -> Row:
    """The 99th percentile of the time until an answer is complete, ms."""
    running, waiting, seconds = (240, 5_000, 5.0) if quick else (RUNNING, WAITING, 30.0)
    with cluster(gateway=NO_LIMIT) as made:
        made.crowd(HOSTS, cpus=running // HOSTS)
        asyncio.run(submit(made.url, "job", jobs=(running + waiting) // TASKS, replicas=TASKS))
        _until_running(Gateway(made.url), running)
        before = made.cpu_s()
        taken = asyncio.run(_look(made.url, seconds))
        spent = {service: s - before[service] for service, s in made.cpu_s().items()}
        rss = max(made.rss_bytes().values())
    every = sorted(ms for some in taken.values() for ms in some)
    return Row(
        row="B14",
        what=f"p99 of pages and lists, {CLIENTS} clients, each one a second; {running:,} tasks run, {waiting:,} wait",
        value=_percentile(every, 99),
        unit="ms",
        goal=GOAL_MS,
        better="less",
        rss_bytes=rss,
        detail={
            "requests": len(every),
            "ms": {
                path: {"p50": _percentile(some, 50), "p99": _percentile(some, 99)}
                for path, some in sorted(taken.items())
            },
            "cpu_us_per_request": {
                service: round(s / len(every) * 1e6, 1) for service, s in spent.items()
            },
        },
    )


def _percentile(taken: list[float], percent: int) -> float:
    return round(statistics.quantiles(taken, n=100, method="inclusive")[percent - 1], 1)


def _until_running(gateway: Gateway, count: int) -> None:
    """Return once so many tasks run. Raises TimeoutError."""
    until = time.monotonic() + _START_S
    while gateway.ask("GET", "/v1/overview")["tasks"].get("running", 0) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{count} tasks did not run within {_START_S:g} s")
        time.sleep(0.1)


async def _look(url: str, seconds: float) -> dict[str, list[float]]:
    """The milliseconds of each request by its path."""
    taken: dict[str, list[float]] = {path: [] for path in PATHS}
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def client(number: int) -> None:
        async with Submitter(url) as connection:
            for turn in range(int(seconds / PACE_S)):
                await asyncio.sleep(began + (turn + number / CLIENTS) * PACE_S - loop.time())
                path, sent = PATHS[(number + turn) % len(PATHS)], time.perf_counter()
                await connection.get(path)
                taken[path].append((time.perf_counter() - sent) * 1000)

    await asyncio.gather(*map(client, range(CLIENTS)))
    return taken
