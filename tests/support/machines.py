"""Machines for a test: each worker in its own network, process and mount namespace, on one switch
with NATS.

No namespace has a name, so all of it is gone with its processes, however they end. NATS listens on
an address of the switch, as it does where there are several machines; the other services run beside
the test. Addresses are of 198.18.0.0/15, which is kept for tests of networks (RFC 2544).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import psutil

from iris import Client
from tests.support.cluster import IRIS, START_S, STOP_S, Ended, environment, until
from tests.support.nats_config import ConfiguredServer, free_ports
from tests.support.worker import UNCONFINED, environ

_NETWORKS = ip_network("198.18.0.0/15")
_PROGRAMS = ("ip", "mount", "nsenter", "setpriv", "unshare")
UNSHARE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net")
OWN = ("--pid", "--mount", "--mount-proc", "--fork", "--kill-child")
_SWITCH = "ip link add switch type bridge && ip link set switch up && echo ready && exec cat"
_MACHINE = """
for directory in $OWN_DIRECTORIES; do mount -t tmpfs tmpfs "$directory" || exit; done
ip link set lo up && echo ready && read address &&
ip addr add "$address" dev eth0 && ip link set eth0 up && exec "$@" </dev/null >&2
"""


def refusal() -> str:
    """Why there can be no machines here; empty when there can."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"no {', '.join(missing)} here"
    trial = [*UNSHARE, *OWN, "sh", "-c", _SWITCH]
    tried = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return (
        (tried.stderr.decode().strip().splitlines() or ["no reason given"])[-1]
        if tried.returncode
        else ""
    )


@dataclass
class Switch:
    """What the machines are plugged into, in a namespace where no rule for packets holds."""

    stack: ExitStack

    def __post_init__(self) -> None:
        self._process = ready(
            self.stack, [*UNSHARE, "sh", "-c", _SWITCH], environment(), subprocess.DEVNULL
        )

    def join(self) -> None:
        """Plug in this process' own namespace."""
        here = f"iris{self._process.pid}"
        self.plug("here", os.getpid(), here)
        self.stack.callback(_ip, "link", "del", here)
        _ip("addr", "add", f"{self.address(0)}/28", "dev", here)
        _ip("link", "set", here, "up")

    def address(self, port: int) -> str:
        """Of at most 14 in a network that no other switch here uses, unless its process id is 8192
        away.
        """
        return str(_NETWORKS[16 * (self._process.pid % 8192) + 1 + port])

    def plug(self, port: str, pid: int, device: str = "eth0") -> None:
        """A cable from a port of the switch to a device in the network namespace of process
        ``pid``.
        """
        self.ip("link", "add", port, "type", "veth", "peer", "name", device, "netns", str(pid))
        self.ip("link", "set", port, "master", "switch", "up")

    def ip(self, *words: str) -> None:
        _run("nsenter", "--net", "--target", str(self._process.pid), "ip", *words)


@dataclass
class Machine:
    """One host: a worker that is the first process of its namespaces, and what it runs."""

    name: str
    switch: Switch
    process: subprocess.Popen[bytes]

    @property
    def worker(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]

    def processes(self) -> set[int]:
        """Everything that runs here, the worker included."""
        home = os.readlink(f"/proc/{self.worker.pid}/ns/pid")
        return {pid for pid in psutil.pids() if _namespace(pid) == home}

    def tasks(self) -> set[int]:
        """Processes of tasks: what the worker itself starts now and then is none."""
        return {pid for pid in self.processes() if "IRIS_TASK" in environ(pid)}

    def cut(self) -> None:
        """Pull the cable: nothing passes, and no connection is told."""
        self.switch.ip("link", "set", self.name, "down")

    def mend(self) -> None:
        self.switch.ip("link", "set", self.name, "up")

    def stop(self) -> None:
        """In order."""
        self.worker.terminate()
        self.process.wait(STOP_S)


