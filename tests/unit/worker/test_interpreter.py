"""Which interpreter of a host runs a call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iris_worker.attempt.calls.interpreter import CallUser, choose_interpreter, may_execute

ANYBODY = CallUser(os.geteuid() + 4711, os.getegid() + 4711)
SAID = "it is run by {}: its PATH has no python that its user may run"


def program(path: Path, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that everybody may enter; those of pytest are the user's own."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    return tmp_path


def test_the_python_of_the_path_is_taken(place: Path) -> None:
    program(place / "a" / "python3")
    program(place / "b" / "python")

    assert choose_interpreter(f"{place}/a:{place}/b", ANYBODY) == ("python", "")


@pytest.mark.parametrize("mode", [None, 0o700, 0o644])
def test_without_a_python_that_its_user_may_run_it_is_python3(
    place: Path, mode: int | None
) -> None:
    if mode is not None:
        program(place / "a" / "python", mode)
    other = program(place / "b" / "python3")

    chosen = choose_interpreter(f"{place}/a:{place}/b", ANYBODY, own="/nowhere")
    assert chosen == (other, SAID.format(other))


def test_without_any_in_the_path_it_is_that_of_the_worker(place: Path) -> None:
    own = program(place / "venv" / "python")

    assert choose_interpreter(f"{place}/a", ANYBODY, own) == (own, SAID.format(own))


def test_an_interpreter_in_a_closed_home_is_not_taken(place: Path) -> None:
    target = program(place / "home" / "bin" / "python3.11")
    (place / "home").chmod(0o700)
    (place / "venv").mkdir()
    (place / "venv" / "python").symlink_to(target)

    assert not may_execute(f"{place}/venv/python", ANYBODY)
    assert may_execute(f"{place}/venv/python", CallUser())
    assert may_execute(f"{place}/venv/python", CallUser(0))
    assert choose_interpreter(f"{place}/venv", ANYBODY, own="/nowhere") == ("python", "")


def test_a_path_within_the_directory_of_the_task_is_left_to_it() -> None:
    assert choose_interpreter("bin:/usr/bin", ANYBODY) == ("python", "")
