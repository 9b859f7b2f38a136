"""The table of roles and their permissions on the bus; every NATS server configuration is generated
from it. Pure.

The services share the account IRIS, each with its own permissions. A worker or an observer has its
own account, with only the subjects of this table. Permissions alone do not confine it: the server
sends the answer of a stream to any reply subject that the requester names, so to any subject of the
requester's account.
Source: docs/adr/0030-one-account-per-worker.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from iris_core.names import to_token
from iris_core.subjects import (
    ARTIFACTS,
    BUNDLES_BUCKET,
    DISCOVERY_BUCKET,
    EVENTS,
    INBOXES,
    KEYS_BUCKET,
    LOGS,
    NOTIFY_BUCKET,
    RESULTS,
    SNAPSHOTS_BUCKET,
    STATE_COMMAND,
    STATE_PING,
    STORES,
    STREAMS,
    SUBJECTS,
    MessagePattern,
)

ACCOUNT = "IRIS"
USER_INFO = "$SYS.REQ.USER.INFO"
"""Where the server tells a user what that user may do, for `iris doctor`."""
SERVER_STORAGE = "$SYS.REQ.SERVER.PING.JSZ"
"""Where every server tells what it may store and has stored, by way of the system account."""
SYSTEM = "system"
"""The user of the system account."""
_ANYONE = "anyone"

_GET = ("DIRECT.GET.{0}",)
_READ = (
    *_GET,
    *("STREAM.MSG.GET.{0}", "STREAM.INFO.{0}"),
    *("CONSUMER.CREATE.{0}.>", "CONSUMER.MSG.NEXT.{0}.*", "CONSUMER.DELETE.{0}.*"),
)
_PUT = (*_READ, "STREAM.PURGE.{0}")
_DECLARE = (*_PUT, "STREAM.CREATE.{0}", "STREAM.UPDATE.{0}", "STREAM.LEADER.STEPDOWN.{0}")
_CALLS = {
    "get": _GET,
    "read": _READ,
    "put": _PUT,
    "declare": _DECLARE,
    "replace": (*_DECLARE, "STREAM.DELETE.{0}"),
}
"""Calls of the JetStream API by what they are for: single messages; also to follow, to replace an
object, to declare and trim a store, to make it anew."""

_BUNDLES = f"OBJ_{BUNDLES_BUCKET}"
_SNAPSHOTS = f"OBJ_{SNAPSHOTS_BUCKET}"
_DISCOVERY = f"KV_{DISCOVERY_BUCKET}"
_KEYS = f"KV_{KEYS_BUCKET}"
_NOTIFY = f"KV_{NOTIFY_BUCKET}"
_STORED_ON = {
    **{stream.name: stream.subjects for stream in STREAMS},
    _BUNDLES: (f"$O.{BUNDLES_BUCKET}.>",),
    _SNAPSHOTS: (f"$O.{SNAPSHOTS_BUCKET}.>",),
    _DISCOVERY: (f"$KV.{DISCOVERY_BUCKET}.>",),
    _KEYS: (f"$KV.{KEYS_BUCKET}.>",),
    _NOTIFY: (f"$KV.{NOTIFY_BUCKET}.>",),
}


@dataclass(frozen=True, slots=True)
class BusRole:
    """One role. The table of subjects has what it publishes and subscribes to, under its name.

    Attributes:
        alone: each user of the role has its own account.
        stores: its access to each store: get, read, put, declare or replace.
        writes: stores it may publish to.
        answers: it may answer each request that reaches it once; "all": on any inbox, any number of
        times. publishes, subscribes: further subjects.
    """

    name: str
    why: str
    alone: bool = False
    stores: Mapping[str, str] = field(default_factory=dict)
    writes: tuple[str, ...] = ()
    answers: str = ""
    publishes: tuple[str, ...] = ()
    subscribes: tuple[str, ...] = ()


ROLES = (
    BusRole(
        "state",
        "keeps every record, and all streams",
        stores=dict.fromkeys(STORES, "declare"),
        writes=(_BUNDLES, _SNAPSHOTS, _DISCOVERY, _KEYS),
        answers="all",
        publishes=(SERVER_STORAGE,),
        subscribes=(STATE_COMMAND,),
    ),
    BusRole("scheduler", "proposes where tasks run", answers="once"),
    BusRole(
        "gateway",
        "passes on what people want, and shows them events and output",
        stores={
            **dict.fromkeys(
                (EVENTS.name, LOGS.name, ARTIFACTS.name, RESULTS.name, _DISCOVERY, _KEYS), "read"
            ),
            _BUNDLES: "put",
        },
        writes=(_BUNDLES,),
        answers="once",
    ),
    BusRole("proxy", "forwards requests to routes", stores={_DISCOVERY: "read"}, answers="once"),
    BusRole("provisioner", "makes and deletes slices, as it is ordered to", answers="once"),
    BusRole(
        "notifier",
        "tells people and programs of their jobs",
        stores={EVENTS.name: "read", _NOTIFY: "put"},
        writes=(_NOTIFY,),
        answers="once",
    ),
    BusRole(
        "admin",
        "verifies, repairs, backs up and restores what is stored",
        stores=dict.fromkeys(STORES, "replace"),
        writes=STORES,
        publishes=(STATE_PING,),
    ),
    BusRole(
        "worker", "runs tasks on one host", alone=True, stores={_BUNDLES: "get"}, answers="once"
    ),
    BusRole(
        "observer",
        "watches public events, and does nothing",
        alone=True,
        stores={EVENTS.name: "get"},
    ),
)
BY_NAME = {role.name: role for role in ROLES}


@dataclass(frozen=True, slots=True)
class Login:
    """A user of the server: a service, or one worker or observer.

    Attributes:
        token: of a worker's or observer's name; empty for a service.
    """

    role: str
    token: str = ""

    @property
    def label(self) -> str:
        """The name of its key file, and of its own account if it has one."""
        return f"{self.role}-{self.token}" if self.token else self.role


@dataclass(frozen=True, slots=True)
class Permissions:
    """The subjects that one user may publish and subscribe to, without its inboxes."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: str = ""


