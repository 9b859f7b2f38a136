"""One `nats-server` process on a private directory of this machine: locked, rendered, started, stopped.

Everything here is plain and synchronous, so that fixtures and scripts can use it. Not in this room: watching the
process and starting it again, which `embedded` does. Source: nats.md section 5.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from iris_bus import nats_binary

PAYLOAD_BYTES = 8 << 20
USER = "iris"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None

_CONFIG = """\
server_name: "iris-embedded"
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{http_port}"
ports_file_dir: {run}
pid_file: {pid_file}
log_file: {log_file}
logfile_size_limit: 64MB
logfile_max_num: 3
max_payload: {payload}
max_pending: 256MB
max_connections: 65536
ping_interval: "20s"
jetstream {{
  store_dir: {store}
  max_memory_store: 1GB
  max_file_store: 1TB
  sync_interval: {sync}
}}
accounts {{
  SYS: {{ users: [ {{ user: "sys", password: {password} }} ] }}
  IRIS: {{ jetstream: enabled, users: [ {{ user: "{user}", password: {password} }} ] }}
}}
system_account: SYS
"""


class Occupied(Exception):
    """Another process already runs a server on this directory."""


class StartFailed(Exception):
    """The server ended or did not answer; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a running server listens on loopback."""

    nats: int
    http: int


class NatsProcess:
    """A server on ``directory``, which it owns: mode 0700, one lock, one password.

    `start` and `stop` wait; `spawn`, `ready` and `ended` do not, for callers with a loop of their own.

    Args:
        directory: made when missing.
        sync: ``sync_interval`` of the store; "always" is what durability rests on.
    """

    def __init__(self, directory: Path, *, sync: str = "always") -> None:
        self.directory = directory.absolute()
        self.ports: Ports | None = None
        self._run = self.directory / "run"
        self._log = self.directory / "nats.log"
        self._sync = sync
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """With user and password. Raises StartFailed before the first start."""
        if self.ports is None:
            raise StartFailed("the server has not been started")
        return f"nats://{USER}:{self.password}@127.0.0.1:{self.ports.nats}"

    @property
    def monitor_url(self) -> str:
        """Where ``/healthz`` and ``/jsz`` are served."""
        if self.ports is None:
            raise StartFailed("the server has not been started")
        return f"http://127.0.0.1:{self.ports.http}"

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def password(self) -> str:
        """Made once per directory, readable by its owner only."""
        path = self.directory / "password"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        password = secrets.token_urlsafe(24)
        _write_private(path, password)
        return password

    def start(self, timeout: float = 20.0) -> None:
        """Spawn and wait until it is healthy. Raises Occupied, StartFailed, NoServer."""
        self.spawn()
        deadline = time.monotonic() + timeout
        while not self.ready():
            if time.monotonic() > deadline:
                self.stop()
                raise StartFailed(f"nats-server did not become ready in {timeout:.0f} s{self.log_tail()}")
            time.sleep(0.005)

    def spawn(self) -> None:
        """Take the lock and start the process, on the ports of last time if this object ran before."""
        program = nats_binary.find()
        nats_binary.check_version(nats_binary.version_of(program))
        self._take_lock()
        config = self._render()
        checked = subprocess.run([program, "-t", "-c", config], capture_output=True, text=True, timeout=20, check=False)
        if checked.returncode != 0:
            raise StartFailed(f"nats-server refuses its configuration: {checked.stderr.strip()}")
        for stale in self._run.glob("*.ports"):
            stale.unlink()
        self._process = subprocess.Popen(
            [program, "-c", config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"GOMEMLIMIT": "2GiB", **os.environ},
            process_group=0,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no lock is taken
        )

    def ready(self) -> bool:
        """Whether it serves; finds its ports on the way. Raises StartFailed when it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise StartFailed(f"nats-server ended while starting{self.log_tail()}")
        ports = self._read_ports()
        if ports is None or not _healthy(ports.http):
            return False
        self.ports = ports
        return True

    def ended(self) -> int | None:
        """Its exit code (negative: the signal), None while it runs."""
        return self._process.poll() if self._process is not None else 0

    def stop(self, grace: float = 15.0) -> None:
        """TERM, then KILL after ``grace`` seconds; lets go of the lock. Safe to call twice."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            self.signal(signal.SIGCONT)  # it may have been stopped, and would not hear
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                process.wait()
        self.unlock()

    def unlock(self) -> None:
        """Let another process have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def signal(self, number: signal.Signals) -> None:
        """Signal the server's process group; nothing happens when it has ended."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End it at once, as a crash would, and keep the lock."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of its log, indented under a sentence; empty when there is none."""
        with contextlib.suppress(OSError):
            return "".join(f"\n  {line}" for line in self._log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _take_lock(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self._run.mkdir(mode=0o700, exist_ok=True)
        if self._lock is not None:
            return
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise Occupied(f"a nats-server already runs on {self.directory}") from error
        self._lock = descriptor

    def _render(self) -> Path:
        path = self.directory / "nats.conf"
        text = _CONFIG.format(
            port=self.ports.nats if self.ports else -1,
            http_port=self.ports.http if self.ports else -1,
            run=json.dumps(str(self._run)),
            pid_file=json.dumps(str(self._run / "nats.pid")),
            log_file=json.dumps(str(self._log)),
            store=json.dumps(str(self.directory / "store")),
            sync=json.dumps(self._sync),
            payload=PAYLOAD_BYTES,
            user=USER,
            password=json.dumps(self.password),
        )
        _write_private(path, text)
        return path

    def _read_ports(self) -> Ports | None:
        path = self._run / f"nats-server_{self.pid}.ports"
        try:
            listed = json.loads(path.read_bytes())
            return Ports(_port(listed["nats"][0]), _port(listed["monitoring"][0]))
        except (OSError, ValueError, LookupError):
            return None


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _healthy(http_port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _write_private(path: Path, text: str) -> None:
    """Replace ``path`` whole, readable by its owner only."""
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)


def _end_with_parent() -> None:
    """Have the kernel stop the server when this process dies, however it dies (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
