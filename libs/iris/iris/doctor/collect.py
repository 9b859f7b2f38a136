"""Collects the facts that `checks` judges, from this machine, the gateway and the NATS servers of a
cluster.

Each source may be missing or broken; none is waited for longer than seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec

from iris.client.client import Client
from iris.client.http.address import DAMAGE_FILE, Address, ClusterFile, read_cluster
from iris.client.http.transport import HttpRequest, Response
from iris.client.problems import ClientError, NotAllowed, NotFound, TryAgain
from iris.doctor.facts import ClusterFacts, GatewayFacts, PoolFacts, ProcessFacts, WorkerFacts
from iris_bus.servers.bus_facts import BusFacts
from iris_core.views.cluster import ProcessView, WorkerView
from iris_core.views.fleet import PoolView
from iris_service.version import VERSION

_SYSTEM_SEED = "system.seed"


class _Release(msgspec.Struct):
    version: str


class _Letters(msgspec.Struct):
    total: int = 0


class _Some(msgspec.Struct):
    items: list[msgspec.Raw]


class _Processes(msgspec.Struct):
    items: list[ProcessView]


def collect(client: Client | None, data: Path, nats: str, config: str) -> ClusterFacts:
    """All facts.

    Args:
        client: of the gateway, without retries; None when no gateway is known.
        data: the data directory of the local cluster, which may be empty.
        nats, config: where the NATS servers are, and an `iris.toml`; empty: those of the local
            cluster.

    Raises BadSetting for an invalid file.
    """
    damage = ""
    local = read_cluster(data)
    with contextlib.suppress(OSError):
        damage = (data / DAMAGE_FILE).read_text()
    is_local = client is None or (local is not None and local.url == client.address.url)
    stores = is_local and (data / "nats").is_dir()
    return ClusterFacts(
        version=VERSION,
        data=str(data) if stores else "",
        free_bytes=shutil.disk_usage(data).free if stores else 0,
        damage=damage and f"stored data: {damage}",
        gateway=gateway_facts(client) if client is not None else None,
        gone=local.gone if is_local and local is not None else {},
        bus=bus_facts(local if is_local else None, nats, config),
        readable=readable_by_others(dict.fromkeys(private_files(data, config)))
        if has_server_extra()
        else (),
        writable=writable_by_others(deciding_files(config)) if has_server_extra() else (),
    )


def _worker(row: WorkerView) -> WorkerFacts:
    registered_s = row.registered_at.timestamp() if row.registered_at else 0.0
    return WorkerFacts(
        row.id,
        row.state,
        row.detail,
        row.version,
        clock_ahead_ms=row.clock_ahead_ms,
        warnings=row.warnings,
        registered_s=registered_s,
        given_up=row.given_up,
    )


def has_server_extra() -> bool:
    """Whether what reads configuration and NATS is installed."""
    return importlib.util.find_spec("nats") is not None


def gateway_facts(client: Client) -> GatewayFacts:
    """What the gateway tells: first what it tells everybody, then what needs a token and a state
    service.
    """
    address = client.address
    found = GatewayFacts(address.url, address.origin, token=_origin_of_token(address))
    try:
        begun = time.time()
        meta = client.transport.send(HttpRequest("GET", "/v1/meta"))
        ahead_s = _clock_of(meta, begun, time.time())
    except ClientError as error:
        return msgspec.structs.replace(found, error=str(error))
    version = msgspec.json.decode(meta.body, type=_Release).version
    found = msgspec.structs.replace(found, version=version, clock_ahead_s=ahead_s, now_s=begun)
    try:
        client.transport.send(HttpRequest("GET", "/readyz"))
    except ClientError as error:
        found = msgspec.structs.replace(found, not_ready=str(error))
    try:
        rows = client.pages("/v1/workers", WorkerView)
        workers = tuple(map(_worker, rows))
        letters = client.get("/v1/dead-letters", _Letters).total
        deployments = client.get("/v1/deployments?limit=1", _Some).items
        pools = tuple(pools_of(client))
        projects = dict(warned_projects(client))
    except NotAllowed as error:
        return msgspec.structs.replace(found, refused=str(error))
    except ClientError as error:
        return msgspec.structs.replace(found, failed="" if found.not_ready else str(error))
    unscheduled = "" if found.not_ready else silence_of_schedulers(client)
    answering = processes_that_answer(client)
    return msgspec.structs.replace(
        found,
        workers=workers,
        dead_letters=letters,
        deployments=bool(deployments),
        pools=pools,
        projects=projects,
        unscheduled=unscheduled,
        tokens={f"{one.host} (pid {one.pid})": one.tokens for one in answering or () if one.tokens},
        processes=tuple(map(_process, answering)) if answering is not None else None,
    )


def pools_of(client: Client) -> Iterator[PoolFacts]:
    """The pools; none of a gateway of an earlier release, which has no such path."""
    with contextlib.suppress(NotFound):
        for row in client.pages("/v1/pools", PoolView):
            yield PoolFacts(
                row.name,
                row.provider,
                row.state,
                row.reason,
                by_hand=row.paused,
                warnings=tuple(row.warnings),
            )


def warned_projects(client: Client) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The projects with warnings; none of a gateway of an earlier release, which has no such
    path.
    """
    with contextlib.suppress(NotFound):
        for row in client.projects():
            if row.warnings:
                yield row.path, tuple(row.warnings)


