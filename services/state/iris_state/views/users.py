"""A user's limits and what counts against them. docs/design/semantics.md#order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iris_core.resources import NOTHING, Amount
from iris_core.states import PriorityBand, display_name
from iris_core.views import Page, QuotaView
from iris_state.ledger import Ledger
from iris_state.views.pages import behind_name, cursor_of, page


def quota_view(ledger: Ledger, user: str) -> QuotaView:
    return _view(ledger, user, _running(ledger))


def quotas(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """Everybody who has a quota, by name."""
    return _page(ledger, ledger.quotas, arguments)


def users(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """Everybody who has a job on record, by name."""
    return _page(ledger, ledger.index.values("user"), arguments)


def _page(ledger: Ledger, names: Iterable[str], arguments: dict[str, Any]) -> Page:
    last = behind_name(arguments)
    running = _running(ledger)
    rows = ((cursor_of(name), name) for name in sorted(names) if name > last)
    return page(rows, lambda name: _view(ledger, name, running), arguments)


def _running(ledger: Ledger) -> dict[str, Amount]:
    """What each user's open attempts hold."""
    held: dict[str, Amount] = {}
    for number, n in ledger.open_of_job.items():
        ask, user = ledger.requested[number], ledger.jobs[number].user
        more = Amount(n * ask.cpu_millis, n * ask.memory_bytes, n * ask.disk_bytes, n * ask.chips)
        held[user] = held.get(user, NOTHING) + more
    return held


def _view(ledger: Ledger, user: str, running: dict[str, Amount]) -> QuotaView:
    quota = ledger.quota_of(user)
    held = running.get(user, NOTHING)
    return QuotaView(
        user=user,
        max_running_cpu=quota.max_running_cpu,
        max_running_memory=quota.max_running_memory,
        max_running_accelerators=quota.max_running_accelerators,
        max_pending_tasks=quota.max_pending_tasks,
        max_band=display_name(PriorityBand(max(quota.max_band, 1))),
        running_cpu=held.cpu_millis,
        running_memory=held.memory_bytes,
        running_accelerators=held.chips,
        pending_tasks=ledger.pending_of_user[user],
    )
