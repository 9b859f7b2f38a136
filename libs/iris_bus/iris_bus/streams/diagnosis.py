"""Finds out how NATS servers are configured and which processes are connected to them, for `iris
doctor`.

It changes nothing, waits for nobody longer than seconds, and reports what it could not find out. A
server describes itself to the system account only, and a user's permissions to that user only, so
it connects with each key it has.
Source: the system services of nats-server (``$SYS.REQ.SERVER.PING.*``, ``$SYS.REQ.USER.INFO``).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from iris_bus.connection.connection import Credentials, KeyRefused, Link
from iris_bus.connection.keys import BadKey, Keys
from iris_bus.connection.requests import Forbidden, Requests
from iris_bus.contract import Unavailable
from iris_bus.servers.bus_facts import (
    BusFacts,
    ConnectedProcess,
    KeyFacts,
    ServerFacts,
    StreamFacts,
    client_name,
)
from iris_bus.servers.certificates import expiries_s
from iris_bus.servers.servers import ANSWER_S, ask_all
from iris_bus.streams.api import STREAM_NOT_FOUND, Api, ApiError, StreamInfo, standing_of
from iris_bus.streams.key_value import JetKeyValue
from iris_core.access.roles import SYSTEM, USER_INFO, Login, login_of
from iris_core.subjects import NOTIFY_BUCKET, NOTIFY_TARGETS, RECORDS_LOST, STORES

_CONNECT_S = 3.0
_NO_JETSTREAM = (10039, 10076)  # not enabled for the account, not enabled
_KEYS = 50
_CONNECTIONS = 16_384
_NS = 1_000_000_000


async def diagnose(url: str, credentials: Credentials, keys: Path | None) -> BusFacts:
    """Everything that can be found out with the given login and the keys in a directory.

    Args:
        url: one server or several separated by commas.
        keys: the directory that `iris admin nats-config` has written, None without one.
    """
    certificates, found = await asyncio.gather(
        expiries_s(url.split(",")), _diagnosed(url, credentials, keys)
    )
    return replace(found, certificates=certificates, now_s=time.time())


async def _diagnosed(url: str, credentials: Credentials, keys: Path | None) -> BusFacts:
    shown = ",".join(part.rpartition("@")[2] for part in url.split(","))
    try:
        async with _connected(url, credentials) as (link, requests):
            api = Api(requests, ANSWER_S)
            found = await _streams(api, BusFacts(shown, jetstream=link.client.has_jetstream))
            found = await _targets(JetKeyValue(link, api, NOTIFY_BUCKET), found)
            found = replace(found, account=await _account(requests))
    except KeyRefused as error:
        found = BusFacts(shown, refused=str(error))
    except (Unavailable, BadKey, OSError) as error:
        return BusFacts(shown, error=str(error))
    if keys is None:
        why = "the servers' settings and clocks, the permissions and the connected processes were not checked"
        return _without(found, f"{why}: no keys/system.seed is beside the given key")
    users, left = _users(keys)
    found = replace(found, keys=tuple([await _key(url, keys, credentials, user) for user in users]))
    if left:
        found = _without(found, f"{left} keys of {keys} were not checked")
    try:
        async with _connected(url, _with(credentials, Keys(keys).path(SYSTEM))) as (link, _):
            return replace(found, **await _system(link))
    except (Unavailable, BadKey, OSError) as error:
        return _without(
            found,
            f"the servers' settings and clocks and the connected processes were not checked: {error}",
        )


def _without(found: BusFacts, note: str) -> BusFacts:
    return replace(found, not_asked=(*found.not_asked, note))


@asynccontextmanager
async def _connected(url: str, credentials: Credentials) -> AsyncIterator[tuple[Link, Requests]]:
    """A connection. Raises Unavailable, KeyRefused, BadKey, OSError."""
    link = Link(lambda _: None)
    await link.open(
        [server.strip() for server in url.split(",")], "iris-doctor", credentials, _CONNECT_S
    )
    try:
        requests = Requests(link)
        await requests.start()
        yield link, requests
    finally:
        await link.close()


def _with(credentials: Credentials, seed: Path) -> Credentials:
    return dataclasses.replace(credentials, nkey_seed=str(seed))


# ── the account ───────────────────────────────────────────────────────────────────────────────────


async def _streams(api: Api, found: BusFacts) -> BusFacts:
    """With the streams there are."""
    for name in STORES if found.jetstream else ():
        try:
            info = await api.info(name)
        except ApiError as error:
            if error.number in _NO_JETSTREAM:
                return replace(found, jetstream=False)
            if error.number != STREAM_NOT_FOUND:
                found = _without(found, f"{name} was not checked: {error}")
        except Unavailable as error:
            found = _without(found, f"{name} was not checked: {error}")
        else:
            found = replace(found, streams=(*found.streams, _stream(name, info)))
    return found


def _stream(name: str, info: StreamInfo) -> StreamFacts:
    silent = (peer.name for peer in info.cluster.replicas if peer.is_silent)
    behind = (
        peer.name for peer in info.cluster.replicas if not peer.is_silent and not peer.current
    )
    standing = standing_of(info, 1)
    return StreamFacts(
        name,
        str(info.config.get("storage", "file")),
        tuple(sorted(silent)),
        declared=standing.declared,
        current=standing.current,
        clustered=bool(info.cluster.name),
        stored_bytes=standing.bytes,
        limit_bytes=standing.limit_bytes,
        lost=standing.notes.get(RECORDS_LOST, ""),
        behind=tuple(sorted(behind)),
        notes=dict(standing.notes),
    )


async def _targets(bucket: JetKeyValue, found: BusFacts) -> BusFacts:
    """With whether there is a target of the notifier."""
    if f"KV_{NOTIFY_BUCKET}" not in [stream.name for stream in found.streams]:
        return found
    try:
        return replace(found, has_targets=await bucket.is_any(f"{NOTIFY_TARGETS}.>"))
    except Unavailable as error:
        return _without(found, f"targets of messages were not looked for: {error}")


async def _account(requests: Requests) -> str:
    """The account of the given login; empty when the server does not tell."""
    try:
        answer = await requests.request(USER_INFO, b"", ANSWER_S)
    except Unavailable:
        return ""
    return str((msgspec.json.decode(answer.data).get("data") or {}).get("account", ""))


def _users(keys: Path) -> tuple[list[Login], int]:
    """The users of the keys in a directory, services first, and how many more there are."""
    labels = sorted(path.stem for path in keys.glob("*.seed"))
    users = sorted(
        (user for label in labels if (user := login_of(label)) is not None),
        key=lambda user: bool(user.token),
    )
    return users[:_KEYS], len(users[_KEYS:])


async def _key(url: str, keys: Path, credentials: Credentials, user: Login) -> KeyFacts:
    """What the server lets one user do."""
    try:
        async with _connected(url, _with(credentials, Keys(keys).path(user.label))) as (
            _,
            requests,
        ):
            answer = await requests.request(USER_INFO, b"", ANSWER_S)
    except KeyRefused as error:
        return KeyFacts(user.label, refused=str(error))
    except Forbidden:
        return KeyFacts(user.label, denied=(USER_INFO,))
    except (Unavailable, BadKey, OSError) as error:
        return KeyFacts(user.label, unknown=str(error))
    return key_facts(user.label, answer.data)


def key_facts(label: str, answer: bytes) -> KeyFacts:
    """The facts in an answer to ``$SYS.REQ.USER.INFO``."""
    allowed = (msgspec.json.decode(answer).get("data") or {}).get("permissions") or {}
    publish = allowed.get("publish") or {}
    subscribe = allowed.get("subscribe") or {}
    denied = (*(publish.get("deny") or ()), *(subscribe.get("deny") or ()))
    return KeyFacts(label, _subjects(publish), _subjects(subscribe), denied)


def _subjects(side: dict[str, Any]) -> tuple[str, ...] | None:
    return tuple(side["allow"]) if side.get("allow") else None


# ── the servers ───────────────────────────────────────────────────────────────────────────────────


async def _system(link: Link) -> dict[str, Any]:
    """``servers``, ``size`` and ``processes``, from all servers that answer. Raises Unavailable."""
    everybody = msgspec.json.encode({"auth": True, "limit": _CONNECTIONS})
    settings, health, connections = await asyncio.gather(
        ask_all(link, "VARZ", b""), ask_all(link, "HEALTHZ", b""), ask_all(link, "CONNZ", everybody)
    )
    errors = {answer["server"]["id"]: _error(answer) for answer, _ in health}
    metas = [((answer["data"].get("jetstream") or {}).get("meta") or {}) for answer, _ in settings]
    return {
        "servers": tuple(_server(answer, at, errors) for answer, at in settings),
        "size": max((meta.get("cluster_size", 0) for meta in metas), default=0),
        "processes": tuple(_processes(answer for answer, _ in connections)),
    }


def _server(answer: dict[str, Any], at_s: float, errors: dict[str, str]) -> ServerFacts:
    about = answer["server"]
    data = answer["data"]
    jetstream = data.get("jetstream") or {}
    config = jetstream.get("config") or {}
    stats = jetstream.get("stats") or {}
    return ServerFacts(
        name=about["name"],
        version=about.get("ver", ""),
        jetstream=bool(config),
        sync_always=bool(config.get("sync_always")),
        sync_s=config.get("sync_interval", 0) / _NS,
        clock_ahead_s=round(datetime.fromisoformat(about["time"]).timestamp() - at_s, 3),
        error=errors.get(about["id"], ""),
        stored_bytes=stats.get("storage", 0),
        max_bytes=config.get("max_storage", 0),
    )


def _error(answer: dict[str, Any]) -> str:
    data = answer.get("data") or {}
    return str(data.get("error") or (answer.get("error") or {}).get("description") or "")


def _processes(answers: Iterable[dict[str, Any]]) -> Iterator[ConnectedProcess]:
    """Each process once: a server keeps the connection of one that has connected anew, here or to
    another server, until it notices that nothing comes on the old one.
    """
    seen: set[str] = set()
    for answer in answers:
        for row in (answer.get("data") or {}).get("connections") or ():
            name = client_name(row.get("name", ""))
            if name is None or name.process in seen:
                continue
            if name.process:
                seen.add(name.process)
            yield ConnectedProcess(
                name.service,
                name.version,
                name.cluster,
                account=row.get("account", ""),
                host=row.get("ip", ""),
                process=name.process,
            )
