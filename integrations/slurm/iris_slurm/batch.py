"""What the tasks of a job of `sbatch` run: the script, with Slurm's variables, files and signals.

Started as ``python -m iris_slurm.batch``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from iris import Client
from iris_slurm.directives import IGNORE
from iris_slurm.environment import variables
from iris_slurm.files import expand, prepare_directory
from iris_slurm.hold import (
    FORWARDED,
    LOOK_S,
    STOPPED,
    has_members,
    hold_host,
    signal_group,
)
from iris_slurm.translate import SCRIPT, SETTINGS, BatchSettings

PID = ".slurm_pid"
"""The file, in the directory of a task, with the process that takes its signals."""
LOGIN = ".slurm_bash_env"
"""The file, beside it, that a login shell of the script reads."""
_DIRECTORY_S = 10.0
"""How long a directory of the output is waited for."""


def main() -> int:
    """The exit code of the script; negative: the signal that has ended it."""
    work = Path(os.environ["IRIS_WORKDIR"])
    settings = msgspec.json.decode((work / SETTINGS).read_bytes(), type=BatchSettings)
    notice = number_of(settings.signal)
    if settings.nodes > 1 and os.environ["IRIS_TASK_INDEX"] != "0":
        hold_host(notice)
    with Client() as client:
        job = client.job(os.environ["IRIS_JOB"]).view
    os.environ.update(variables(settings, job, os.environ))
    os.environ["PATH"] = with_commands(os.environ.get("PATH", os.defpath))
    os.environ.update(of_login_shells(work, os.environ))
    os.environ["IRIS_SLURM_SIGNAL"] = "" if settings.alone else str(notice)
    if settings.ignore:
        os.environ[IGNORE] = settings.ignore
    os.environ["IRIS_SLURM_APPEND"] = "yes" if settings.append else ""
    if settings.umask >= 0:
        os.umask(settings.umask)
    try:
        os.chdir(settings.chdir)
        output, error = open_files(settings)
    except OSError as problem:
        print(
            f"iris-slurm: {socket.gethostname()}: {problem}; the directories of --chdir, --output and --error have to "
            "be there on the hosts of tasks",
            file=sys.stderr,
        )
        return 1
    return run(work, settings, notice, output, error=error)


def number_of(name: str) -> int:
    """Of a signal by its name; 0: none."""
    return signal.Signals[f"SIG{name}"] if name and not name.isdigit() else int(name or 0)


def with_commands(path: str) -> str:
    """PATH with the commands of this package, also where it had none of them."""
    own = str(Path(sys.executable).parent)
    return path if shutil.which("srun", path=path) else f"{path}{os.pathsep}{own}"


def of_login_shells(work: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables by which the commands are found by a script that begins with ``#!/bin/bash -l``.

    Such a shell sets PATH anew, and then reads the file of BASH_ENV; that of the user is read too.
    """
    own, theirs = Path(sys.executable).parent, environ.get("BASH_ENV")
    lines = [
        f'command -v srun >/dev/null || PATH="$PATH:"{shlex.quote(str(own))}',
        "unset BASH_ENV" if theirs is None else f"BASH_ENV={shlex.quote(theirs)}",
        '[ -z "${BASH_ENV-}" ] || [ ! -r "$BASH_ENV" ] || . "$BASH_ENV"',
    ]
    (work / LOGIN).write_text("\n".join([*lines, ""]))
    return {"BASH_ENV": str(work / LOGIN)}


def open_files(settings: BatchSettings) -> tuple[int | None, int | None]:
    """The files of the output and the errors; None: those of the task. Raises OSError."""
    if not settings.output:
        return None, None
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if settings.append else os.O_TRUNC)
    patterns = [name for name in (settings.output, settings.error) if name]
    for pattern in patterns:
        pauses = round(_DIRECTORY_S / LOOK_S)
        made = prepare_directory(pattern, os.environ, pauses, partial(time.sleep, LOOK_S))
        if made:
            print(f"iris-slurm: nobody has made {made.absolute()} in {_DIRECTORY_S:g} s: made here")
    names = [expand(pattern, os.environ) for pattern in patterns]
    print(
        f"the output is in {' and '.join(os.path.abspath(name) for name in names)} on {socket.gethostname()}"
    )
    found = [os.open(name, flags, 0o666) for name in names]
    return found[0], found[-1]


def run(
    work: Path, settings: BatchSettings, notice: int, output: int | None, error: int | None
) -> int:
    """Run the script in a process group of its own, and pass on signals to it."""
    script = work / SCRIPT
    script.chmod(0o700)
    (work / STOPPED).unlink(missing_ok=True)  # of an attempt before
    group, received = 0, list[int]()

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGTERM:
            (work / STOPPED).touch()
        if group:
            send(group, number, alone=settings.alone and number == notice)

    for number in {*FORWARDED, notice} - {0}:
        signal.signal(number, forward)
    (work / PID).write_text(str(os.getpid()))
    ignored = 0 if settings.alone else notice  # by the script: only what `srun` starts gets it
    with subprocess.Popen(
        [str(script), *settings.arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=error,
        process_group=0,
        preexec_fn=partial(signal.signal, ignored, signal.SIG_IGN) if ignored else None,  # noqa: PLW1509 - no threads
    ) as process:
        group = process.pid
        for number in received:  # before there was a script
            send(group, number, alone=settings.alone and number == notice)
        code = process.wait()
        while signal.SIGTERM in received and has_members(
            group
        ):  # what it has reached may write a checkpoint yet
            time.sleep(LOOK_S)
    return code


def end(code: int) -> NoReturn:
    """End with an exit code, or by the signal that has ended the script."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the script has left its own
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        sys.stdout.flush()
        os.kill(os.getpid(), -code)
    sys.exit(code if code >= 0 else 128 - code)


def send(group: int, number: int, *, alone: bool) -> None:
    """Signal the script, or all that it has started."""
    if not alone:
        signal_group(group, number)
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(group, number)


if __name__ == "__main__":
    end(main())
