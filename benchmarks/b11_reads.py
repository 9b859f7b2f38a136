"""B11: submissions a second with and without eight clients that list jobs continuously.

Once with one replica of the state service, whose leader answers the listings itself, and once with
a second one that follows and answers them. Everything shares the machine's processors, so what the
listings' own work costs is in it; the CPU a submission takes in each service shows what they cost
beside that.

A full run takes about two minutes: for each of the two 10,000 jobs to list, then five times 5 s
without and 5 s with listings. Each of the two fails after `LONGEST_S`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Sequence

from benchmarks.b9_gateway import NO_LIMIT
from benchmarks.cluster import HOME, Cluster, cluster
from benchmarks.http import Submitter
from benchmarks.result import Row, median

GOAL_PERCENT = 10.0
GOAL_ALONE_PERCENT = 30.0
READERS = 8
WRITERS = 8
JOBS = 10_000
LONGEST_S = 180.0

Rates = dict[str, list[float]]
Costs = dict[str, list[dict[str, float]]]


def run(quick: bool = False) -> Row:
    """Percent of the submissions a second that are lost to the listings, with a follower."""
    jobs, seconds, repeat = (2000, 2.0, 3) if quick else (JOBS, 5.0, 5)
    found: dict[str, Rates] = {}
    costs: dict[str, Costs] = {}
    rss = 0
    for name, replicas in (("alone", 1), ("follower", 2)):
        with cluster(gateway=NO_LIMIT) as made:
            for _ in range(replicas - 1):
                made.start("state")
            found[name], costs[name] = asyncio.run(_measure(made, jobs, seconds, repeat))
            rss = max(rss, *made.rss_bytes().values())
    lost = {name: _lost(rates) for name, rates in found.items()}
    return Row(
        row="B11",
        what=f"submissions lost to {READERS} clients that list {jobs:,} jobs, with a follower",
        value=round(median(lost["follower"]), 1),
        unit="%",
        goal=GOAL_PERCENT,
        better="less",
        rss_bytes=rss,
        runs=lost["follower"],
        detail={
            "lost_without_follower_percent": round(median(lost["alone"]), 1),
            "lost_without_follower_goal_percent": GOAL_ALONE_PERCENT,
            "submissions_per_s": {
                name: {
                    "without": round(median(rates["quiet"]), 1),
                    "with": round(median(rates["read"]), 1),
                }
                for name, rates in found.items()
            },
            "pages_per_s": {
                name: round(median(rates["pages"]), 1) for name, rates in found.items()
            },
            "cpu_us_per_submission": {
                name: {part: _typical(spent) for part, spent in parts.items()}
                for name, parts in costs.items()
            },
        },
    )


def _typical(spent: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of the runs for each service."""
    return {service: round(median([one[service] for one in spent]), 1) for service in spent[0]}


def _lost(rates: Rates) -> list[float]:
    """Percent, of each run with readers against the one without just before it."""
    return [
        round((1 - read / quiet) * 100, 1)
        for quiet, read in zip(rates["quiet"], rates["read"], strict=True)
    ]


async def _measure(made: Cluster, jobs: int, seconds: float, repeat: int) -> tuple[Rates, Costs]:
    """Submissions a second without and with readers, in turn, the pages a second of those, and the
    CPU of both.

    Raises TimeoutError after `LONGEST_S`.
    """
    found: Rates = {"quiet": [], "read": [], "pages": []}
    costs: Costs = {"quiet": [], "read": []}

    async def counted(part: str, number: int) -> None:
        before = made.cpu_s()
        found[part].append(await submit(made.url, f"{part}-{number}", seconds=seconds))
        count = found[part][-1] * seconds
        costs[part].append(
            {service: (s - before[service]) / count * 1e6 for service, s in made.cpu_s().items()}
        )

    async with asyncio.timeout(LONGEST_S):
        await submit(made.url, "job", jobs=jobs)
        for number in range(repeat):
            await counted("quiet", number)
            command = [
                sys.executable,
                "-m",
                "benchmarks.readers",
                made.url,
                "--count",
                str(READERS),
            ]
            readers = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, cwd=HOME
            )
            assert readers.stdout is not None
            await readers.stdout.readline()
            began = time.perf_counter()
            await counted("read", number)
            took_s = time.perf_counter() - began
            said, _ = await readers.communicate(b"")  # its stdin ends, and so does it
            found["pages"].append(int(said) / took_s)
    return found, costs


async def submit(
    url: str, name: str, *, seconds: float = 3600.0, jobs: int = 1 << 60, replicas: int = 1
) -> float:
    """Submissions a second of several clients that each wait for an answer, for so long or so
    many.
    """
    began, done = time.perf_counter(), 0

    async def write(number: int) -> None:
        nonlocal done
        async with Submitter(url) as connection:
            while time.perf_counter() - began < seconds and done < jobs:
                done += 1
                await connection.submit(
                    name=f"/{name}-{number}-{done}", command=["true"], replicas=replicas
                )

    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    return done / (time.perf_counter() - began)
