"""Prints results on stdout: tables for people, JSON and names for programs. JSON is the API object,
unchanged.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec

Row = Mapping[str, Any]

_GAP = "  "
_PLAIN = "\033[0m"
_NARROWEST = 24
"""Characters that a sentence is wrapped to at least."""

COLOURS = {
    "pending": "yellow",
    "assigned": "bright_yellow",
    "building": "magenta",
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "killed": "bright_black",
    "worker_failed": "magenta",
    "unschedulable": "red",
    "preempted": "bright_yellow",
    "requeued": "yellow",
    "healthy": "green",
    "degraded": "yellow",
    "draining": "yellow",
    "lost": "red",
    "ok": "green",
    "paused": "yellow",
    "exhausted": "yellow",
    "stopped": "red",
    "requested": "yellow",
    "creating": "magenta",
    "ready": "green",
    "deleting": "bright_black",
    "deleted": "bright_black",
}
"""The terminal colours nearest to those of the dashboard."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: its heading. cell: its text for a row. wide: only ``wide`` shows it. right: aligned
            to the right.
        gives: its turn to be left out where the terminal is too narrow, from 1; 0: never.
        wraps: its text, a sentence, continues below itself.
    """

    title: str
    cell: Callable[[Row], str]
    wide: bool = False
    right: bool = False
    gives: int = 0
    wraps: bool = False


TablePart = tuple[Column, list[str]]
"""A column with its heading and its cells."""


def state_word(state: str) -> str:
    """A state in its colour; colours are dropped where stdout is not a terminal."""
    colour = COLOURS.get(state.lower())
    return click.style(state, fg=colour) if colour else state


def reason_words(row: Row) -> str:
    """The pending reason's sentence, empty for none."""
    reason = row.get("pending_reason")
    return reason["message"] if reason else ""


def print_rows(
    items: Sequence[Row], columns: Sequence[Column], form: str, *, name: str = "name"
) -> None:
    """A listing as ``table`` or ``wide``, one JSON object per line, or names only."""
    if form == "jsonl":
        for item in items:
            print_json(item, indent=0)
    elif form == "name":
        for item in items:
            click.echo(item[name])
    else:
        print_table(items, columns, wide=form == "wide")


def print_object(found: Row, form: str, *, name: str = "name") -> bool:
    """Print one object for programs; False for the formats for people, which the caller prints."""
    if form in ("json", "jsonl"):
        print_json(found, indent=2 if form == "json" else 0)
    elif form == "name":
        click.echo(found[name])
    return form in ("json", "jsonl", "name")


def print_json(value: object, indent: int = 2) -> None:
    """One JSON value; ``indent`` 0 puts it on one line."""
    data = msgspec.json.encode(value)
    click.echo((msgspec.json.format(data, indent=indent) if indent else data).decode())


def print_table(items: Iterable[Row], columns: Sequence[Column], *, wide: bool = False) -> None:
    """Headings and aligned cells, which fit where stdout is a terminal."""
    for line in table_lines(
        list(items), [one for one in columns if wide or not one.wide], terminal_width()
    ):
        click.echo(line)


def terminal_width() -> int:
    """The columns of the terminal that stdout is; 0 when it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def table_lines(items: Sequence[Row], columns: Sequence[Column], width: int = 0) -> list[str]:
    """A table as lines.

    ``width``: of the terminal; columns give way until the table fits, then sentences wrap. 0: no
    limit.
    """
    table = [(column, [column.title, *map(column.cell, items)]) for column in columns]
    turns = sorted((column.gives, place) for place, column in enumerate(columns) if column.gives)
    left_out = set[int]()
    while (
        width
        and turns
        and _least(part for place, part in enumerate(table) if place not in left_out) > width
    ):
        left_out.add(turns.pop(0)[1])
    kept = [part for place, part in enumerate(table) if place not in left_out]
    widths = _widths(kept, width)
    some = [column for column, _ in kept]
    return [
        line
        for row in zip(*(cells for _, cells in kept), strict=True)
        for line in _row_lines(row, some, widths)
    ]


def _longest(cells: Sequence[str]) -> int:
    return max(len(line) for cell in cells for line in click.unstyle(cell).splitlines() or [""])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _least(table: Iterable[TablePart]) -> int:
    """The least width of a table, whose sentences can be as narrow as `_NARROWEST`."""
    return _total(
        [
            min(_longest(cells), _NARROWEST) if column.wraps else _longest(cells)
            for column, cells in table
        ]
    )


def _widths(table: Sequence[TablePart], width: int) -> list[int]:
    """The width of each column; the longest sentences become narrower first."""
    widths = [_longest(cells) for _, cells in table]
    wrapping = [place for place, (column, _) in enumerate(table) if column.wraps] if width else []
    for place in sorted(wrapping, key=lambda place: -widths[place]):
        over = _total(widths) - width
        widths[place] -= max(0, min(over, widths[place] - _NARROWEST))
    return widths


def _row_lines(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    """One row; more than one line where a cell has several, or a sentence wraps: each in its
    column, for a text of somebody else must not look like a row.
    """
    parts = [
        [
            line
            for given in cell.splitlines()
            for line in (_wrapped(given, width) if column.wraps else [given])
        ]
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    lines = []
    for number in range(max(1, *map(len, parts))):
        cells = [part[number] if number < len(part) else "" for part in parts]
        padded = [
            _pad(cell, width, column.right)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        ]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a sentence; a colour counts as letters."""
    if len(click.unstyle(text)) <= width:
        return [text]
    import textwrap  # imported only for what is too long

    return textwrap.wrap(text, width)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """``name  value`` lines, without those that have no value; long values wrap on a terminal."""
    shown = [{"name": name, "value": value} for name, value in facts if value]
    for line in table_lines(shown, _FACTS, terminal_width())[1:]:
        click.echo(line)


_FACTS = (Column("", lambda row: row["name"]), Column("", lambda row: row["value"], wraps=True))


def _pad(cell: str, width: int, right: bool) -> str:
    """A cell in its width; colours in it end with it."""
    if "\033" in cell and not cell.endswith(_PLAIN):
        cell += _PLAIN
    space = " " * (width - len(click.unstyle(cell)))
    return space + cell if right else cell + space
