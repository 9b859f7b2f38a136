"""What a job waits for, where pools could make a host for it: the slice that comes, or what keeps
each pool from making one. Pure.

Source: docs/design/fleet.md#need.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from iris_core.codec import to_builtins
from iris_core.placement.reasons import Reason, slice_coming
from iris_core.views.fleet import PoolObstacleView
from iris_core.views.jobs import moment
from iris_state.records.entities import Job
from iris_state.records.fleet.packing import CoverFrom, FleetNeed, PendingWork
from iris_state.records.fleet.records import Slice
from iris_state.records.ledger import Ledger
from iris_state.views.cluster.demand import CLASSES, NO_DEMAND, class_of
from iris_state.views.cluster.pools import obstacle_view, percentile
from iris_state.views.cluster.waiting import packed_now, packed_work


def with_pools(ledger: Ledger, job: Job, reason: Reason) -> Reason:
    """The reason why a job waits, with what pools have to do with it; the same one without pools,
    and of a job that waits for anything but hosts.
    """
    if not ledger.fleet.pools or reason.code in NO_DEMAND:
        return reason
    waiting, need = packed_work(ledger)
    work = _of_job(job, waiting)
    if work is None and len(waiting) < CLASSES:  # it waits since the last round
        waiting, need = packed_now(ledger)
        work = _of_job(job, waiting)
    if work is None:
        return reason
    cover = need.covered.get(work.example)
    if cover is not None and cover.slice:
        one = ledger.fleet.find(cover.slice)
        return reason if one is None else _coming(ledger, one)
    obstacles = _obstacles(ledger, need, work, cover)
    return replace(reason, facts={**reason.facts, "pools": obstacles}) if obstacles else reason


def _of_job(job: Job, waiting: list[PendingWork]) -> PendingWork | None:
    kind = class_of(job)
    asked = (kind.resources, kind.constraints, kind.size, max(1, kind.slices), kind.group_by)
    return next(
        (
            one
            for one in waiting
            if (one.resources, one.constraints, one.size, one.parts, one.group_by) == asked
        ),
        None,
    )


def _coming(ledger: Ledger, one: Slice) -> Reason:
    """The reason of what a slice will hold, with the times that slices of its pool take."""
    facts: dict[str, Any] = {
        "slice": one.name,
        "pool": one.pool,
        "status": one.status.value,
        "requested_at": to_builtins(moment(one.requested_ms)),
    }
    pool = ledger.fleet.pools.get(one.pool)
    boots = sorted(pool.growth.boots) if pool is not None else []
    half = percentile(boots, 0.5)
    if half is not None:
        facts |= {"p50_s": half, "p90_s": percentile(boots, 0.9)}
    return slice_coming(facts, max(0, ledger.now_ms - one.requested_ms) // 1000)


def _obstacles(
    ledger: Ledger, need: FleetNeed, work: PendingWork, cover: CoverFrom | None
) -> list[Any]:
    """Each pool that could hold the work, with what keeps it from making a slice."""
    if cover is not None and ledger.fleet_policy.dry_run:
        found = [obstacle_view(ledger, cover.pool, "dry_run")]
    elif cover is not None:
        words = "its next slice is asked for as soon as its rate permits"
        found = [PoolObstacleView(pool=cover.pool, code="rate", message=words, until=None)]
    else:
        unmet = next((one for one in need.unmet if one.work is work), None)
        pools = unmet.pools if unmet is not None else {}
        found = [obstacle_view(ledger, name, code) for name, code in pools.items()]
    return [to_builtins(one) for one in found]
