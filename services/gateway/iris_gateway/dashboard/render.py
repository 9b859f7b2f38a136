"""Renders views as HTML: templates, and the formats of states, times and amounts.

Pure except for reading the templates once. All values are escaped; only markup made here is marked
safe.
Source: docs/design/page.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from iris_core.quota import QUOTA_LIMITS, RUNNING_LIMITS
from iris_core.spec.resources import RESOURCES
from iris_core.states import JOB_TERMINAL, display_name
from iris_core.units import counted, show_bytes
from iris_core.views.jobs import JOB_ORDERS, JOBS_ORDERED, NEWEST_FIRST
from iris_core.views.usage import (
    IDLE,
    cpu_share,
    memory_share,
    show_cost,
    show_devices,
    show_hours,
    show_lost,
)
from iris_gateway.auth.bearer import may_act, may_administer, may_notify, may_repeat
from iris_gateway.dashboard import fleet_words
from iris_gateway.dashboard.assets import VERSION
from iris_gateway.dashboard.decisions import decision
from iris_gateway.dashboard.drawings import bars, pools
from iris_gateway.dashboard.drawings.slices import shape_of
from iris_gateway.dashboard.drawings.terminal import in_one_direction, plain, printed, printed_lines
from iris_gateway.streams.event import WORDS

STATE_EVENTS = {
    prefix.removesuffix(".state").removeprefix("fleet."): prefix
    for prefix in WORDS
    if prefix.endswith(".state") or prefix.startswith("fleet.")
}
"""What is before the state in the types of events, by their kind on pages."""
STATES = {kind: WORDS[prefix] for kind, prefix in STATE_EVENTS.items()}
"""The states of events by their kind."""
ENDED = frozenset(map(display_name, JOB_TERMINAL))
_PARTS = 16
"""Parts of a template in a piece: a row of a table has about as many."""


@lru_cache(maxsize=256, typed=True)  # typed: markup is not escaped, and equals its text
def badge(state: str) -> Markup:
    """A state as its glyph and name, with the class of Task States or the kind of another
    status.
    """
    return Markup('<span class="badge {}">{}</span>').format(bars.state_class(state), state)


def address(query: Mapping[str, object], **changes: object) -> str:
    """This page with another query; empty values are left out."""
    return "?" + urlencode({name: value for name, value in {**query, **changes}.items() if value})


@pass_context
def moment(context: Context, text: str | None) -> Markup:
    """An RFC 3339 time as its age; the title holds the full time in UTC."""
    if not text:
        return Markup('<span class="faint">–</span>')
    when = datetime.fromisoformat(text)
    seconds = (context["now"] - when).total_seconds()
    words = f"{coarse(seconds)} ago" if seconds >= 0 else f"in {coarse(-seconds)}"
    return Markup('<time datetime="%s" title="%s">%s</time>') % (
        text,
        f"{when:%Y-%m-%d %H:%M:%S} UTC",
        words,
    )


@pass_context
def moment_of_ms(context: Context, at_ms: int | None) -> Markup:
    """A time in ms since the epoch, as `moment` does."""
    return moment(context, datetime.fromtimestamp(at_ms / 1000, UTC).isoformat() if at_ms else None)


def coarse(seconds: float) -> str:
    """``12 s``, ``5 min``, ``3 h``, ``2 d``: the largest unit alone."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


@pass_context
def span(context: Context, start: str | None, end: str | None, open_too: bool = False) -> str:
    """A duration; empty while it is open, or with ``open_too`` the time so far, which the page
    counts on.
    """
    if not (start and (end or open_too)):
        return ""
    until = datetime.fromisoformat(end) if end else context["now"]
    words = bars.duration(max(0.0, (until - datetime.fromisoformat(start)).total_seconds()))
    return words if end else Markup('<time datetime="{}" data-lasts>{}</time>').format(start, words)


def held(worker: Mapping[str, Any]) -> int:
    """The part of a host that is held, in per cent: of the resource of which most is."""
    total = worker["total"]
    committed = worker["committed"]
    return max(
        (round(100 * min(committed[name] / total[name], 1)) for name in total if total[name]),
        default=0,
    )


def rate(per_second: float) -> str:
    """``0/s``, ``0.4/s``, ``1,200/s``."""
    return f"{per_second:.1f}/s" if 0 < per_second < 10 else f"{per_second:,.0f}/s"


def clock(at_ms: int) -> str:
    """``14:02:11``, UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}"


def most_cpu(tasks: Sequence[Mapping[str, Any]]) -> tuple[float, str] | None:
    """The most seconds of processors that the last attempt of one of these tasks has used, and its
    id.
    """
    last = [(task["attempts"][-1]["cpu_ms"] or 0, task["id"]) for task in tasks if task["attempts"]]
    used_ms, name = max(last, key=lambda one: one[0], default=(0, ""))
    return (used_ms / 1000, name) if used_ms else None


@cache
def environment() -> Environment:
    """The templates."""
    made = Environment(
        loader=PackageLoader("iris_gateway.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "badge": badge,
        "segment": bars.segment,
        "address": address,
        "moment": moment,
        "moment_of_ms": moment_of_ms,
        "shell": shlex.join,
        "bar": bars.bar,
        "printed": printed,
        "printed_lines": printed_lines,
        "plain": plain,
        "clock": clock,
        "rate": rate,
        "held": held,
        "counted": counted,
        "bytes": show_bytes,
        "span_of": bars.duration,
        "decision": decision,
        "state_class": bars.state_class,
        "shown_state": bars.shown_state,
        "most_cpu": most_cpu,
        "hours": show_hours,
        "devices": show_devices,
        "cpu_share": cpu_share,
        "memory_share": memory_share,
        "lost_parts": show_lost,
        "usage_cost": show_cost,
        "boxes": pools.boxes,
        "box": pools.box,
        "cost": fleet_words.cost,
        "said": fleet_words.said,
        "because": fleet_words.because,
        "happened": fleet_words.happened,
        "stands": fleet_words.stands,
        "pool_shape": fleet_words.shape,
        "for_devices": fleet_words.for_devices,
        "host_states": fleet_words.host_states,
    }
    made.globals |= {
        "span": span,
        "use": bars.use,
        "is_bad": bars.is_bad,
        "shape_of": shape_of,
        "ended": ENDED,
        "kinds": STATES,
        "box_kinds": pools.KINDS,
        "job_orders": JOB_ORDERS,
        "version": VERSION,
        "jobs_ordered": JOBS_ORDERED,
        "newest_first": NEWEST_FIRST,
        "may_act": may_act,
        "may_administer": may_administer,
        "may_notify": may_notify,
        "may_repeat": may_repeat,
        "idle": IDLE,
        "resources": RESOURCES,
        "quota_limits": QUOTA_LIMITS,
        "running_limits": [limit for limit, _ in RUNNING_LIMITS],
    }
    return made


@cache
def compiled() -> set[str]:
    """Pages rendered before. The first time takes 100 ms and more: jinja compiles what they are
    made of.
    """
    return set()


def pieces(template: str, **facts: Any) -> Iterator[str]:
    """One page, a few parts at a time. ``facts`` holds at least the title, and ``now`` if the page
    shows times.

    What a macro makes is one part, so long lists are loops of a page, not of a macro.
    """
    parts = environment().get_template(template).stream(facts)
    parts.enable_buffering(_PARTS)
    yield from map(in_one_direction, parts)
    compiled().add(template)
