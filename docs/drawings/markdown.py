"""The Markdown every drawing is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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
