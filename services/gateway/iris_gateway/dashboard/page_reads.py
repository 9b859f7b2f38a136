"""One request of a page, and how it reads views: one of them, one page of a listing, or all of a
short one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from iris_core.access.rights import Membership
from iris_core.messages.gateway_state import Caller
from iris_core.spec.projects import ROOT
from iris_core.views.queries import MAX_LIMIT, MembershipsQuery, PageQuery, ViewQuery
from iris_gateway.auth.bearer import may_administer
from iris_gateway.gateway import Gateway
from iris_gateway.http.problem import ProblemResponse

ROWS = 50
"""Rows of a table on one page."""
PAGES = 20
"""Pages of a listing that are read at most for one HTML page."""
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PageData:
    """One request of a dashboard page.

    Attributes:
        segments: the parameters of the path, decoded. query: the query parameters. now: the time,
            for ages.
        again: for a page that is open, and follows the output by itself.
    """

    gateway: Gateway
    caller: Caller
    segments: dict[str, str]
    query: dict[str, str]
    now: datetime
    again: bool = False

    async def at(self, query: ViewQuery) -> Any:
        """One view. Raises Problem."""
        return msgspec.json.decode(await self.gateway.queries.ask(query, self.caller))

    async def items_of(self, *queries: PageQuery) -> list[Any]:
        """The items of one page of each listing, which are read at the same time."""
        pages = await asyncio.gather(*map(self.at, queries))
        return [item for page in pages for item in page["items"]]

    async def page_of(self, query: PageQuery, *filters: str) -> Any:
        """One page of a listing, filtered and continued by the page's query; a few empty pages are
        skipped.
        """
        given = {name: text for name in (*filters, "cursor") if (text := self.query.get(name))}
        query = replace(query, limit=ROWS, **given)
        left = PAGES
        while True:
            left -= 1
            page = await self.at(query)
            query = replace(query, cursor=page.get("next_cursor") or "")
            if page["items"] or not query.cursor or not left:
                return page

    async def all_of(self, query: PageQuery) -> list[Any]:
        """The items of a listing, from a bounded number of pages."""
        items: list[Any] = []
        for _ in range(PAGES):
            page = await self.at(replace(query, limit=MAX_LIMIT))
            items += page["items"]
            query = replace(query, cursor=page.get("next_cursor") or "")
            if not query.cursor:
                break
        return items

    async def memberships(self, projects: Iterable[str]) -> dict[str, Membership]:
        """What the caller is in each of these projects."""
        return await memberships_of(self.gateway, self.caller, projects)

    def number(self, name: str) -> int | None:
        """A whole number of the page's query; None when it has none. Raises Problem."""
        if not (text := self.query.get(name, "")):
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise ProblemResponse(
                "malformed", f"{text[:80]!r} is not the number of a task, an attempt or an event"
            )
        return int(text)


async def memberships_of(
    gateway: Gateway, caller: Caller, projects: Iterable[str]
) -> dict[str, Membership]:
    """What a caller is in each of these projects. It is asked for only where it may matter: the root
    has no members, and an admin of the cluster needs to be none.
    """
    found = dict.fromkeys(projects, Membership.NONE)
    paths = tuple(sorted(found.keys() - {ROOT}))
    if paths and not may_administer(caller):
        query = MembershipsQuery(paths, caller.groups)
        shown = msgspec.json.decode(await gateway.queries.ask(query, caller))
        found |= {path: Membership(value) for path, value in shown["memberships"].items()}
    return found
