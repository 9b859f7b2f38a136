"""B4: one scheduling pass over a large cluster and a long queue, and the cycle after it with 100
new tasks.

The pass begins with nothing remembered: eligible workers, groups, placements and the reason of
everything that waits are all found in it; only the table of workers belongs to the mirror. 100,000
tasks in 1,000 classes (one job each), 10,000 workers, 4 resources, 2 constraints each, 5 % of the
classes gangs. In the detail: the same with ten jobs a class, so that classes interleave.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable

from benchmarks import burst
from benchmarks.result import Row, median
from iris_core.messages.scheduler_state import WorkerRow
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import Decision, plan
from iris_scheduler.settings import SchedulerSettings

GOAL_MS = 100.0
GOAL_INCREMENTAL_MS = 5.0
WORKERS = 10_000
TASKS = 100_000
CLASSES = 1_000
NEW_TASKS = 100
GROWTH = (1_000, 2_000, 5_000)
SETTINGS = SchedulerSettings()


def run(quick: bool = False, workers: int = WORKERS) -> Row:
    """Milliseconds of one full pass, by the wall clock."""
    rounds = 3 if quick else 7
    hosts = burst.workers(workers)
    full, incremental = [], []
    placed = 0
    for _ in range(rounds):
        mirror = Mirror.of([burst.snapshot(hosts, TASKS, CLASSES, TASKS // CLASSES)])
        mirror.hosts.columns()
        decision, took_ms = _pass(mirror, Cache())
        full.append(took_ms)
        placed = decision.singles + decision.gangs
        incremental.append(_next_cycle(mirror, decision))
    growth = {str(n): _grown(burst.workers(n)) for n in GROWTH}
    many_jobs = Mirror.of([burst.snapshot(hosts, TASKS, CLASSES, TASKS // CLASSES // 10)])
    return Row(
        row="B4",
        what=f"a full pass, {TASKS:,} tasks in {CLASSES:,} classes on {workers:,} workers",
        value=round(median(full), 1),
        unit="ms",
        goal=GOAL_MS,
        better="less",
        rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        runs=[round(ms, 1) for ms in full],
        detail={
            "placed": placed,
            "full_ms_by_workers": {**growth, str(workers): round(median(full), 1)},
            "incremental_ms": round(median(incremental), 2),
            "incremental_goal_ms": GOAL_INCREMENTAL_MS,
            "ten_jobs_a_class_ms": round(
                median([_pass(many_jobs, Cache())[1] for _ in range(3)]), 1
            ),
        },
    )


def _grown(hosts: tuple[WorkerRow, ...]) -> float:
    """Milliseconds of a full pass over so many workers with as many tasks for each."""
    tasks = TASKS * len(hosts) // WORKERS
    passes = []
    for _ in range(3):
        mirror = Mirror.of([burst.snapshot(hosts, tasks, CLASSES, max(1, tasks // CLASSES))])
        mirror.hosts.columns()
        passes.append(_pass(mirror, Cache())[1])
    return round(median(passes), 1)


def _pass(mirror: Mirror, cache: Cache) -> tuple[Decision, float]:
    """One cycle and its milliseconds."""
    return _timed(lambda: plan(mirror, cache, burst.NOW_MS, SETTINGS))


def _timed(decide: Callable[[], Decision]) -> tuple[Decision, float]:
    gc.collect()
    gc.disable()
    began = time.perf_counter()
    decision = decide()
    took_ms = (time.perf_counter() - began) * 1000
    gc.enable()
    return decision, took_ms


def _next_cycle(mirror: Mirror, first: Decision) -> float:
    """Every plan was taken until one places nothing, 100 tasks of known classes come: milliseconds
    to plan them.
    """
    cache, made = Cache(), first
    while made.plan.placements or made.wake_ms is not None:
        cache.learn(made.columns, made.findings, mirror.looked())
        mirror.changes.fresh |= made.left
        burst.accept(mirror, made.plan)
        made = plan(mirror, cache, burst.NOW_MS, SETTINGS)
    cache.learn(made.columns, made.findings, mirror.looked())
    burst.admit(mirror, *burst.queue(NEW_TASKS, CLASSES, 10, first=1_000_000))
    return _timed(lambda: plan(mirror, cache, burst.NOW_MS, SETTINGS))[1]
