"""Prints figures of the product's code: `python -m tests.house.figures [-v]`; it judges nothing.

`-v` adds the places of what is counted. How to read them: docs/testing.md#figures.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

from tests.house.repository import ROOT

PACKAGES = (
    "iris",
    "iris_core",
    "iris_bus",
    "iris_service",
    "iris_nats",
    "iris_state",
    "iris_scheduler",
    "iris_worker",
    "iris_gateway",
    "iris_proxy",
    "iris_provisioner",
    "iris_notifier",
)
MANY = 6
"""So many positional arguments of one call are counted."""
LONG = 99
"""Columns; a longer line is counted."""
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def files() -> Iterator[Path]:
    """The modules of the product."""
    for kind in ("libs", "services"):
        yield from sorted((ROOT / kind).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of strings that are statements."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def density(path: Path) -> tuple[int, int]:
    """How many tokens, and on how many lines, without comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    said = docstring_lines(parsed(path))
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _LAYOUT and token.start[0] not in said
    ]
    lines = {line for t in tokens for line in range(t.start[0], t.end[0] + 1)}
    return len(tokens), len(lines)


def places(path: Path) -> Iterator[tuple[str, int]]:
    """What is counted in a module: a word for it, and its line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            starred = [one.value for one in node.args if isinstance(one, ast.Starred)]
            if any(isinstance(one, ast.Tuple | ast.List) for one in starred):
                yield "starred literals in a call", node.lineno
            if len(node.args) - len(starred) >= MANY:
                yield f"calls with {MANY} and more positional arguments", node.lineno
        elif isinstance(node, ast.IfExp):
            yield "conditional expressions", node.lineno
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield "assignments of several values at once", node.lineno
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if len(line) > LONG:
            yield f"lines of more than {LONG} columns", number


def longest_chain(package: str) -> list[str]:
    """The longest chain of imports within a package, whose modules import in no circle."""
    graph = grimp.build_graph(package, cache_dir=None)

    @cache
    def below(module: str) -> list[str]:
        chains = map(below, sorted(graph.find_modules_directly_imported_by(module)))
        return [module, *max(chains, key=len, default=[])]

    return max(map(below, sorted(graph.modules)), key=len)


def with_one_importer(package: str) -> int:
    """How many modules are imported by one other only."""
    graph = grimp.build_graph(package, cache_dir=None)
    return sum(len(graph.find_modules_that_directly_import(one)) == 1 for one in graph.modules)


def main() -> None:
    """Print the figures."""
    found: Counter[str] = Counter()
    where: list[str] = []
    tokens = lines = 0
    names: Counter[str] = Counter()
    for path in files():
        more_tokens, more_lines = density(path)
        tokens, lines = tokens + more_tokens, lines + more_lines
        names[path.name] += 1
        for what, line in places(path):
            found[what] += 1
            where.append(f"{what}: {path.relative_to(ROOT)}:{line}")
    print(f"modules: {names.total()}")
    print(f"lines of code: {lines}")
    print(f"tokens a line: {tokens / lines:.1f}")
    for what, count in sorted(found.items()):
        print(f"{what}: {count} ({1000 * count / lines:.1f} in 1,000 lines)")
    repeated = {name: count for name, count in names.items() if count > 1}
    print(f"names of files that are used more than once: {len(repeated) - 1}")
    print(f"decisions: {len([*(ROOT / 'docs' / 'adr').glob('0*.md')])}")
    for package in PACKAGES:
        chain, single = longest_chain(package), with_one_importer(package)
        print(
            f"{package}: longest chain of imports {len(chain)}, modules with one importer {single}"
        )
        if "-v" in sys.argv:
            print("  " + " > ".join(chain))
    if "-v" in sys.argv:
        print("\n".join(sorted(where)))


if __name__ == "__main__":
    main()
