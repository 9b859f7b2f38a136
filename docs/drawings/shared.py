"""The part of docs/security.md about what users share, from its table; the rest of the page is
written by hand.
"""

from __future__ import annotations

from pathlib import Path

from drawings.markdown import grid, note
from iris_core.shared_limits import SHARED_THINGS

PAGE = Path(__file__).resolve().parents[1] / "security.md"
HEADING, NEXT = "## What users share\n", "## HTTP\n"
EXPLAINED = """\
Who may fill what all users share, and what the others keep then. A test fills each row, as one user while another works.
Of the rows that are not fair, one user's haste or malice takes something from others: they say what, and why that is so."""


def security_document() -> str:
    """The page with its section drawn anew, before the section about HTTP."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(NEXT)
    before = before.partition(HEADING)[0]
    rows = [
        (row.name, row.filled_by, row.limits, row.kept, "yes" if row.is_fair else "**no**")
        for row in SHARED_THINGS
    ]
    head = ("what", "who may fill it", "what bounds it", "what others keep", "fair")
    parts = [note("iris_core.shared_limits"), EXPLAINED, grid(head, rows)]
    return f"{before}{HEADING}\n" + "\n\n".join(parts) + f"\n\n{NEXT}{rest}"
