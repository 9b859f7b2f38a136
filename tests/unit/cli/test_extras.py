"""A command whose extra is not installed names it."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from iris.cli.extras import SERVER_MODULES

ROOT = Path(__file__).parents[3]
HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
for name in list(sys.modules):
    if name.partition(".")[0] in {names}:
        del sys.modules[name]
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {names} else found(name, package)
sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["up", "-d", "--data", "{tmp}"], "local"),
        (["down", "--data", "{tmp}"], "local"),
        (["server", "state"], "server"),
        (["admin", "verify", "--data", "{tmp}"], "server"),
        (["admin", "nats-config", "--out", "{tmp}"], "server"),
    ],
)
def test_a_command_without_its_extra_says_which_to_install(tmp_path, words, extra):
    arguments = [word.format(tmp=tmp_path / "data") for word in words]
    hidden = HIDDEN.format(names=sorted(SERVER_MODULES))
    program = f"{hidden}\nfrom iris.cli.root import invoke\nsys.exit(invoke({arguments!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"pip install 'iris-control-plane[{extra}]'\n")
    assert done.stderr.count("\n") == 1


def test_the_modules_of_the_extra_are_those_of_its_packages():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {
        line.partition(">")[0].partition("[")[0].partition("=")[0].lower()
        for line in extras["server"]
    }
    distributions = packages_distributions()

    assert named <= {
        one.lower().replace("_", "-")
        for name in SERVER_MODULES
        for one in distributions.get(name, ())
    } | {"opentelemetry-sdk"}
