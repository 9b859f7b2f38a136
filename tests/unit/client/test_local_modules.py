"""Which modules are sent along with a function: those that only this machine has."""

import importlib
import sys
from pathlib import Path

import pytest

from iris.client.maps.local_modules import MOST_BYTES, local_sources


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A directory with modules beside a script, which are loaded."""
    (tmp_path / "w2pack").mkdir()
    (tmp_path / "w2pack" / "inner.py").write_text("INNER = 1\n")
    (tmp_path / "w2alone.py").write_text("ALONE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    for name in ("w2alone", "w2pack.inner"):
        importlib.import_module(name)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


NAMED = b"w2alone w2pack"
"""In a process that has loaded very many test modules, those that are named are sent."""


def names_of(packed=NAMED, workdir=None):
    return {name for name in local_sources(packed, workdir) if name.startswith("w2")}


def test_modules_that_are_not_installed_are_sent_with_their_packages(beside):
    found = local_sources(NAMED)

    assert names_of() == {"w2alone", "w2pack", "w2pack.inner"}
    assert found["w2alone"] == (b"ALONE = 1\n", str(beside / "w2alone.py"), False)
    assert found["w2pack"] == (b"", "", True)
    assert not {"json", "pytest", "iris.client", "__main__"} & found.keys()


def test_modules_of_the_directory_that_is_sent_along_are_not_sent_twice(beside):
    assert names_of(workdir=beside) == set()
    assert names_of(workdir=Path(beside) / "w2pack") == names_of()


def test_of_very_many_modules_those_are_sent_that_the_function_names(beside):
    with (beside / "w2alone.py").open("a") as file:
        file.write("#" * MOST_BYTES)

    assert names_of(b"... w2pack.inner ...") == {"w2pack", "w2pack.inner"}
