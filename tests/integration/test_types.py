"""A type checker finds the mistakes in calls of the SDK, and no others."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.house.repository import ROOT

pytestmark = pytest.mark.integration

FILE = "tests/support/typed_maps.py"


def test_mypy_finds_each_planted_mistake_and_nothing_else():
    lines = (ROOT / FILE).read_text().splitlines()
    planted = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", FILE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        int(number) for number in re.findall(rf"^{FILE}:(\d+): error", done.stdout, re.MULTILINE)
    }
    assert len(planted) >= 10
    assert found == planted, done.stdout
