"""What a test needs beyond Python, make and a C library: a plugin of pytest, and the only way to
say it.

A test names programs, rights and packages by ``@pytest.mark.needs("bwrap", "root")``, a fixture by
``@needs("podman")`` below ``@pytest.fixture``; every test that uses the fixture then needs it too.
Where one is absent the test is skipped, and the end of the run counts what was skipped, with the
Debian package that brings it.

What a test did not name it does not find, on any machine: a test that names no optional program has
a PATH without all of them (`tests/support/optional.py`), fixtures that tests share included, and
one whose own process starts an optional program that it did not name fails there. Rights cannot be
hidden: `.ci/run` runs the tests as root and as an ordinary user.

`.ci/run` says in a note what cannot be had on its machine, and names it in ``IRIS_ABSENT``. A test
that is skipped in it for want of anything else fails, because it would run nowhere::

    python -m tests.support.needs    # a line for each right that is refused: its name, a tab, why
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.house.repository import ROOT
from tests.support.frameworks import DEBIAN, FRAMEWORKS
from tests.support.optional import OPTIONAL, PROGRAMS, absent, hide

ABSENT = "IRIS_ABSENT"
NAMED = pytest.StashKey[frozenset[str]]()
_PROPERTY = "needs"


class NotNamed(AssertionError):
    """A test started an optional program that it did not name."""


def _refusal(module: str, function: str = "refusal") -> Callable[[], str]:
    """What a function of a module of `tests.support` says, which is imported by who asks."""
    return lambda: str(getattr(import_module(f"tests.support.{module}"), function)())


def _root() -> str:
    return "" if os.geteuid() == 0 else "this is an ordinary user"


def _file(path: str) -> str:
    return "" if os.path.exists(path) else f"there is no {path}"


def _mounts() -> str:
    """In a namespace of the trial's own, so that nothing is left of it."""
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"]
    if os.geteuid():
        return "only root may mount"
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return tried.stderr.strip() if tried.returncode else ""


RIGHTS: Mapping[str, Callable[[], str]] = {
    "root": _root,
    "control groups": _refusal("groups"),
    "control groups of version 2": _refusal("groups", "refusal_of_version_2"),
    "a cpuset of version 1": lambda: _file("/sys/fs/cgroup/cpuset/tasks"),
    "mounts": _mounts,
    "a disk": _refusal("disk"),
    "network namespaces": _refusal("machines"),
    "a Docker daemon": _refusal("docker"),
    "systemd in namespaces": _refusal("systemd"),
}
"""Name → why this process has it not; empty where it has."""
PACKAGES: Mapping[str, Path] = {
    **{
        name: FRAMEWORKS / name
        for name in ("jax", "sklearn", "pandas", "jupyterlab", "submitit", "lightning")
    },
    **{name: FRAMEWORKS / name for name in ("parsl", "dask_jobqueue", "snakemake")},
    "Hydra": FRAMEWORKS / "hydra_plugins/hydra_submitit_launcher",
    "torch": DEBIAN / "torch",
    "jax in .venv": Path(sysconfig.get_path("purelib"), "jax"),
    "torch in .venv": Path(sysconfig.get_path("purelib"), "torch"),
    "axe-core": ROOT / ".axe/node_modules/axe-core/axe.min.js",
    "ray": ROOT / ".venv-peers/bin/ray",
    "MkDocs": ROOT / ".venv-site/bin/mkdocs",
}
"""Packages of programs that tests run, and where they are when `.ci/run` has installed them."""
ELSEWHERE = (
    "ray",
    "parsl",
    "dask_jobqueue",
    "snakemake",
    "Hydra",
    "jax in .venv",
    "torch in .venv",
)
"""Packages that `.ci/run` does not install: a test that needs one is of the soak."""
BROUGHT_BY = {"torch": "Debian package python3-torch", "ray": "`make bench-peers`"}
"""Who brings a package that `.ci/run` does not put into `.frameworks`."""
KNOWN = OPTIONAL.keys() | RIGHTS.keys() | PACKAGES.keys()


