"""What a build depends on, and what runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from iris_core.messages.state_worker import TaskTemplate
from iris_core.spec.jobs import Environment
from iris_core.spec.resources import ResourceRequest
from iris_worker.attempt.builds.plan import CannotBuild, Tools, plan_build, uses_other_files

HOST = Tools("/usr/bin/python3.11", "Linux-x86_64")
LISTED = Environment(packages="requirements.txt")
TEXTS = {"requirements.txt": b"numpy==2.0\n"}
JOB = TaskTemplate(1, "/a", ("true",), {}, 1, ResourceRequest(), "ann", "d" * 64)


def key(job=JOB, wanted=LISTED, texts=TEXTS, tools=HOST):
    return plan_build(job, wanted, texts, tools).key


def test_the_same_packages_are_built_once_whatever_else_the_code_holds():
    other = structs.replace(JOB, bundle="e" * 64, command=("x",), env={"LR": "1"}, name="/b", job=2)
    assert key() == key(other)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"user": "bob"}, {}),
        ({"env": {"PIP_INDEX_URL": "http://127.0.0.1/index"}}, {}),
        ({}, {"texts": {"requirements.txt": b"numpy==2.1\n"}}),
        ({}, {"tools": Tools("/usr/bin/python3.12", "Linux-x86_64")}),
        ({}, {"tools": Tools("/usr/bin/python3.11", "Linux-aarch64")}),
        ({}, {"wanted": Environment(packages="requirements.txt", setup="make")}),
    ],
)
def test_what_the_result_depends_on_is_part_of_the_key(changes, more):
    assert key(structs.replace(JOB, **changes), **more) != key()


@pytest.mark.parametrize(
    ("line", "uses"),
    [
        ("numpy==2.0  # see docs/a", False),
        ("jax[tpu] ; python_version > '3.9'", False),
        ("    --hash=sha256:0/1", False),
        ("-i https://127.0.0.1/index", False),
        ("torch @ https://127.0.0.1/torch.whl", False),
        ("-r other.txt", True),
        ("-e .", True),
        ("./wheels/a-1.0-py3-none-any.whl", True),
        ("wheels/a", True),
        ("a-1.0.tar.gz", True),
        ("-f wheels", True),
        ("a @ file:wheels/a.whl", True),
    ],
)
def test_a_requirement_that_names_a_file_depends_on_all_the_code(line, uses):
    texts = {"requirements.txt": f"click\n# ./x\n{line}\n".encode()}
    assert uses_other_files("requirements.txt", texts) is uses
    assert (key(texts=texts) != key(structs.replace(JOB, bundle="e" * 64), texts=texts)) is uses


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ('{ registry = "https://127.0.0.1/index" }', False),
        ('{ editable = "." }', False),
        ('{ virtual = "." }', False),
        ('{ git = "https://127.0.0.1/a.git" }', False),
        ('{ registry = "wheels" }', True),
        ('{ editable = "libs/a" }', True),
        ('{ path = "wheels/a.whl" }', True),
        ("broken", True),
    ],
)
def test_a_lock_file_with_a_local_package_makes_it_depend_on_all_the_code(source, uses):
    text = f'version = 1\n[[package]]\nname = "a"\nversion = "1"\nsource = {source}\n'
    assert uses_other_files("uv.lock", {"uv.lock": text.encode()}) is uses


def test_only_the_files_it_depends_on_are_given_to_a_build():
    assert plan_build(JOB, LISTED, TEXTS, HOST).files == ("requirements.txt",)
    assert plan_build(JOB, Environment(setup="make"), {}, HOST).files is None
    assert plan_build(JOB, Environment(python="3.11"), {}, HOST).files == ()


def test_a_build_sees_the_variables_of_installers_only():
    env = {
        "PIP_INDEX_URL": "a",
        "UV_INDEX": "b",
        "https_proxy": "c",
        "NO_PROXY": "d",
        "SECRET": "e",
        "PATH": "f",
    }
    assert set(plan_build(structs.replace(JOB, env=env), LISTED, TEXTS, HOST).variables) == {
        "PIP_INDEX_URL",
        "UV_INDEX",
        "https_proxy",
        "NO_PROXY",
    }


def test_a_list_that_is_not_in_the_bundle_is_said():
    with pytest.raises(CannotBuild, match=r"uv\.lock is not in the bundle"):
        plan_build(JOB, Environment(packages="uv.lock"), {"pyproject.toml": b""}, HOST)


def ran(tmp_path: Path, wanted: Environment, **programs: str) -> tuple[int, str]:
    """The exit code of a build on a host with these programs, and what it and they print."""
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = plan_build(
        JOB, wanted, {"requirements.txt": b"", "uv.lock": b"", "pyproject.toml": b""}, HOST
    ).command
    env = {"PATH": str(tmp_path), "VIRTUAL_ENV": "venv"}
    done = subprocess.run(
        [*command, str(tmp_path)], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Environment(python="3.14"), "neither python3.14 nor uv"),
        (Environment(packages="requirements.txt"), "neither python3 nor uv"),
    ],
)
def test_a_host_without_an_interpreter_and_uv_says_so(
    tmp_path: Path, wanted: Environment, words: str
):
    code, text = ran(tmp_path, wanted)
    assert (code, words in text) == (127, True)


def test_a_lock_file_needs_uv(tmp_path: Path):
    wanted = Environment(packages="uv.lock")
    code, text = ran(tmp_path, wanted, python3="exit 1")
    assert (code, "no uv, which uv.lock needs" in text) == (127, True)
    code, text = ran(tmp_path, wanted, uv='echo "uv $*"', python3="exit 1")
    assert code == 0
    assert "uv venv --quiet --no-project --python python3 venv" in text
    assert "uv sync --frozen" in text


def test_uv_installs_if_present_else_pip_of_the_host_or_environment(tmp_path: Path):
    python = 'test "$1" != -c || exit $OLD; echo "python3 $*"'
    _, with_uv = ran(tmp_path, LISTED, uv='echo "uv $*"', python3=python.replace("$OLD", "0"))
    assert "uv pip install --no-progress -r requirements.txt" in with_uv
    assert "python3" not in with_uv.replace("--python python3", "")
    (tmp_path / "uv").unlink()
    _, with_pip = ran(tmp_path, LISTED, python3=python.replace("$OLD", "0"))
    assert (
        "python3 -m venv --without-pip venv\npython3 -m pip --python venv/bin/python install"
        in with_pip
    )
    _, with_old_pip = ran(
        tmp_path, LISTED, python3=python.replace("$OLD", "1"), python='echo "python $*"'
    )
    assert "python3 -m venv venv\npython -m pip install" in with_old_pip


def test_the_hosts_interpreter_is_not_taken_for_the_environments(tmp_path: Path):
    command = plan_build(JOB, LISTED, {"requirements.txt": b""}, HOST).command
    (tmp_path / "requirements.txt").touch()
    venv = tmp_path / "venv"
    env = {
        "PATH": f"{venv}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
        "VIRTUAL_ENV": str(venv),
    }
    done = subprocess.run(
        [*command, str(tmp_path)], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "is built" in done.stderr) == (0, True), done.stderr


def test_a_setup_command_that_fails_fails_the_build_with_its_exit_code(tmp_path: Path):
    code, text = ran(tmp_path, Environment(setup="echo it; exit 4"), python3='echo "python3 $*"')
    assert code == 4
    assert "python3 -m venv venv\nit\n" in text
    assert "is built" not in text
