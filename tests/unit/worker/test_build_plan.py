"""What a build depends on, and what runs."""

from __future__ import annotations

import pytest
from msgspec import structs

from iris_core.messages import TaskTemplate
from iris_core.resources import ResourceRequest
from iris_core.spec import Environment
from iris_worker.builds.plan import CannotBuild, Tools, plan_build, script, uses_other_files

HOST = Tools("/usr/bin/python3.11", "", "Linux-x86_64")
UV = Tools("/usr/bin/python3.11", "/usr/bin/uv", "Linux-x86_64")
LISTED = Environment(packages="requirements.txt")
TEXTS = {"requirements.txt": b"numpy==2.0\n"}
JOB = TaskTemplate(1, "/a", ("true",), {}, 1, ResourceRequest(), "ann", "d" * 64)


def key(job=JOB, wanted=LISTED, texts=TEXTS, tools=HOST):
    return plan_build(job, wanted, texts, tools).key


def test_the_same_packages_are_built_once_whatever_else_the_code_holds():
    other = structs.replace(JOB, bundle="e" * 64, command=("x",), env={"LR": "1"}, name="/b", job=2)
    assert key() == key(other) == key(tools=UV)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"user": "bob"}, {}),
        ({"env": {"PIP_INDEX_URL": "http://127.0.0.1/index"}}, {}),
        ({}, {"texts": {"requirements.txt": b"numpy==2.1\n"}}),
        ({}, {"tools": Tools("/usr/bin/python3.12", "", "Linux-x86_64")}),
        ({}, {"tools": Tools("/usr/bin/python3.11", "", "Linux-aarch64")}),
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
def test_a_requirement_that_names_a_file_makes_the_result_depend_on_all_the_code(line, uses):
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
    env = {"PIP_INDEX_URL": "a", "UV_INDEX": "b", "https_proxy": "c", "NO_PROXY": "d", "SECRET": "e", "PATH": "f"}
    assert set(plan_build(structs.replace(JOB, env=env), LISTED, TEXTS, HOST).variables) == {
        "PIP_INDEX_URL",
        "UV_INDEX",
        "https_proxy",
        "NO_PROXY",
    }


@pytest.mark.parametrize(
    ("wanted", "texts", "tools", "words"),
    [
        (LISTED, {}, HOST, "requirements.txt is not in the bundle"),
        (Environment(python="3.14"), {}, Tools("", "", "x"), "neither python3.14 nor uv"),
        (Environment(packages="uv.lock"), {"uv.lock": b"", "pyproject.toml": b""}, HOST, "no uv, which uv.lock needs"),
    ],
)
def test_what_cannot_be_built_here_is_said(wanted, texts, tools, words):
    with pytest.raises(CannotBuild, match=words):
        plan_build(JOB, wanted, texts, tools)


def test_uv_installs_where_it_is_there_and_brings_a_python_that_is_not():
    without, with_uv = ("\n".join(script(LISTED, tools)) for tools in (HOST, UV))
    assert "uv " not in without
    assert "-m pip --python" in without
    assert 'uv venv --quiet --no-project --python "$1"' in with_uv
    assert "uv pip install --no-progress -r requirements.txt" in with_uv
    absent = "\n".join(script(Environment(setup="make", python="3.14"), Tools("", "/usr/bin/uv", "x")))
    assert "uv venv --quiet --no-project --seed" in absent