def needs(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Names what a fixture needs; the decorator below ``@pytest.fixture``."""

    def named(fixture: Callable[..., Any]) -> Callable[..., Any]:
        fixture.needs = names  # type: ignore[attr-defined]
        return fixture

    return named


@cache
def why_not(name: str) -> str:
    """Why a need is not met here; empty when it is."""
    if name in OPTIONAL:
        gone = absent(name)
        return f"{', '.join(gone)} not on PATH" if gone else ""
    if name in PACKAGES:
        return "" if PACKAGES[name].exists() else "it is not installed"
    return RIGHTS[name]()


def brought_by(name: str) -> str:
    """Who brings it, for a person who reads that it is absent."""
    if name in OPTIONAL and OPTIONAL[name].package:
        return f"Debian package {OPTIONAL[name].package}"
    installed = "" if name in RIGHTS or name in ELSEWHERE else "`bash .ci/run`"
    return BROUGHT_BY.get(name, installed)


def nowhere(name: str, stated: Collection[str]) -> str:
    """Why a test that is skipped in `.ci/run` for want of this runs nowhere; empty where it was
    ``stated`` to be absent.
    """
    if name in ELSEWHERE:
        return "which no stage of `.ci/run` brings; a test of the soak may need it"
    return "" if name in stated else "which `.ci/run` has not said to be absent"


def _fixture_needs(definitions: Iterable[Any]) -> frozenset[str]:
    return frozenset(
        name for one in definitions for name in getattr(getattr(one, "func", None), "needs", ())
    )


def _of(item: pytest.Item) -> frozenset[str]:
    """What a test and its fixtures need."""
    marked = [name for mark in item.iter_markers("needs") for name in mark.args]
    known = getattr(item, "_fixtureinfo", None)
    fixtures = [found[-1] for found in known.name2fixturedefs.values()] if known else []
    return frozenset(marked) | _fixture_needs(fixtures)


class Needs:
    """Skips, hides and counts; made when pytest is configured."""

    def __init__(self, config: pytest.Config) -> None:
        self._path = os.environ.get("PATH", os.defpath)
        self._hidden = ""
        self._links: Path | None = None
        self._named: frozenset[str] | None = None
        """Of the test that runs; None between tests."""
        self._stated = os.environ.get(ABSENT)
        sys.addaudithook(self._watch)
        config.add_cleanup(self._remove_links)

    def _watch(self, event: str, given: tuple[Any, ...]) -> None:
        if self._named is None or event not in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
            return
        started = os.fsdecode(given[0])
        name = PROGRAMS.get(program := os.path.basename(started))
        if name is not None and name not in self._named and self._is_real(started, program):
            raise NotNamed(f"the test starts {program}: say so by @pytest.mark.needs({name!r})")

    def _is_real(self, started: str, program: str) -> bool:
        """Whether it would be the program of this machine, and no stand-in of the test."""
        real = shutil.which(program, path=self._path)
        found = started if os.sep in started else shutil.which(program)
        return real is not None and (
            found is None or os.path.realpath(found) == os.path.realpath(real)
        )

    def path_for(self, named: frozenset[str]) -> str:
        """The PATH of a test or of a fixture that needs these."""
        if named & OPTIONAL.keys():
            return self._path
        if self._links is None:
            self._links = Path(tempfile.mkdtemp(prefix="iris-programs-", dir="/tmp"))
            self._links.chmod(0o755)
            self._hidden = hide(self._links, self._path)
        return self._hidden

    def _remove_links(self) -> None:
        if self._links is not None:
            shutil.rmtree(self._links)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.stash[NAMED] = named = _of(item)
            for name in named - KNOWN:
                raise pytest.UsageError(
                    f"{item.nodeid} needs {name!r}, which tests/support/needs.py does not know"
                )
            if named & OPTIONAL.keys():
                item.add_marker("optional")
            if named and item.get_closest_marker("needs") is None:
                item.add_marker(pytest.mark.needs(*sorted(named)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        named = item.stash[NAMED]
        for name in sorted(named):
            if why := why_not(name):
                self._skip(item, name, why)
        os.environ["PATH"] = self.path_for(named)
        self._named = named

    def _skip(self, item: pytest.Item, name: str, why: str) -> None:
        if self._stated is not None and (reason := nowhere(name, self._stated.split(","))):
            pytest.fail(
                f"needs {name} ({why}), {reason}: it would be skipped everywhere", pytrace=False
            )
        item.user_properties.append((_PROPERTY, name))
        pytest.skip(f"needs {name}: {why}")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """What ends now may be of a fixture that this test does not know."""
        self._named = None
        yield
        os.environ["PATH"] = self._path

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """What tests share is the same whichever of them is first, so it finds what itself names,
        and what its test does unless all tests share it.
        """
        own = _fixture_needs([fixturedef])
        if missing := own - (self._named or own):
            names = ", ".join(sorted(missing))
            pytest.fail(f"the fixture {request.fixturename} needs {names}; name it by a mark")
        if fixturedef.scope == "function":
            yield
            return
        before = os.environ["PATH"]
        path = self.path_for(own) if fixturedef.scope == "session" else before
        os.environ["PATH"] = path
        yield
        os.environ["PATH"] = before
        # Called before its own, which may be in the teardown of any test.
        fixturedef.addfinalizer(partial(os.environ.__setitem__, "PATH", path))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        skipped = Counter(
            value
            for report in terminalreporter.stats.get("skipped", [])
            for key, value in report.user_properties
            if key == _PROPERTY
        )
        for name, count in sorted(skipped.items()):
            by = brought_by(name)
            tests = "1 test was" if count == 1 else f"{count} tests were"
            said = f"{tests} skipped, for want of {name}{by and f' ({by})'}"
            terminalreporter.write_line(said)


def main() -> None:
    for name in RIGHTS:
        if why := why_not(name):
            print(name, why.splitlines()[0], sep="\t")


if __name__ == "__main__":
    main()
