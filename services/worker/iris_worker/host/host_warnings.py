"""What of this host's configuration does not agree with the host, for `iris doctor`. Out of scope:
faults (`host`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from iris_core.addresses import LOOPBACK, LOOPBACK_BESIDE_NATS, is_loopback
from iris_core.spec.resources import RESOURCE, Amount
from iris_worker.host.host import EXACT
from iris_worker.settings import WorkerSettings

_CONNECT_S = 2.0
_FAR_ABOVE = 2
"""How many times of what the machine has may be declared: cores are shared, memory is seldom used
up.
"""
_PORTS = {"http": 80, "https": 443}


def standing(
    settings: WorkerSettings,
    address: str,
    nats_url: str,
    there: Amount,
    unscoped: str,
    slow_moves: str,
) -> Iterator[tuple[str, str]]:
    """Warnings that last as long as the process, by code.

    Args:
        address: where other hosts are told to reach this one. there: what the machine has.
        unscoped: why tasks reach each other's abstract sockets; empty: they do not, or may.
        slow_moves: where version 2 of control groups is mounted without `favordynmods` on a host
            that uses version 1.
    """
    both = [(name, getattr(settings, name), getattr(there, name)) for name in RESOURCE]
    above = [
        f"{name} is {has}, the machine has {at}"
        for name, has, at in both
        if at and (has or 0) > (1 if name in EXACT else _FAR_ABOVE) * at
    ]
    if above:
        yield "overdeclared", "; ".join(above)
    servers = [
        urlsplit(url if "//" in url else f"//{url}").hostname or "" for url in nats_url.split(",")
    ]
    if is_loopback(address):
        # beside a NATS on loopback that is right, unless others reach that NATS at another address
        code = LOOPBACK_BESIDE_NATS if any(map(is_loopback, servers)) else LOOPBACK
        yield code, f"it tells other hosts to reach it at {address}"
    if unscoped:
        yield "unscoped_sockets", f"its tasks reach each other's abstract sockets: {unscoped}"
    if slow_moves:
        yield "slow_group_moves", f"{slow_moves} is mounted without favordynmods"


def of_data(data: str) -> Iterator[tuple[str, str]]:
    """Warnings about the file system of the worker's data, by code. Raises OSError."""
    if os.statvfs(data).f_flag & os.ST_NOEXEC:
        yield "noexec_data", f"its data, {data}, is on a file system mounted noexec"


def silence_of(url: str) -> str:
    """Why nothing can connect to the gateway from this host; empty when it can. Waits up to 2 s."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 80)
        socket.create_connection((parts.hostname or "", port), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        return f"{url}, the gateway_url of its tasks, does not answer there: {error}"
    return ""
