"""Stops a local cluster in bounded time, with all its processes.

Tasks outlive a worker and a launcher that are killed, for the next ones on the same data directory;
`iris down` ends them, because no worker will adopt them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec

from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.client.http.address import ClusterFile, read_cluster
from iris.cluster.options import StartOptions
from iris.cluster.paths import ClusterPaths, lock_holder
from iris.cluster.process import all_pids, read_process, wait_for_end

_STOP_S = ClusterFile("", "").stop_s
_KILL_S = 5.0
_LOOK_S = 1.0
_SERVICE = re.compile(rb"iris_[a-z]+")
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
    supervisor = lock_holder(paths)
    cluster = read_cluster(data)
    if supervisor is None:
        note(
            f"no cluster is up on {data}"
            if cluster is None
            else f"the cluster on {data} had stopped already"
        )
        return _conclude(clear(paths, cluster))
    waits = waits_for(supervisor)
    cluster = _stop(supervisor, paths, cluster)
    left = clear(paths, cluster)
    note(f"the cluster on {data} is down; its data stays")
    for pid in wait_for_end(waits, _KILL_S):
        note(
            f"`iris up` itself has not ended: process {pid}; is it stopped, or its output not read?"
        )
    return _conclude(left)


def waits_for(supervisor: int) -> list[int]:
    """The `iris up` in the foreground that waits for the end of a supervisor, if one does."""
    words = read_process(supervisor, "cmdline")
    with contextlib.suppress(msgspec.DecodeError, OSError):
        if words and msgspec.json.decode(words[-1], type=StartOptions).attached:
            stat = Path(f"/proc/{supervisor}/stat").read_bytes()
            return [int(stat.rpartition(b") ")[2].split()[1])]
    return []


def _stop(supervisor: int, paths: ClusterPaths, cluster: ClusterFile | None) -> ClusterFile | None:
    """Have a supervisor stop all it has, and kill it once that takes too long; returns what it has
    written last, for it may have started, or started again, some of them since.
    """
    began = time.monotonic()
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor, signal.SIGTERM)
    while wait_for_end([supervisor], _LOOK_S):
        cluster = read_cluster(paths.data) or cluster
        if time.monotonic() - began > (cluster.stop_s if cluster is not None else _STOP_S):
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGKILL)
            wait_for_end([supervisor], _KILL_S)
            break
    return read_cluster(paths.data) or cluster


def _conclude(left: list[int]) -> ExitCode:
    if left:
        note(f"killed, and still running: {' '.join(map(str, left))}")
    return ExitCode.UNEXPECTED if left else ExitCode.SUCCEEDED


def clear(paths: ClusterPaths, cluster: ClusterFile | None) -> list[int]:
    """Kill the processes of a killed supervisor; returns those that are still alive afterwards.

    Those that its file names, and those that it had started without having written so.
    """
    pids = [pid for running in cluster.pids.values() for pid in running] if cluster else []
    found = _find(lambda pid: is_service(pid) and belongs(pid, paths))
    left = wait_for_end([*{*pids, *found}], _KILL_S)
    _kill([pid for pid in left if belongs(pid, paths)])
    with contextlib.suppress(FileNotFoundError):
        paths.cluster_file.unlink()
    left = wait_for_end([pid for pid in left if belongs(pid, paths)], _KILL_S)
    return left + end_tasks(paths)


def is_service(pid: int) -> bool:
    """Whether a process is a service, or a NATS server, by its command line; any program of a user
    may have the variable of a data directory.
    """
    words = read_process(pid, "cmdline")
    modules = [after for word, after in pairwise(words) if word == b"-m"]
    return any(_SERVICE.fullmatch(module) for module in modules) or _config(words) != b""


def belongs(pid: int, paths: ClusterPaths) -> bool:
    """Whether a process belongs to this cluster, and not to another program with a reused process
    id. Services have a variable of it; the NATS server has its configuration.
    """
    data = os.fsencode(os.path.realpath(paths.data))
    config = _config(read_process(pid, "cmdline"))
    given = [os.path.dirname(os.path.dirname(config))] if config else _values(pid, _DATA)
    return any(os.path.realpath(path) == data for path in given)


def _config(words: list[bytes]) -> bytes:
    """The configuration of a local cluster's NATS server; empty for any other program."""
    return words[-1] if words[-2:-1] == [b"-c"] and words[-1].endswith(b"/nats/nats.conf") else b""


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
