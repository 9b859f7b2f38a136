"""Reads listings page by page and prints them; what is left out is said, and where to go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from iris.cli.output.tables import Column, Row, print_json, print_rows
from iris.client.client import Client
from iris.client.http.api import PAGE_ITEMS
from iris.client.http.transport import UrlQuery

NO_FILTERS = ("limit", "cursor", "order", "form", "url", "context")
"""Options of listings that choose no rows."""


class ListedPage(msgspec.Struct, frozen=True):
    """Rows of a listing, and the cursor of those after them; None when there are none."""

    items: Sequence[Row]
    next_cursor: str | None = None


P = TypeVar("P", bound=ListedPage)


def read_page(
    client: Client,
    path: str,
    query: UrlQuery | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ListedPage:
    """The rows of a listing from ``cursor`` on, at most ``limit``."""
    return read_page_as(ListedPage, client, path, query, limit, cursor)


def read_page_as(
    kind: type[P],
    client: Client,
    path: str,
    query: UrlQuery | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> P:
    """The same of a page with more fields, which are those of the last one that was read."""
    asked: UrlQuery = query or {}
    rows: list[Row] = []
    while True:
        most = PAGE_ITEMS if limit is None else min(limit - len(rows), PAGE_ITEMS)
        page = client.get(path, kind, {**asked, "limit": most, "cursor": cursor})
        rows += page.items
        cursor = page.next_cursor
        if cursor is None or len(rows) == limit:
            break
    more = cursor and any(True for _ in client.pages(path, dict, {**asked, "cursor": cursor}, 1))
    return msgspec.structs.replace(page, items=rows, next_cursor=cursor if more else None)


def print_page(
    page: ListedPage, columns: Sequence[Column], form: str, *, name: str = "name"
) -> None:
    """A listing in any form; ``json`` is the API's page object."""
    if form == "json":
        print_json(page)
    else:
        print_rows(page.items, columns, form, name=name)
    note_rest(page)


def note_rest(page: ListedPage) -> None:
    """Say on stderr that no row has what was asked for, or that there are more, unless the user has
    set the limit.
    """
    ctx = click.get_current_context()
    if not page.items and (given := " ".join(_filters(ctx))):
        click.echo(f"nothing is listed for {given}", err=True)
    if page.next_cursor and ctx.get_parameter_source("limit") is ParameterSource.DEFAULT:
        click.echo(
            f"there are more than these {len(page.items)}; list more with --limit N", err=True
        )


def _filters(ctx: click.Context) -> Iterator[str]:
    """``--user ann`` of each option that chooses rows and was given."""
    given: Mapping[str, Any] = ctx.params
    for one in ctx.command.params:
        chooses = isinstance(one, click.Option) and not one.is_flag and one.name not in NO_FILTERS
        if chooses and ctx.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE:
            yield f"{max(one.opts, key=len)} {given[one.name or '']}"
