"""B5: 1,000 gangs of 4 placed over 2,500 slices of 4 VMs, a third of which are partly busy.
Placement only.
"""

from __future__ import annotations

import gc
import resource
import time

from benchmarks import burst
from benchmarks.result import Row, median
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Delta, Hold, JobRow, Queued
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import PriorityBand
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import plan
from iris_scheduler.settings import SchedulerSettings

GOAL = 5_000.0
GANGS = 1_000
SLICES = 2_500


def run(quick: bool = False) -> Row:
    """Gangs placed a second, by the wall clock, nothing remembered from an earlier pass."""
    rates = []
    for _ in range(3 if quick else 9):
        mirror = _cluster()
        gc.collect()
        began = time.perf_counter()
        decision = plan(mirror, Cache(), burst.NOW_MS, SchedulerSettings())
        rates.append(len(decision.plan.placements) / (time.perf_counter() - began))
        assert len(decision.plan.placements) == GANGS
    return Row(
        row="B5",
        what=f"{GANGS:,} gangs of 4 placed over {SLICES:,} slices",
        value=round(median(rates)),
        unit="gangs/s",
        goal=GOAL,
        rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        runs=[round(rate) for rate in rates],
    )


def _cluster() -> Mirror:
    """All slices, one VM of every third held by another job, and a queue of gangs in 20 classes."""
    mirror = Mirror.of(
        [burst.snapshot(burst.workers(SLICES * burst.SLICE, tpu_share=1.0), 0, 1, 1)]
    )
    busy = JobRow(
        1,
        "/busy",
        "ann",
        PriorityBand.INTERACTIVE,
        depth=1,
        root_submitted_ms=0,
        submitted_ms=0,
        replicas=SLICES,
        resources=ResourceRequest(1000, 0, 0, Device("tpu", "auto", 4)),
    )
    names = mirror.hosts.columns().names
    holds = tuple(
        Hold(AttemptRef(1, number, 0), names[number * burst.SLICE], False, False, since_ms=0)
        for number in range(0, SLICES, 3)
    )
    device = Device("tpu", "v5litepod-16", 4)
    rows = [
        JobRow(
            job=number,
            name=f"/gang-{number}",
            user="ann",
            band=PriorityBand.INTERACTIVE,
            depth=1,
            root_submitted_ms=burst.NOW_MS,
            submitted_ms=burst.NOW_MS,
            replicas=burst.SLICE,
            resources=ResourceRequest(1000 + number % 20, burst.GIB, 0, device),
            group_by="tpu-name",
        )
        for number in range(2, GANGS + 2)
    ]
    queued = tuple(Queued(row.job, ((0, row.replicas),), burst.NOW_MS) for row in rows)
    mirror.apply(
        Delta(
            mirror.version + 1,
            burst.NOW_MS,
            after=mirror.version,
            jobs=(busy, *rows),
            opened=holds,
            queued=queued,
        )
    )
    return mirror