def login(role: str, name: str = "") -> Login:
    """The login of a service, or of the worker or observer ``name``. Raises KeyError for an unknown
    role.
    """
    known = BY_NAME[role]
    return Login(known.name, to_token(name) if known.alone else "")


def login_of(label: str) -> Login | None:
    """The login with that label; None if no role has it, such as `SYSTEM`."""
    role, _, token = label.partition("-")
    known = BY_NAME.get(role)
    return Login(role, token) if known is not None and known.alone == bool(token) else None


def permissions(user: Login) -> Permissions:
    """All permissions of a user, from the tables."""
    role = BY_NAME[user.role]
    publish = [*_bound(_written(role), user), *role.publishes, *calls(role), USER_INFO]
    publish += [subject for store in role.writes for subject in _STORED_ON[store]]
    if role.answers == "all":
        publish += [f"{prefix}>" for prefix in INBOXES]
    return Permissions(
        tuple(dict.fromkeys(publish)),
        tuple(_bound((*_heard(role), *_watched(role), *role.subscribes), user)),
        role.answers,
    )


def calls(role: BusRole) -> tuple[str, ...]:
    """The subjects of the JetStream API it may call."""
    return tuple(
        f"$JS.API.{call.format(store)}"
        for store, what in role.stores.items()
        for call in _CALLS[what]
    )


def hears(role: str, subject: str) -> bool:
    """Whether a role subscribes to that subject of the table."""
    return role in BY_NAME and subject in _heard(BY_NAME[role])


def exported(role: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The subjects shared with a role's account: requests it makes, requests to it, subjects it may
    watch.
    """
    known = BY_NAME[role]
    return (*_written(known), *calls(known)), tuple(_heard(known)), tuple(_watched(known))


def bound(pattern: str, user: Login) -> str:
    """A pattern for one user: the token of a user with its own account replaces the first ``*``."""
    return (
        pattern.replace("*", user.token, 1)
        if user.token and pattern.startswith("iris.")
        else pattern
    )


def _bound(patterns: tuple[str, ...] | Iterator[str], user: Login) -> list[str]:
    return [bound(pattern, user) for pattern in patterns]


def _written(role: BusRole) -> tuple[str, ...]:
    return tuple(row.pattern for row in SUBJECTS if role.name in _parties(row.writer))


def _heard(role: BusRole) -> tuple[str, ...]:
    """The subjects without a stream; others are read from their stream."""
    rows = [row for row in SUBJECTS if row.kept is not MessagePattern.STREAM]
    return tuple(row.pattern for row in rows if role.name in _parties(row.reader))


def _watched(role: BusRole) -> tuple[str, ...]:
    """The subjects that any observer may watch."""
    return (
        tuple(row.pattern for row in SUBJECTS if row.reader == _ANYONE)
        if role.name == "observer"
        else ()
    )


def _parties(column: str) -> set[str]:
    """The roles in ``state (standby), gateway``."""
    return {part.partition(" ")[0] for part in column.split(", ")}
