"""What a worker does for a launcher that does not answer: continue it, or end it, so that the next
one takes over.

A launcher is found by its command, also an older one. What it has forked has that command too until
it has become its program, and copies of its descriptors: a worker would wait for the answer of a
launcher that is gone. Out of scope: when (client, executor).
Source: docs/design/isolation.md#starting-without-being-signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from iris_worker.launcher.kernel import tree

MODULE = "iris_worker.launcher.launcher"
_MODULES = (MODULE.encode(), b"iris_worker.process.launcher")
"""The latter is of launchers that were started before their package had its present name."""


def resume(root: Path) -> set[str]:
    """Continue the launcher of a worker's directory if it is stopped, and end what it has forked
    and is stopped.

    Returns the directories, below those of all slots, of the attempts for which the latter was
    forked.
    """
    processes = _processes(root)
    directories = set[str]()
    for pid in filter(tree.is_stopped, processes):
        if tree.parent(pid) not in processes:
            _signal(pid, signal.SIGCONT)
            continue
        with contextlib.suppress(OSError, ValueError):
            slot, directory, *_ = (
                Path(os.readlink(f"/proc/{pid}/cwd")).relative_to(root / "attempts").parts
            )
            directories.add(f"{slot}/{directory}")
        _signal(pid, signal.SIGKILL)
    return directories


def end(root: Path) -> None:
    """End the launcher of a worker's directory, with all that has not become its program. Other
    processes go on.
    """
    for pid in _processes(root):
        _signal(pid, signal.SIGKILL)


def living() -> set[str]:
    """The data directories of all launchers that live."""
    commands = (tree.command(pid)[-2:] for pid in tree.all_pids())
    return {os.fsdecode(found[1]) for found in commands if len(found) > 1 and found[0] in _MODULES}


def _processes(root: Path) -> set[int]:
    wanted = [[module, os.fsencode(root)] for module in _MODULES]
    return {pid for pid in tree.all_pids() if tree.command(pid)[-2:] in wanted} - {os.getpid()}


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
