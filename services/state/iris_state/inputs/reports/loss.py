"""Notices that the records were lost: a worker has attempts of jobs that a new journal never knew.

An attempt begins only after its job is in the journal, so a leader that begins an empty journal and
hears of one must not judge it: it would have the worker stop work that a backup knows. Out of
scope: damage within a journal, which `replication.replica` finds. Source: ADR 19.
"""

from __future__ import annotations

from collections.abc import Iterable

from iris_bus.contract import RecordsLost
from iris_core.messages.state_worker import Stage
from iris_state.policy import Policy
from iris_state.records.ledger import Ledger


def check(
    ledger: Ledger, policy: Policy, worker: str, stages: Iterable[Stage], leads_ms: int
) -> None:
    """Check what a worker lists against a journal that has just begun.

    Only one without a job ever, and one whose first leader has led for less than a worker's grace,
    have just begun: a worker of another cluster that joins later ends nobody.

    Args:
        leads_ms: since this leader began.

    Raises RecordsLost.
    """
    if policy.begin_anew or not _has_just_begun(ledger, policy, leads_ms):
        return
    for stage in stages:
        if stage.ref.job >= ledger.next_number:
            raise RecordsLost(
                f"worker {worker} has task {stage.ref.index} of job j{stage.ref.job}, and this journal never had that "
                "job: the records were lost, nothing is stopped. Restore a backup with `iris admin restore` (see "
                "docs/disaster-recovery.md); without one, start once with --set state.begin_anew=true, which has "
                "workers stop what they run"
            )


def _has_just_begun(ledger: Ledger, policy: Policy, leads_ms: int) -> bool:
    return ledger.next_number == 1 or (
        ledger.epoch == ledger.first_epoch and leads_ms <= policy.lost_after_ms
    )
