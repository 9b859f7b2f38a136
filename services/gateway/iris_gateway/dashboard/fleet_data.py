"""The data of the pages of the fleet: all pools, one pool, one slice.

Out of scope: rendering (`templates`), and authorization (`pages`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from iris_core.limits import SENTENCE
from iris_core.views import queries as q
from iris_gateway.dashboard.fleet_words import stands
from iris_gateway.dashboard.page_data import EVENTS, is_hindered, newest_events
from iris_gateway.dashboard.page_reads import ROWS, Facts, PageData
from iris_gateway.http.parameters import identifier
from iris_gateway.streams.event import Filter
from iris_gateway.streams.event_history import BUDGET

CHANGES = 20
"""Changes on the page of all pools."""
UNMET = 20
"""Kinds of waiting work for which nothing is made, on that page."""
OF_POOLS = Filter(("fleet.pool",))
HOSTS = 200
"""Hosts of a slice on its page."""


async def fleet(look: PageData) -> Facts:
    """All pools: what they have, what they still need, what stands in the way, what happened."""
    shown, events = await asyncio.gather(
        look.at(q.FleetQuery()), newest_events(look, OF_POOLS, CHANGES, BUDGET)
    )
    pools = shown["pools"]
    unwell = [one for one in pools if is_hindered(one)]
    return {
        "title": f"{unwell[0]['name']}: {stands(unwell[0])}"
        if len(unwell) == 1
        else _title(unwell),
        "fleet": shown,
        "pools": _from_cursor(pools, look.query.get("cursor", "")),
        "unwell": unwell,
        "changes": _newest([*shown["changes"], *map(_change_of, events)])[:CHANGES],
        "unmet_shown": UNMET,
    }


def _title(unwell: list[Any]) -> str:
    return f"{len(unwell)} pools need attention: Fleet" if unwell else "Fleet"


def _from_cursor(pools: list[Any], cursor: str) -> Facts:
    """One page of the pools, which are sorted by name; the cursor is the last name read."""
    left = [one for one in pools if one["name"] > cursor]
    more = len(left) > ROWS
    return {"items": left[:ROWS], "next_cursor": left[ROWS - 1]["name"] if more else None}


def _change_of(event: Mapping[str, Any]) -> Facts:
    """An event of a pool, in the form of the changes of slices."""
    at = datetime.fromtimestamp(event["at_ms"] / 1000, UTC).isoformat()
    by = event.get("by")
    return {**event, "slice": "", "at": at, "by": {"name": by} if by else None}


def _newest(changes: list[Facts]) -> list[Facts]:
    return sorted(changes, key=lambda one: datetime.fromisoformat(one["at"]), reverse=True)


async def pool(look: PageData) -> Facts:
    """One pool: its slices, those that live or those of a status, and what happened to them."""
    name = identifier(look.segments["pool"], "pool")
    shown, slices, history, events = await asyncio.gather(
        look.at(q.PoolQuery(pool=name)),
        look.page_of(q.FleetSlicesQuery(pool=name), "status"),
        look.at(q.PoolHistoryQuery(pool=name, limit=ROWS)),
        newest_events(look, OF_POOLS, EVENTS, BUDGET),
    )
    own = [_change_of(event) for event in events if event["pool"] == name]
    return {
        "title": f"{stands(shown)}: {name}",
        "pool": shown,
        "slices": slices,
        "changes": _newest([*history["items"], *own]),
        "has_more_changes": bool(history.get("next_cursor")),
        "query": {"status": look.query.get("status", "")},
        "form_key": look.gateway.new_id(),
        "longest": SENTENCE,
    }


async def slice_(look: PageData) -> Facts:
    """One slice: its hosts, those that are not well first, and what happened to it."""
    shown = await look.at(q.FleetSliceQuery(slice=identifier(look.segments["slice"], "slice")))
    hosts = sorted(shown["hosts"], key=lambda host: host["state"] == "healthy")
    return {
        "title": f"{shown['status']}: {shown['name']}",
        "slice": shown,
        "hosts": hosts[:HOSTS],
        "form_key": look.gateway.new_id(),
        "longest": SENTENCE,
    }
