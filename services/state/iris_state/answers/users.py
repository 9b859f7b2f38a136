"""A user's limits and what counts against them. semantics.md section 8 "Quotas"."""

from __future__ import annotations

from iris_core.states import PriorityBand, display_name
from iris_core.views import QuotaView
from iris_state.ledger import Ledger


def quota_view(ledger: Ledger, user: str) -> QuotaView:
    quota = ledger.quota_of(user)
    view = QuotaView(
        user=user,
        max_running_cpu=quota.max_running_cpu,
        max_running_memory=quota.max_running_memory,
        max_running_accelerators=quota.max_running_accelerators,
        max_pending_tasks=quota.max_pending_tasks,
        max_band=display_name(PriorityBand(max(quota.max_band, 1))),
        pending_tasks=ledger.pending_of_user[user],
    )
    for presence in ledger.presence.values():
        for number, _, _ in presence.open:
            owner = ledger.jobs[number]
            if owner.user == user:
                amount = owner.spec.resources.amount
                view.running_cpu += amount.cpu_millis
                view.running_memory += amount.memory_bytes
                view.running_accelerators += amount.chips
    return view
