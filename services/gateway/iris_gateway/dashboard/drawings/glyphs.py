"""Shapes of states, so that a state is never shown by colour alone: one small SVG each, and the CSS
that shows them.

A badge shows its glyph as a CSS mask, so a page has no markup for it. Task states have round
shapes, hosts, routes and deployments square ones. Source: docs/design/page.md#states.
"""

from __future__ import annotations

from iris_core.states import DISPLAY_COLOURS, TaskState, css_class, display_name

_DISC = '<circle cx="8" cy="8" r="7"/>'
_RING = '<circle cx="8" cy="8" r="6" class="line"/>'
_SQUARE = '<rect x="1" y="1" width="14" height="14" rx="3"/>'
_FRAME = '<rect x="2" y="2" width="12" height="12" rx="2" class="line"/>'
_OCTAGON = '<path d="M5 1h6l4 4v6l-4 4H5l-4-4V5z"/>'
_CROSS = '<path d="M5.5 5.5l5 5m0-5l-5 5" class="{}"/>'
_CHECK = '<path d="M4.8 8.3l2.2 2.2 4.2-4.6" class="cut"/>'
_MARK = '<path d="M8 4.2v4.6M8 11.4v.4" class="cut"/>'

TASK_GLYPHS = {
    "pending": f'{_RING}<path d="M8 4.5V8l2.3 1.6" class="line"/>',
    "assigned": f'{_RING}<path d="M8 2a6 6 0 0 1 0 12z"/>',
    "building": '<path d="M8 1l6 3.5v7L8 15l-6-3.5v-7z"/><path d="M6 6v4M10 6v4" class="cut"/>',
    "running": f'{_DISC}<path d="M6.3 5v6l4.6-3z" class="hole"/>',
    "succeeded": f"{_DISC}{_CHECK}",
    "failed": _OCTAGON + _CROSS.format("cut"),
    "killed": f'{_SQUARE}<rect x="5.2" y="5.2" width="5.6" height="5.6" class="hole"/>',
    "worker_failed": f'<path d="M8 .8L15.2 8 8 15.2.8 8z"/>{_MARK}',
    "unschedulable": f'{_RING}<path d="M4 12l8-8" class="line"/>',
    "preempted": '<path d="M8 2l6 7H2z"/><path d="M2 11.5h12V14H2z"/>',
    "unspecified": _RING,
}
"""By the word of a task state."""

KIND_GLYPHS = {
    "good": f"{_SQUARE}{_CHECK}",
    "warn": f"{_SQUARE}{_MARK}",
    "bad": _SQUARE + _CROSS.format("cut"),
    "busy": f'{_SQUARE}<path d="M5 8h5.5M8 5.2L10.8 8 8 10.8" class="cut"/>',
    "idle": f'{_FRAME}<path d="M8 5v3.2l2 1.4" class="line"/>',
    "over": f'{_FRAME}<path d="M5.5 8h5" class="line"/>',
}
"""By the kind of any other status."""

KINDS = {
    "good": ("healthy", "ready", "ok", "active", "delivered"),
    "warn": ("degraded", "terminating", "exhausted", "paused", "unverified"),
    "bad": ("unhealthy", "lost", "failed_to_start", "error", "stopped", "mismatch", "given_up"),
    "busy": (
        *("draining", "scaling", "deploying", "destroying", "provisioning"),
        *("scheduled", "preparing", "pulling", "creating", "deleting"),
    ),
    "idle": ("created", "prepared", "requeued", "requested", "missing"),
    "over": ("terminated", "destroyed", "cancelled", "deleted"),
}
"""Every status that is not named like a task state, by its kind."""
KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
_LIKE = {
    "good": "succeeded",
    "warn": "pending",
    "bad": "failed",
    "busy": "assigned",
    "idle": "pending",
    "over": "killed",
}
"""The task state whose colours a kind has."""

MARKS = {
    "pending": "#d9a514",
    "assigned": "#f08c3c",
    "building": "#b392f0",
    "running": "#58a6ff",
    "succeeded": "#46b85e",
    "failed": "#ff7b72",
    "killed": "#9aa4af",
    "worker_failed": "#b392f0",
    "unschedulable": "#ff7b72",
    "preempted": "#f08c3c",
    "unspecified": "#9aa4af",
}
"""The colour of each state's glyph, bar and text on dark paper; on light paper it is that of the
badge.
"""


def files() -> dict[str, bytes]:
    """The SVG files by name."""
    glyphs = {css_class(state): TASK_GLYPHS[display_name(state)] for state in TaskState}
    glyphs |= {f"kind-{kind}": shape for kind, shape in KIND_GLYPHS.items()}
    return {f"{name}.svg": _svg(shape) for name, shape in glyphs.items()}


def _svg(shape: str) -> bytes:
    """A black picture with holes: only its alpha counts."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><style>'
        ".line,.cut{fill:none;stroke:#fff;stroke-width:1.9;stroke-linecap:round;stroke-linejoin:round}"
        ".cut{stroke:#000}.hole{fill:#000}</style>"
        f'<mask id="m"><g fill="#fff">{shape}</g></mask><rect width="16" height="16" mask="url(#m)"/></svg>'
    ).encode()


def css(version: str) -> str:
    """Task States's table of classes and colours, the marks on dark paper, and which glyph each
    class has.

    ``version``: of the files, for their addresses.
    """
    rules = []
    for state, colour in DISPLAY_COLOURS.items():
        name = css_class(state)
        mark = MARKS[display_name(state)]
        rules.append(f".{name} {{ --state: {colour}; }}")
        rules.append(
            f".{name} {{ --mark: light-dark({colour}, {mark}); --glyph: url(/static/{name}.svg?{version}); }}"
        )
    colours = {display_name(state): colour for state, colour in DISPLAY_COLOURS.items()}
    for kind, like in _LIKE.items():
        colour = colours[like]
        mark = MARKS[like]
        rules.append(
            f".kind-{kind} {{ --state: {colour}; --mark: light-dark({colour}, {mark});"
            f" --glyph: url(/static/kind-{kind}.svg?{version}); }}"
        )
    return "\n".join(rules) + "\n"
