"""A file of tests that costs more CPU than it should fails the run."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.house.repository import ROOT
from tests.support.budget import BUDGETS, exceeded

CONFTEST = """
from pathlib import Path
from tests.support.budget import Budget

def pytest_configure(config):
    config.pluginmanager.register(Budget(config, Path("budgets.toml"), most_others={most_others}))
"""
SHARES = """
import subprocess
import sys
import pytest

BURN = "import time; input(); [0 for _ in iter(lambda: time.process_time() < 0.5, False)]; print(flush=True); input()"

@pytest.fixture(scope="session")
def server():
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\\n")
"""
USES = """
def test_uses(server):
    server.stdin.write(b"\\n")
    server.stdin.flush()
    assert server.stdout.readline()
"""
BURNS = """
import time

def test_burns():
    began_s = time.process_time()
    while time.process_time() - began_s < 0.5:
        pass
"""


def run(
    place: Path,
    budget_s: float,
    most_others: float,
    *options: str,
    judged: str = "judge",
    shares: str = "",
    default_s: float = 30,
) -> tuple[int, str]:
    """The exit code and the output of a run of one test that takes half a second of CPU."""
    (place / "conftest.py").write_text(CONFTEST.format(most_others=most_others) + shares)
    (place / "test_burns.py").write_text(BURNS)
    (place / "budgets.toml").write_text(
        f'[cpu_s]\ndefault = {default_s}\n"test_burns.py" = {budget_s}\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "--rootdir", ".", *options],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "IRIS_BUDGETS": judged,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_file_over_its_budget_by_more_than_half_fails_the_run(tmp_path: Path):
    code, said = run(tmp_path, 0.2, 1.0, "-n", "1")
    assert (code, "1 passed" in said, "over budget: test_burns.py: " in said) == (1, True, True), (
        said
    )


def test_a_file_over_its_budget_is_only_named_without_a_judgement(tmp_path: Path):
    code, said = run(tmp_path, 0.2, 1.0, judged="")
    assert (code, "over budget: test_burns.py: " in said) == (0, True), said


def test_a_shared_process_counts_where_it_is_used_not_where_reaped(tmp_path: Path):
    (tmp_path / "test_uses.py").write_text(USES)
    (tmp_path / "test_waits.py").write_text("def test_waits(): pass\n")
    _, said = run(tmp_path, 30, 1.0, "--durations=0", shares=SHARES, default_s=0.2)
    assert re.findall("over budget: (.*?):", said) == ["test_uses.py"], said


def test_a_machine_that_others_use_is_not_judged(tmp_path: Path):
    code, said = run(tmp_path, 0.2, -1.0)
    assert (code, "over budget" in said) == (0, False), said


def test_a_file_without_a_budget_has_the_default():
    assert exceeded({"a": 46, "b": 44}, {"default": 30}) == [
        "a: 46.0 s of CPU, and its budget is 30 s"
    ]


def test_every_budget_is_of_a_file_that_is_there():
    budgets = tomllib.loads(BUDGETS.read_text())["cpu_s"]
    assert [file for file in budgets if file != "default" and not (ROOT / file).is_file()] == []
