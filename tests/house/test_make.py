"""What a signal to make ends, and which tests its targets run."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from tests.house.repository import ROOT

PROGRAM = """#!/bin/sh
case "$*" in
*--collect-only*) ;;
*pytest*) echo started; exec sleep 90 ;;
esac
"""


def test_terminating_make_ends_the_tests_it_runs(tmp_path: Path) -> None:
    """Its shell ended, and the tests in that went on for minutes."""
    for name in ("python", "ruff", "mypy", "lint-imports"):
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o755)
    command = ["make", "-C", str(ROOT), "test", f"BIN={tmp_path}", "STAMP="]
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as make:
        assert make.stdout is not None
        assert "started\n" in iter(make.stdout.readline, "")
        make.terminate()
        make.communicate(timeout=30)  # until nobody has its output any more


def test_tests_of_containers_are_run_wherever_they_are() -> None:
    """Those of a file that no target named ran nowhere."""
    said = subprocess.check_output(
        ["make", "-n", "-C", str(ROOT), "stacks", "boxes", "STAMP="], text=True
    )
    runs = [shlex.split(line) for line in said.splitlines() if "docker and not soak" in line]
    paths = {word for run in runs for word in run if word.startswith("tests")}
    left_out = {run[at + 1] for run in runs for at, word in enumerate(run) if word == "--ignore"}
    [ran_by_another] = [run for run in runs if "--ignore" not in run and left_out & set(run)]
    assert "tests" in paths
    assert left_out <= {word for word in ran_by_another if word.startswith("tests")}
