"""The files that git tracks and the parsed Python sources of the ten packages, for the house
tests.
"""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that is committed or about to be, relative to the root; those git ignores are left
    out.
    """
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(
        sorted(Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file())
    )


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
