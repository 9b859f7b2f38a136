"""The lock files: every requirement is pinned, hashed, and bound to no host."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions

import pytest

from tests.house.repository import ROOT, imported, sources, texts

LOCKS = ("build.lock", "dev.lock", "docs.lock", "local.lock")
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)$")


OURS = {
    *(
        "iris",
        "iris_bus",
        "iris_core",
        "iris_gateway",
        "iris_nats",
        "iris_proxy",
        "iris_provisioner",
        "iris_notifier",
    ),
    *("iris_scheduler", "iris_service", "iris_slurm", "iris_state", "iris_worker"),
    *("benchmarks", "draw", "drawings", "navigation", "site_hooks", "tests"),
}


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    lines = [
        line
        for line in text.replace("\\\n", " ").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    matches = {line: PIN.match(re.sub(r"\s+", " ", line.strip())) for line in lines}
    assert [line for line, match in matches.items() if not match] == []
    return {match[1]: match[2] for match in matches.values() if match}


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    names = {
        re.split(r"[\[<>=]", requirement)[0].lower().replace("_", "-") for requirement in wanted
    }
    return names - {project["name"]}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_is_a_pin_with_hashes(lock):
    assert pins(lock)


def test_the_lock_of_a_cluster_holds_what_the_extras_ask_for():
    assert declared("server", "local", "otlp", "gcp") - set(pins("local.lock")) == set()


def test_the_lock_of_development_holds_what_the_extras_ask_for():
    assert declared("server", "local", "otlp", "gcp", "dev") - set(pins("dev.lock")) == set()


def test_the_lock_of_the_site_has_the_versions_of_development():
    site, development = pins("docs.lock"), pins("dev.lock")
    assert declared("docs") - set(site) == set()
    assert {
        name: site[name]
        for name in site.keys() & development.keys()
        if site[name] != development[name]
    } == {}


def test_development_runs_on_the_versions_a_cluster_runs_on():
    cluster, development = pins("local.lock"), pins("dev.lock")
    assert {name: development.get(name) for name in cluster} == cluster


def test_every_dependency_has_its_line_in_the_decision_record():
    record = (ROOT / "docs/adr/0002-dependencies.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([a-z0-9-]+)` \|", record, re.MULTILINE))
    assert explained == declared("server", "local", "otlp", "gcp", "docs", "dev")


def libraries(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """The third-party packages some code imports, each with the distributions that bring it; one
    that is not installed here is taken to be in the distribution of its name.
    """
    names = set().union(*map(imported, trees)) - set(sys.stdlib_module_names) - OURS
    homes = {"jwt": ["pyjwt"], **packages_distributions()}
    return {
        name: {home.lower().replace("_", "-") for home in homes.get(name, [name])} for name in names
    }


@cache
def of_services() -> dict[str, set[str]]:
    return libraries(source.tree for source in sources())


def of_tests() -> dict[str, set[str]]:
    python = [
        path
        for path in texts()
        if path.suffix == ".py" and path.parts[0] in {"tests", "docs", "examples"}
    ]
    beside = {path.stem for path in python if path.parts[0] == "examples"}
    found = libraries(ast.parse(texts()[path]) for path in python)
    return {name: homes for name, homes in found.items() if name not in beside}


def test_every_dependency_of_a_service_is_imported():
    assert declared("server") - set().union(*of_services().values()) == set()


def test_every_library_that_is_imported_is_a_dependency():
    unknown = {
        name
        for name, homes in of_services().items()
        if not homes & declared("server", "otlp", "gcp")
    }
    assert unknown == {
        "jax",
        "joblib",
        "pytest",
    }  # iris.jax, iris.joblib and iris.testing are for those who have them


def test_every_library_a_test_imports_is_installed_for_development():
    everything = declared("server", "local", "otlp", "gcp", "docs", "dev")
    missing = {name for name, homes in of_tests().items() if not homes & everything}
    assert missing == {"jax", "ray", "torch"}  # some examples are for those who have them
