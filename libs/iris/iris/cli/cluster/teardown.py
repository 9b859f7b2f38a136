"""Stops a local cluster in bounded time, with all its processes.

Tasks outlive a worker and a launcher that are killed, for the next ones on the same data directory;
`iris down` ends them, because no worker will adopt them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.client.http.address import ClusterFile, read_cluster
from iris.cluster.paths import ClusterPaths, lock_holder
from iris.cluster.process import all_pids, read_process, wait_for_end

_STOP_S = ClusterFile("", "").stop_s
_KILL_S = 5.0
_LAUNCHERS = frozenset({b"iris_worker.launcher.launcher", b"iris_worker.process.launcher"})
"""The module of a launcher; the latter is of those that were started before their package had its
present name.
"""
_DATA = b"IRIS_DATA="
_WORKDIR = b"IRIS_WORKDIR="
_ROUNDS = 20


def tear_down(data: Path) -> ExitCode:
    """Stop the supervisor and wait for it; no error when the cluster is not running."""
    paths = ClusterPaths(data)
    cluster = read_cluster(data)
    supervisor = lock_holder(paths)
    if supervisor is None:
        note(
            f"no cluster is up on {data}"
            if cluster is None
            else f"the cluster on {data} had stopped already"
        )
        return _conclude(clear(paths, cluster))
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor, signal.SIGTERM)
    if wait_for_end([supervisor], cluster.stop_s if cluster is not None else _STOP_S):
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGKILL)
    left = clear(paths, cluster)
    note(f"the cluster on {data} is down; its data stays")
    return _conclude(left)


def _conclude(left: list[int]) -> ExitCode:
    if left:
        note(f"killed, and still running: {' '.join(map(str, left))}")
    return ExitCode.UNEXPECTED if left else ExitCode.SUCCEEDED


def clear(paths: ClusterPaths, cluster: ClusterFile | None) -> list[int]:
    """Kill the processes of a killed supervisor; returns those that are still alive afterwards."""
    pids = (
        [pid for running in cluster.pids.values() for pid in running] if cluster is not None else []
    )
    left = wait_for_end(pids, _KILL_S)
    _kill([pid for pid in left if belongs(pid, paths)])
    with contextlib.suppress(FileNotFoundError):
        paths.cluster_file.unlink()
    left = wait_for_end([pid for pid in left if belongs(pid, paths)], _KILL_S)
    return left + end_tasks(paths)


def belongs(pid: int, paths: ClusterPaths) -> bool:
    """Whether a process belongs to this cluster, and not to another program with a reused process
    id.
    """
    data = os.fsencode(os.path.realpath(paths.data))
    return any(os.path.realpath(path) == data for path in _values(pid, _DATA))


def end_tasks(paths: ClusterPaths) -> list[int]:
    """Kill the launchers that do not end by themselves, lest they record ends of tasks, then what
    tasks have started.

    Returns what is still alive afterwards. Also when the data directory is gone.
    """
    below = os.fsencode(os.path.realpath(paths.workers)) + b"/"
    launchers = wait_for_end(_find(lambda pid: _is_launcher(pid, below)), _KILL_S)
    _kill(
        [pid for pid in launchers if _is_launcher(pid, below)]
    )  # the process id may be another's by now
    ended = 0
    left = list[int]()
    for _ in range(_ROUNDS):  # a process may fork before it is killed
        found = _find(lambda pid: any(_is_of(pid, path, below) for path in _values(pid, _WORKDIR)))
        if set(found) <= set(left):  # none, or what cannot be killed
            left = found
            break
        _kill(found)
        left = wait_for_end(found, _KILL_S)
        ended += len(found) - len(left)
    if ended:
        note(f"processes that tasks of {paths.data} had left, and are ended: {ended}")
    return left


def _is_launcher(pid: int, below: bytes) -> bool:
    command = read_process(pid, "cmdline")[-2:]
    return len(command) > 1 and command[0] in _LAUNCHERS and _is_of(pid, command[-1], below)


def _is_of(pid: int, path: bytes, below: bytes) -> bool:
    """Whether a path of a process is below a directory, and does not name another one in the
    process' container.
    """
    if not os.path.realpath(path).startswith(below):
        return False
    try:
        return os.path.samestat(os.stat(path), os.stat(b"/proc/%d/root%b" % (pid, path)))
    except OSError:  # it was deleted, and may be hidden from the process or from this one
        return True


def _values(pid: int, name: bytes) -> list[bytes]:
    """The values of a variable in the environment with which a process was started."""
    return [
        entry.removeprefix(name) for entry in read_process(pid, "environ") if entry.startswith(name)
    ]


def _find(matches: Callable[[int], bool]) -> list[int]:
    return [pid for pid in all_pids() if pid != os.getpid() and matches(pid)]


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
