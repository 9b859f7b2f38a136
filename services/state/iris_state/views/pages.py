"""Pagination of listings: bounded pages with opaque keyset cursors, for any kind of record.

A page is made in pieces: between two of them other work is done, and a listing goes on behind the
cursor of the piece before. Source: docs/adr/0161-reads-are-made-in-pieces.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

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
PIECE_ITEMS = 100
PIECE_BYTES = 1 << 17
"""Items and bytes of one piece of a page, unless a single item is larger: about 3 ms."""
Pieces = Generator[None, None, T]
"""Makes something bit by bit. Between two bits the ledger may change."""


class Piece(Page, kw_only=True):
    """A part of a page.

    Attributes:
        size: bytes of its items. is_last: the page ends with it, because so many records were read.
        head: the page without its items, where it has other fields.
        rest: what makes the next pieces; None: what has made this one.
    """

    size: int = 0
    is_last: bool = False
    head: Page | None = None
    rest: Callable[[Any], Piece] | None = None


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
) -> Piece:
    """The first piece of the matching ones of (position, record) rows; the cursor is the last
    position read.

    Ends at the caller's limit, at `PIECE_ITEMS`, after `SCANNED` rows, or before `PIECE_BYTES` are
    exceeded, whichever comes first. So a page may be empty and not the last one: a listing ends
    where there is no cursor.
    """
    items: list[Any] = []
    limit = min(query.limit, PIECE_ITEMS)
    room = min(PIECE_BYTES, PAGE_BYTES)
    size = 0
    last: int | str = ""
    for looked_at, (position, record) in enumerate(rows):
        if len(items) == limit or looked_at == SCANNED:
            is_last = looked_at == SCANNED
            return Piece(items=items, next_cursor=str(last), size=size, is_last=is_last)
        if wanted(record):
            item = view(record)
            more = len(codec.to_json(item))
            if items and size + more > room:
                return Piece(items=items, next_cursor=str(last), size=size)
            size += more
            items.append(item)
        last = position
    return Piece(items=items, size=size)


def whole(
    listing: Callable[[Any], Any], query: PageQuery, shown: Callable[[Any], Any] = lambda view: view
) -> Pieces[Any]:
    """A page in its pieces, each as it is ``shown``: each is asked for behind the cursor of the one
    before, until there are as many items as the caller's limit, or `PAGE_BYTES`. What is no page is
    returned as it is shown.
    """
    items: list[Any] = []
    size = 0
    asked = query
    while True:
        piece = yield from finished(listing(asked))
        if not isinstance(piece, Piece):
            return shown(piece)
        head = piece.head or Page(items=[])
        if items and size + piece.size > PAGE_BYTES:
            return replace(head, items=items, next_cursor=asked.cursor)
        items += shown(Page(items=piece.items)).items
        size += piece.size
        if piece.next_cursor is None or piece.is_last or len(items) == query.limit:
            return replace(head, items=items, next_cursor=piece.next_cursor)
        asked = replace(query, limit=query.limit - len(items), cursor=piece.next_cursor)
        listing = piece.rest or listing
        yield


def finished(found: Any) -> Pieces[Any]:
    """What a view is, whether or not it is made in pieces."""
    if isinstance(found, Generator):
        found = yield from found
    return found


def at_once(found: Any) -> Any:
    """What a view is, without a pause between its pieces."""
    steps = finished(found)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def parts(records: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Records, so many at a time."""
    for first in range(0, len(records), size):
        yield records[first : first + size]


def shortened(text: str, most: int) -> str:
    """A text, or its last ``most`` characters after three dots."""
    return text if len(text) <= most else f"...{text[-most:]}"
