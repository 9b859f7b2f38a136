"""B9: one gateway with many clients: durable submissions, pages of a listing, and watchers of all
events.

Each in turn, on an otherwise idle cluster; the clients share the machine's processors with the
services.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from benchmarks import floor
from benchmarks.cluster import cluster
from benchmarks.http import TOKEN, Submitter
from benchmarks.result import Row, median

GOAL_SUBMISSIONS = 2000.0
GOAL_PAGES = 10_000.0
LARGE_BATCH = 64
WATCHERS = 1000
EVENTS_PER_S = 50
EVENTS_OF_A_JOB = 2
"""Its task and itself are pending: nothing else happens where there is no worker."""
TIMEOUT_S = 60.0
NO_LIMIT = ("gateway.requests_per_s=0",)
"""Of the requests of one user, who is everybody here; by default 2,000 a second after a burst."""

Ask = Callable[[Submitter, int], Awaitable[object]]


def run(quick: bool = False) -> Row:
    """Durable submissions a second."""
    seconds, repeat, watchers, jobs = (2.0, 3, 200, 100) if quick else (10.0, 5, WATCHERS, 500)
    with cluster(gateway=NO_LIMIT) as made:
        submissions, pages, got, wanted = asyncio.run(
            _measure(made.url, seconds, repeat, watchers, jobs=jobs)
        )
        rss = made.rss_bytes()
    with floor.handler("starlette") as url:
        bare = asyncio.run(_rate(url, _page, seconds))
    return Row(
        row="B9",
        what=f"durable submissions over HTTP from {LARGE_BATCH} clients, one gateway",
        value=round(median(submissions), 1),
        unit="jobs/s",
        goal=GOAL_SUBMISSIONS,
        of_floor={"pages of a bare handler of starlette": round(median(pages) / bare, 3)},
        rss_bytes=max(rss.values()),
        runs=[round(rate, 1) for rate in submissions],
        detail={
            "pages_per_s": round(median(pages), 1),
            "pages_goal_per_s": GOAL_PAGES,
            "watchers": watchers,
            "events_per_s": EVENTS_PER_S,
            "events_lost": wanted - got,
            "events_delivered": got,
            "rss_bytes": rss,
        },
    )


async def _measure(
    url: str, seconds: float, repeat: int, watchers: int, jobs: int
) -> tuple[list[float], list[float], int, int]:
    names = itertools.count()

    async def submit(connection: Submitter, _: int) -> None:
        await connection.submit(name=f"/b9-{next(names)}", command=["true"])

    submissions = [await _rate(url, submit, seconds) for _ in range(repeat)]
    pages = [await _rate(url, _page, seconds) for _ in range(repeat)]
    return submissions, pages, *await _watch(url, watchers, jobs)


async def _page(connection: Submitter, _: int) -> None:
    await connection.get("/v1/jobs?limit=10")


async def _rate(url: str, ask: Ask, seconds: float) -> float:
    """Answers a second to a crowd in which each waits for one before the next."""
    began, done = time.perf_counter(), 0

    async def go_on(number: int) -> None:
        nonlocal done
        async with Submitter(url) as connection:
            while time.perf_counter() - began < seconds:
                await ask(connection, number)
                done += 1

    await asyncio.gather(*(go_on(number) for number in range(LARGE_BATCH)))
    return done / (time.perf_counter() - began)


async def _watch(url: str, watchers: int, jobs: int) -> tuple[int, int]:
    """How many events all watchers got while jobs were submitted at a steady rate, and how many
    there were for them.
    """
    counts = [0] * watchers
    ready = asyncio.Semaphore(0)
    wanted = jobs * EVENTS_OF_A_JOB
    watching = [
        asyncio.create_task(_count(url, counts, number, wanted, ready=ready))
        for number in range(watchers)
    ]
    for _ in range(watchers):
        await ready.acquire()
    began = time.perf_counter()
    async with Submitter(url) as connection:
        for number in range(jobs):
            due = began + number * EVENTS_OF_A_JOB / EVENTS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await connection.submit(name=f"/watched-{number}", command=["true"])
    await asyncio.wait(watching, timeout=TIMEOUT_S)
    for task in watching:
        task.cancel()
    return sum(counts), wanted * watchers


async def _count(
    url: str, counts: list[int], number: int, wanted: int, ready: asyncio.Semaphore
) -> None:
    """Count the events of one stream, until all have come."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    with contextlib.closing(writer):
        head = f"GET /v1/events?type=task.state,job.state HTTP/1.1\r\nHost: {at.netloc}\r\n"
        writer.write(
            f"{head}Authorization: Bearer {TOKEN}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        ready.release()
        while counts[number] < wanted:
            line = await reader.readline()
            counts[number] += line.startswith(b"event: ")
            if not line:
                return
