"""Scripts are sent as the bytes that they are, find the commands, and end as they ended."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iris_slurm.batch import of_login_shells
from iris_slurm.commands.sbatch import read_script
from iris_slurm.commands.srun import read, steps_of
from iris_slurm.directives import script_lines
from iris_slurm.steps import variables

SCRIPT = b"#!/bin/bash\r\n# caf\xe9\r\n#SBATCH --comment=caf\xe9\r\necho hi\r\n"


def test_a_script_of_another_encoding_keeps_its_bytes_and_line_ends(tmp_path, monkeypatch):
    (tmp_path / "job.sh").write_bytes(SCRIPT)
    assert read_script(None, [str(tmp_path / "job.sh")]) == SCRIPT
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SCRIPT), "ascii"))
    assert read_script(None, []) == SCRIPT
    assert script_lines(os.fsdecode(SCRIPT)) == ["--comment=caf\udce9"]


@pytest.mark.parametrize("word", ["echo fine", "echo \udcff"])
def test_a_script_of_the_command_line_keeps_its_bytes(word):
    assert read_script(word, []) == b"#!/bin/sh\n" + os.fsencode(word) + b"\n"


@pytest.mark.parametrize("theirs", [None, "environ"])
def test_a_login_shell_finds_the_commands(tmp_path, theirs):
    """It sets PATH anew, as /etc/profile does."""
    (tmp_path / ".bash_profile").write_text("PATH=/usr/bin:/bin\n")
    (tmp_path / "environ").write_text("READ=theirs\n")
    (tmp_path / "job.sh").write_text('#!/bin/bash -l\necho "$PATH"\necho "$READ|$BASH_ENV"\n')
    (tmp_path / "job.sh").chmod(0o700)
    before = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    if theirs:
        before["BASH_ENV"] = str(tmp_path / theirs)
    environ = {**before, **of_login_shells(tmp_path, before)}
    shown = subprocess.run([tmp_path / "job.sh"], env=environ, capture_output=True, check=True)
    path, rest = shown.stdout.decode().splitlines()
    assert path == f"/usr/bin:/bin:{Path(sys.executable).parent}"
    assert rest == (f"theirs|{tmp_path / theirs}" if theirs else "|")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_task_ends_by_the_signal_of_its_script(number):
    code = f"import signal; from iris_slurm.batch import end\nsignal.signal(15, print); end(-{int(number)})"
    where = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **where}, check=False)
    assert done.returncode == -number


def test_a_step_needs_no_variables_but_the_number_of_its_job(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    [step] = steps_of(read(["-n", "2", "hostname"]))
    assert (step.tasks, step.nodes, variables(step, 1)["SLURM_PROCID"]) == (2, 1, "1")
