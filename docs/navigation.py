"""The pages of the site and their order, by what a reader wants to do.

A pattern may match nothing yet. The addresses are the paths below docs/; pages outside of it keep
their path. See also: `site_hooks` gives both to MkDocs.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from drawings.markdown import link_targets

ROOT = Path(__file__).resolve().parents[1]

NAVIGATION: Mapping[str, Sequence[str]] = {
    "Overview": ["/README"],
    "Quickstart": ["quickstart", "three-machines"],
    "Tutorials": ["tutorials/*"],
    "Concepts": ["GLOSSARY", "ARCHITECTURE", "layers", "states", "design/*"],
    "How-to": ["gangs", "serving", "autoscaling", "howto/*"],
    "Reference": ["cli", "http", "sdk", "subjects", "configuration", "metrics"],
    "Operations": [
        "operating",
        "hosts",
        "access",
        "rights",
        "sizing",
        "disaster-recovery",
        "security",
        "performance",
        "/deploy/*/README",
    ],
    "Troubleshooting": ["troubleshooting", "reasons", "problems"],
    "Development": [
        "/CONTRIBUTING",
        "first-change",
        "testing",
        "environments",
        "releasing",
        "/SECURITY",
        "/CHANGELOG",
        "adr/*",
    ],
}
"""Title of a section → patterns of its pages below docs/, or with a leading slash below the root,
without `.md`.
"""


def sections(root: Path = ROOT) -> dict[str, list[str]]:
    """The pages of each section that has some, in order; a README is first in its directory."""
    found: dict[str, list[str]] = {}
    for title, patterns in NAVIGATION.items():
        for pattern in patterns:
            paths = root.glob(
                f"{pattern[1:]}.md" if pattern.startswith("/") else f"docs/{pattern}.md"
            )
            pages = [path.relative_to(root).as_posix() for path in paths]
            found.setdefault(title, []).extend(
                sorted(pages, key=lambda page: (not page.endswith("README.md"), page))
            )
    return {title: pages for title, pages in found.items() if pages}


def pages(root: Path = ROOT) -> list[str]:
    """Every Markdown file that is a page: those of the sections, and the rest of docs/, which has
    no place yet.
    """
    placed = [page for pages in sections(root).values() for page in pages]
    return placed + sorted(
        {path.relative_to(root).as_posix() for path in root.glob("docs/**/*.md")} - {*placed}
    )


def linked_files(pages: Iterable[str], root: Path = ROOT) -> list[str]:
    """The files that pages link to and that are no pages, such as examples."""
    pages = list(pages)
    targets = {
        os.path.normpath(os.path.join(os.path.dirname(page), target))
        for page in pages
        for target in link_targets((root / page).read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", target)
    }
    return sorted(target for target in targets - {*pages} if (root / target).is_file())


def address(path: str) -> str:
    """The path on the site of a file whose path in the repository is ``path``, apart from its
    suffix.
    """
    return path.removeprefix("docs/")
