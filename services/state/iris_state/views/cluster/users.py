"""View of a user's limits and usage. docs/design/semantics.md#order."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import asdict

from iris_core.spec.resources import NOTHING, Amount
from iris_core.states import PriorityBand, display_name
from iris_core.views.jobs import Page, QuotaView
from iris_core.views.queries import PageQuery, QuotasQuery, UsersQuery
from iris_state.decide.quota import used
from iris_state.records.ledger import Ledger
from iris_state.views.pages import behind_name, cursor_of, page


def quota_view(ledger: Ledger, user: str) -> Struct:
    return _view(ledger, user, _running(ledger))


def quotas(ledger: Ledger, query: QuotasQuery) -> Page:
    """Users with a quota, by name."""
    return _page(ledger, ledger.quotas, query)


def users(ledger: Ledger, query: UsersQuery) -> Page:
    """Users with a job on record, by name."""
    return _page(ledger, ledger.index.values("user"), query)


def _page(ledger: Ledger, names: Iterable[str], query: PageQuery) -> Page:
    last = behind_name(query.cursor)
    running = _running(ledger)
    rows = ((cursor_of(name), name) for name in sorted(names) if name > last)
    return page(rows, lambda name: _view(ledger, name, running), query)


def _running(ledger: Ledger) -> dict[str, Amount]:
    """What each user's open attempts hold: those that ask for the same are counted first."""
    counts: dict[tuple[str, Amount], int] = {}
    jobs = ledger.jobs
    requested = ledger.requested
    for number, n in ledger.open_of_job.items():
        key = jobs[number].user, requested[number]
        counts[key] = counts.get(key, 0) + n
    held: dict[str, Amount] = {}
    for (user, amount), n in counts.items():
        held[user] = held.get(user, NOTHING) + amount * n
    return held


def _view(ledger: Ledger, user: str, running: dict[str, Amount]) -> Struct:
    quota = ledger.quota_of(user)
    best = {"max_band": display_name(PriorityBand(max(quota.max_band, 1)))}
    is_default = {"is_default": user not in ledger.quotas}
    groups = {"groups": list(ledger.groups.get(user, ()))}
    held = used(ledger, user, running.get(user, NOTHING))
    return QuotaView(**asdict(quota) | best | held | is_default | groups)
