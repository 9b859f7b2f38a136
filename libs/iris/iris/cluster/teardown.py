"""Stops a local cluster in bounded time, with all its processes."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.client.http.address import ClusterFile, read_cluster
from iris.cluster.paths import ClusterPaths, lock_holder
from iris.cluster.process import wait_for_end

_STOP_S = ClusterFile("", "").stop_s
_KILL_S = 5.0


def tear_down(data: Path) -> ExitCode:
    """Stop the supervisor and wait for it; no error when the cluster is not running."""
    paths = ClusterPaths(data)
    cluster = read_cluster(data)
    supervisor = lock_holder(paths)
    if supervisor is None:
        note(f"no cluster is up on {data}" if cluster is None else f"the cluster on {data} had stopped already")
        clear(paths, cluster)
        return ExitCode.SUCCEEDED
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
    if cluster is None:
        return []
    pids = [pid for running in cluster.pids.values() for pid in running]
    left = wait_for_end(pids, _KILL_S)
    for pid in left:
        if belongs(pid, paths):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        paths.cluster_file.unlink()
    return wait_for_end([pid for pid in left if belongs(pid, paths)], _KILL_S)


def belongs(pid: int, paths: ClusterPaths) -> bool:
    """Whether a process belongs to this cluster, and not to another program with a reused process id."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return b"IRIS_DATA=" + os.fsencode(paths.data) in environ.split(b"\0")
