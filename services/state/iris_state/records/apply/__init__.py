"""Applies each kind of change to the records: one function per kind, the only code that writes
them.

Applying decides nothing and cannot fail: a change was validated before it was made. One module per
family: `tasks`, `jobs`, `growth`, `queue_holds`, `sessions`, `cluster`, `deployments`, `fleet`,
`projects`. The ledger updates its indexes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_state.records.apply import (
    cluster,
    deployments,
    fleet,
    growth,
    jobs,
    projects,
    queue_holds,
    sessions,
    tasks,
)
from iris_state.records.changes import Change
from iris_state.records.indexes import minutes
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import complete

WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = complete(
    {
        **jobs.WRITERS,
        **growth.WRITERS,
        **queue_holds.WRITERS,
        **tasks.WRITERS,
        **sessions.WRITERS,
        **cluster.WRITERS,
        **deployments.WRITERS,
        **fleet.WRITERS,
        **projects.WRITERS,
    }
)
"""By kind of change: (ledger, change, time in ms)."""


def apply(ledger: Ledger, change: Change, at_ms: int) -> None:
    """Apply one change to the records. Public facts are appended to ``ledger.facts``."""
    if at_ms >= ledger.totals.minute_ends_ms:
        minutes.sample(ledger, at_ms)
    if ledger.shares.enabled:
        ledger.shares.now_ms = at_ms
    WRITERS[type(change)](ledger, change, at_ms)
