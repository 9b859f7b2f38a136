"""Every page, section and module that the code and the pages cite exists in the repository."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from tests.house.repository import ROOT, sources, statements, texts, tracked
from tests.house.test_repository import anchors

CITED = re.compile(
    r"(?<![\w/.-])((?:docs|tests|benchmarks|examples)/[\w./-]+\.(?:md|py|toml))(?:#([\w-]+))?"
)
UNPLACED = re.compile(
    r"(?<![\w/-])(semantics|reliability|architecture|nats|performance|serving)\.md"
)

DOTTED = re.compile(r"(?<!`)`([a-z]\w*(?:\.\w+)+)`(?!`)")
"""A module, or a name in one; settings and fields of records have two backticks."""
FILES = {"conf", "json", "js", "toml"}


@cache
def words() -> dict[str, set[str]]:
    """The words of each module, and the modules of each package, by every ending of its path."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources():
        parts = source.module.split(".")
        for start in range(len(parts)):
            found[".".join(parts[start:])].update(re.findall(r"\w+", texts()[source.path]))
            for end in range(start + 1, len(parts)):
                found[".".join(parts[start:end])].add(parts[end])
    return found


def unresolved_names(text: str) -> list[str]:
    """The names in backticks that begin with a module of the product and are in none."""
    return [
        name
        for name in DOTTED.findall(text)
        for home, _, last in [name.rpartition(".")]
        if last not in FILES
        and (home in words() or name.startswith("iris_"))
        and last not in words().get(home, ())
    ]


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module, its classes, functions and constants."""
    for node in statements(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


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


def test_a_module_that_a_docstring_names_is_there():
    wrong = [
        f"{source.path}: {name}"
        for source in sources()
        for text in docstrings(source.tree)
        for name in unresolved_names(text)
    ]
    assert wrong == []


def test_a_name_that_has_moved_is_noticed():
    text = "See `decide.machine`, `machine.machine`, `spec.jobs.JobSpec`, `iris_core.gone.JobSpec`."
    assert unresolved_names(text) == ["decide.machine", "iris_core.gone.JobSpec"]
