"""Charts of the last sixty minutes: tasks that ended, how long placed ones had waited, and what attempts held. Pure.

Source: docs/design/page.md#components. Out of scope: counting (`iris_state.minutes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup

from iris_core.resources import RESOURCES
from iris_gateway.dashboard.drawing import area, columns, duration

MINUTES = 60


class Chart(NamedTuple):
    """A drawing, and what it shows in words."""

    drawing: Markup
    words: str


def _last(now: datetime) -> range:
    """The numbers of the last minutes, in minutes since the epoch."""
    newest = int(now.timestamp()) // 60
    return range(newest - MINUTES + 1, newest + 1)


def ended_and_waited(minutes: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Chart]:
    """``ended``: the tasks that ended in each minute; ``waited``: how long those that were placed had waited."""
    by_number = {one["number"]: one for one in minutes}
    rows = [(number, by_number.get(number, {})) for number in _last(now)]
    ended, waited = [], []
    for number, row in rows:
        at = f"{datetime.fromtimestamp(number * 60, UTC):%H:%M} UTC"
        succeeded, others, placed = (row.get(name, 0) for name in ("succeeded", "others", "placed"))
        mean_s = row["waited_ms"] / placed / 1000 if placed else 0.0
        parts = (("status-failed", others), ("status-succeeded", succeeded))
        ended.append((f"{at}: {succeeded:,} succeeded, {others:,} others", parts))
        waited.append((f"{at}: {placed:,} placed after {duration(mean_s)}", (("ink", mean_s),)))
    found = [row for _, row in rows]
    good, bad, placed = (sum(row.get(name, 0) for row in found) for name in ("succeeded", "others", "placed"))
    mean_s = sum(row.get("waited_ms", 0) for row in found) / max(1, placed) / 1000
    longest_s = max(row.get("longest_ms", 0) for row in found) / 1000
    ended_words = f"{good + bad:,} tasks, {good:,} of them succeeded"
    waited_words = f"{duration(mean_s)} on average, {duration(longest_s)} at most" if placed else "nothing was placed"
    return {
        "ended": Chart(columns(ended, f"Tasks that ended in the last hour: {ended_words}"), ended_words),
        "waited": Chart(columns(waited, f"Queue wait in the last hour: {waited_words}"), waited_words),
    }


def held_over_time(samples: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Chart]:
    """By resource, the part of the capacity that was held in each minute; empty without a sample.

    Args:
        samples: what was held from each minute on in which it changed, oldest first; the last one is of now.
    """
    if not samples:
        return {}
    shown = [_as_of(samples, number) for number in _last(now)]
    charts = {}
    for resource in RESOURCES:
        shares = [_share(one, resource.name) for one in shown]
        low, high = min(shares), max(shares)
        words = f"{low:.0%} to {high:.0%}" if round(100 * low) < round(100 * high) else f"{high:.0%}"
        words += " held in the last hour"
        charts[resource.name] = Chart(area(shares, f"{resource.words}: {words}"), words)
    return charts


def _as_of(samples: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    """The newest sample of a minute or before it; before the first nothing was held."""
    return next((one for one in reversed(samples) if one["number"] <= number), {})


def _share(sample: Mapping[str, Any], resource: str) -> float:
    capacity = sample["capacity"][resource] if sample else 0
    return min(1.0, sample["committed"][resource] / capacity) if capacity else 0.0
