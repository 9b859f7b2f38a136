"""The lock files: every requirement pinned, hashed, and bound to no host."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from tests.house.repository import ROOT, imported, sources

LOCKS = ("dev.lock", "local.lock")
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)$")


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    matches = {line: PIN.match(re.sub(r"\s+", " ", line.strip())) for line in lines}
    assert [line for line, match in matches.items() if not match] == []
    return {match[1]: match[2] for match in matches.values() if match}


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    names = {re.split(r"[\[<>=]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    return names - {"iris"}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_is_a_pin_with_hashes(lock):
    assert pins(lock)


def test_the_lock_of_a_cluster_holds_what_the_extras_ask_for():
    assert declared("server", "local", "otlp") - set(pins("local.lock")) == set()


def test_the_lock_of_development_holds_what_the_extras_ask_for():
    assert declared("server", "local", "otlp", "dev") - set(pins("dev.lock")) == set()


def test_development_runs_on_the_versions_a_cluster_runs_on():
    cluster, development = pins("local.lock"), pins("dev.lock")
    assert {name: development.get(name) for name in cluster} == cluster


def test_every_dependency_has_its_line_in_the_decision_record():
    record = (ROOT / "docs/adr/0002-dependencies.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([a-z0-9-]+)` \|", record, re.MULTILINE))
    assert explained == declared("server", "local", "otlp", "dev")


def libraries() -> dict[str, set[str]]:
    """The third-party packages our own import, each with the distributions that bring it."""
    names = set().union(*(imported(source.tree) for source in sources())) - set(sys.stdlib_module_names)
    homes = packages_distributions()
    return {
        name: {home.lower().replace("_", "-") for home in homes.get(name, [])}
        for name in names
        if not name.startswith("iris")
    }


def test_every_dependency_of_a_service_is_imported():
    assert declared("server") - set().union(*libraries().values()) == set()


def test_every_library_that_is_imported_is_a_dependency():
    assert [name for name, homes in libraries().items() if not homes & declared("server", "otlp")] == []