def processes_that_answer(client: Client) -> list[ProcessView] | None:
    """The processes of the cluster that answered the gateway just now; None when it cannot tell."""
    try:
        processes = client.get("/v1/processes", _Processes).items
    except ClientError:
        return None
    return [one for one in processes if not one.silent_s]


def _process(row: ProcessView) -> ProcessFacts:
    return ProcessFacts(
        service=row.service,
        host=row.host,
        pid=row.pid,
        clock_ahead_s=row.clock_ahead_s,
        certificates={path: at.timestamp() for path, at in row.certificates.items()},
        times_ahead_s=row.times_ahead_s,
    )


def silence_of_schedulers(client: Client) -> str:
    """Why a dry run is not answered by a scheduler; empty when it is."""
    try:
        client.post("/v1/jobs:plan", dict, body={"name": "/doctor", "command": ["true"]})
    except TryAgain as error:
        return str(error)
    except ClientError:
        return ""
    return ""


def readable_by_others(paths: Iterable[Path]) -> tuple[str, ...]:
    """The files among these that others than their owner may read; what cannot be looked at is left
    out.
    """
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_mode & 0o077:
                found.append(str(path))
    return tuple(found)


def writable_by_others(paths: Iterable[Path]) -> tuple[str, ...]:
    """The files among these that others than their owner may change, or whose directory lets them
    be replaced; what cannot be looked at is left out.
    """
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            above = path.parent.stat().st_mode
            if path.stat().st_mode & 0o022 or (above & 0o022 and not above & stat.S_ISVTX):
                found.append(str(path))
    return tuple(found)


def deciding_files(config: str) -> Iterator[Path]:
    """The files on this host by which a cluster decides who may do what. Raises BadSetting."""
    from iris_service.run import read_settings

    settings = read_settings(config)
    if tokens := settings.text("gateway", "token_file"):
        yield Path(tokens)
    if config:
        yield Path(config)


def private_files(data: Path, config: str) -> Iterator[Path]:
    """Where this host keeps keys, and the token of a local cluster; a token_file holds no secret.
    Raises BadSetting.
    """
    from iris_service.process_settings import NatsSettings
    from iris_service.run import read_settings

    settings = read_settings(config)
    seed = settings.section("nats", NatsSettings).nkey_seed
    named = (seed, *(settings.text(section, "tls_key") for section in ("nats", "gateway", "proxy")))
    yield from (Path(path) for path in named if path)
    keys = Path(seed).parent if seed else data / "nats" / "keys"
    with contextlib.suppress(OSError):
        yield from sorted(keys.glob("*.seed"))
    local = read_cluster(data)
    if local is not None and local.token_file:
        yield Path(local.token_file)


def _origin_of_token(address: Address) -> str:
    """Where the token is from; empty without one."""
    if not address.token:
        return ""
    if os.environ.get("IRIS_TOKEN"):
        return "IRIS_TOKEN"
    return address.token_file or "the context"


def _clock_of(response: Response, begun_s: float, ended_s: float) -> float:
    """How far the gateway's clock is ahead of this machine's, in whole seconds towards 0; 0 when it
    does not tell.
    """
    try:
        given_s = parsedate_to_datetime(response.headers["Date"] or "").timestamp()
    except (TypeError, ValueError):
        return 0.0
    if given_s > ended_s:
        return given_s - ended_s
    return min(given_s + 1 - begun_s, 0.0)


def bus_facts(local: ClusterFile | None, nats: str, config: str) -> BusFacts | None:
    """What the NATS servers tell, by default those of the local cluster; None when their address is
    not known.

    Raises BadSetting.
    """
    if not has_server_extra():
        return None
    from iris_bus.streams.diagnosis import diagnose
    from iris_service.process_settings import NatsSettings
    from iris_service.run import read_settings

    settings = read_settings(config).section("nats", NatsSettings)
    if nats:
        settings = msgspec.structs.replace(settings, url=nats)
    elif not (config or any(os.environ.get(name) for name in ("IRIS_CONFIG", "IRIS_NATS_URL"))):
        if local is None:
            return None
        settings = msgspec.structs.replace(settings, url=local.nats_url, nkey_seed=local.nats_seed)
    keys = Path(settings.nkey_seed).absolute().parent if settings.nkey_seed else None
    has_keys = keys is not None and (keys / _SYSTEM_SEED).exists()
    return asyncio.run(diagnose(settings.url, settings.credentials(), keys if has_keys else None))
