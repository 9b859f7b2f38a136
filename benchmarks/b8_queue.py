"""B8: operations on a queue of 1,000,000 pending tasks: add, remove, iterate, position; and how
each scales.

The value is the slowest of the operations a second, on single-task jobs, which are the worst case.
On a queue a hundred times as long O(log n) alone would make an operation 1.5 times as long; the
rest is memory that is in no cache.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable

from benchmarks.result import Row
from iris_core.placement.priority import PriorityKey, priority_key
from iris_core.placement.queue import TaskQueue
from iris_core.states import PriorityBand

GOAL = 100_000.0
TASKS = 1_000_000
SAMPLE = 20_000


def run(quick: bool = False) -> Row:
    """Operations a second at 1,000,000 tasks; microseconds of each at 10,000 and 1,000,000 in the
    detail.
    """
    tasks = TASKS // 4 if quick else TASKS
    small, large = _operations(tasks // 100), _operations(tasks)
    slowest = max(large.values())
    return Row(
        row="B8",
        what=f"the slowest operation on a queue of {tasks:,} single-task jobs",
        value=round(1e6 / slowest),
        unit="ops/s",
        goal=GOAL,
        rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        detail={
            "us_small": {name: round(us, 2) for name, us in small.items()},
            "us_large": {name: round(us, 2) for name, us in large.items()},
            "growth": {name: round(large[name] / small[name], 2) for name in large},
        },
    )


def _operations(tasks: int) -> dict[str, float]:
    """Microseconds of each operation on a queue of so many jobs of one task."""
    queue = TaskQueue()
    keys = [_key(job, tasks) for job in range(tasks)]
    some = [job * 7919 % tasks for job in range(min(SAMPLE, tasks))]
    return {
        "add": _timed(lambda job: queue.add(job, keys[job], ((0, 1),)), range(tasks)),
        "position": _timed(queue.position, some),
        "contains": _timed(lambda job: (job, 0) in queue, some),
        "remove": _timed(lambda job: queue.remove(job, 0), some),
        "again": _timed(lambda job: queue.add(job, keys[job], ((0, 1),)), some),
        "iterate": _timed(lambda _: None, queue),
    }


def _key(job: int, jobs: int) -> PriorityKey:
    return priority_key(
        PriorityBand(1 + job % 3), 1 + job % 4, job * 7919 % jobs, job, sequence=job
    )


def _timed(operation: Callable[[int], object], over: Iterable[object]) -> float:
    gc.collect()
    gc.disable()  # a collection scans every record there is, whatever the operation
    began, count = time.perf_counter(), 0
    for item in over:
        operation(item)  # type: ignore[arg-type]
        count += 1
    took = time.perf_counter() - began
    gc.enable()
    return took / count * 1e6
