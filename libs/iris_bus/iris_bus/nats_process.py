"""One `nats-server` process on a private directory of this machine: locked, rendered, started, stopped.

Everything here is plain and synchronous, so that fixtures and scripts can use it. Out of scope: watching the
process and starting it again, which `embedded` does. Source: docs/design/nats.md#embedded-server.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from iris_bus import blocks, nats_binary
from iris_bus.blocks import Files
from iris_core.subjects import JOURNAL, STREAMS

PAYLOAD_BYTES = 8 << 20
USER = "iris"
ACCOUNT = "IRIS"
REBUILT = frozenset(stream.name for stream in STREAMS if not stream.fsync)
"""Streams that are not synced, because the journal can make their messages again."""
_UNRECOVERED = re.compile(r"stream '(?P<account>\S+) > (?P<stream>\S+)' could not be recovered")
_WRITE_ERROR = "write error"
_GLANCE_S = 0.25
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
  {account}: {{ jetstream: enabled, users: [ {{ user: "{user}", password: {password} }} ] }}
}}
system_account: SYS
"""


class DirectoryInUse(Exception):
    """Another process already runs a server on this directory."""


class StartFailed(Exception):
    """The server ended or did not answer; the text holds the end of its log."""


class DamagedFiles(StartFailed):
    """The journal's files have holes; the server was not started, for it would drop what stands behind them."""


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
        guarded: do not start on a journal with messages missing, of which the server would drop even more.
    """

    def __init__(self, directory: Path, *, sync: str = "always", guarded: bool = True) -> None:
        self.directory = directory.absolute()
        self._guarded = guarded
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
        """Made once per directory, readable by its owner only. An empty file, as power loss may leave it, is none."""
        path = self.directory / "password"
        with contextlib.suppress(FileNotFoundError):
            if found := path.read_text().strip():
                return found
        password = secrets.token_urlsafe(24)
        _write_private(path, password)
        return password

    def start(self, timeout: float = 20.0) -> None:
        """Spawn and wait until it is healthy. Raises DirectoryInUse, StartFailed, NoServer."""
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
        if self._guarded:
            self._check_journal()
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
        """Whether it serves; finds its ports on the way. Raises StartFailed when it has ended or never will.

        A stream that was never synced may not be recoverable after power loss. It is set aside, and the server is
        started again without it: who declares the streams makes it anew.
        """
        if self._process is None or self._process.poll() is not None:
            raise StartFailed(f"nats-server ended while starting{self.log_tail()}")
        ports = self._read_ports()
        trouble = _trouble(ports.http) if ports else "its ports are not known yet"
        if lost := _UNRECOVERED.search(trouble):
            self._set_aside(lost["account"], lost["stream"], trouble)
        if trouble:
            return False
        self.ports = ports
        return True

    def _set_aside(self, account: str, stream: str, trouble: str) -> None:
        """Start again without a stream that can be rebuilt. Raises StartFailed when this one cannot."""
        if stream not in REBUILT:
            raise StartFailed(f"nats-server cannot use its store: {trouble}")
        place = self.directory / "store" / "jetstream" / account / "streams" / stream
        self.kill()
        place.rename(self.directory / f"damaged-{stream}-{time.time_ns()}")
        self.spawn()

    def stuck(self) -> str:
        """Why it stores nothing any more though its disk takes data again; empty when all is well, or still hopeless.

        After a write that failed, be it for want of room, the server refuses that stream until it is started again.
        """
        trouble = _trouble(self.ports.http, _GLANCE_S) if self.ports else ""
        return trouble if _WRITE_ERROR in trouble and self._has_room() else ""

    def _has_room(self) -> bool:
        """Whether a message of the largest size, and as much again, could be written."""
        probe = self.directory / "room"
        try:
            with probe.open("wb", buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, 2 * PAYLOAD_BYTES)
                file.write(b"room")
                os.fsync(file.fileno())
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
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
            raise DirectoryInUse(f"a nats-server already runs on {self.directory}") from error
        self._lock = descriptor

    def _check_journal(self) -> None:
        """Raises DamagedFiles."""
        files = journal_of(self.directory)
        if files.missing:
            raise DamagedFiles(_damaged(files))

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
            account=ACCOUNT,
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


def streams_of(directory: Path) -> Path:
    """Where a server on ``directory`` keeps the files of each stream."""
    return directory / "store" / "jetstream" / ACCOUNT / "streams"


def journal_of(directory: Path) -> Files:
    """Every message of the journal in the files of a server that does not run."""
    files = sorted((streams_of(directory) / JOURNAL.name / "msgs").glob("*.blk"))
    return blocks.journal(path.read_bytes() for path in files)


def _damaged(files: Files) -> str:
    found, missing = files
    first, last = missing[0][0], missing[-1][1]
    count = sum(to - since + 1 for since, to in missing)
    near = found.get(first - 1) or found[last + 1]
    stored = datetime.fromtimestamp(near.stored_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"the journal is damaged at {first}: {count} messages between {first} and {last} cannot be read, the first "
        f"was stored at about {stored}; {len(found)} can be read, up to {max(found)}. The server was "
        "not started, for it would drop what stands behind"
    )


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _trouble(http_port: int, timeout_s: float = 2.0) -> str:
    """What the server says is wrong with it; empty when it is healthy."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/healthz", timeout=timeout_s):
            return ""
    except urllib.error.HTTPError as error:
        return _error_in(error.read()) or str(error)
    except OSError as error:
        return str(error)


def _error_in(body: bytes) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(body).get("error", ""))
    return ""


def _write_private(path: Path, text: str) -> None:
    """Replace ``path`` whole and for good, readable by its owner only."""
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(directory)
    os.close(directory)


def _end_with_parent() -> None:
    """Have the kernel stop the server when this process dies, however it dies (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
