"""View of fair shares. Everybody reads those of projects, admins those of all users, others their own.

Every number is that of `Shares`, by which the queue is ordered. docs/design/team.md#fair-share.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from iris_core import codec
from iris_core.access.rights import Verb, may
from iris_core.codec import Undecodable
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.spec.projects import is_below, order_of
from iris_core.views.projects import SharePage, ShareView
from iris_core.views.queries import SharesQuery
from iris_state.records.ledger import Ledger
from iris_state.records.shares import ShareKey
from iris_state.records.targets import known_project
from iris_state.views.pages import Piece, behind_name, cursor_of, page

PLACES = 6
"""Decimals of what is shown."""


def shares(ledger: Ledger, query: SharesQuery, caller: Caller) -> Piece:
    """Each project, the users of it, and then the projects below it. Raises Refused."""
    top = known_project(ledger, query.project).path
    last = _last(query.cursor)
    enabled = ledger.shares.enabled
    rows = ((_cursor(key), key) for key in _keys(ledger, top, last)) if enabled else ()
    found = page(
        rows,
        lambda key: share_view(ledger, key),
        query,
        wanted=lambda key: not key.user or may(caller, Verb.READ_USAGE, key.user),
    )
    return replace(found, head=SharePage(enabled=enabled, items=[]))


def share_view(ledger: Ledger, key: ShareKey) -> ShareView:
    """Of a project, or of one user of it."""
    found = ledger.shares
    usage_part, weight_part = found.parts(key)
    return ShareView(
        project=key.path,
        user=key.user or None,
        weight=found.weight(key),
        weight_part=round(weight_part, PLACES),
        usage=round(found.used_s(key, ledger.now_ms), PLACES),
        usage_part=round(usage_part, PLACES),
        share=round(found.share(key), PLACES),
        step=found.step(key),
        running=round(found.running(key), PLACES),
        pending_tasks=found.pending.get(key, 0),
    )


def _keys(ledger: Ledger, top: str, last: ShareKey | None) -> Iterator[ShareKey]:
    """Those of a project and of all below it, behind one."""
    after = (order_of(last.path), last.user) if last is not None else ((), "")
    for project in ledger.projects.in_order():
        path = project.path
        order = order_of(path)
        if (path != top and not is_below(path, top)) or order < after[0]:
            continue
        if last is None or order > after[0]:
            yield ShareKey(path, "")
        for user in ledger.shares.users(path):
            if last is None or (order, user) > after:
                yield ShareKey(path, user)


def _cursor(key: ShareKey) -> str:
    return cursor_of(codec.to_json(key).decode())


def _last(cursor: str) -> ShareKey | None:
    text = behind_name(cursor)
    try:
        return codec.from_json(text.encode(), ShareKey) if text else None
    except Undecodable:
        raise Refused(Code.INVALID, "not a cursor of this listing") from None
