"""What people read is printed through the guard that escapes control characters of others."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable

import pytest

from tests.house.repository import ROOT, Source, sources

FRONT_ENDS = ("iris.cli", "iris.cluster", "iris_slurm.commands")
"""What prints for people. The rest of `iris_slurm` runs in tasks, whose output is a file."""
ROUND_IT = {
    "iris.cli.output.terminal": "it is the guard",
    "iris.cli.remote_terminal": "bytes of a program that this person has started, as in a terminal",
    "iris.cluster.__main__": "its words for the process that has started it",
    "iris.cluster.paths": "a file",
}
"""Modules that write to a descriptor, or below a stream, and why they may."""
_BELOW = frozenset({"buffer", "__stdout__", "__stderr__"})


def finds(tree: ast.AST) -> list[str]:
    """What goes round the guard: a write to a descriptor, what is below a stream, a device."""
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node) != "sys.stdin.buffer"
            and (node.attr in _BELOW or ast.unparse(node) in ("os.write", "os.writev"))
        ):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Constant) and node.value in ("/dev/tty", "/dev/stdout"):
            found.append(node.value)
    return found


def front_ends() -> Iterable[Source]:
    return (
        one
        for one in sources()
        if any(one.module == name or one.module.startswith(f"{name}.") for name in FRONT_ENDS)
    )


def test_no_front_end_prints_round_the_guard():
    found = {one.module: finds(one.tree) for one in front_ends()}
    assert {module for module, ways in found.items() if ways} == ROUND_IT.keys()


def test_every_command_is_run_inside_the_guard():
    """The entry points of both distributions, by the function that runs them all."""
    modules = {one.module: one.tree for one in sources()}
    guards = {"iris.cli": "iris.cli.root", "iris_slurm": "iris_slurm.commands.program"}
    for module in guards.values():
        assert "guarded()" in ast.unparse(modules[module])
    scripts = [
        entry.partition(":")[0]
        for file in ("pyproject.toml", "integrations/slurm/pyproject.toml")
        for entry in tomllib.loads((ROOT / file).read_text())["project"]["scripts"].values()
    ]
    slurm = [module for module in scripts if module != "iris.cli"]
    assert len(slurm) == len(scripts) - 1 > 0
    for module in slurm:
        [main] = [one for one in modules[module].body if getattr(one, "name", "") == "main"]
        assert ast.unparse(main).splitlines()[-1].strip().startswith("return run(")


@pytest.mark.parametrize(
    "code",
    ["os.write(1, b)", "sys.stdout.buffer.write(b)", "open('/dev/tty')", "sys.__stderr__.write(t)"],
)
def test_each_way_round_the_guard_is_found(code: str):
    assert finds(ast.parse(code))
