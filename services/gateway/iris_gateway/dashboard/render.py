"""Renders views as HTML: templates, and the formats of states, times and amounts.

Pure except for reading the templates once. All values are escaped; only markup made here is marked safe. Source:
docs/design/interfaces.md#dashboard.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from iris_core.quota import QUOTA_LIMITS
from iris_core.resources import RESOURCES
from iris_core.states import DISPLAY_COLOURS, SessionStatus, TaskState, css_class, display_name

_KNOWN = {display_name(state): css_class(state) for state in TaskState}

EVENT_TYPES = " ".join(
    [f"{entity}.state.{display_name(state)}" for entity in ("task", "job") for state in TaskState if state]
    + [f"session.state.{status.value.lower()}" for status in SessionStatus]
)
"""Every type of event that pages subscribe to."""


def badge(state: str) -> Markup:
    """A state as a badge with its name; Task States's class, or a plain one for states of other entities."""
    return Markup('<span class="badge {}">{}</span>').format(_KNOWN.get(state, "status-other"), state)


def segment(name: str) -> str:
    """A name as one path segment."""
    return quote(name, safe="")


def moment(text: str | None) -> Markup:
    """An RFC 3339 time, shortened, in UTC."""
    if not text:
        return Markup('<span class="faint">–</span>')
    when = datetime.fromisoformat(text)
    return Markup('<time datetime="{}">{}</time>').format(text, when.strftime("%Y-%m-%d %H:%M:%S"))


def span(start: str | None, end: str | None) -> str:
    """A duration; empty while it lasts."""
    if not (start and end):
        return ""
    seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
        "segment": segment,
        "moment": moment,
        "shell": shlex.join,
    }
    made.globals |= {
        "span": span,
        "event_types": EVENT_TYPES,
        "resources": RESOURCES,
        "quota_limits": QUOTA_LIMITS,
    }
    return made


def page(template: str, **facts: Any) -> str:
    """One page."""
    return environment().get_template(template).render(facts)


@cache
def colours() -> str:
    """Task States's table of classes and colours as CSS."""
    return "".join(f".{css_class(state)} {{ --state: {colour}; }}\n" for state, colour in DISPLAY_COLOURS.items())
