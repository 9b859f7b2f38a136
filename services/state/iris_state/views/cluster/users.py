"""View of a user's limits and usage. docs/design/semantics.md#order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from iris_core.states import PriorityBand, display_name
from iris_core.views.jobs import QuotaView
from iris_core.views.queries import PageQuery, QuotasQuery, UsersQuery
from iris_state.decide.quota import used
from iris_state.records.ledger import Ledger
from iris_state.views.pages import Piece, behind_name, cursor_of, page


def quota_view(ledger: Ledger, user: str) -> Struct:
    quota = ledger.quota_of(user)
    best = {"max_band": display_name(PriorityBand(max(quota.max_band, 1)))}
    is_default = {"is_default": user not in ledger.quotas}
    groups = {"groups": list(ledger.groups.get(user, ()))}
    _, running = ledger.running_usage.held_now((user, None))
    held = used(ledger, user, running)
    return QuotaView(**asdict(quota) | best | held | is_default | groups)


def quotas(ledger: Ledger, query: QuotasQuery) -> Piece:
    """Users with a quota, by name."""
    return _page(ledger, sorted(ledger.quotas), query)


def users(ledger: Ledger, query: UsersQuery) -> Piece:
    """Users with a job on record, by name."""
    return _page(ledger, ledger.index.users, query)


def _page(ledger: Ledger, names: Sequence[str], query: PageQuery) -> Piece:
    first = bisect_right(names, behind_name(query.cursor))
    behind = (names[at] for at in range(first, len(names)))
    rows = ((cursor_of(name), name) for name in behind)
    return page(rows, lambda name: quota_view(ledger, name), query)
