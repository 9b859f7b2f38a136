"""Runs a local `nats-server` on a private directory, which it locks, with a configuration written
before each start.

Everything here is synchronous, so that fixtures and scripts can use it. Out of scope: restarts (the
supervisor of `iris up`). Source: docs/design/nats.md#embedded-server.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import subprocess
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from iris_bus.connection.accounts import accounts
from iris_bus.connection.conf_strings import quoted
from iris_bus.connection.connection import Credentials
from iris_bus.connection.keys import BadKey, Keys, public_key, signed, write_private
from iris_core.access.roles import ACCOUNT, ROLES, SYSTEM, login
from iris_core.subjects import JOURNAL, STREAMS
from iris_nats import blocks, nats_binary, nats_health
from iris_nats.blocks import Files
from iris_service.child import ChildProcess, DamagedFiles, Program, StartFailed
from iris_service.listening import reserve
from iris_service.lock import lock

PAYLOAD_BYTES = 8 << 20
REBUILT = frozenset(stream.name for stream in STREAMS if not stream.fsync)
"""Streams that are not synced to disk, because their messages can be made again from the
journal.
"""
_UNRECOVERED = re.compile(r"stream '(?P<account>\S+) > (?P<stream>\S+)' could not be recovered")
_WRITE_ERROR = "write error"
_GLANCE_S = 0.25
_LOOKS = 3
"""How often in a row a server has to look stuck before it is restarted, or a stream lost before a
start gives it up.
"""
_READS = 2
"""A server that reads its configuration again gives a new account its imports at the second time."""

LIMITS = f"""\
max_payload: {PAYLOAD_BYTES}
max_pending: 256MB
max_connections: 65536
ping_interval: "20s"
lame_duck_grace_period: "1s"
"""
"""Of every server for Iris, in its configuration. No client of Iris does anything in the grace
period of a server that is being stopped; NATS's default is 10 s.
"""
TIMER_SLACK_NS = 200_000
"""How late the kernel may wake a server. While one of its threads works, another of Go's sleeps 20
us and looks, again and again; each time costs as much as many messages.
"""
_CONFIG = """\
server_name: "iris-embedded"
listen: "127.0.0.1:{port}"
pid_file: {pid_file}
log_file: {log_file}
logfile_size_limit: 64MB
logfile_max_num: 3
{limits}jetstream {{
  store_dir: {store}
  max_memory_store: 1GB
  max_file_store: 1TB
  sync_interval: {sync}
}}
{accounts}"""
OBSERVER = "local"
"""The name of the observer of a local cluster."""


class NatsProcess(ChildProcess):
    """A server on ``directory``, which it owns: mode 0700, one lock, a key for each user. Its port
    is reserved from the first start until this object ends, so that it is free for each restart.

    Args:
        directory: made when missing.
        workers: the names of workers that get a key; those of earlier starts keep theirs.
        program: the `nats-server` to run; empty: the one that is found.
        sync: ``sync_interval`` of the store; "always" is what durability rests on.
        guarded: refuse to start on a journal with missing messages, because the server would drop
            more of them.
    """

    def __init__(
        self,
        directory: Path,
        workers: Sequence[str] = (),
        *,
        program: str = "",
        sync: str = "always",
        guarded: bool = True,
    ) -> None:
        self.directory = directory.absolute()
        self.keys = keys_of(self.directory)
        self.port = 0
        self._workers = workers
        self._config = self.directory / "nats.conf"
        self._program = nats_binary.find(program)
        argv = [str(self._program), "-c", str(self._config)]
        environment = {"GOMEMLIMIT": "2GiB", **os.environ}
        super().__init__(
            Program("nats", "nats-server", argv, environment, timer_slack_ns=TIMER_SLACK_NS)
        )
        self._guarded = guarded
        self._run = self.directory / "run"
        self._own_log = self.directory / "nats.log"
        self._sync = sync
        self._lock: int | None = None
        self._unread = False
        self._lost = ""
        self._present: frozenset[str] = frozenset()
        self._doubts = 0

    @property
    def url(self) -> str:
        """Raises StartFailed before the first start."""
        if not self.port:
            raise StartFailed("the server has not been started")
        return f"nats://127.0.0.1:{self.port}"

    def credentials(self, role: str, name: str = "") -> Credentials:
        """The credentials of a service, or of the worker or observer ``name``. Raises KeyError for
        an unknown role.
        """
        return Credentials(str(self.keys.path(login(role, name).label)))

    def start(
        self, timeout: float = 120.0, is_given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Spawn and wait until it is healthy, or given up. Raises DirectoryInUse, StartFailed,
        OSError.
        """
        deadline = time.monotonic() + timeout
        try:
            self.spawn(time.monotonic())
            while trouble := self._trouble_while_starting():
                if self._says_again(self._is_unrecovered(trouble)):
                    if self._lost not in REBUILT:
                        raise StartFailed(f"nats-server cannot use its store: {trouble}")
                    self.kill()
                    self.spawn(time.monotonic())
                if is_given_up():
                    raise StartFailed("it was stopped while it started")
                if time.monotonic() > deadline:
                    raise StartFailed(
                        f"nats-server did not become ready in {timeout:.0f} s{self._log_tail()}"
                    )
                time.sleep(_GLANCE_S if self._doubts else 0.005)
        except BaseException:
            self.stop()
            raise

    def admit(self, workers: Sequence[str]) -> str:
        """Give more workers a key and an account, which the running server reads at once. Returns
        why it has not read them, in which case the next call has it try again; empty: it knows all.

        Raises StartFailed for a key that is damaged, OSError.
        """
        new = sorted(set(workers) - set(self._workers))
        if new:
            self._workers = [*self._workers, *new]
            self._unread = True
        if not self._unread or not self.pid:
            return ""
        self._render()
        for _ in range(_READS):
            if trouble := nats_health.read_again(self.port, self._sign):
                return trouble
        self._unread = False
        return ""

    def prepare(self) -> None:
        """Take the lock and a port, verify the journal, and write the configuration."""
        nats_binary.check(self._program)
        self._take_lock()
        self._take_port()
        self._set_aside()
        self._present = frozenset(path.name for path in streams_of(self.directory).glob("[!.]*"))
        self._doubts = 0
        self._unread = False
        if self._guarded and (files := journal_of(self.directory)).missing:
            raise DamagedFiles(_damaged(files))
        self._render()

    def why_restart(self) -> str:
        """A stream was not recovered, or a write to it failed (a full disk, say) and the disk has
        space again.

        The server refuses such a stream until it is restarted.
        """
        trouble = nats_health.trouble(self.port, self._sign, _GLANCE_S) if self.port else ""
        is_stuck = _WRITE_ERROR in trouble and self._has_room()
        return trouble if self._says_again(self._is_unrecovered(trouble) or is_stuck) else ""

    def _says_again(self, is_lost: bool) -> bool:
        """Whether it says so several times in a row: a slow one may, of a stream that it looks
        after just then.
        """
        self._doubts = self._doubts + 1 if is_lost else 0
        return self._doubts >= _LOOKS

    def _trouble_while_starting(self) -> str:
        """Why it does not serve yet, empty once it does. Raises StartFailed when it has ended."""
        if self.look(time.monotonic()) is not None:
            raise StartFailed(self._why_it_ended())
        return nats_health.trouble(self.port, self._sign)

    def _is_unrecovered(self, trouble: str) -> bool:
        """Of a stream that was there before the start; one that is being made is not recovered
        either, nor one that was deleted, whose directory has a dot until its files are gone.
        """
        lost = _UNRECOVERED.search(trouble)
        self._lost = lost["stream"] if lost is not None and lost["stream"] in self._present else ""
        return bool(self._lost)

    def _set_aside(self) -> None:
        """Move the files of an unrecovered stream away if its content can be rebuilt, so that the
        server starts without it.

        An unsynced stream may be unrecoverable after a power loss. The service that declares the
        streams creates it again.
        """
        stream = self._lost
        self._lost = ""
        if stream in REBUILT:
            place = streams_of(self.directory) / stream
            place.rename(self.directory / f"damaged-{stream}-{time.time_ns()}")

    def _has_room(self) -> bool:
        """Whether the disk has space for two messages of the largest size."""
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

    def stop(self, grace_s: float = 15.0) -> None:
        """Stop the child and release the lock of the directory."""
        super().stop(grace_s)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _why_it_ended(self) -> str:
        """Why it ended while starting. The log lacks what it finds wrong with its configuration; a
        check says that.
        """
        checked = subprocess.run(
            [*self.program.argv, "-t"], capture_output=True, text=True, timeout=20, check=False
        )
        if checked.returncode != 0:
            return f"nats-server refuses its configuration: {checked.stderr.strip()}"
        return f"nats-server ended while starting{self._log_tail()}"

    def _log_tail(self, lines: int = 5) -> str:
        """The last lines of its log, indented under a heading; empty when there is none."""
        with contextlib.suppress(OSError):
            return "".join(
                f"\n  {line}"
                for line in self._own_log.read_text(errors="replace").splitlines()[-lines:]
            )
        return ""

    def _take_lock(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self._run.mkdir(mode=0o700, exist_ok=True)
        if self._lock is None:
            self._lock = lock(self.directory, f"a nats-server already runs on {self.directory}")

    def _take_port(self) -> None:
        if not self.port:
            reserved = reserve("127.0.0.1", 0)
            self.port = reserved.getsockname()[1]
            weakref.finalize(self, os.close, reserved.detach())

    def _render(self) -> None:
        text = _CONFIG.format(
            port=self.port,
            pid_file=quoted(str(self._run / "nats.pid")),
            log_file=quoted(str(self._own_log)),
            store=quoted(str(self.directory / "store")),
            sync=quoted(self._sync),
            limits=LIMITS,
            accounts=self._accounts(),
        )
        write_private(self._config, text)

    def _accounts(self) -> str:
        """The users there are, whose keys are made when they have none. Raises StartFailed for a
        key that is damaged.
        """
        users = [login(role.name) for role in ROLES if not role.alone]
        users += [login("observer", OBSERVER), *(login("worker", name) for name in self._workers)]
        try:
            return accounts(self.keys.ensure([SYSTEM, *(user.label for user in users)]))
        except BadKey as error:
            raise StartFailed(str(error)) from error

    def _sign(self, nonce: str) -> dict[str, str]:
        """Who asks for the server's health."""
        seed = self.keys.path(SYSTEM)
        proof = base64.urlsafe_b64encode(signed(seed, nonce)).decode().rstrip("=")
        return {"nkey": public_key(seed), "sig": proof}


def streams_of(directory: Path) -> Path:
    """The directory of each stream's files, for a server on ``directory``."""
    return directory / "store" / "jetstream" / ACCOUNT / "streams"


def keys_of(directory: Path) -> Keys:
    """The keys of the users of a server on ``directory``."""
    return Keys(directory / "keys")


def journal_of(directory: Path) -> Files:
    """Every message of the journal, read from the files of a stopped server."""
    files = sorted((streams_of(directory) / JOURNAL.name / "msgs").glob("*.blk"))
    return blocks.journal(path.read_bytes() for path in files)


def _damaged(files: Files) -> str:
    found, missing = files
    first = missing[0][0]
    last = missing[-1][1]
    count = sum(to - since + 1 for since, to in missing)
    near = found.get(first - 1) or found[last + 1]
    stored = datetime.fromtimestamp(near.stored_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"the journal is damaged at {first}: {count} messages between {first} and {last} cannot be read, the first "
        f"was stored at about {stored}; {len(found)} can be read, up to {max(found)}. The server was "
        "not started, for it would drop what stands behind"
    )
