"""The processes of slices that are made on this machine: found by the records that the provisioner
keeps below one directory, also by whoever has to end them without it.

Out of scope: what makes them (`iris_provisioner.providers.process`).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import msgspec

from iris_core.spec.jobs import Attribute

RECORD = "slice.json"
"""In the directory of a slice."""


class HostProcess(msgspec.Struct):
    """A host of a slice, and its worker's process. ``began``: by the kernel's clock, so that another
    process with its number is not taken for it; pid 0: it was not started.
    """

    name: str
    attributes: dict[str, Attribute] = {}
    pid: int = 0
    began: int = 0

    @property
    def runs(self) -> bool:
        """Whether its process runs, and is still the one that was started."""
        return self.pid > 0 and began(self.pid) == self.began != 0


class _SliceHosts(msgspec.Struct):
    """What of a record is read here."""

    hosts: list[HostProcess]


def began(pid: int) -> int:
    """When a process began, in ticks since the boot; 0: it has ended. Raises OSError when that
    cannot be told, as without a free descriptor.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def running_hosts(directory: Path) -> list[HostProcess]:
    """The hosts of all slices below a directory whose processes run."""
    found: list[HostProcess] = []
    for path in sorted(directory.glob(f"*/{RECORD}")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found += msgspec.json.decode(path.read_bytes(), type=_SliceHosts).hosts
    return [host for host in found if host.runs]


def signal_hosts(hosts: Iterable[HostProcess], number: signal.Signals) -> None:
    """Send a signal to those that run, with their groups when they are killed."""
    for host in hosts:
        if not host.runs:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number is signal.SIGKILL:
                os.killpg(host.pid, number)
            else:
                os.kill(host.pid, number)
