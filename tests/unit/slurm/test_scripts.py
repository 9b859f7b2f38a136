"""Scripts are sent as the bytes that they are, find the commands, and end as they ended."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from iris_slurm.batch import of_login_shells
from iris_slurm.commands.sbatch import read_script
from iris_slurm.commands.srun import read, steps_of
from iris_slurm.directives import script_lines
from iris_slurm.hold import living_steps
from iris_slurm.steps import SrunStep, variables
from iris_slurm.translate import PASSED_ON

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


@pytest.mark.parametrize("name", PASSED_ON)
def test_a_step_beside_a_task_outlives_a_signal_to_its_program(tmp_path: Path, name: str):
    program = f"trap 'echo {name}; exit 5' {name}; echo on; while :; do sleep 0.02; done"
    number = signal.Signals[f"SIG{name}"]
    step = SrunStep(command=("sh", "-c", program), tasks=1, nodes=2, first=1, signal=number)
    own = {"IRIS_WORKDIR": str(tmp_path), "SLURM_JOB_NODELIST": "a,b"}
    environ = {**os.environ, **own, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-m", "iris_slurm.steps"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(step))
        process.stdin.close()
        assert process.stdout.readline() == b"on\n"
        assert list(living_steps(tmp_path)) == [process.pid]
        os.killpg(process.pid, number)
        assert process.stdout.read() == f"{name}\n".encode()
    assert process.returncode == 5
    assert list(living_steps(tmp_path)) == []


def test_a_failed_process_of_a_step_leaves_the_others_their_time(tmp_path: Path):
    """As Slurm does without --kill-on-bad-exit."""
    program = 'cd "$0"; [ $SLURM_PROCID = 0 ] && { echo > failed; exit 3; }; until [ -e failed ]; do :; done; echo > done'
    step = SrunStep(command=("sh", "-c", program, str(tmp_path)), tasks=2, nodes=1, count=2)
    own = {"IRIS_WORKDIR": str(tmp_path), "SLURM_JOB_NODELIST": "a"}
    done = subprocess.run(
        [sys.executable, "-m", "iris_slurm.steps"],
        input=msgspec.json.encode(step),
        env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 3
    assert (tmp_path / "done").exists()
