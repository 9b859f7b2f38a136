"""Prints results on stdout: tables for people, JSON and names for programs. JSON is the API object, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec

Row = Mapping[str, Any]

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
    "healthy": "green",
    "degraded": "yellow",
    "draining": "yellow",
    "lost": "red",
}
"""The terminal colours nearest to those of the dashboard."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, its text for a row, and whether only ``wide`` shows it."""

    title: str
    cell: Callable[[Row], str]
    wide: bool = False
    right: bool = False


def state_word(state: str) -> str:
    """A state in its colour; colours are dropped where stdout is no terminal."""
    return click.style(state, fg=COLOURS.get(state.lower()))


def print_rows(items: Sequence[Row], columns: Sequence[Column], form: str, *, name: str = "name") -> None:
    """A listing as ``table`` or ``wide``, one JSON object per line, or names only."""
    if form == "jsonl":
        for item in items:
            print_json(item, indent=0)
    elif form == "name":
        for item in items:
            click.echo(item[name])
    else:
        print_table(items, [column for column in columns if form == "wide" or not column.wide])


def print_page(
    items: Iterable[Row], columns: Sequence[Column], form: str, *, name: str = "name", cursor: str | None = None
) -> None:
    """A listing in any form; ``json`` is the API's page object."""
    rows = list(items)
    if form == "json":
        print_json({"items": rows, "next_cursor": cursor})
    else:
        print_rows(rows, columns, form, name=name)


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


def print_table(items: Iterable[Row], columns: Sequence[Column]) -> None:
    """Headings and aligned cells; the last column is not padded."""
    cells = [[column.title for column in columns]]
    cells += [[column.cell(item) for column in columns] for item in items]
    widths = [max(len(click.unstyle(row[place])) for row in cells) for place in range(len(columns))]
    for row in cells:
        padded = [_pad(cell, width, column.right) for cell, width, column in zip(row, widths, columns, strict=True)]
        click.echo("  ".join(padded).rstrip())


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """``name  value`` lines, without those that have no value."""
    shown = [(name, value) for name, value in facts if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {value}")


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * (width - len(click.unstyle(cell)))
    return space + cell if right else cell + space
