"""A control group for everything that one run starts, so that no process's CPU is left out of its
figure.

A process that a service starts, and one that has ended, belong to it: bubblewrap and the tasks are
in no service's own figure. Needs root and a mounted version 2 hierarchy, also one without
controllers; elsewhere there is no group.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Self

_MOUNTS = Path("/proc/self/mounts")
_OWN = Path("/proc/self/cgroup")


class RunGroup:
    """One group below that of this process; its CPU includes that of the groups which workers make
    below it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls) -> Self | None:
        """A new empty group; None where this process may not make one."""
        for line in _MOUNTS.read_text().splitlines():
            _, mount, kind = line.split()[:3]
            if kind == "cgroup2":
                path = Path(mount + _own()) / f"iris-bench-{os.getpid()}"
                with contextlib.suppress(OSError):
                    path.mkdir()
                    return cls(path)
        return None

    def add(self, pid: int) -> None:
        """Move a process, and what it starts from now on, into the group."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def cpu_s(self) -> float:
        """CPU seconds of all processes that were ever in the group."""
        for line in (self.path / "cpu.stat").read_text().splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
        raise RuntimeError(f"{self.path}/cpu.stat has no usage_usec")

    def remove(self) -> None:
        """Remove the group once its processes have ended; what still ends is left to the kernel."""
        with contextlib.suppress(OSError):
            self.path.rmdir()


def _own() -> str:
    """The path of this process in the version 2 hierarchy, below its mount."""
    lines = (line.split(":", 2) for line in _OWN.read_text().splitlines())
    return next((path for number, _, path in lines if number == "0"), "/").rstrip("/")
