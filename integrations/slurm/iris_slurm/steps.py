"""What `srun` starts in a job: the processes of a step, some on each host.

Started as ``python -m iris_slurm.steps`` on each of several hosts, where it reads the step from
standard input.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from iris_slurm.files import expand
from iris_slurm.hold import FORWARDED, LOOK_S, has_others, register_step


class SrunStep(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one host.

    Attributes:
        first, count: their ranks. tasks: how many the step has on all hosts.
        signal: which is ignored around the step, and is not in it; 0: none.
        env: the variables of `srun`.
    """

    command: tuple[str, ...]
    tasks: int
    nodes: int
    first: int = 0
    count: int = 1
    node: int = 0
    chdir: str = ""
    output: str = ""
    error: str = ""
    append: bool = False
    signal: int = 0
    env: dict[str, str] = {}


def hosts_of_job(environ: Mapping[str, str]) -> list[str]:
    """Those of the job; of a script that has unset Slurm's variables, its own."""
    return (environ.get("SLURM_JOB_NODELIST") or socket.gethostname()).split(",")


def variables(step: SrunStep, local: int) -> dict[str, str]:
    """Those in which the processes of a step differ."""
    return {
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": str(step.tasks),
        "SLURM_NPROCS": str(step.tasks),
        "SLURM_STEP_NUM_TASKS": str(step.tasks),
        "SLURM_NNODES": str(step.nodes),
        "SLURM_NODEID": str(step.node),
        "SLURMD_NODENAME": hosts_of_job(os.environ)[step.node],
        "SLURM_PROCID": str(step.first + local),
        "SLURM_LOCALID": str(local),
    }


def run(step: SrunStep, *, beside: bool = False) -> int:
    """Run the processes of this host; the exit code of the first that failed. ``beside``: the task
    of a host, by whose end what is left is killed, so it comes last. Raises OSError.
    """
    if step.chdir:
        os.chdir(step.chdir)
    if step.count == 1 and not beside:
        replace(step)
    received = list[int]()
    for number in {step.signal, signal.SIGTERM, *(FORWARDED if beside else ())} - {0}:
        signal.signal(number, lambda number, _: received.append(number))  # programs get them too
    found = [start(step, local) for local in range(step.count)]
    codes = [process.wait() for process in found]
    while beside and signal.SIGTERM in received and has_others():
        time.sleep(LOOK_S)
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def replace(step: SrunStep) -> None:
    """Become the only process of this host, so that signals reach it."""
    env = {**os.environ, **variables(step, 0)}
    for target, file in enumerate(open_files(step, env), 1):
        if file is not None:
            os.dup2(file, target)
    for number in {step.signal, signal.SIGPIPE} - {0}:
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(step.command[0], step.command, env)


def start(step: SrunStep, local: int) -> subprocess.Popen[bytes]:
    env = {**os.environ, **variables(step, local)}
    output, error = open_files(step, env)
    stdin = None if step.first + local == 0 else subprocess.DEVNULL
    return subprocess.Popen(step.command, env=env, stdin=stdin, stdout=output, stderr=error)


def open_files(step: SrunStep, env: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if step.append else os.O_TRUNC)
    output = os.open(expand(step.output, env), flags, 0o666) if step.output else None
    error = os.open(expand(step.error, env), flags, 0o666) if step.error else output
    return output, error


def main() -> int:
    """Run the step that is read from standard input, of a script of several hosts."""
    step = msgspec.json.decode(sys.stdin.buffer.read(), type=SrunStep)
    beside = register_step(Path(os.environ["IRIS_WORKDIR"]))
    os.environ.update(step.env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return run(step, beside=beside)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as problem:
        sys.exit(f"srun: error: {problem}")
