"""Formats times in few characters, for tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_SECONDS = "%Y-%m-%d %H:%M:%S"
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def read_moment(text: str | None) -> datetime | None:
    """An RFC 3339 time of the API, None for none."""
    return datetime.fromisoformat(text) if text else None


def show_span(seconds: float) -> str:
    """``0.4s``, ``12s``, ``3m05s``, ``2h10m``, ``4d3h``: the two largest units."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    whole = int(seconds)
    for size, unit in _STEPS:
        if whole >= size:
            smaller, name = {"d": (3600, "h"), "h": (60, "m"), "m": (1, "s")}[unit]
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f"{rest:02d}{name}" if rest else "")
    return f"{whole}s"


def span_between(start: str | None, end: str | None, now: datetime | None = None) -> str:
    """How long something took, or has taken until now; empty when it has not begun."""
    begun = read_moment(start)
    if begun is None:
        return ""
    return show_span(((read_moment(end) or now or datetime.now(UTC)) - begun).total_seconds())


def age(text: str | None, now: datetime | None = None) -> str:
    """How long ago a time was."""
    return span_between(text, None, now)


def standing(job: Mapping[str, Any], now: datetime | None = None) -> str:
    """``0 of 4 now, preempted for /boss 40s ago``: the interruption of a job, which its state does
    not show. Empty when there is none.
    """
    interrupted = job.get("interrupted")
    if not interrupted:
        return ""
    running = job["task_counts"].get("running", 0)
    return f"{running} of {job['replicas']} now, {interrupted['message']} {age(interrupted['at'], now)} ago"


def show_moment(text: str | None) -> str:
    """A moment in this machine's time, to the second."""
    moment = read_moment(text)
    return moment.astimezone().strftime(_SECONDS) if moment else ""


def show_millis(at_ms: int) -> str:
    """A moment of an event in this machine's time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime(_SECONDS)
