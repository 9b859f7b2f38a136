"""The stack of a test that hangs is printed before the test is ended, and not long before that."""

import subprocess
import sys
from pathlib import Path

from tests.house.repository import ROOT

CONFTEST = """
from tests.support.hangs import Hangs

def pytest_configure(config):
    config.pluginmanager.register(Hangs())
"""
TESTS = """
import threading
import pytest

@pytest.mark.timeout(60)
def test_takes_longer_than_others():
    threading.Event().wait(1)

@pytest.mark.timeout(4)
def test_hangs():
    threading.Event().wait()
"""


def test_the_stack_of_what_hangs_is_printed(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_two.py").write_text(TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "1",
        "-o",
        "timeout=1",
        "-o",
        "timeout_method=thread",
        str(tmp_path),
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout
    assert "in test_hangs" in done.stderr
    assert "in test_takes_longer_than_others" not in done.stderr
