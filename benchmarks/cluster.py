"""A whole cluster on this machine for one benchmark, each service a process, and its CPU and
memory.

The same programs, settings and durability as in use (``sync_interval: always``); only the sizes
differ. CPU seconds and resident memory are the operating system's own accounting of each process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil

from benchmarks.group import RunGroup
from benchmarks.http import TOKEN
from iris_core.access.token_file import line_of, token_of
from iris_worker.launcher.rescue import MODULE
from tests.support.nats import OpenServer

READY_S = 30.0
_CPU_CLOCK = 2
HOME = Path(__file__).resolve().parent.parent
on_start: list[Callable[[str, int], None]] = []
"""Told each process that a cluster starts, by service and id; for profilers."""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        processes: every service's processes by name; ``nats`` is among them.
        url: the gateway's address.
        programs: modules of services that are not the product's.
        group: accounts for whatever its processes start; None where no control group can be made.
    """

    directory: Path
    nats_url: str
    processes: dict[str, list[psutil.Process]] = field(default_factory=dict)
    url: str = ""
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    group: RunGroup | None = None
    programs: Mapping[str, str] = field(default_factory=dict)

    def start(self, service: str, *settings: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start one more process of a service with ``SECTION.KEY=VALUE`` settings."""
        command = [sys.executable, "-m", self.programs.get(service, f"iris_{service}")]
        for setting in (
            f"nats.url={self.nats_url}",
            "run.gc=quiet",
            "run.log_level=warning",
            *settings,
        ):
            command += ["--set", setting]
        variables = {**os.environ, **self.environment, **environment}
        with (self.directory / f"{service}-{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=variables, cwd=HOME)
        self.started.append(process)
        self.processes.setdefault(service, []).append(psutil.Process(process.pid))
        if self.group is not None:
            self.group.add(process.pid)
        for told in on_start:
            told(service, process.pid)
        return process

    def crowd(
        self, count: int, heartbeat_interval_s: float = 5.0, cpus: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start one process that stands for many workers, each with room for ``cpus`` tasks, which
        never end; return when all have registered.
        """
        command = [
            sys.executable,
            "-m",
            "tests.support.fake_workers",
            "--url",
            self.nats_url,
            "--endless",
        ]
        command += [
            "--count",
            str(count),
            "--heartbeat",
            str(heartbeat_interval_s),
            "--cpu-millis",
            str(cpus * 1000),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=HOME)
        self.started.append(process)
        self.processes.setdefault("crowd", []).append(psutil.Process(process.pid))
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            raise RuntimeError("the many workers did not register")
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process as a crash does, and forget it."""
        process.kill()
        process.wait()
        self.started.remove(process)
        for known in self.processes.values():
            known[:] = [one for one in known if one.pid != process.pid]

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, by service, of processes that still run."""
        totals: dict[str, float] = {}
        for name, process in self._running():
            totals[name] = totals.get(name, 0.0) + _on_cpu_s(process.pid)
        return totals

    def rss_bytes(self) -> dict[str, int]:
        """Resident bytes now: the largest process of each service."""
        sizes: dict[str, int] = {}
        for name, process in self._running():
            with contextlib.suppress(psutil.NoSuchProcess):
                sizes[name] = max(sizes.get(name, 0), process.memory_info().rss)
        return sizes

    def _running(self) -> Iterator[tuple[str, psutil.Process]]:
        """Every process by its service, and the launchers that workers have started."""
        for name, processes in self.processes.items():
            for process in processes:
                yield name, process
                if name == "worker":
                    yield from (
                        ("launcher", child) for child in process.children() if _is_launcher(child)
                    )

    def launchers(self) -> list[int]:
        """The ids of the workers' launchers."""
        return [process.pid for name, process in self._running() if name == "launcher"]

    def said(self) -> str:
        """The last lines of every service that said anything; only warnings are logged."""
        logs = (
            (path.stem, path.read_text(errors="replace")[-1500:])
            for path in self.directory.glob("*.log")
        )
        return "\n".join(f"{name}: {text}" for name, text in logs if text)


@contextlib.contextmanager
def cluster(
    *,
    workers: Sequence[Sequence[str]] = (),
    state: Sequence[str] = (),
    gateway: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    programs: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Cluster]:
    """Start NATS, state and gateway with their settings, scheduler, and one worker per list of
    settings.

    ``environment``: more variables of every service. ``programs``: as in `Cluster`.
    """
    with tempfile.TemporaryDirectory(prefix="iris-bench-") as text:
        directory = Path(text)
        nats = OpenServer(directory / "nats")
        nats.start()
        made = Cluster(
            directory,
            nats.url,
            environment=dict(environment or {}),
            group=RunGroup.make(),
            programs=programs,
        )
        if made.group is not None:
            made.group.add(nats.pid)
        made.processes["nats"] = [psutil.Process(nats.pid)]
        try:
            made.start("state", *state)
            made.start("scheduler")
            _start_gateway(made, gateway)
            for number, settings in enumerate(workers):
                where = f"worker.data={directory / f'worker-{number}'}"
                made.start("worker", where, f"worker.gateway_url={made.url}", *settings)
            yield made
        except Exception as error:
            error.add_note(made.said())
            raise
        finally:
            for process in reversed(made.started):
                process.terminate()
            for process in made.started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
            nats.stop()
            if made.group is not None:
                made.group.remove()


def _is_launcher(child: psutil.Process) -> bool:
    """Workers have other children for a moment: they ask the container runtime for its version."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return MODULE in child.cmdline()
    return False


def _on_cpu_s(pid: int) -> float:
    """Seconds that a process has run, threads included that have ended: a launcher starts each
    process in a new one.

    To the nanosecond; clock ticks are too coarse for short bursts. 0 when it has ended. Source:
    linux/posix-timers.h.
    """
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    return 0.0


def _start_gateway(made: Cluster, settings: Sequence[str]) -> None:
    port_file, tokens = made.directory / "gateway.url", made.directory / "tokens"
    tokens.write_text(line_of(token_of("bench", "admin", TOKEN)))
    listening = ("gateway.http=127.0.0.1:0", f"gateway.token_file={tokens}")
    process = made.start("gateway", *listening, *settings, IRIS_PORT_FILE=str(port_file))
    deadline = time.monotonic() + READY_S
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the gateway did not start: {made.said()}")
        time.sleep(0.02)
    made.url = port_file.read_text().strip()
