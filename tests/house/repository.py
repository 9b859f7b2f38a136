"""The files of the repository and the parsed Python sources of the ten packages, for the house
tests.
"""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from pathspec import GitIgnoreSpec

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the checkout that no `.gitignore` names, relative to the root: in a clone what
    is committed or about to be, in an archive the same, without git.
    """
    found: list[Path] = []
    _walk(Path(), (), found)
    return tuple(sorted(found))


_Rules = tuple[tuple[Path, GitIgnoreSpec], ...]


def _walk(directory: Path, above: _Rules, found: list[Path]) -> None:
    """Add the files of a directory and of those below it.

    Args:
        above: the rules that hold here, each with the directory that its patterns start from.
    """
    own = ROOT / directory / ".gitignore"
    rules = above
    if own.exists():
        rules += ((directory, GitIgnoreSpec.from_lines(own.read_text().splitlines())),)
    for entry in os.scandir(ROOT / directory):
        path = directory / entry.name
        below = entry.is_dir(follow_symlinks=False)
        if entry.name == ".git" or any(
            spec.match_file(f"{path.relative_to(place)}{'/' * below}") for place, spec in rules
        ):
            continue
        if below:
            _walk(path, rules, found)
        elif entry.is_file():
            found.append(path)


@cache
def texts() -> dict[Path, str]:
    """The tracked files that are text."""
    found = {}
    for path in tracked():
        try:
            found[path] = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


@dataclass(frozen=True)
class Source:
    """One module of a package."""

    path: Path
    module: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree; who looks for statements only takes `statements`, a seventh of
        the work.
        """
        return tuple(ast.walk(self.tree))


@cache
def sources() -> tuple[Source, ...]:
    """Every module under libs/, services/ and integrations/."""
    found = []
    for path, text in texts().items():
        if path.suffix == ".py" and path.parts[0] in {"libs", "services", "integrations"}:
            parts = [*path.parts[2:-1], *([] if path.name == "__init__.py" else [path.stem])]
            found.append(Source(path, ".".join(parts), ast.parse(text)))
    return tuple(found)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement in a tree, with handlers of exceptions and cases of a match; expressions hold
    no statement.
    """
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, field, ()):
            yield node
            yield from statements(node)


def imported(tree: ast.Module) -> set[str]:
    """The top-level packages a module imports, wherever in it, relative imports left out."""
    nodes = list(statements(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {name.split(".")[0] for name in plain | named}
