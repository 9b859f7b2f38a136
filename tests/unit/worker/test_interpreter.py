"""Which interpreter of a host runs a call."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client.maps.calls import pack_function
from iris_worker.attempt.calls.files import code_version
from iris_worker.attempt.calls.interpreter import (
    CallUser,
    Own,
    choose_interpreter,
    may_execute,
    version_of,
)
from tests.support.passable import passable_directory

ANYBODY = CallUser(os.geteuid() + 4711, os.getegid() + 4711)
NOWHERE = Own("/nowhere")
SAID = "it is run by {}: its PATH has no python that its user may run"


def program(path: Path, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF")
    path.chmod(mode)
    return str(path)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter."""
    with passable_directory() as found:
        yield found


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

    chosen = choose_interpreter(f"{place}/a:{place}/b", ANYBODY, own=NOWHERE)
    assert chosen == (other, SAID.format(other))


def test_without_any_in_the_path_it_is_that_of_the_worker(place: Path) -> None:
    own = program(place / "venv" / "python")

    assert choose_interpreter(f"{place}/a", ANYBODY, own=Own(own)) == (own, SAID.format(own))


def test_an_interpreter_in_a_closed_home_is_not_taken(place: Path) -> None:
    target = program(place / "home" / "bin" / "python3.11")
    (place / "home").chmod(0o700)
    (place / "venv").mkdir()
    (place / "venv" / "python").symlink_to(target)

    assert not may_execute(f"{place}/venv/python", ANYBODY)
    assert may_execute(f"{place}/venv/python", CallUser())
    assert may_execute(f"{place}/venv/python", CallUser(0))
    assert choose_interpreter(f"{place}/venv", ANYBODY, own=NOWHERE) == ("python", "")


def test_a_path_within_the_directory_of_the_task_is_left_to_it() -> None:
    assert choose_interpreter("bin:/usr/bin", ANYBODY) == ("python", "")


def version(directory: Path, version: str, *names: str) -> str:
    """An interpreter that says its version as those of distributions and environments do: by the
    name of the file that its links lead to.
    """
    real = program(directory / f"python{version}")
    for name in names:
        (directory / name).symlink_to(real)
    return f"{directory}/{(names or (f'python{version}',))[0]}"


@pytest.mark.parametrize(("fitting", "its_name"), [(("python3",), "python3"), ((), "python3.11")])
def test_code_of_a_version_is_run_by_an_interpreter_of_that_version(
    place: Path, fitting: tuple[str, ...], its_name: str
) -> None:
    version(place / "a", "3.12", "python")
    found = version(place / "b", "3.11", *fitting)
    assert os.path.basename(found) == its_name

    chosen = choose_interpreter(f"{place}/a:{place}/b", ANYBODY, "3.11", NOWHERE)
    said = f"it is run by {found}: python in its PATH is 3.12, its function is code of 3.11"
    assert chosen == (found, said)


def test_code_of_the_workers_version_is_run_by_its_interpreter(place: Path) -> None:
    version(place / "a", "3.12", "python", "python3")
    own = Own(program(place / "venv" / "python"), "3.11")

    assert choose_interpreter(f"{place}/a", ANYBODY, "3.11", own).program == own.program
    assert choose_interpreter(f"{place}/a", ANYBODY, "3.12", own) == ("python", "")
    assert choose_interpreter(f"{place}/a", ANYBODY, "", own) == ("python", "")


def test_code_that_no_interpreter_fits_is_left_to_python_which_says_so(place: Path) -> None:
    version(place / "a", "3.12", "python", "python3")
    own = Own(program(place / "venv" / "python"), "3.11")

    assert choose_interpreter(f"{place}/a", ANYBODY, "3.13", own) == ("python", "")


def test_a_script_of_that_name_is_not_trusted_to_be_of_the_version(place: Path) -> None:
    version(place / "a", "3.12", "python")
    for name in ("python3", "python3.11"):
        Path(program(place / "shims" / name)).write_text("#!/bin/sh\nexit 127\n")

    path = f"{place}/a:{place}/shims"
    assert choose_interpreter(path, ANYBODY, "3.11", NOWHERE) == ("python", "")


def test_an_interpreter_that_tells_no_version_fits(place: Path) -> None:
    shim = program(place / "a" / "python")
    own = Own(program(place / "venv" / "python"), "3.11")

    assert version_of(shim) == ""
    assert choose_interpreter(f"{place}/a", ANYBODY, "3.11", own) == ("python", "")


def test_the_file_of_a_function_tells_the_version_of_its_code(tmp_path: Path) -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    cases = {(len, ()): "", (lambda: 1, ()): here, (len, (("key", lambda: 1),)): here}
    for (function, kwargs), expected in cases.items():
        (tmp_path / "function").write_bytes(pack_function(function, dict(kwargs), chunked=False))
        assert code_version(f"{tmp_path}/function") == expected


def test_what_is_no_file_of_a_function_tells_no_version(tmp_path: Path) -> None:
    (tmp_path / "function").write_bytes(b"\x01\x00")
    assert code_version(f"{tmp_path}/function") == ""
    assert code_version(f"{tmp_path}/nothing") == ""
