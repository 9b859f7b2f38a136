"""Paths of a local cluster below its data directory, and the files that others read."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from iris.client.http.address import CLUSTER_FILE, DAMAGE_FILE, ClusterFile, read_token
from iris.client.http.contexts import replace_private
from iris.client.problems import InvalidOption
from iris_bus.connection.keys import Keys, write_private
from iris_core.access.token_file import digest_of, line_of, parse_tokens, token_of, unusable
from iris_nats.nats_process import keys_of
from iris_service.directories import make_directory
from iris_service.lock import lock

_LOOK_S = 0.01
_WRITES_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class ClusterPaths:
    """Paths below one data directory."""

    data: Path

    @property
    def cluster_file(self) -> Path:
        """The address and process ids while the cluster runs, for scripts."""
        return self.data / CLUSTER_FILE

    @property
    def lock(self) -> Path:
        """Locked by the supervisor while it runs; holds its process id."""
        return self.data / "lock"

    @property
    def logs(self) -> Path:
        return self.data / "log"

    @property
    def nats(self) -> Path:
        return self.data / "nats"

    @property
    def keys(self) -> Keys:
        """The keys of the processes on the NATS server."""
        return keys_of(self.nats)

    @property
    def damage(self) -> Path:
        """The report of damaged data at the last start; absent when there was none."""
        return self.data / DAMAGE_FILE

    @property
    def failure(self) -> Path:
        """Why a process ended during the last start; absent when none did."""
        return self.data / "failure.txt"

    @property
    def discovery(self) -> Path:
        """The last discovery of the proxies."""
        return self.data / "discovery.json"

    @property
    def token(self) -> Path:
        """The token of the admin that the cluster's owner is, if the gateway wants tokens."""
        return self.data / "token"

    @property
    def token_file(self) -> Path:
        """The gateway's token file, with that token's line; more may be added."""
        return self.data / "tokens"

    @property
    def workers(self) -> Path:
        """Holds the data directories of the workers."""
        return self.data / "workers"

    @property
    def fleet(self) -> Path:
        """Holds the directories of the slices that the provisioner has made."""
        return self.data / "fleet"

    @property
    def pools(self) -> Path:
        """The versions of the pools that `iris up` has set, by name."""
        return self.data / "pools.json"

    @property
    def wanted_keys(self) -> Path:
        """Which hosts of pools have no key, as the provisioner says."""
        return self.data / "wanted-keys.json"

    def worker(self, worker: str) -> Path:
        """The data directory of one worker."""
        return self.workers / worker

    def prepare(self) -> None:
        """Make the directories. Users of tasks pass those above their own, whose names they do not
        see; every file that lies there, and every other directory, is the owner's only.
        """
        make_directory(self.data, passed=True)
        make_directory(self.logs)
        make_directory(self.workers, passed=True)


def take_lock(paths: ClusterPaths) -> int:
    """Lock the directory while the returned descriptor is open. Raises DirectoryInUse."""
    descriptor = lock(
        paths.data,
        f"a cluster is already up, or starting, on {paths.data}; stop it with `iris down`",
    )
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def note_damage(paths: ClusterPaths, what: str) -> str:
    """Record for `iris doctor` that stored data is damaged, and what to do."""
    words = (
        f"{what}. Stop what is left with `iris down`; `iris admin verify --data {paths.data}` says what is lost, "
        f"`iris admin repair --data {paths.data}` repairs it; details are in {paths.logs}"
    )
    write_private(paths.damage, words)
    return words


def make_token(paths: ClusterPaths, user: str) -> None:
    """Make the token of an admin, and the gateway's token file with it, unless they are there.
    Raises OSError; InvalidOption when one of them is damaged, or they do not belong together.
    """
    kept = read_token(str(paths.token))
    secret = kept or f"iris_{secrets.token_urlsafe(32)}"
    try:
        lines = paths.token_file.read_text() if paths.token_file.exists() else ""
        tokens = parse_tokens(lines)
    except ValueError as error:
        raise OSError(f"[gateway] token_file: {unusable(str(paths.token_file), error)}") from error
    if digest_of(secret) in {token.digest for token in tokens}:
        return
    if kept and tokens:
        raise InvalidOption(
            f"{paths.token} holds a token that {paths.token_file} does not accept: one of them is damaged or was "
            f"changed; delete {paths.token}, and the next start makes another"
        )
    write_private(paths.token_file, lines + line_of(token_of(user, "admin", secret)))
    write_private(paths.token, secret + "\n")


def lock_holder(paths: ClusterPaths) -> int | None:
    """The process id of the supervisor that holds the lock, None when there is none. Raises
    InvalidOption when the file does not say it.
    """
    try:
        descriptor = os.open(paths.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    until = time.monotonic() + _WRITES_WITHIN_S
    try:
        while _is_locked(descriptor):
            if (text := os.pread(descriptor, 32, 0)).isdigit():
                return int(text)
            if time.monotonic() > until:
                raise InvalidOption(
                    f"{paths.lock} is damaged: it does not hold the process id of the cluster that has locked it; "
                    f"end that process yourself: `fuser {paths.lock}` names it"
                )
            time.sleep(_LOOK_S)  # it has the lock, and is about to write
    finally:
        os.close(descriptor)
    return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def write_cluster(paths: ClusterPaths, cluster: ClusterFile) -> None:
    """Replace ``cluster.json`` atomically; readable by the owner only."""
    replace_private(paths.cluster_file, cluster)
