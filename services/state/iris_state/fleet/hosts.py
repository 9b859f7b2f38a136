"""Which hosts are forgotten because their slice has ended. Pure.

Source: docs/design/fleet.md#statuses-of-a-slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iris_core.states import WorkerState
from iris_state.records.changes import WorkerForgotten
from iris_state.records.ledger import Ledger


def forgotten(ledger: Ledger, hosts: Iterable[str]) -> Iterator[WorkerForgotten]:
    """Those of these hosts that are LOST and whose slice has ended: they do not come back."""
    for host in hosts:
        if not _is_lost(ledger, host):
            continue
        place = ledger.fleet.of_host(host)
        one = place[1] if place is not None else None
        if one is not None and one.is_over and one.cleared:
            yield WorkerForgotten(host)


def forgotten_with_pool(ledger: Ledger, pool: str) -> Iterator[WorkerForgotten]:
    """The LOST hosts whose names lie in a pool that is removed."""
    for host in list(ledger.workers):
        place = ledger.fleet.of_host(host) if _is_lost(ledger, host) else None
        if place is not None and place[0] == pool:
            yield WorkerForgotten(host)


def _is_lost(ledger: Ledger, host: str) -> bool:
    """Whether a host is LOST and holds nothing any more."""
    worker = ledger.workers.get(host)
    is_lost = worker is not None and worker.state is WorkerState.LOST
    return is_lost and not ledger.presence[host].open
