"""Detects this host's attributes and capacity where the settings do not set them. Out of scope:
their use.
"""

from __future__ import annotations

import errno
import math
import os
import platform
import random
import re
import shutil
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from iris_core.placement.constraints import DEVICE_TYPE, DEVICE_VARIANT
from iris_core.placement.topology import topology_of
from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import AUTO, RESOURCE, Amount
from iris_service.settings import BadSetting
from iris_worker.host.devices import Accelerators
from iris_worker.settings import WorkerSettings, read_attributes

_CGROUP = "/sys/fs/cgroup"
_NATS_PORT = 4222
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_AUTHORITY_BYTES = 16 << 10
_PORTS_TRIED = 64
"""How many ports are tried beyond the requested number before a recently used one is taken."""
_MIN_FREE_DISK = 64 * 1024 * 1024
_MIN_FREE_INODES = 1000


def worker_id(settings: WorkerSettings) -> str:
    """The id in the settings, else the host's name."""
    return settings.id or socket.gethostname()


def attributes(
    settings: WorkerSettings, found: Accelerators, recognised: Mapping[str, Attribute]
) -> dict[str, Attribute]:
    """The attributes for constraints. Raises BadAttribute.

    Args:
        recognised: what took longer to find out; see `iris_worker.service.recognition`.
    """
    configured = read_attributes(settings.attributes)
    return {**(detected(found) if settings.detect else {}), **recognised, **configured}


def detected(found: Accelerators) -> dict[str, Attribute]:
    """Operating system, architecture, name, and the kind of accelerator where there is one."""
    attributes: dict[str, Attribute] = {
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "hostname": socket.gethostname(),
    }
    if found.kind:
        attributes[DEVICE_TYPE] = found.kind
    if found.kind == "gpu":
        attributes[DEVICE_VARIANT] = found.variant or AUTO
    return attributes


def total(settings: WorkerSettings, found: Accelerators, variant: str) -> Amount:
    """The capacity of this host for tasks: what the settings declare, and otherwise what there is.

    Args:
        variant: of its devices; a TPU VM without known device files has the chips of its variant.
    """
    topology = topology_of(variant)
    there = {
        "cpu_millis": _cpu_millis(),
        "memory_bytes": _memory_bytes(),
        "disk_bytes": shutil.disk_usage(settings.root).total,
        "chips": len(found.files) or (topology.chips_per_vm if topology is not None else 0),
    }
    declared = {name: getattr(settings, name) for name in RESOURCE}
    return Amount(
        **{name: there.get(name, 0) if has is None else has for name, has in declared.items()}
    )


EXACT = ("disk_bytes",)
"""Resources of which a machine has no more than it has, whoever shares them."""


def machine(root: Path) -> Amount:
    """The cores and the memory there are, and the disk of a directory, whatever the settings
    declare. Raises OSError.
    """
    return Amount(
        cpu_millis=_cpu_millis(),
        memory_bytes=_memory_bytes(),
        disk_bytes=shutil.disk_usage(root).total,
    )


def address(settings: WorkerSettings, nats_url: str) -> str:
    """The address at which other hosts reach this one: the local address of its connection to NATS.

    The host's name is not used, because it often resolves to loopback here and may not resolve
    elsewhere.
    """
    if settings.address:
        return settings.address
    first = nats_url.partition(",")[0].strip()
    server = urlsplit(first if "//" in first else f"//{first}")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # a connected UDP socket has a route; nothing is sent
            probe.connect((server.hostname or "", server.port or _NATS_PORT))
            return str(probe.getsockname()[0])
    except OSError:  # there is no IPv4 route to it
        return socket.gethostname()


def trouble(root: Path) -> str:
    """The fault of this host as text; empty when it is healthy."""
    try:
        return lack(os.statvfs(root))
    except OSError as error:
        return f"data directory: {error.strerror}"


def lack(disk: os.statvfs_result) -> str:
    """What a file system is short of; empty: nothing."""
    free = disk.f_bavail * disk.f_frsize
    if free < _MIN_FREE_DISK:
        return f"disk full: {free // 1024**2} MiB free"
    lacks = (
        disk.f_files and disk.f_favail < _MIN_FREE_INODES
    )  # some file systems have no fixed number
    return f"disk full: {disk.f_favail} inodes free" if lacks else ""


def variables(confined: bool = False) -> dict[str, str]:
    """The variables of the worker's environment that tasks inherit; confined ones have another
    home.
    """
    names = ("PATH", "LANG") if confined else ("PATH", "HOME", "LANG")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **kept}


def authority(ca_file: str) -> str:
    """The certificates in a file of PEM, without what stands around them; empty without a file.
    Raises BadSetting.
    """
    if not ca_file:
        return ""
    try:
        found = _CERTIFICATE.findall(Path(ca_file).read_text("ascii"))
        ssl.create_default_context(cadata="\n".join(found))
    except (OSError, ValueError) as error:
        raise BadSetting(
            f"[worker] ca_file: {ca_file} does not hold a certificate in PEM: {error}"
        ) from error
    text = "\n".join(found)
    if not 0 < len(text) <= _AUTHORITY_BYTES:
        raise BadSetting(
            f"[worker] ca_file: {ca_file} holds {len(text)} bytes of certificates, not 1 to "
            f"{_AUTHORITY_BYTES}: it is given to each task, so name only the authority of the gateway"
        )
    return text + "\n"


def free_ports(
    names: tuple[str, ...], ports: range, rest_s: Callable[[int], float] = lambda port: 0.0
) -> dict[str, int]:
    """A free port for each name. The ports are not held open, so the task must bind them soon.
    Raises OSError.

    Args:
        ports: to choose from, beginning anywhere, since other workers of this host may choose from
            them too.
        rest_s: seconds until a port should be used again; when no other is free, the one with the
            least is taken.
            Infinite: never.
    """
    found: dict[int, float] = {}
    start = random.randrange(len(ports))
    for port in (*ports[start:], *ports[:start]):
        rest = rest_s(port)
        if rest < math.inf and _is_unused(port):
            found[port] = rest
        if (
            sum(not rest for rest in found.values()) == len(names)
            or len(found) == len(names) + _PORTS_TRIED
        ):
            break
    best = sorted(found, key=lambda port: found[port])
    if len(best) < len(names):
        raise OSError(errno.EADDRINUSE, f"no port from {ports[0]} to {ports[-1]} is free")
    return dict(zip(names, best, strict=False))


def is_free(port: int) -> bool:
    """Whether a port of this host is free."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def _is_unused(port: int) -> bool:
    """Whether a port is free, not reserved by a server that is about to listen, and not of
    connections just closed.
    """
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def _cpu_millis() -> int:
    """The cores this process may use, limited by the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) * 1000
    quota, _, period = _read_limit("cpu.max").partition(" ")
    return (
        min(cores, int(quota) * 1000 // int(period))
        if quota.isdigit() and period.isdigit()
        else cores
    )


def _memory_bytes() -> int:
    """The host's memory, limited by its control group."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _read_limit("memory.max")
    return min(there, int(limit)) if limit.isdigit() else there


def _read_limit(name: str) -> str:
    try:
        return Path(_CGROUP, name).read_text().strip()
    except OSError:
        return ""
