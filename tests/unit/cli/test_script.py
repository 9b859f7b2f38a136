import click
import pytest

from iris.cli.commands.run.run import run
from iris.cli.parsing.script import (
    find_script,
    in_workdir,
    read_script,
    to_send,
    with_uploaded_script,
)


def script(path, text):
    path.write_text(text)
    return path


def test_options_in_the_leading_comments_of_a_script_are_read(tmp_path):
    path = script(
        tmp_path / "job.sh",
        "#!/bin/sh\n# about\n#IRIS --cpu=8 --memory 4GiB  # much\n\n#IRIS -e 'A=b c'\ntrue\n#IRIS --cpu=1\n",
    )

    assert read_script(path) == ["--cpu=8", "--memory", "4GiB", "-e", "A=b c"]


@pytest.mark.parametrize("line", ["8", "--cpu=8 -- rm", "-e 'open"])
def test_a_line_that_is_no_options_is_refused_with_its_place(tmp_path, line):
    path = script(tmp_path / "job.sh", f"#IRIS {line}\n")

    with pytest.raises(click.UsageError, match=r"job\.sh"):
        read_script(path)


def test_a_binary_has_no_options(tmp_path):
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF\xff\xfe\n#IRIS --cpu=8\n")

    assert read_script(path) == []


def test_the_script_is_the_command_or_what_an_interpreter_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = script(tmp_path / "job.py", "")
    commands = [
        ["./job.py"],
        ["python3.12", "-u", "job.py"],
        ["bash", "job.py", "x"],
        ["cp", "job.py", "x"],
        [],
    ]

    assert [find_script(command) is not None for command in commands] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert path.exists()


def parsed(*words):
    return run.make_context("run", list(words)).params


def test_flags_win_over_the_script(tmp_path):
    path = script(tmp_path / "job.sh", "#IRIS --cpu=8 --memory=1GiB -c a\n")
    params = parsed("--cpu=2", "-c", "b", "--", "sh", str(path), "--cpu=9")

    assert (params["cpu"], params["memory"], params["constraints"]) == ("2", "1GiB", ("a", "b"))
    assert params["command"] == ("sh", str(path), "--cpu=9")


def test_options_after_the_command_belong_to_the_command():
    assert parsed("echo", "--name", "x")["command"] == ("echo", "--name", "x")


def test_a_script_that_tasks_would_not_find_is_sent_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script(tmp_path / "job.sh", "#!/bin/sh\n#IRIS --cpu=2\necho hello\n")
    script(tmp_path / "plain.sh", "echo hello\n")
    script(tmp_path / "train.py", "print(1)\n")
    runs = {
        ("job.sh", "a"): ("./job.sh", "a"),
        ("./job.sh",): ("./job.sh",),
        (str(tmp_path / "job.sh"),): ("./job.sh",),
        ("plain.sh",): ("sh", "./plain.sh"),
        ("train.py", "--x"): ("python3", "./train.py", "--x"),
        ("python", "-u", "train.py", "--x"): ("python", "-u", "train.py", "--x"),
    }
    for command, sent in runs.items():
        found = to_send(command)
        assert found is not None, command
        assert with_uploaded_script(command, found) == sent
    for command in [
        ("true",),
        ("/bin/sh", "-c", "x"),
        ("python", "absent.py"),
        (str(tmp_path / "plain.sh"),),
    ]:
        assert to_send(command) is None, command


def test_a_script_of_the_workdir_runs_from_there(tmp_path, monkeypatch):
    work = tmp_path / "proj"
    (work / "tools").mkdir(parents=True)
    script(work / "train.py", "print(1)\n")
    script(work / "go.sh", "#!/bin/bash -e\n")
    script(work / "tools" / "run.sh", "#!/bin/sh\n").chmod(0o755)
    script(work / "true", "exit 1\n")
    monkeypatch.chdir(tmp_path)
    commands = {
        ("train.py", "--lr", "1"): ("python3", "./train.py", "--lr", "1"),
        ("./go.sh",): ("/bin/bash", "-e", "./go.sh"),
        ("proj/go.sh",): ("/bin/bash", "-e", "./go.sh"),
        ("tools/run.sh", "x"): ("./tools/run.sh", "x"),
        (str(work / "tools" / "run.sh"),): ("./tools/run.sh",),
        ("true",): ("true",),
        ("python", "train.py"): ("python", "train.py"),
        ("absent.py",): ("absent.py",),
        ("../other.py",): ("../other.py",),
    }
    script(tmp_path / "other.py", "")

    assert {command: in_workdir(command, work) for command in commands} == commands


def test_what_of_the_workdir_is_not_sent_is_no_script_of_tasks(tmp_path):
    python = tmp_path / ".venv" / "bin" / "python"
    for path in (python, tmp_path / "local.sh", tmp_path / "local.sh2"):
        path.parent.mkdir(parents=True, exist_ok=True)
        script(path, "#!/bin/sh\n").chmod(0o755)
    commands = {
        (str(python), "train.py"): (str(python), "train.py"),
        ("./local.sh",): ("./local.sh",),
        (str(tmp_path / "local.sh"),): (str(tmp_path / "local.sh"),),
        (str(tmp_path / "local.sh2"),): ("./local.sh2",),
    }

    assert {
        command: in_workdir(command, tmp_path, (".venv/", "local.sh")) for command in commands
    } == commands


def test_the_options_are_those_of_the_script_that_runs_in_the_workdir(tmp_path, monkeypatch):
    (tmp_path / "proj").mkdir()
    script(tmp_path / "proj" / "train.py", "#IRIS --cpu=8\n")
    script(tmp_path / "train.py", "#IRIS --cpu=2\n")
    monkeypatch.chdir(tmp_path)
    commands = [
        ("train.py",),
        ("--workdir=proj", "train.py"),
        ("--workdir", "proj", "--", "python", "train.py"),
    ]

    assert [
        parsed(*words)["cpu"] for words in [*commands, ("--workdir=proj", "proj/train.py")]
    ] == ["2", "8", "8", "8"]


def test_a_program_in_the_command_is_no_script_however_long():
    assert find_script(("python", "-c", "print(1)\n" * 1000)) is None
    assert find_script(("python", "-c", "a\0b")) is None


def test_options_in_a_script_of_another_encoding_are_read(tmp_path):
    path = tmp_path / "latin.sh"
    path.write_bytes(b"#!/bin/sh\r\n# caf\xe9\r\n#IRIS --cpu=8\r\necho hi\r\n")
    assert read_script(path) == ["--cpu=8"]