@dataclass
class Machines:
    """A cluster of several machines that is up."""

    url: str
    machines: Sequence[Machine]
    client: Client

    def iris(self, *words: object, timeout: float = 60) -> Ended:
        """Run `iris` beside the gateway, in the directory of the repository."""
        environ = {**environment(), "IRIS_URL": self.url}
        done = subprocess.run(
            [*IRIS, *map(str, words)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        return Ended(done.returncode, done.stdout, done.stderr)


@contextmanager
def machines_on(
    directory: Path,
    count: int,
    config: str = "",
    *,
    path: str = "",
    own_directories: Sequence[str] = (),
) -> Iterator[Machines]:
    """A cluster of ``count`` machines for as long as the block lasts.

    Args:
        config: an `iris.toml` for all services.
        path: directories of programs that tasks find before others.
        own_directories: of which each machine has one of its own, empty at first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "iris.toml").write_text(config)
    with ExitStack() as stack:
        switch = Switch(stack)
        switch.join()
        nats_url = _start_nats(stack, switch, directory / "nats")
        environ = {
            **environment(),
            "IRIS_NATS_URL": nats_url,
            "IRIS_CONFIG": str(directory / "iris.toml"),
        }
        url = _start_services(stack, directory, environ)
        environ |= {
            "PATH": f"{path}:{environ['PATH']}".strip(":"),
            "OWN_DIRECTORIES": " ".join(own_directories),
        }
        made = [_start_machine(switch, n, directory, environ) for n in range(count)]
        client = stack.enter_context(Client(url))
        until(
            lambda: sum(worker.state == "healthy" for worker in client.workers()) == count,
            "all are there",
            START_S,
        )
        yield Machines(url, made, client)


def _start_nats(stack: ExitStack, switch: Switch, directory: Path) -> str:
    port, http = free_ports(2)
    listen = f'listen: "{switch.address(0)}:{port}"\nhttp: "127.0.0.1:{http}"\nmax_payload: 8MB\n'
    server = ConfiguredServer(
        directory, f'{listen}jetstream {{ store_dir: "{directory}/store" }}\n', port, http
    )
    server.start()
    stack.callback(server.kill)
    until(server.healthy, "NATS is healthy", START_S)
    return f"nats://{switch.address(0)}:{port}"


def _start_services(stack: ExitStack, directory: Path, environ: Mapping[str, str]) -> str:
    """The services that decide, beside this process. Returns where the gateway listens."""
    port_file = directory / "gateway"
    told = {
        "gateway": ("--set", "gateway.http=127.0.0.1:0", "--set", f"gateway.port_file={port_file}")
    }
    for service in ("state", "scheduler", "gateway"):
        with (directory / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "TERM",
                    *IRIS,
                    "server",
                    service,
                    *told.get(service, ()),
                ],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        stack.callback(_end, process)
    return str(
        until(lambda: port_file.exists() and port_file.read_text(), "the gateway listens", START_S)
    )


def _start_machine(
    switch: Switch, number: int, directory: Path, environ: Mapping[str, str]
) -> Machine:
    name = f"machine-{number}"
    told = {
        "id": name,
        "data": directory / name,
        "cpu_millis": 1000,
        "attributes": "zone=a",
        **UNCONFINED,
    }
    command = [
        *IRIS,
        "server",
        "worker",
        *(word for key in told for word in ("--set", f"worker.{key}={told[key]}")),
    ]
    with (directory / f"{name}.log").open("wb") as log:
        process = ready(
            switch.stack,
            [*UNSHARE, *OWN, "sh", "-c", _MACHINE, "sh", *command],
            environ,
            log.fileno(),
        )
    switch.plug(name, process.pid)
    assert process.stdin is not None
    process.stdin.write(f"{switch.address(1 + number)}/28\n".encode())
    process.stdin.close()
    machine = Machine(name, switch, process)
    switch.stack.callback(machine.stop)
    return machine


def ready(
    stack: ExitStack, command: Sequence[str], environ: Mapping[str, str], errors: int | None
) -> subprocess.Popen[bytes]:
    """A process whose namespaces are made; it is killed at the end, and with it all that runs in
    them.
    """
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", f"{command} ended with {process.wait()}"
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(STOP_S)


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
