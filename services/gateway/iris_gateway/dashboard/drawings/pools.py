"""Pools as rows of boxes: a box for each slice, by what it does, and outlines of those that may still
be made. Pure.

Boxes of one kind are one path, so a pool of 400 slices has as many elements as one of three. Kinds
differ by shape and not by colour alone. Source: docs/design/page.md#components.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

COLUMNS = 32
"""Boxes in a line."""
MOST = 400
"""Boxes of slices of a pool at most; of a larger one a box stands for several."""
MOST_OF_PAGE = 4000
"""Boxes of slices of all pools on a page, about."""
OUTLINES = 32
"""Boxes of slices that may still be made, at most."""
_STEP = 13
_FRAME = "h10v10h-10z"
_HOLE = "m1 1v8h8v-8z"


class BoxKind(NamedTuple):
    """One kind of box. ``word``: behind a number of slices. ``path``: of one box, from its corner."""

    name: str
    word: str
    path: str


KINDS = (
    BoxKind("busy", "busy", _FRAME),
    BoxKind("idle", "idle", _FRAME + _HOLE),
    BoxKind("coming", "coming", _FRAME + _HOLE + "m1 4h6v3h-6z"),
    BoxKind("draining", "draining", _FRAME + _HOLE + "m1 1h6l-6 6z"),
    BoxKind(
        "deleting", "being deleted", "h3l2 2.5l2 -2.5h3l-3.2 5l3.2 5h-3l-2 -2.5l-2 2.5h-3l3.2 -5z"
    ),
    BoxKind("free", "may be made", "m.5 .5h9v9h-9z"),
)
"""In the order in which they are drawn."""


class PoolBoxes(NamedTuple):
    """A pool as it is drawn. ``words``: its slices by what they do. ``each``: slices of a box."""

    drawing: Markup
    words: str
    each: int


def box(kind: BoxKind) -> Markup:
    """One box alone, for the legend."""
    return Markup(
        '<svg class="boxes" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">'
        '<path class="box-{}" d="M0 0{}"/></svg>'
    ).format(kind.name, kind.path)


def counts_of(pool: Mapping[str, Any]) -> dict[str, int]:
    """The slices of a pool by kind of box."""
    slices: Mapping[str, int] = pool["slices"]
    made = sum(slices.values())
    return {
        "busy": slices["ready"] - pool["idle"],
        "idle": pool["idle"],
        "coming": slices["requested"] + slices["creating"],
        "draining": slices["draining"],
        "deleting": slices["deleting"],
        "free": 0 if pool["removing"] else max(0, pool["max"] - made),
    }


def boxes(pool: Mapping[str, Any], pools: int = 1) -> PoolBoxes:
    """The boxes of a pool as the state service shows it. ``pools``: on the same page."""
    most = min(MOST, MOST_OF_PAGE // pools)
    counts = counts_of(pool)
    words = ", ".join(f"{counts[kind.name]:,} {kind.word}" for kind in KINDS if counts[kind.name])
    made = sum(count for name, count in counts.items() if name != "free")
    each = max(1, -(-made // most))
    drawn = {name: -(-count // each) for name, count in counts.items()}
    drawn["free"] = min(drawn["free"], OUTLINES)
    paths = Markup()
    at = 0
    for kind in KINDS:
        places = [divmod(number, COLUMNS) for number in range(at, at + drawn[kind.name])]
        at += drawn[kind.name]
        if places:
            shape = "".join(f"M{_STEP * x} {_STEP * y}{kind.path}" for y, x in places)
            paths += Markup('<path class="box-{}" d="{}"/>').format(kind.name, shape)
    wide, high = min(max(at, 1), COLUMNS) * _STEP, max(1, -(-at // COLUMNS)) * _STEP
    drawing = Markup(
        '<svg class="boxes" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">'
        "{3}</svg>"
    ).format(wide, high, words or "none", paths)
    return PoolBoxes(drawing, words or "it may make none", each)
