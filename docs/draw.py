"""Draw configuration.md, metrics.md, states.md and subjects.md from the code: `make draw`.

`--check` writes nothing and fails when a drawing is stale. What is drawn is in `drawings`, one document a module.
"""

from __future__ import annotations

import sys
from pathlib import Path

from drawings.configuration import configuration_document
from drawings.metrics import metrics_document
from drawings.states import states_document
from drawings.subjects import subjects_document

DOCS = Path(__file__).resolve().parent
DRAWINGS = {
    "configuration.md": configuration_document,
    "metrics.md": metrics_document,
    "states.md": states_document,
    "subjects.md": subjects_document,
}


def stale() -> list[str]:
    """The drawings that differ from what the code says now."""
    return [
        name
        for name, draw in DRAWINGS.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != draw()
    ]


def main() -> int:
    """Write the drawings, or with ``--check`` say which are stale; 1 when some are."""
    if "--check" in sys.argv[1:]:
        old = stale()
        for name in old:
            print(f"docs/{name} is stale: run `make draw` and commit it", file=sys.stderr)
        return 1 if old else 0
    for name, draw in DRAWINGS.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
