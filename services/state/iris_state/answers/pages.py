"""Listings: found records, bounded pages, opaque keyset cursors. Nothing of what is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from iris_core.errors import Code, Refused
from iris_core.views import Page
from iris_state.ledger import Ledger, whole_number
from iris_state.records import Job

Arguments = dict[str, Any]

MAX_PAGE = 500
DEFAULT_PAGE = 100


def found_job(ledger: Ledger, arguments: dict[str, Any]) -> Job:
    name = str(arguments.get("job", ""))
    record = ledger.find_job(name)
    if record is None:
        raise Refused(Code.NOT_FOUND, f"there is no job {name}")
    return record


def found_task(ledger: Ledger, arguments: dict[str, Any]) -> tuple[Job, int]:
    name = str(arguments.get("task", ""))
    found = ledger.find_task(name)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"there is no task {name}")
    return found


def limit_of(arguments: dict[str, Any]) -> int:
    limit = arguments.get("limit")
    limit = DEFAULT_PAGE if limit is None else limit
    if not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise Refused(Code.INVALID, f"limit is 1 to {MAX_PAGE}")
    return limit


def behind(arguments: dict[str, Any]) -> int | None:
    """The number a page goes on behind; cursors are opaque to everybody else."""
    cursor = arguments.get("cursor")
    if not cursor:
        return None
    number = whole_number(str(cursor))
    if number is None:
        raise Refused(Code.INVALID, "not a cursor of this listing")
    return number


def page(rows: Iterable[tuple[int | str, Any]], view: Callable[[Any], Any], arguments: dict[str, Any]) -> Page:
    """The first ``limit`` of (position, record) rows, worded; the cursor names the last position shown."""
    items: list[Any] = []
    limit, last = limit_of(arguments), ""
    for position, record in rows:
        if len(items) == limit:
            return Page(items=items, next_cursor=last)
        items.append(view(record))
        last = str(position)
    return Page(items=items)
