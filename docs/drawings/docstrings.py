"""Docstrings as Markdown: paragraphs, lists of arguments and attributes, indented code."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence

_LISTS = {"Args:": "Arguments:", "Attributes:": "Attributes:"}
_SOURCE = re.compile(r" ?(Out of scope|Source): .*")
"""What a docstring says to those who read the code."""


def code(text: str) -> str:
    """Double backticks as single ones, and no HTML outside of them."""
    pieces = text.replace("``", "`").split("`")
    return "`".join(
        piece if at % 2 else piece.replace("<", "&lt;") for at, piece in enumerate(pieces)
    )


def entries(text: str) -> list[str]:
    """The entries of a list of arguments or attributes, one bullet each; ``a: ... b: ...`` on a
    line is one entry.
    """
    listed = [
        " ".join(entry.split())
        for entry in re.split(r"\n(?=    \S)", text.rstrip())
        if entry.strip()
    ]
    return [
        "* " + re.sub(r"(?:^|(?<=\. ))([a-z_, ]+): ", r"`\1`: ", entry.replace("``", "`"))
        for entry in listed
    ]


def _parts(docstring: str | None) -> Iterator[str]:
    for block in inspect.cleandoc(docstring or "").split("\n\n"):
        head, _, rest = block.partition("\n")
        if head in _LISTS:
            yield _LISTS[head]
            yield "\n".join(entries(rest))
        elif block.startswith("    "):
            yield f"```python\n{textwrap.dedent(block)}\n```"
        elif text := _SOURCE.sub("", " ".join(block.split())):
            yield code(text)


def prose(docstring: str | None) -> list[str]:
    """The paragraphs, lists and blocks of code of a docstring."""
    return list(_parts(docstring))


def definition(head: str, parts: Sequence[str]) -> str:
    """One bullet with its first paragraph; the others are below it."""
    first, *others = parts or [""]
    start = f"* {head}: {first}" if first else f"* {head}"
    return "\n\n".join([start, *(textwrap.indent(part, "    ") for part in others)])
