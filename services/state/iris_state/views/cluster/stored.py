"""View of what is stored of each user's jobs and bundles. Admins read all of it; others what is theirs."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby

from msgspec.structs import replace

from iris_core.access.rights import Verb, may
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.views.queries import StoredUsageQuery
from iris_core.views.usage import StoredUsageView
from iris_state.records.indexes.stored import StoredKind
from iris_state.records.ledger import Ledger
from iris_state.views.pages import Piece, behind_name, cursor_of, page

MOST_ROWS = 100
"""Rows of a page, at most, whatever is asked for."""


def stored_usage(ledger: Ledger, query: StoredUsageQuery, caller: Caller) -> Piece:
    """By user, in the order of names. Raises Refused."""
    user = query.user
    if not may(caller, Verb.READ_USAGE):
        if user not in ("", caller.user):
            raise Refused(Code.FORBIDDEN, f"what {user} has stored is read by {user} and admins")
        user = caller.user
    query = replace(query, limit=min(query.limit, MOST_ROWS))
    after = behind_name(query.cursor)
    known: list[Sequence[str]] = [ledger.index.users, ledger.stored.bundles.users]
    if user:
        known = [[user]] if any(user in names for names in known) else []
    names = (name for name, _ in groupby(merge(*(_behind(each, after) for each in known))))
    running = ledger.running_output()
    rows = ((cursor_of(name), name) for name in names)
    return page(rows, lambda name: _view(ledger, name, running.get(name, 0)), query)


def _behind(names: Sequence[str], after: str) -> Iterator[str]:
    return (names[at] for at in range(bisect_right(names, after), len(names)))


def _view(ledger: Ledger, user: str, running: int) -> StoredUsageView:
    held = ledger.stored.of_user.get(user) or Counter[StoredKind]()
    return StoredUsageView(
        user=user,
        jobs=len(ledger.index.of(("user", user))),
        job_bytes=ledger.job_bytes[user],
        artifact_bytes=held[StoredKind.ARTIFACTS],
        output_bytes=held[StoredKind.OUTPUT] + running,
        result_bytes=held[StoredKind.RESULTS],
        bundle_bytes=ledger.stored.bundles.of_user.get(user, 0),
    )
