"""Reads the processes of a cluster from /proc. Out of scope: starting them
(`iris_service.child`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

ISOLATED = ("-P",)
"""Python options of every service: modules in the directory it is started from are not imported."""
_LOOK_S = 0.01


def children() -> set[int]:
    """Process ids of this process' children; empty where the kernel does not provide them."""
    try:
        return {
            int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_bytes().split()
        }
    except OSError:
        return set()


def all_pids() -> list[int]:
    """Every visible process of this host; empty where the kernel does not list them."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def read_process(pid: int, name: str) -> list[bytes]:
    """The words of a file of a process, ``cmdline`` or ``environ``; empty when it has ended, or is
    another user's.
    """
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def is_of_program(pid: int) -> bool:
    """Whether a program of a pool has started a process: the provider ``exec`` gives it the cluster
    in its environment, and nobody else does.
    """
    return any(word.startswith(b"IRIS_CLUSTER=") for word in read_process(pid, "environ"))


def wait_for_end(pids: Sequence[int], seconds: float) -> list[int]:
    """The processes (of any parent) among ``pids`` that are alive after at most ``seconds``."""
    until = time.monotonic() + seconds
    living = [pid for pid in pids if is_alive(pid)]
    while living and time.monotonic() < until:
        time.sleep(_LOOK_S)
        living = [pid for pid in living if is_alive(pid)]
    return living


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return not Path("/proc/self").exists() and _answers(pid)
    return stat.rpartition(b") ")[2][:1] != b"Z"


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
