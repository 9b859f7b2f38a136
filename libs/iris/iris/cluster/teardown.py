"""Stops a local cluster in bounded time, with all its processes.

Tasks outlive a worker and a launcher that are killed, for the next ones on the same data directory; here nobody comes.
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
_LAUNCHER = b"iris_worker.launcher.launcher"
_WORKDIR = b"IRIS_WORKDIR="
_ROUNDS = 20


def tear_down(data: Path) -> ExitCode:
    """Stop the supervisor and wait for it; no error when the cluster is not running."""
    paths = ClusterPaths(data)
    cluster = read_cluster(data)
    supervisor = lock_holder(paths)
    if supervisor is None:
        note(f"no cluster is up on {data}" if cluster is None else f"the cluster on {data} had stopped already")
        left = clear(paths, cluster)
        return ExitCode.UNEXPECTED if left else ExitCode.SUCCEEDED
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor, signal.SIGTERM)
    if wait_for_end([supervisor], cluster.stop_s if cluster is not None else _STOP_S):
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGKILL)
    left = clear(paths, cluster)
    note(f"the cluster on {data} is down; its data stays")
    return ExitCode.UNEXPECTED if left else ExitCode.SUCCEEDED


def clear(paths: ClusterPaths, cluster: ClusterFile | None) -> list[int]:
    """Kill the processes of a killed supervisor; returns those that are still alive afterwards."""
    pids = [pid for running in cluster.pids.values() for pid in running] if cluster is not None else []
    left = wait_for_end(pids, _KILL_S)
    _kill([pid for pid in left if belongs(pid, paths)])
    with contextlib.suppress(FileNotFoundError):
        paths.cluster_file.unlink()
    left = wait_for_end([pid for pid in left if belongs(pid, paths)], _KILL_S)
    return left + end_tasks(paths.data)


def belongs(pid: int, paths: ClusterPaths) -> bool:
    """Whether a process belongs to this cluster, and not to another program with a reused process id."""
    return b"IRIS_DATA=" + os.fsencode(paths.data) in read_process(pid, "environ")


def end_tasks(data: Path) -> list[int]:
    """Kill the launchers that do not end by themselves, lest they record ends of tasks, then what tasks have started.

    Returns what is still alive afterwards. Also when the data directory is gone.
    """
    below = os.fsencode(data) + b"/"
    _kill(wait_for_end(_find(lambda pid: _is_launcher(pid, below)), _KILL_S))
    left: list[int] = []
    for _ in range(_ROUNDS):  # a process may fork before it is killed
        found = _find(lambda pid: any(entry.startswith(_WORKDIR + below) for entry in read_process(pid, "environ")))
        if not found:
            return []
        _kill(found)
        note(f"ended {len(found)} processes that tasks of {data} had left")
        left = wait_for_end(found, _KILL_S)
    return left


def _is_launcher(pid: int, below: bytes) -> bool:
    command = read_process(pid, "cmdline")[-2:]
    return command[:1] == [_LAUNCHER] and command[-1].startswith(below)


def _find(matches: Callable[[int], bool]) -> list[int]:
    return [pid for pid in all_pids() if pid != os.getpid() and matches(pid)]


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
