"""Drawings of pages: proportional bars, usage bars, and timeline lanes, as SVG with lengths in per
cent.

The content security policy forbids inline styles, so lengths are attributes; colours and heights
come from the style sheet. Pure. Source: docs/design/page.md#components.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from iris_core.states import TaskState, css_class, display_name
from iris_core.units import counted
from iris_gateway.dashboard.drawings.glyphs import KIND_OF

ORDER = (
    *("failed", "worker_failed", "unschedulable", "preempted", "killed"),
    *("succeeded", "running", "building", "assigned", "pending"),
)
"""Of the parts of a bar: what has gone wrong first, what has not begun last."""
CLASS = {display_name(state): css_class(state) for state in TaskState}
_LEAST = 1.5
"""Per cent; a smaller part would not be seen."""
_SHORTEST_S = 0.005
"""An axis that is shorter has no ticks: no process starts and ends in this time."""
_BAD = frozenset({"failed", "worker_failed", "unschedulable", "preempted"})


def bar(counts: Mapping[str, int]) -> Markup:
    """A bar of tasks by state, as parts of the whole."""
    return _bar(tuple([(state, counts[state]) for state in ORDER if counts.get(state)]))


@lru_cache(maxsize=1024)
def _bar(parts: tuple[tuple[str, int], ...]) -> Markup:
    words = ", ".join(f"{count:,} {state}" for state, count in parts) or "no tasks"
    total = sum(count for _, count in parts) or 1
    widths = [max(_LEAST, 100 * count / total) for _, count in parts]
    scale = 100 / max(sum(widths), 1)
    at = 0.0
    rects = Markup()
    for (state, _), width in zip(parts, widths, strict=True):
        rects += Markup('<rect class="{}" x="{:.2f}%" width="{:.2f}%"/>').format(
            CLASS[state], at, width * scale
        )
        at += width * scale
    return Markup('<svg class="bar" role="img" aria-label="{}">{}</svg>').format(words, rects)


def use(used: int, total: int, words: str) -> Markup:
    """A bar of the used part of a capacity."""
    share = min(100.0, 100 * used / total) if total else 0.0
    rect = Markup('<rect width="{:.2f}%"/>').format(share)
    return Markup('<svg class="bar use" role="img" aria-label="{}">{}</svg>').format(words, rect)


def columns(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], words: str) -> Markup:
    """Columns side by side.

    Args:
        rows: for each column its title, and its parts from the bottom up: class and amount.
        words: the finding, for readers who do not see the drawing.
    """
    top = max((sum(amount for _, amount in parts) for _, parts in rows), default=0) or 1
    width = 100 / max(1, len(rows))
    drawn = Markup()
    for number, (title, parts) in enumerate(rows):
        at = 100.0
        rects = Markup()
        for kind, amount in filter(itemgetter(1), parts):
            high = 100 * amount / top
            at -= high
            rect = '<rect class="{}" x="{:.2f}%" width="{:.2f}%" y="{:.2f}%" height="{:.2f}%"/>'
            rects += Markup(rect).format(kind, number * width, 0.8 * width, at, high)
        if rects:
            drawn += Markup("<g><title>{}</title>{}</g>").format(title, rects)
    return Markup('<svg class="columns" role="img" aria-label="{}">{}</svg>').format(words, drawn)


def area(shares: Sequence[float], words: str) -> Markup:
    """A part of a whole over time, of which each value lasts as long as any other.

    Args:
        shares: 0 to 1, oldest first. words: the finding, for readers who do not see the drawing.
    """
    steps = "".join(f"V{100 - 100 * share:.4g}h1" for share in shares)
    return Markup(
        '<svg class="area" role="img" aria-label="{}" viewBox="0 0 {} 100" preserveAspectRatio="none">'
        '<path d="M0 100{}V100z"/></svg>'
    ).format(words, len(shares), steps)


class Axis:
    """The time axis of a page, from ``began`` to ``ended``, both included.

    An axis that is open ends at most a thirty-second part after now, so that it seldom changes and
    open lanes with it.

    Args:
        began, ended: RFC 3339; ``ended`` None: until now.
    """

    def __init__(self, began: str, ended: str | None, now: datetime) -> None:
        self._began = datetime.fromisoformat(began)
        self._open = ended is None
        elapsed_s = max(0.001, (now - self._began).total_seconds())
        step_s = 2.0 ** math.ceil(math.log2(elapsed_s / 64))
        self._end = self._began + timedelta(seconds=math.ceil(elapsed_s / step_s) * step_s)
        self._seconds = max(0.001, (self._moment(ended) - self._began).total_seconds())

    def _moment(self, text: str | None) -> datetime:
        return datetime.fromisoformat(text) if text else self._end

    def at(self, text: str | None) -> float:
        """The position of a time in per cent; None is the end."""
        share = (self._moment(text) - self._began).total_seconds() / self._seconds
        return min(100.0, max(0.0, 100 * share))

    def ticks(self, count: int = 2) -> list[tuple[float, str]]:
        """The positions and labels of the ticks; the last one of an open axis is now. None on one
        of no length: times are whole milliseconds, and a shorter axis has no attempt.
        """
        if self._seconds < _SHORTEST_S:
            return []
        words = (duration(self._seconds * n / count).split()[:2] for n in range(count + 1))
        ticks = [(100 * n / count, " ".join(largest)) for n, largest in enumerate(words)]
        return [*ticks[:-1], (100.0, "now")] if self._open else ticks

    def lane(self, submitted: str, attempts: Sequence[Mapping[str, Any]], state: str) -> Markup:
        """The lane of one task: thin while pending, then build and run in the colour of each
        attempt's end.
        """
        parts = Markup()
        since = submitted
        for attempt in attempts:
            begun = attempt["assigned_at"] or since
            parts += self._rect("wait", since, begun)
            ran = attempt["started_at"]
            ended = attempt["finished_at"]
            parts += Markup('<g class="{}{}"><title>{}</title>{}</g>').format(
                state_class(shown_state(attempt)),
                "" if attempt is attempts[-1] else " past",
                _words(attempt),
                self._rect("build", begun, ran or ended)
                + (self._rect("run", ran, ended) if ran else Markup()),
            )
            since = ended or since
        if state == "pending":
            parts += self._rect("wait", since, None)
        return Markup('<svg class="lane" role="img" aria-label="{}, {}">{}</svg>').format(
            counted(len(attempts), "attempt"), state, parts
        )

    def _rect(self, kind: str, began: str, ended: str | None) -> Markup:
        start = self.at(began)
        width = max(0.25 if kind == "run" else 0.0, self.at(ended) - start)
        return Markup('<rect class="{}" x="{:.2f}%" width="{:.2f}%"/>').format(
            kind, min(start, 99.75), width
        )


def _words(attempt: Mapping[str, Any]) -> str:
    found = f"attempt {attempt['number']}: {shown_state(attempt)} on {attempt['worker']}"
    if attempt["exit_code"] is not None:
        found += f", exit code {attempt['exit_code']}"
    return found


def shown_state(attempt: Mapping[str, Any]) -> str:
    """The state of an attempt, or that its task was requeued with it."""
    return "requeued" if attempt.get("requeued") else str(attempt["state"])


def state_class(state: str) -> str:
    """The class of a state in Task States, or of the kind of another status."""
    return CLASS.get(state) or f"kind-{KIND_OF.get(state, 'over')}"


def segment(name: str) -> str:
    """A name as one path segment."""
    return quote(name, safe="")


def is_bad(state: str) -> bool:
    """Whether the use needs attention."""
    return state in _BAD


def duration(seconds: float) -> str:
    """``2.6 ms``, ``0.3 s``, ``12 s``, ``4 min 5 s``, ``2 h 3 min``, ``3 d 4 h``."""
    if 0 < seconds < 0.01:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"
