"""Holds a host for the steps that `srun` starts there beside the task: when the task is told to
end, they are too, and have its grace period.

Started as ``python -m iris_slurm.hold`` on the hosts of `salloc`. Out of scope: the end of the
grace period, at which the worker kills whatever is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)
STEPS = ".slurm_steps"
"""The directory, in that of a task, with a file for each step beside it: its process and when that
started.
"""
STOPPED = ".slurm_stopped"
"""The file, beside it, that is there once a script has been told to end with its whole job."""
LOOK_S = 0.05


def hold_host(notice: int = 0) -> NoReturn:
    """Hold a host until told to end, and until its steps have ended after that. A notice is for
    the script.
    """
    for number in {*FORWARDED, notice} - {0, signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.sigwait({signal.SIGTERM})
    end_steps(Path(os.environ["IRIS_WORKDIR"]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    while True:  # the signal is ahead
        signal.raise_signal(signal.SIGTERM)


def end_steps(work: Path) -> None:
    """Tell all steps to end, and return when they have."""
    signalled = set[int]()
    while True:
        for group in living_steps(work):
            if group not in signalled:
                signalled.add(group)
                signal_group(group, signal.SIGTERM)
        if not any(has_members(group) for group in signalled):
            return
        time.sleep(LOOK_S)


def register_step(work: Path) -> bool:
    """Note that this process is a step beside the task of a host; False: it is not, but a part of
    the script, and gets its signals.
    """
    pid = os.getpid()
    if os.getpgrp() != pid:
        return False
    (work / STEPS).mkdir(exist_ok=True)
    lives = set(living_steps(work))
    for file in (work / STEPS).iterdir():
        if int(file.name) not in lives:
            file.unlink(missing_ok=True)
    temporary = work / f"{STEPS}.{pid}"
    temporary.write_text(started(pid))
    temporary.replace(work / STEPS / str(pid))
    return True


def living_steps(work: Path) -> Iterator[int]:
    """The process groups of the steps whose first process lives."""
    directory = work / STEPS
    for file in directory.iterdir() if directory.exists() else ():
        try:
            if file.read_text() == started(int(file.name)):
                yield int(file.name)
        except OSError:  # it has ended
            continue


def started(pid: int) -> str:
    """When a process has started, by the kernel's clock. Raises OSError."""
    return stat_of(pid)[19]


def stat_of(pid: int) -> list[str]:
    """The fields of a process behind its name. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def has_others() -> bool:
    """Whether another process of this process group lives."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended
                state, _, group, *_ = stat_of(int(entry.name))
                if int(group) == os.getpgrp() and state != "Z":
                    return True
    return False


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when it has no members."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def has_members(group: int) -> bool:
    """Whether a process of the group lives."""
    return signal_group(group, 0)


if __name__ == "__main__":
    hold_host()
