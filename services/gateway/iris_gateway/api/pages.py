"""The schema of a page of a view, for the documentation."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec


@cache
def page_of(kind: type[Any]) -> Any:
    """``{items, next_cursor}`` with items of ``kind``."""
    name = f"{kind.__name__.removesuffix('View')}Page"
    return msgspec.defstruct(name, [("items", list[kind]), ("next_cursor", str | None)], module=__name__)  # type: ignore[valid-type]
