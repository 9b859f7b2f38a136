"""The workers of slices of a local cluster, which its provisioner has started: found by the records
below the data directory, and ended with the cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

_FILES = "*/slice.json"


class _FleetHost(msgspec.Struct):
    pid: int = 0
    began: int = 0


class _FleetSlice(msgspec.Struct):
    hosts: list[_FleetHost]


def fleet_pids(directory: Path) -> list[int]:
    """The processes of the workers that run."""
    found = []
    for path in sorted(directory.glob(_FILES)):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            hosts = msgspec.json.decode(path.read_bytes(), type=_FleetSlice).hosts
            found += [host.pid for host in hosts if host.pid and _began(host.pid) == host.began]
    return found


def signal_fleet(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to workers of slices, with their groups when they are killed."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number is signal.SIGKILL:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)


def _began(pid: int) -> int:
    """When a process began, in ticks since the boot; -1: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[19])
