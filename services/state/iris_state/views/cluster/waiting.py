"""Waiting work as the fleet counts it: jobs that are alike together, as `demand` does. Pure.

Source: docs/design/fleet.md#need.
"""

from __future__ import annotations

from iris_state.fleet.pools import needed
from iris_state.fleet.scene import scene_of
from iris_state.records.fleet.packing import PackedWork, PendingWork
from iris_state.records.ledger import Ledger
from iris_state.views.cluster.demand import waiting_classes
from iris_state.views.pages import at_once


def waiting_work(ledger: Ledger, *, proposed: bool = False) -> list[PendingWork]:
    """What waits for hosts now, without what waits for something else; without a pool nothing is
    looked at, unless one is ``proposed``.
    """
    if not (ledger.fleet.pools or proposed):
        return []
    classes, _, _ = at_once(waiting_classes(ledger))
    return [
        PendingWork(
            example=waiting.first,
            resources=kind.resources,
            constraints=kind.constraints,
            tasks=waiting.tasks,
            jobs=waiting.jobs,
            size=kind.size,
            parts=max(1, kind.slices),
            group_by=kind.group_by,
        )
        for kind, waiting in classes.items()
    ]


def packed_work(ledger: Ledger) -> PackedWork:
    """Waiting work and what it needs of pools, as of the last round; where there was none since the
    pools were changed, as it is now.
    """
    if ledger.packed is not None and ledger.fleet.pools:
        return ledger.packed
    return packed_now(ledger)


def packed_now(ledger: Ledger) -> PackedWork:
    """Waiting work as it is now, and what it needs of pools."""
    work = waiting_work(ledger)
    return PackedWork(work, needed(scene_of(ledger), work))
