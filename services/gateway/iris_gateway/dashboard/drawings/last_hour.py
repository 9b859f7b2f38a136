"""Charts of the last sixty minutes: tasks that ended, how long placed ones had waited, what
attempts held, and the requests to a deployment. Pure.

Source: docs/design/page.md#components. Out of scope: counting
(`iris_state.records.indexes.minutes`, `iris_state.records.deployments.request_minutes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup

from iris_core.spec.resources import RESOURCES
from iris_core.spec.serving import LATENCY_MS
from iris_core.units import counted
from iris_gateway.dashboard.drawings.bars import area, columns, duration

MINUTES = 60
_SEEN = 0.08
"""Errors are drawn at least so high, as a part of the highest column: fewer would not be seen."""


class Chart(NamedTuple):
    """A drawing, and what it shows in words."""

    drawing: Markup
    words: str


def _last(now: datetime) -> range:
    """The numbers of the last minutes, in minutes since the epoch."""
    newest = int(now.timestamp()) // 60
    return range(newest - MINUTES + 1, newest + 1)


def ended_and_waited(minutes: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Chart]:
    """``ended``: the tasks that ended in each minute; ``waited``: how long those that were placed
    had waited.
    """
    by_number = {one["number"]: one for one in minutes}
    rows = [(number, by_number.get(number, {})) for number in _last(now)]
    ended = []
    waited = []
    for number, row in rows:
        at = f"{datetime.fromtimestamp(number * 60, UTC):%H:%M} UTC"
        succeeded, others, placed = (row.get(name, 0) for name in ("succeeded", "others", "placed"))
        mean_s = row["waited_ms"] / placed / 1000 if placed else 0.0
        parts = (("status-failed", others), ("status-succeeded", succeeded))
        ended.append((f"{at}: {succeeded:,} succeeded, {others:,} others", parts))
        waited.append((f"{at}: {placed:,} placed after {duration(mean_s)}", (("ink", mean_s),)))
    found = [row for _, row in rows]
    good, bad, placed = (
        sum(row.get(name, 0) for row in found) for name in ("succeeded", "others", "placed")
    )
    mean_s = sum(row.get("waited_ms", 0) for row in found) / max(1, placed) / 1000
    longest_s = max(row.get("longest_ms", 0) for row in found) / 1000
    ended_words = f"{counted(good + bad, 'task')}, {good:,} of them succeeded"
    waited_words = (
        f"{duration(mean_s)} on average, {duration(longest_s)} at most"
        if placed
        else "nothing was placed"
    )
    return {
        "ended": Chart(
            columns(ended, f"Tasks that ended in the last hour: {ended_words}"), ended_words
        ),
        "waited": Chart(
            columns(waited, f"Queue wait in the last hour: {waited_words}"), waited_words
        ),
    }


def held_over_time(samples: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Chart]:
    """By resource, the part of the capacity that was held in each minute; empty without a sample.

    Args:
        samples: what was held from each minute on in which it changed, oldest first; the last one
            is of now.
    """
    if not samples:
        return {}
    shown = [_as_of(samples, number) for number in _last(now)]
    charts = {}
    for resource in RESOURCES:
        shares = [_share(one, resource.name) for one in shown]
        low = min(shares)
        high = max(shares)
        words = (
            f"{low:.0%} to {high:.0%}" if round(100 * low) < round(100 * high) else f"{high:.0%}"
        )
        words += " held in the last hour"
        charts[resource.name] = Chart(area(shares, f"{resource.words}: {words}"), words)
    return charts


def _as_of(samples: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    """The newest sample of a minute or before it; before the first nothing was held."""
    return next((one for one in reversed(samples) if one["number"] <= number), {})


def _share(sample: Mapping[str, Any], resource: str) -> float:
    capacity = sample["capacity"][resource] if sample else 0
    return min(1.0, sample["committed"][resource] / capacity) if capacity else 0.0


def requests_over_time(minutes: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Chart]:
    """``requests``: the answers in each minute, and how many of them were errors; ``latency``:
    within which time half and 95 % of the requests got the head of their answer.
    """
    by_number = {one["number"]: one for one in minutes}
    rows = [(number, by_number.get(number)) for number in _last(now)]
    least = _SEEN * max((row["answered"] for _, row in rows if row), default=0)
    answers = []
    waits = []
    for number, row in rows:
        at = f"{datetime.fromtimestamp(number * 60, UTC):%H:%M} UTC"
        answered, failed = (row[name] if row else 0 for name in ("answered", "failed"))
        half_ms, most_ms = (
            quantile_ms(row["latency"] if row else (), part) for part in (0.5, 0.95)
        )
        parts = (("status-failed", max(failed, least) if failed else 0), ("ink", answered - failed))
        answers.append((f"{at}: {counted(answered, 'answer')}, {counted(failed, 'error')}", parts))
        words = f"{at}: half within {_milliseconds(half_ms)}, 95 % within {_milliseconds(most_ms)}"
        waits.append((words, (("ink", half_ms), ("rest", most_ms - half_ms))))
    found = [row for _, row in rows if row]
    return {
        "requests": _chart(answers, "Requests in the last hour", _errors(found)),
        "latency": _chart(waits, "Latency in the last hour", _latency(found)),
    }


def _chart(
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], title: str, words: str
) -> Chart:
    return Chart(columns(rows, f"{title}: {words}"), words)


def _errors(minutes: Sequence[Mapping[str, Any]]) -> str:
    answered, failed = (sum(one[name] for one in minutes) for name in ("answered", "failed"))
    if not answered:
        return "no requests in the last hour"
    share = f" ({failed / answered:.2%})" if failed else ""
    return f"{counted(answered, 'answer')}, {counted(failed, 'error')}{share}"


def _latency(minutes: Sequence[Mapping[str, Any]]) -> str:
    counts = [sum(column) for column in zip(*(one["latency"] for one in minutes), strict=True)]
    if not any(counts):
        return "no answer of a route in the last hour"
    half, most = (_milliseconds(quantile_ms(counts, part)) for part in (0.5, 0.95))
    return f"half of the answers began within {half}, 95 % within {most}"


def quantile_ms(counts: Sequence[int], part: float) -> float:
    """The time within which a part of the requests got the head of their answer, interpolated in
    its class; 0 of none.

    Args:
        counts: by the classes of `LATENCY_MS`; the last one has no bound, and counts as its lower
            bound.
    """
    left = part * sum(counts)
    low = 0.0
    for high, count in zip((*map(float, LATENCY_MS), float(LATENCY_MS[-1])), counts, strict=False):
        if count and left <= count:
            return low + (high - low) * left / count
        left = left - count
        low = high
    return low if sum(counts) else 0.0


def _milliseconds(amount: float) -> str:
    return f"{amount:.0f} ms" if amount < 1000 else duration(amount / 1000)
