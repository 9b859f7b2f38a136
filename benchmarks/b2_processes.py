"""B2: real processes. 5,000 x /bin/true through the whole system, submission to all SUCCEEDED.

What runs here serves B2f and B2i too: tasks that leave files, and containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import account, floor
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import TOKEN, Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher
from iris import Client

GOAL = 2_500
HOSTS = 4
"""A worker starts one process at a time and waits until it has become the program; a few share the
cores better.
"""
CPUS = 64
FLOOR = 2_000
"""Processes that a floor program starts."""
WINDOW = (f"state.max_building={CPUS}",)
"""Nothing is downloaded or installed, so each host may start as many at once as it may run."""
TRUE: Mapping[str, Any] = {"command": ["/bin/true"]}
SCRIPT = """read -r line < input.txt
mkdir -p out && echo "$line" > out/result && echo "$line" > scratch
for n in 1 2 3 4 5 6 7 8 9 10; do echo "$n $line"; done"""
FILES: Mapping[str, Any] = {"command": ["/bin/sh", "-ec", SCRIPT], "output": "out"}
"""Needs a bundle beside it, see `bundle`."""


def run(quick: bool = False, tasks: int = 5_000) -> Row:
    """Processes per second, median of the jobs on one cluster after one that is not counted."""
    with cluster(workers=hosts(), state=WINDOW) as made:
        return row(
            "B2", f"{tasks:,} x /bin/true", made, TRUE, tasks=tasks, repeat=3 if quick else 5
        )


def hosts() -> list[tuple[str, ...]]:
    return [(f"worker.id=host-{n}", f"worker.cpu_millis={CPUS * 1000}") for n in range(HOSTS)]


def bundle(made: Cluster) -> str:
    """Upload the working directory that `FILES` reads; its digest."""
    with Client(made.url, token=TOKEN) as client, _directory() as directory:
        return client.send_bundle(directory).digest


def spawned_files() -> floor.Floor | None:
    """The processes of `FILES`, started by the C loop."""
    with _directory() as directory:
        return floor.spawn(FLOOR // 4, command=FILES["command"], directory=directory)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as text:
        (Path(text) / "input.txt").write_text("a line of the bundle\n")
        yield Path(text)


def row(
    name: str,
    what: str,
    made: Cluster,
    spec: Mapping[str, Any],
    tasks: int,
    repeat: int,
    goal: float = GOAL,
) -> Row:
    """A row of jobs of one task kind, on a cluster of `hosts`."""
    runs, detail = asyncio.run(_rounds(made, spec, tasks, repeat))
    rss = made.rss_bytes()
    bare = {"isolate": floor.isolate(FLOOR), "spawn": floor.spawn(FLOOR)}
    return Row(
        row=name,
        what=what,
        value=round(median(runs), 1),
        unit="tasks/s",
        goal=goal,
        of_floor={
            name: round(median(runs) / one.rate, 3) for name, one in bare.items() if one is not None
        },
        rss_bytes=max(rss.values()),
        runs=[round(r, 1) for r in runs],
        detail={**detail, "rss_bytes": rss},
    )


async def _rounds(
    made: Cluster, spec: Mapping[str, Any], tasks: int, repeat: int
) -> tuple[list[float], dict[str, object]]:
    gateway = Gateway(made.url)
    gateway.until_workers(HOSTS)
    async with Watcher(made.nats_url) as watcher:
        await round_of(gateway, watcher, "/warm", tasks, spec=spec)
        before = await account.read(made, watcher)
        rates = [
            await round_of(gateway, watcher, f"/counted-{n}", tasks, spec=spec)
            for n in range(repeat)
        ]
        return rates, (await account.read(made, watcher)).per(before, tasks * repeat)


async def round_of(
    gateway: Gateway, watcher: Watcher, name: str, tasks: int, spec: Mapping[str, Any]
) -> float:
    """Tasks a second of one job. Raises RuntimeError when not all succeeded."""
    began = time.perf_counter()
    await asyncio.to_thread(gateway.submit, name=name, replicas=tasks, **spec)
    ended = await watcher.until_ended({name}, within_s=60 + tasks / 10)
    job = gateway.job(name)
    if job["task_counts"] != {"succeeded": tasks}:
        raise RuntimeError(f"{name} did not succeed: {job['task_counts']}: {job['error']}")
    return tasks / (ended - began)
