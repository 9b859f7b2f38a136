"""What `collect` finds out about a cluster. Types only.

Everything may be unknown: the cluster may be broken, and the caller may lack keys.
"""

from __future__ import annotations

import msgspec

from iris_bus.servers.bus_facts import BusFacts


class WorkerFacts(msgspec.Struct, frozen=True):
    """One host, as ``GET /v1/workers`` shows it.

    ``registered_s``: since the epoch, 0 unknown. ``given_up``: it goes with its slice.
    """

    id: str
    state: str
    detail: str = ""
    version: str = ""
    clock_ahead_ms: int = 0
    warnings: dict[str, str] = {}
    registered_s: float = 0.0
    given_up: bool = False


class ProcessFacts(msgspec.Struct, frozen=True):
    """A process that answers, as ``GET /v1/processes`` shows it.

    Attributes:
        clock_ahead_s: its clock less that of the gateway that was asked; None: unknown.
        certificates: by path, when each of its certificates expires (Unix, s).
        times_ahead_s: of a state service: its times of records less its own clock.
    """

    service: str
    host: str
    pid: int
    clock_ahead_s: float | None = None
    certificates: dict[str, float] = {}
    times_ahead_s: float | None = None

    def __str__(self) -> str:
        return f"{self.service} on {self.host} (pid {self.pid})"


class PoolFacts(msgspec.Struct, frozen=True):
    """A pool, as ``GET /v1/pools`` shows it. ``by_hand``: a person has paused it."""

    name: str
    provider: str
    state: str
    reason: str = ""
    by_hand: bool = False
    warnings: tuple[str, ...] = ()


class GatewayFacts(msgspec.Struct, frozen=True):
    """The gateway, and what it says about the cluster.

    Attributes:
        error: why it does not answer. token: where the token that was sent is from, empty without
            one.
        refused: why it does not accept the token. not_ready: why the cluster behind it cannot be
            used.
        failed: why the rest could not be read. unscheduled: why no scheduler answers.
        clock_ahead_s: its clock less this machine's, which it tells in whole seconds.
        workers: None when they could not be read.
        tokens: by each gateway of the cluster, a digest of the tokens it accepts from its
            token_file.
        processes: those that answered, without workers; None when they could not be read.
        deployments: whether there is one. now_s: this machine's time (Unix, s); 0: unknown.
        pools: none also of an older release. projects: the warnings of those that have some, by
            path.
    """

    url: str
    origin: str = ""
    error: str = ""
    token: str = ""
    refused: str = ""
    not_ready: str = ""
    failed: str = ""
    version: str = ""
    clock_ahead_s: float = 0.0
    workers: tuple[WorkerFacts, ...] | None = None
    dead_letters: int = 0
    unscheduled: str = ""
    tokens: dict[str, str] = {}
    processes: tuple[ProcessFacts, ...] | None = None
    deployments: bool = False
    now_s: float = 0.0
    pools: tuple[PoolFacts, ...] = ()
    projects: dict[str, tuple[str, ...]] = {}


class ClusterFacts(msgspec.Struct, frozen=True):
    """All facts.

    Attributes:
        version: of this command. data: the data directory of the local cluster, empty when there is
            none.
        free_bytes: of its file system. damage: what the last start found damaged there.
        gone: workers of the local cluster that it does not start again, and when they ended, in
        seconds. gateway, bus: None when no address is known. readable: private files of this host
            that others may read. writable: files that decide who may do what, and that others
            may change.
    """

    version: str
    data: str = ""
    free_bytes: int = 0
    damage: str = ""
    gateway: GatewayFacts | None = None
    bus: BusFacts | None = None
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    gone: dict[str, float] = {}
