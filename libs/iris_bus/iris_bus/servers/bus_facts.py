"""What `diagnosis` finds out about NATS servers, and the name under which a process connects to
them. Pure.

See also: `iris.doctor.checks` judges them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

_NAME = re.compile(
    r"iris-(?P<service>\w+)/(?P<version>\S+) \((?P<cluster>.*)\)(?: (?P<process>[0-9a-f]{12}))?\Z"
)


class ClientName(NamedTuple):
    """The name of a process' connection, as `nats server report connections` shows it.

    ``process``: twelve hexadecimal digits that it has chosen when it started; empty: unknown.
    """

    service: str
    version: str
    cluster: str
    process: str = ""

    def __str__(self) -> str:
        name = f"iris-{self.service}/{self.version} ({self.cluster})"
        return f"{name} {self.process}" if self.process else name


def client_name(text: str) -> ClientName | None:
    """The parts of a connection's name; None for a client that is not a process of Iris."""
    match = _NAME.match(text)
    return ClientName(**match.groupdict("")) if match else None


class ServerFacts(msgspec.Struct, frozen=True):
    """One NATS server, as it describes itself to the system account.

    Attributes:
        sync_always: it syncs each message before it confirms it. sync_s: else how often it syncs,
            0: unknown.
        clock_ahead_s: its clock less this machine's. error: why it is not healthy.
        stored_bytes, max_bytes: of its store, 0: unknown.
    """

    name: str
    version: str = ""
    jetstream: bool = True
    sync_always: bool = True
    sync_s: float = 0.0
    clock_ahead_s: float = 0.0
    error: str = ""
    stored_bytes: int = 0
    max_bytes: int = 0


class StreamFacts(msgspec.Struct, frozen=True):
    """One stream or bucket.

    Attributes:
        storage: file, or memory. offline: its servers that do not answer. behind: those that
            answer and do not hold everything yet.
        declared: copies it is declared with. current: copies that hold everything and answer.
        clustered: whether its server is one of a cluster.
        stored_bytes: what it holds. limit_bytes: the most it may hold, which the server reserves;
            0: no limit.
        lost: why no state service leads on it. notes: its metadata.
    """

    name: str
    storage: str = "file"
    offline: tuple[str, ...] = ()
    declared: int = 1
    current: int = 1
    clustered: bool = False
    stored_bytes: int = 0
    limit_bytes: int = 0
    lost: str = ""
    behind: tuple[str, ...] = ()
    notes: dict[str, str] = {}


class ConnectedProcess(msgspec.Struct, frozen=True):
    """A connected process of Iris, with the account and the host it connects from.

    ``process``: its id; empty: unknown.
    """

    service: str
    version: str
    cluster: str
    account: str = ""
    host: str = ""
    process: str = ""


class KeyFacts(msgspec.Struct, frozen=True):
    """What the server lets the user of one key do; ``label``: as the file of the key is named.

    Attributes:
        publish, subscribe: subjects it may use, None: all. denied: subjects it may not publish or
            subscribe to.
        refused: why the server does not accept the key. unknown: why its permissions are not known.
    """

    label: str
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    refused: str = ""
    unknown: str = ""


class BusFacts(msgspec.Struct, frozen=True):
    """The NATS servers of a cluster as they are found.

    Attributes:
        url: without passwords. error: why none can be reached. refused: why they do not accept the
            given key.
        jetstream: false when there is none, in the server or in the account.
        account: of the given login, empty: unknown. processes: of all accounts.
        size: the number of servers that are known to belong together, 0: unknown.
        not_asked: what could not be found out, and why.
        certificates: by the address of a server with TLS, when the certificate that it shows
            expires (Unix, s). now_s: when that was looked at.
        has_targets: whether somebody is to be told of jobs; None: unknown.
    """

    url: str
    error: str = ""
    refused: str = ""
    jetstream: bool = True
    account: str = ""
    size: int = 0
    servers: tuple[ServerFacts, ...] = ()
    streams: tuple[StreamFacts, ...] = ()
    processes: tuple[ConnectedProcess, ...] = ()
    keys: tuple[KeyFacts, ...] = ()
    not_asked: tuple[str, ...] = ()
    certificates: dict[str, float] = {}
    now_s: float = 0.0
    has_targets: bool | None = None
