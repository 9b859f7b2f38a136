"""The Markdown every drawing is made of, and what a page's links and headings are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def note(source: str) -> str:
    """The line that keeps people from editing a drawing."""
    return f"<!-- Drawn by `make draw` from {source}; change that, not this. -->"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def document(title: str, source: str, *parts: str) -> str:
    """A whole page: paragraphs with an empty line between them."""
    return "\n\n".join([f"# {title}", note(source), *parts]) + "\n"


def anchor(heading: str) -> str:
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link_targets(text: str) -> list[str]:
    """What the links and pictures of a page lead to besides the page itself, without anchors."""
    return _LINK.findall(text)
