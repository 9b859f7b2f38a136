"""Services of one cluster as separate processes that can be stopped and restarted."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import warm
from tests.support.cluster import until
from tests.support.nats_config import free_ports
from tests.support.worker import UNCONFINED

_READY_S = 60
_END_S = 60


@dataclass
class Member:
    """One service: what it is started with, and its process as of now.

    Attributes:
        port: where it says whether it is ready, the same after a restart; a gateway's is that of
            its API.
    """

    name: str
    service: str
    settings: tuple[str, ...]
    port: int
    log: Path
    environ: Mapping[str, str]
    process: warm.Fork | None = None

    def start(self) -> None:
        where = "gateway.http" if self.service == "gateway" else "run.metrics"
        given = [
            word
            for each in (*self.settings, f"{where}=127.0.0.1:{self.port}")
            for word in ("--set", each)
        ]
        with self.log.open("ab") as log:
            self.process = warm.start(
                f"iris_{self.service}", given, self.environ, log.fileno(), log.fileno()
            )

    def terminate(self) -> int:
        """Tell it to end, and how it ended."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_END_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> None:
        """Return once it can be used; a state service is as useful as a follower."""
        until(self._is_ready, f"{self.name} is ready", _READY_S)

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False


@dataclass
class Fleet:
    """All services on one bus."""

    nats_url: str
    root: Path
    path: Path | None = None
    members: list[Member] = field(default_factory=list)

    def add(self, service: str, name: str, *settings: str) -> Member:
        """Start one more. Raises AssertionError when it does not become ready."""
        member = self.begin(service, name, *settings)
        member.ready()
        return member

    def begin(self, service: str, name: str, *settings: str) -> Member:
        """Start one more, and return at once."""
        [port] = free_ports(1)
        path = f"{self.path}:{os.environ['PATH']}" if self.path is not None else os.environ["PATH"]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
        environ |= {"IRIS_NATS_URL": self.nats_url, "PATH": path}
        member = Member(name, service, settings, port, self.root / f"{name}.log", environ)
        self.members.append(member)
        member.start()
        return member

    def add_worker(self, name: str, *settings: str) -> Member:
        place = (f"worker.id={name}", f"worker.data={self.root / name}", "worker.address=127.0.0.1")
        size = (
            "worker.cpu_millis=4000",
            "worker.memory_bytes=8589934592",
            "worker.disk_bytes=8589934592",
        )
        unconfined = (f"worker.{key}={value}" for key, value in UNCONFINED.items())
        return self.add("worker", name, *place, *size, *unconfined, *settings)

    def of(self, service: str) -> list[Member]:
        return [member for member in self.members if member.service == service]

    def close(self) -> None:
        order = ("worker", "provisioner", "notifier", "proxy", "gateway", "scheduler", "state")
        for member in sorted(self.members, key=lambda member: order.index(member.service)):
            if member.process is not None and member.process.poll() is None:
                member.terminate()


@contextmanager
def fleet(nats_url: str, root: Path, path: Path | None = None) -> Iterator[Fleet]:
    """No service yet. ``path``: where tasks find programs first."""
    made = Fleet(nats_url, root, path)
    try:
        yield made
    finally:
        made.close()
