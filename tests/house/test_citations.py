"""Every page and section that the code and the pages cite exists in the repository."""

import re

import pytest

from tests.house.repository import ROOT, tracked
from tests.house.test_repository import anchors

CITED = re.compile(
    r"(?<![\w/.-])((?:docs|tests|benchmarks|examples)/[\w./-]+\.(?:md|py|toml))(?:#([\w-]+))?"
)
UNPLACED = re.compile(
    r"(?<![\w/-])(semantics|reliability|architecture|nats|performance|serving)\.md"
)


def unresolved(text: str) -> list[str]:
    """What a text cites that is not there."""
    wrong = []
    for name, anchor in CITED.findall(text):
        page = ROOT / name
        if not page.exists():
            wrong.append(name)
        elif anchor and anchor not in anchors(page.read_text()):
            wrong.append(f"{name}#{anchor}")
    return wrong


@pytest.mark.parametrize("suffix", [".py", ".toml", ".md", ".yml"])
def test_what_is_cited_is_there(suffix: str):
    wrong = [
        f"{path}: {name}"
        for path in tracked()
        if path.suffix == suffix
        and path.parts[0] != "requirements"
        and path.name != "test_citations.py"
        for name in unresolved((ROOT / path).read_text())
    ]
    assert wrong == []


def test_a_page_is_cited_by_its_path():
    paths = [
        path for path in tracked() if path.suffix == ".py" and path.name != "test_citations.py"
    ]
    assert [str(path) for path in paths if UNPLACED.search((ROOT / path).read_text())] == []


def test_a_missing_page_and_a_missing_section_are_noticed():
    text = "Source: docs/design/semantics.md#order, docs/design/semantics.md#nowhere, docs/design/nothing.md."
    assert unresolved(text) == ["docs/design/semantics.md#nowhere", "docs/design/nothing.md"]
