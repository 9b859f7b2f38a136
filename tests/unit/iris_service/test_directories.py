"""Data directories are closed to others; those of tasks' users pass them where they have to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_service.directories import let_pass, make_directory


@pytest.fixture(params=[0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


@pytest.mark.needs("root")
def test_what_root_makes_is_passed_whatever_the_umask_is(tmp_path: Path, umask: int):
    top = tmp_path / "top"
    make_directory(top / "above" / "data", passed=True)
    make_directory(top / "above" / "data" / "log")
    above = "711" if umask == 0o077 else "755"
    assert [mode(top), mode(top / "above")] == [above, above]
    assert mode(top / "above" / "data") == "711"
    assert mode(top / "above" / "data" / "log") == "700"


def test_what_is_there_is_left_as_it_is(tmp_path: Path):
    above, data = tmp_path / "above", tmp_path / "above" / "data"
    for path in (above, data):
        path.mkdir(mode=0o700)
    make_directory(data, passed=True)
    assert [mode(above), mode(data)] == ["700", "700"]
    let_pass(data)
    assert mode(data) == ("711" if os.geteuid() == 0 else "700")


def test_a_file_in_its_place_is_an_error(tmp_path: Path):
    (tmp_path / "data").write_text("")
    with pytest.raises(FileExistsError):
        make_directory(tmp_path / "data")
