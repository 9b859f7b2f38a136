"""Lookup of a command on PATH, as a shell does it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iris_worker.launcher.kernel import tree
from iris_worker.launcher.starts.spawn import NotRunnable, begin, failure, spawn


def program(path: Path, text: str = "#!/bin/sh\nexit 5\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(*command: str, workdir: Path, env: dict[str, str] | None = None) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        pid = spawn(command, env or {"PATH": os.environ["PATH"]}, str(workdir), (null, null, null))
    finally:
        os.close(null)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_name_is_looked_for_along_the_tasks_own_path(tmp_path: Path):
    first, path = program(tmp_path / "a" / "tool"), {"PATH": f"{tmp_path}/a:{tmp_path}/b"}
    program(tmp_path / "b" / "tool", "#!/bin/sh\nexit 6\n")
    assert run("tool", workdir=tmp_path, env=path) == 5
    first.unlink()
    assert run("tool", workdir=tmp_path, env=path) == 6


def test_directories_and_plain_files_are_no_programs(tmp_path: Path):
    (tmp_path / "a" / "tool").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tool").write_text("text")
    with pytest.raises(NotRunnable, match="command not found") as refused:
        run("tool", workdir=tmp_path, env={"PATH": f"{tmp_path}/a:{tmp_path}/b"})
    assert refused.value.code == 127


def test_a_file_without_an_interpreter_is_run_as_a_script(tmp_path: Path):
    program(tmp_path / "tool", 'test "$1" = "a b" && exit 5')
    assert run("./tool", "a b", workdir=tmp_path) == 5
    assert run("tool", "a b", workdir=tmp_path, env={"PATH": str(tmp_path)}) == 5


def test_what_is_forked_reports_what_keeps_it_from_its_program(tmp_path: Path):
    null = os.open(os.devnull, os.O_RDWR)
    program(tmp_path / "script", "exit 5")
    found = []
    for command in (("true",), ("missing",), ("./script",)):
        child = begin(command, {"PATH": os.environ["PATH"]}, str(tmp_path), (null, null, null))
        with open(child.report, "rb") as pipe:
            report = pipe.read()
        os.waitpid(child.pid, 0)
        found.append(str(failure(report, command[0])) if report else "")
    os.close(null)
    assert found == ["", "missing: command not found", "./script: not an executable file"]


def test_a_script_with_the_line_ends_of_windows_is_not_said_to_be_missing(tmp_path: Path):
    program(tmp_path / "script", "#!/bin/sh\r\necho hi\r\n")
    with pytest.raises(
        NotRunnable, match=r"^./script: no such file, or its interpreter is missing"
    ):
        run("./script", workdir=tmp_path)


def test_a_path_with_a_slash_is_relative_to_the_tasks_directory(tmp_path: Path):
    program(tmp_path / "bin" / "tool")
    assert run("./bin/tool", workdir=tmp_path) == 5


def test_arguments_arrive_as_they_are(tmp_path: Path):
    assert (
        run("sh", "-c", 'test "$1" = "a b*\n\'" && exit 6', "-", "a b*\n'", workdir=tmp_path) == 6
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("./missing",), 127),
        (("missing",), 127),
        (("",), 127),
        (("./directory",), 126),
        (("./plain",), 126),
        (("./plain/below",), 127),
        (("/bin/true", "nul\0byte"), 126),
        (("nul\0byte",), 127),
        (("/bin/true", "x" * (4 << 20)), 126),
    ],
)
def test_what_cannot_be_run_ends_like_in_a_shell(
    tmp_path: Path, command: tuple[str, ...], code: int
):
    (tmp_path / "directory").mkdir()
    (tmp_path / "plain").write_text("text")
    with pytest.raises(NotRunnable) as refused:
        run(*command, workdir=tmp_path)
    assert refused.value.code == code


def test_a_directory_that_is_gone_is_the_hosts_failure(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        run("true", workdir=tmp_path / "gone")


def test_a_name_with_a_nul_byte_is_its_owners_mistake(tmp_path: Path):
    with pytest.raises(NotRunnable, match="command not found") as refused:
        run("a\0b", workdir=tmp_path)
    assert refused.value.code == 127


@pytest.mark.parametrize("name", ["²", "9" * 5000])
def test_a_directory_that_only_looks_like_a_slot_is_none(name: str):
    process = subprocess.Popen(
        ("sleep", "1000"), env={"PATH": os.environ["PATH"], "IRIS_WORKDIR": f"/attempts/{name}"}
    )
    try:
        while not tree.environment(process.pid):  # its exec is under way
            pass
        assert tree.slot_of(process.pid, "/attempts") is None
    finally:
        process.kill()
        process.wait()
