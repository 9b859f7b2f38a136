"""Pagination of listings: bounded pages with opaque keyset cursors, for any kind of record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from iris_core import codec
from iris_core.errors import Code, Refused
from iris_core.views.jobs import Page
from iris_core.views.queries import PageQuery
from iris_state.records.ledger import whole_number

T = TypeVar("T")

SCANNED = 2000
"""Records that one page reads, at most."""
MAX_TEXT = 4096
"""Characters of an error, or of the last output, in a view."""
PAGE_BYTES = 1 << 20
"""Bytes of one page, unless a single item is larger."""


def behind(cursor: str) -> int | None:
    """The number after which a page continues; cursors are opaque to clients."""
    found = numbers_behind(cursor, 1)
    return found[0] if found is not None else None


def numbers_behind(cursor: str, count: int) -> list[int] | None:
    """The numbers, joined by ``-``, after which a page continues; None for the first page."""
    if not cursor:
        return None
    numbers = [number for part in cursor.split("-") if (number := whole_number(part)) is not None]
    if len(numbers) != count or cursor.count("-") != count - 1:
        raise Refused(Code.INVALID, "not a cursor of this listing")
    return numbers


def behind_name(cursor: str) -> str:
    """The name after which a page continues, empty for the first page; see `cursor_of`."""
    try:
        return bytes.fromhex(cursor).decode()
    except ValueError:
        raise Refused(Code.INVALID, "not a cursor of this listing") from None


def cursor_of(name: str) -> str:
    """A name encoded as a cursor, valid in a URL."""
    return name.encode().hex()


def always(record: object) -> bool:
    """Accept every record."""
    return True


def page(
    rows: Iterable[tuple[int | str, T]],
    view: Callable[[T], Any],
    query: PageQuery,
    wanted: Callable[[T], bool] = always,
) -> Page:
    """The matching ones of (position, record) rows; the cursor is the last position read.

    Ends at the caller's limit, after `SCANNED` rows, or before `PAGE_BYTES` are exceeded, whichever
    comes first. So a page may be empty and not the last one: a listing ends where there is no
        cursor.
    """
    items: list[Any] = []
    limit = query.limit
    size = 0
    last: int | str = ""
    for looked_at, (position, record) in enumerate(rows):
        if len(items) == limit or looked_at == SCANNED:
            return Page(items=items, next_cursor=str(last))
        if wanted(record):
            item = view(record)
            size += len(codec.to_json(item))
            if items and size > PAGE_BYTES:
                return Page(items=items, next_cursor=str(last))
            items.append(item)
        last = position
    return Page(items=items)


def shortened(text: str, most: int) -> str:
    """A text, or its last ``most`` characters after three dots."""
    return text if len(text) <= most else f"...{text[-most:]}"
