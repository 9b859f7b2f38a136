"""B12: maps of Python functions, each call recorded, with fresh memory; one call's latency.

In the detail: a process for each call, and processes that make many calls and keep their memory, in
turns with the others; a function that uses numpy, which each host imports once, with fresh memory
and with a process for each call; fifty calls a task; many calls that take and return a kilobyte,
with what the client and the services weigh afterwards; how long a job of another user takes beside
a map; the same with `concurrent.futures.ProcessPoolExecutor`, whose processes stay, are neither
recorded nor limited, and run here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import psutil

from benchmarks import account
from benchmarks.b3_latency import spread
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import TOKEN, Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher
from iris import Client
from iris.client.options.maps import MapOptions

GOAL = 480
"""Six tenths of what Ray does on the machine of two cores that the figures are of."""
CPUS = 16
CHUNK, PART = 50, 10
REUSE = 100
KILOBYTE = b"x" * 1024
OTHERS = 20
ONE_BY_ONE = 30
REST_S = 0.3
WITHIN_S = 120.0
MapFunction = Callable[[Callable[[int], object], int, int], list[object]]


def noop(number: int) -> int:
    return number


def same(data: bytes) -> bytes:
    return data


def with_numpy(number: int) -> float:
    return float(numpy.arange(number + 1).sum())


def run(quick: bool = False) -> Row:
    """Calls a second of maps of a no-op, median of the maps on one cluster after one that is not
    counted.
    """
    calls = 500 if quick else 2_000
    cloudpickle.register_pickle_by_value(
        sys.modules[__name__]
    )  # as a function of a user's script is sent
    host = ("worker.id=host-0", f"worker.cpu_millis={CPUS * 1000}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # this Python for calls
    with cluster(
        workers=[host], state=[f"state.max_building={CPUS}"], environment={"PATH": path}
    ) as made:
        runs, detail = asyncio.run(_rounds(made, calls, 3 if quick else 5))
        detail["kilobytes"] = _kilobytes(made, 5_000 if quick else 100_000)
        detail["job_of_another_user"] = asyncio.run(_of_another(made, calls if quick else 10_000))
        rss = made.rss_bytes()
    return Row(
        row="B12",
        what=f"a map of a no-op over {calls:,} items, with fresh memory for each call",
        value=round(median(runs), 1),
        unit="calls/s",
        goal=GOAL,
        rss_bytes=max(rss.values()),
        runs=[round(r, 1) for r in runs],
        detail={**detail, "process_pool": _of_a_pool(calls), "rss_bytes": rss},
    )


async def _rounds(made: Cluster, calls: int, repeat: int) -> tuple[list[float], dict[str, Any]]:
    Gateway(made.url).until_workers(1)
    with Client(made.url, token=TOKEN) as client:
        plain, heavy = (
            partial(_mapped, client, {}),
            partial(_mapped, client, {"preload": ["numpy"]}),
        )
        reusing = partial(_mapped, client, {"reuse": REUSE})
        forking = partial(_mapped, client, {"fresh": "process"})
        heavy_forking = partial(_mapped, client, {"preload": ["numpy"], "fresh": "process"})
        await asyncio.to_thread(_rate, plain, noop, calls)
        async with Watcher(made.nats_url) as watcher:
            runs: list[tuple[float, dict[str, Any]]] = []
            reused: list[tuple[float, dict[str, Any]]] = []
            forked: list[tuple[float, dict[str, Any]]] = []
            for _ in range(repeat):
                for mapped, found in ((plain, runs), (forking, forked), (reusing, reused)):
                    before = await account.read(made, watcher)
                    rate = await asyncio.to_thread(_rate, mapped, noop, calls)
                    found.append(
                        (rate, (await account.read(made, watcher)).per(before, calls, "call"))
                    )
        detail = {
            **_middle(runs),
            f"reuse_of_{REUSE}": {
                "noop_calls_per_s": round(median([rate for rate, _ in reused]), 1),
                **_middle(reused),
            },
            "reuse_to_fresh": _ratio(reused, runs),
            "a_process_each": {
                "noop_calls_per_s": round(median([rate for rate, _ in forked]), 1),
                "with_numpy_calls_per_s": round(
                    await asyncio.to_thread(_rate, heavy_forking, with_numpy, calls), 1
                ),
                **_middle(forked),
            },
            "fresh_memory_to_a_process_each": _ratio(runs, forked),
        }
        return [rate for rate, _ in runs], await asyncio.to_thread(
            _others, plain, heavy, calls
        ) | detail


def _ratio(
    these: list[tuple[float, dict[str, Any]]], those: list[tuple[float, dict[str, Any]]]
) -> float:
    """Of the rates of runs that were made in turns, the median."""
    return round(median([new / old for (new, _), (old, _) in zip(these, those, strict=True)]), 2)


def _middle(runs: list[tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    """What a call has cost in the run of the middle rate."""
    return sorted(runs, key=lambda run: run[0])[len(runs) // 2][1]


def _others(plain: MapFunction, heavy: MapFunction, calls: int) -> dict[str, Any]:
    """Calls a second of the other kinds, and milliseconds of single calls."""
    return {
        "with_numpy_calls_per_s": round(_rate(heavy, with_numpy, calls), 1),
        f"chunks_of_{CHUNK}_calls_per_s": round(_rate(plain, noop, calls * 5, CHUNK), 1),
        "one_call_ms": spread([1000 / _rate(plain, noop, 1) for _ in range(ONE_BY_ONE)]),
        "one_call_after_rest_ms": spread([1000 / _rested(plain) for _ in range(ONE_BY_ONE)]),
    }


def _rested(mapped: MapFunction) -> float:
    """Calls a second of one call after a rest, which is the first on its host to move a process
    into a group.
    """
    time.sleep(REST_S)
    return _rate(mapped, noop, 1)


def _kilobytes(made: Cluster, calls: int) -> dict[str, Any]:
    """Calls that take and return a kilobyte, several a task because a map has at most 10,000, and
    bytes of memory.
    """
    here = psutil.Process()
    before = here.memory_info().rss
    with Client(made.url, token=TOKEN) as client:
        began = time.perf_counter()
        mapped = client.map(same, [KILOBYTE] * calls, chunksize=PART)
        if mapped.results(10 * WITHIN_S) != [KILOBYTE] * calls:
            raise RuntimeError("a map returned something else")
        rate = calls / (time.perf_counter() - began)
        grown = here.memory_info().rss - before
    return {
        "calls": calls,
        "calls_per_s": round(rate, 1),
        "client_bytes": grown,
        "rss_bytes": made.rss_bytes(),
    }


async def _of_another(made: Cluster, calls: int) -> dict[str, Any]:
    """Milliseconds from the submission of a job of one process to its end, alone and beside a map
    of another user in a lower band; in the same band it waits for all calls that were submitted
    before.
    """
    gateway = Gateway(made.url)
    async with Watcher(made.nats_url) as watcher:

        async def one(name: str) -> float:
            began = time.perf_counter()
            await asyncio.to_thread(
                gateway.submit, name=name, command=["/bin/true"], user="another"
            )
            return (await watcher.until_ended({name}, WITHIN_S) - began) * 1000

        alone = [await one(f"/alone-{number}") for number in range(OTHERS)]
        with Client(made.url, token=TOKEN) as client:
            rate = asyncio.create_task(
                asyncio.to_thread(_rate, partial(_mapped, client, {"band": "batch"}), noop, calls)
            )
            beside: list[float] = []
            while not rate.done():
                beside.append(await one(f"/beside-{len(beside)}"))
        found = {"alone_ms": spread(alone), "beside_ms": spread(beside), "jobs_beside": len(beside)}
        return {**found, "map_calls_per_s": round(await rate, 1)}


def _of_a_pool(calls: int) -> dict[str, Any]:
    """The same in processes of the standard library, which are started before."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:

        def mapped(function: Callable[[int], object], count: int, chunksize: int) -> list[object]:
            return list(pool.map(function, range(count), chunksize=chunksize))

        _rate(mapped, noop, calls)
        return {
            "noop_calls_per_s": round(_rate(mapped, noop, calls), 1),
            **_others(mapped, mapped, calls),
        }


def _mapped(
    client: Client,
    options: MapOptions,
    function: Callable[[int], object],
    count: int,
    chunksize: int,
) -> list[object]:
    return client.map(function, range(count), **{**options, "chunksize": chunksize}).results(
        10 * WITHIN_S
    )


def _rate(
    mapped: MapFunction, function: Callable[[int], object], count: int, chunksize: int = 1
) -> float:
    """Calls a second of one map, from the call until all results are here. Raises RuntimeError for
    wrong ones.
    """
    began = time.perf_counter()
    found = mapped(function, count, chunksize)
    took_s = time.perf_counter() - began
    if found != [function(number) for number in range(count)]:
        raise RuntimeError(f"a map over {count} items returned something else")
    return count / took_s
