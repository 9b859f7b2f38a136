"""A test finds the optional programs that it names, and no others, on any machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT, texts
from tests.support import needs
from tests.support.needs import ABSENT, ELSEWHERE, KNOWN, PACKAGES, RIGHTS, nowhere

CONFTEST = """
from pathlib import Path
import pytest
from tests.support.needs import PACKAGES, Needs, needs

def pytest_configure(config):
    PACKAGES["parsl"] = Path("/nowhere")
    config.addinivalue_line("markers", "needs: programs")
    config.addinivalue_line("markers", "optional: set by the plugin")
    config.pluginmanager.register(Needs(config), "needs")

@pytest.fixture
@needs("wget")
def fetched():
    return "fetched"

@pytest.fixture(scope="session")
def shared():
    import shutil
    return shutil.which("strace")

@pytest.fixture(scope="session")
@needs("strace")
def traced():
    import subprocess
    yield
    assert subprocess.run(["strace"], check=False).returncode == 7
"""
TESTS = """
import shutil
import subprocess
import pytest

STRACE = {strace!r}

def test_names_it_by_a_fixture(traced):
    assert subprocess.run(["strace"], check=False).returncode == 7

@pytest.mark.needs("strace")
def test_names_it(shared):
    assert shared is None
    assert subprocess.run(["strace"], check=False).returncode == 7

def test_names_none(shared):
    assert shutil.which("strace") is None
    assert subprocess.run(["sh", "-c", "strace"], check=False).returncode == 127
    assert shutil.which("other") is not None

def test_starts_one_that_it_did_not_name():
    subprocess.run([STRACE], check=False)

def test_starts_a_stand_in(tmp_path):
    (tmp_path / "strace").symlink_to(shutil.which("other"))
    assert subprocess.run([tmp_path / "strace"], check=False).returncode == 7

@pytest.mark.needs("bwrap", "strace")
def test_is_skipped():
    raise AssertionError

def test_is_skipped_for_its_fixture(fetched):
    raise AssertionError

def test_is_last_with_a_path_of_its_own(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
"""
BY_HAND = re.compile(r"\bskipif\(|\bpytest\.skip\(")
NO_PROGRAM = {
    "tests/support/needs.py": 1,
    "tests/support/docker.py": 1,  # a daemon that ends at once
    "tests/integration/test_bench_guard.py": 1,  # a figure that this kernel does not give
    "tests/integration/test_embedded_nats.py": 1,  # another kernel
    "tests/integration/test_up_and_down.py": 1,  # no IPv6
    "tests/unit/iris_service/test_child.py": 1,  # another kernel
}
"""Files that skip for want of something that a test cannot name, and how often at most."""


def run(place: Path, text: str, **environ: str) -> tuple[int, str]:
    """The exit code and the output of a run on a machine with strace, and without other optional
    programs.
    """
    programs = place / "programs"
    programs.mkdir()
    for name in ("strace", "other"):
        (programs / name).write_text("#!/bin/sh\nexit 7\n")
        (programs / name).chmod(0o755)
    for name in ("sh", "env"):
        (programs / name).symlink_to(f"/bin/{name}")
    (place / "conftest.py").write_text(CONFTEST)
    (place / "test_it.py").write_text(text.format(strace=str(programs / "strace")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "--rootdir", "."],
        cwd=place,
        env={
            **{name: value for name, value in os.environ.items() if name != ABSENT},
            "PATH": str(programs),
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_is_not_named_is_not_found_and_what_is_absent_is_said(tmp_path: Path):
    code, said = run(tmp_path, TESTS)
    assert (code, "1 failed, 5 passed, 2 skipped in" in said) == (1, True), said
    assert "the test starts strace: say so by @pytest.mark.needs('strace')" in said
    assert "needs bwrap: bwrap not on PATH" in said
    assert "1 test was skipped, for want of bwrap (Debian package bubblewrap)\n" in said
    assert "1 test was skipped, for want of wget (Debian package wget)\n" in said


def test_what_ci_did_not_say_to_be_absent_fails_where_it_would_be_skipped(tmp_path: Path):
    code, said = run(tmp_path, TESTS, **{ABSENT: "a,wget"})
    assert code == 1
    assert "needs bwrap (bwrap not on PATH), which `.ci/run` has not said to be absent" in said
    assert "1 error, 1 skipped" in said or "1 skipped, 1 error" in said, said


def test_what_no_stage_of_ci_brings_fails_where_it_would_be_skipped(tmp_path: Path):
    """Said to be absent or not: only the soak has tests of it."""
    text = "import pytest\n\n@pytest.mark.needs('parsl')\ndef test_it(): raise AssertionError\n"
    code, said = run(tmp_path, text, **{ABSENT: "parsl"})
    assert code == 1
    assert "needs parsl (it is not installed), which no stage of `.ci/run` brings" in said
    assert "1 error in" in said


@pytest.mark.parametrize("name", sorted(RIGHTS))
def test_a_right_that_is_refused_is_stated_or_its_tests_fail(name: str):
    assert nowhere(name, ["root", "mounts"] if name not in ("root", "mounts") else [])
    assert not nowhere(name, [name])


def test_ci_states_each_right_that_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    reasons = {"a disk": lambda: "no loop device\nof 8", "root": lambda: ""}
    monkeypatch.setattr(needs, "RIGHTS", reasons)
    monkeypatch.setattr(needs, "why_not", needs.why_not.__wrapped__)
    needs.main()
    assert capsys.readouterr().out == "a disk\tno loop device\n"


def test_an_unknown_need_is_an_error(tmp_path: Path):
    code, said = run(
        tmp_path, "import pytest\n\n@pytest.mark.needs('abacus')\ndef test_it(): pass\n"
    )
    assert code != 0
    assert "test_it.py::test_it needs 'abacus', which tests/support/needs.py does not know" in said


def test_no_test_skips_by_a_way_of_its_own():
    found = {
        str(path): len(BY_HAND.findall(text))
        for path, text in texts().items()
        if path.parts[0] == "tests" and path.suffix == ".py" and path.name != "test_needs.py"
    }
    assert {path for path, count in found.items() if count > NO_PROGRAM.get(path, 0)} == set()


def test_ci_says_of_each_package_that_it_could_not_install_it():
    """By its own name, or the tests that are skipped for want of it would fail."""
    script = (ROOT / ".ci" / "run").read_text()
    said = set(re.findall(r"absent ([\w-]+) \"", script))
    [frameworks] = re.findall(r"for framework in (.*); do", script)
    said |= {word.partition(":")[0] for word in frameworks.split()}
    assert said - KNOWN == set()
    assert PACKAGES.keys() - set(ELSEWHERE) - said == set()
