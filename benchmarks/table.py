"""``python -m benchmarks.table [RESULT.json]``: prints one kept run, by default the newest, as
Markdown tables.

So no figure there is typed by hand. Nothing is measured here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.__main__ import RESULTS
from benchmarks.result import Row


class Record(msgspec.Struct):
    """What `python -m benchmarks` keeps of a run."""

    machine: dict[str, Any]
    rows: list[Row]


def table(record: Record) -> str:
    """All rows as Markdown, then what explains each."""
    machine = ", ".join(
        f"{key} {value}" for key, value in record.machine.items() if key != "left_out"
    )
    lines = [
        f"Measured on: {machine}.",
        "",
        "| row | what | figure | lowest to highest | goal | peers | ratio | RSS |",
    ]
    lines += ["|---|---|---|---|---|---|---|---|", *map(_line, record.rows)]
    for row in record.rows:
        floors = {"of_floor": row.of_floor} if row.of_floor else {}
        lines += ["", f"### {row.row}", "", *_details(floors | row.detail)]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    spread = f"{min(row.runs):,g} to {max(row.runs):,g}" if row.runs else ""
    peers = ", ".join(f"{name} {value:,g}" for name, value in row.peers.items())
    ratio = f"{row.ratio:g}" if row.ratio is not None else ""
    figure = f"**{row.value:,g}** {row.unit}" if row.reached else f"{row.value:,g} {row.unit}"
    what, size = row.what, f"{row.rss_bytes / 1e6:.0f} MB"
    return (
        f"| {row.row} | {what} | {figure} | {spread} | {row.goal:,g} | {peers} | {ratio} | {size} |"
    )


def _details(detail: dict[str, Any]) -> list[str]:
    return [f"- {key.replace('_', ' ')}: {_words(value)}" for key, value in detail.items()]


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_words(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def main() -> None:
    """Print the tables."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else max(RESULTS.glob("*.json"))
    print(table(msgspec.json.decode(path.read_bytes(), type=Record)), end="")


if __name__ == "__main__":
    main()
