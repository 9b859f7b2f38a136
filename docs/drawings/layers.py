"""docs/layers.md: the layers of each package, from `.importlinter`, and where each feature is, from
names of modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple

from drawings.markdown import document, grid

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = """\
Each package is layers. A row imports from the rows below it and from no other; what shares a row does not import each
other. `.importlinter` declares them, and `make check` fails when an import goes up or a new directory has no row. So a
package is read from the bottom, one row at a time. Contracts between the subpackages of the launcher and of an attempt are
in the same file."""
FEATURES: Mapping[str, str] = {
    "array jobs and maps": r"maps?|arrays?|array_values|index_set|map_\w+|futures?|calls?",
    "audit": r"audit\w*",
    "artifacts": r"artifacts?",
    "bundles and environments": r"bundles?|builds?|builder|environment\w*|archive_\w+",
    "deployments": r"deployments?\w*|routes?|rollout|scaling|pacing|serving|reconciler",
    "executions in a task": r"executions?|exec|terminals?|remote_terminal|interactive",
    "gangs and slices": r"gangs?|slices?|topology|coscheduling|sessions?",
    "gates and dependencies": r"gates?|dependencies|coordinator",
    "holds of the queue": r"queue_holds?|holds?",
    "isolation of tasks": r"sandbox|isolation|confinement|cgroup\w*|landlock|namespaces|task_users",
    "output of tasks": r"logs?|log_\w+|output|tail|follow",
    "preemption": r"preempt\w*|victims|evictions|several|bands",
    "quotas": r"quotas?",
    "reasons and `why`": r"reasons?|why|causes|explain",
    "reservations": r"reservations|nominations|drains|heads",
    "tokens and logins": r"\w*tokens?|token_file|login\w*|oidc|roles|bearer|identity",
    "usage": r"usage\w*|running_usage|prices?",
}
"""A feature, and the names that modules and packages of it have."""


class Package(NamedTuple):
    """A package with layers: each layer is a row of subpackages and modules, the uppermost first."""

    name: str
    path: Path
    layers: list[list[str]]


def packages() -> list[Package]:
    """What `.importlinter` says, in its order."""
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    found = []
    for name in parser.sections():
        section = parser[name]
        if section.get("exhaustive") != "True" or "." in section["containers"].strip():
            continue
        package = section["containers"].strip()
        layers = [
            [room.strip() for room in line.split("|")]
            for line in section["layers"].split("\n")
            if line.strip()
        ]
        found.append(Package(package, _path_of(package), layers))
    return found


def _path_of(package: str) -> Path:
    (path,) = [p for kind in ("libs", "services") for p in ROOT.glob(f"{kind}/*/{package}")]
    return path


def first_sentence(path: Path) -> str:
    """What the docstring of a module or package begins with; empty without one."""
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    sentence = re.split(r"(?<=\.)\s", text.replace("\n", " "), maxsplit=1)[0]
    return sentence.replace("|", "\\|")


def size_of(path: Path) -> int:
    """Lines of code, comments and documentation."""
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def _drawn(package: Package) -> str:
    rows = [
        (f"{number}" if room == layer[0] else "", f"`{room}`", first_sentence(package.path / room))
        for number, layer in zip(range(len(package.layers), 0, -1), package.layers, strict=True)
        for room in layer
    ]
    heading = f"## {package.name}\n\n{first_sentence(package.path)}"
    return f"{heading}\n\n" + grid(("layer", "module or package", "what it is"), rows)


def modules_of(feature: str, package: Package) -> list[str]:
    """The modules of a package that have the name of a feature, or are below one that has."""
    pattern = re.compile(FEATURES[feature])
    found = []
    for file in sorted(package.path.rglob("*.py")):
        parts = file.relative_to(package.path).with_suffix("").parts
        if parts[-1] != "__init__" and any(pattern.fullmatch(part) for part in parts):
            found.append(".".join(parts))
    return found


def _feature(feature: str, among: Sequence[Package]) -> str:
    found = [(package.name, modules_of(feature, package)) for package in among]
    lines = [
        f"- `{name}`: {', '.join(f'`{module}`' for module in modules)}"
        for name, modules in found
        if modules
    ]
    return "\n".join([f"### {feature[0].upper()}{feature[1:]}", "", *lines])


def layers_document() -> str:
    """The page."""
    found = packages()
    return document(
        "Layers",
        "`.importlinter`, docstrings and names of modules",
        EXPLAINED,
        *[_drawn(package) for package in found],
        "## Where a feature is\n\nThe modules that have its name, in the order of the packages.",
        *[_feature(feature, found) for feature in FEATURES],
    )
