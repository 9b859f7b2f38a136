"""The section ``[cluster]`` of `iris.toml`, with the command line's values."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from iris.client.problems import InvalidOption
from iris_core.placement.topology import Topology, topology_of

KEPT_SERVICES = ("state", "scheduler", "proxy", "gateway", "provisioner", "notifier")
_REPLICATED = ("state", "scheduler", "provisioner", "notifier")
_SLICES = re.compile(r"(?P<variant>[a-z0-9]+-\d+)(?:x(?P<count>\d{1,3}))?\Z")

ProcessCount = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class ClusterSettings(msgspec.Struct, frozen=True):
    """The section ``[cluster]``.

    Attributes:
        http: where the gateway listens; port 0 takes a free one. proxy: where the proxy of
            deployments does.
        workers: CPU hosts, each a worker process. worker_cpu: cores of every host, also of a
            slice's; 0 is an equal share of this machine's, 1 at least. worker_memory: bytes of
            every host; 0 is an equal share.
        tpu: simulated slices, e.g. ``v5litepod-16x2, v4-8``.
        replicas: processes of a service other than one, e.g. ``state=2``.
        pools: kinds of hosts that the cluster makes and deletes by itself, e.g. ``cpu:max=8``, a
            pool of worker processes, or the path of a pool's file. Each is set at the start,
            unless somebody has changed it since.
        restart_workers: start a worker again that died, as if its host had come back; otherwise a
            dead host stays dead.
        ready_s: how long a start may take; it says what it waits for.
        auth: want a token for each request: one of an admin that is made, or those of
            ``[gateway]``, if it has a ``token_file``. Without it whoever reaches the gateway is
            admin.
        sandbox: confine tasks as ``[worker]`` says; otherwise they run as whoever started the
            cluster.
    """

    http: str = "127.0.0.1:8080"
    proxy: str = "127.0.0.1:0"
    workers: ProcessCount = 2
    worker_cpu: Annotated[float, msgspec.Meta(ge=0)] = 0
    worker_memory: Annotated[int, msgspec.Meta(ge=0)] = 0
    tpu: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    restart_workers: bool = False
    ready_s: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    sandbox: bool = False
    auth: bool = True


def read_slices(texts: tuple[str, ...]) -> list[Topology]:
    """One topology per slice, ``v5litepod-16x2`` being two. Raises InvalidOption."""
    slices: list[Topology] = []
    for text in texts:
        match = _SLICES.match(text.strip())
        known = topology_of(match["variant"]) if match else None
        if match is None or known is None:
            raise InvalidOption(
                f"{text!r} is not a TPU variant or VARIANTxCOUNT; write for example v5litepod-16x2"
            )
        slices += [known] * int(match["count"] or 1)
    return slices


def read_replicas(texts: tuple[str, ...]) -> dict[str, int]:
    """How many processes each service has, ``state=2`` among them. Raises InvalidOption."""
    counts = dict.fromkeys(KEPT_SERVICES, 1)
    for text in texts:
        service, _, count = text.partition("=")
        if service not in _REPLICATED or not count.isdigit() or int(count) < 1:
            choice = ", ".join(f"{one}=2" for one in _REPLICATED)
            raise InvalidOption(f"{text!r} is not SERVICE=COUNT; write one of {choice}")
        counts[service] = int(count)
    return counts


def read_listen(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:8080``. Raises InvalidOption."""
    host, colon, port = text.rpartition(":")
    in_numbers = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not (colon and in_numbers) or "/" in host or "%" in host:
        raise InvalidOption(
            f"{text!r} is not an address to listen on; write for example 127.0.0.1:8080, or :0 for a free port"
        )
    return host.strip("[]") or "127.0.0.1", int(port)
