"""The places of a chaos cluster: one host or service each, with a link to NATS that can be cut.

A place is a directory that a service finds when it starts (see `site/sitecustomize.py`). Out of
scope: how a way is cut (`namespaces`, `proxies`), and when (`killer`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from tests.support.worker import environ

if TYPE_CHECKING:
    from tests.chaos.proxies import Proxy

Harm = Literal["cut", "deaf", "mute", "slow"]
"""Nothing passes; nothing comes in; nothing goes out; little passes, and late."""

HARMS: tuple[Harm, ...] = ("cut", "deaf", "mute", "slow")
_OFF_S = 5.0


class Place(ABC):
    """One host or service."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = directory.name
        directory.mkdir(parents=True)
        self.set_clock(0.0)

    proxy: Proxy | None = None
    """What can lose the orders for its worker."""

    has_power_switch = False
    """Whether it can be switched off like a host is, so that the next boot knows that it is another
    one.
    """

    def set_clock(self, off_s: float) -> None:
        """Have the wall clock of its processes be off by so much from now on, in one write."""
        held = os.open(self.directory / "clock", os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(held, round(off_s * 1e9).to_bytes(8, "little", signed=True), 0)
        os.close(held)

    @property
    def metrics(self) -> str:
        """The address of the figures of the service here, for one that nobody else tells."""
        found = self.directory / "metrics"
        return f"http://{found.read_text()}/metrics" if found.exists() else ""

    @property
    def is_host(self) -> bool:
        """Whether a worker lives here, with what it runs."""
        return self.name.startswith(("worker-", "slice-"))

    @abstractmethod
    def harm(self, how: Harm) -> None:
        """Make the way bad from now on. Connections are never reset by it."""

    @abstractmethod
    def mend(self) -> None:
        """Make the way good again, whatever it was."""

    @abstractmethod
    def pids(self) -> set[int]:
        """Every process of this place, tasks included."""

    def is_busy(self) -> bool:
        """Whether a task is in the middle of its run here; what calls are cloned from looks like
        one that runs.
        """
        return any("IRIS_TASK" in environ(pid) and _name(pid) == "sleep" for pid in self.pids())

    @abstractmethod
    def close(self) -> None:
        """Let go of what it is made of."""

    def switch_off(self) -> None:
        """Power loss of a host: everything in it ends at once, and starts no more until
        `switch_on`.

        All stand before the first ends, for a worker that sees a task die believes that it failed.
        """
        (self.directory / "off").touch()
        deadline = time.monotonic() + _OFF_S
        while (left := self.pids()) and time.monotonic() < deadline:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)

    def switch_on(self) -> None:
        (self.directory / "off").unlink(missing_ok=True)


def _name(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).name()
    return ""


def owned(place: Place) -> Iterator[int]:
    """Processes that belong to a host by what they are told: the worker by its id, its launcher by
    its directory, a task by its environment.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = process.cmdline()
            environ = process.environ()
            here = f"worker.id={place.name}" in words or environ.get("IRIS_WORKER_ID") == place.name
            here |= words[3:4] == ["iris_worker.launcher.launcher"] and words[-1].endswith(
                f"/{place.name}"
            )
            ours = str(place.directory.parent.parent) in " ".join([*words, *environ.values()])
            if here and ours and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid
