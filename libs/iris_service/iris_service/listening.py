"""Reads the address a service listens on from its settings, binds it, and writes it to a file for
the supervisor, which reserves the ports of its processes.
"""

from __future__ import annotations

import ipaddress
import logging
import resource
import socket
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from iris_service.settings import BadSetting

log = logging.getLogger(__name__)

RESERVED = 128
"""Descriptors that are not for connections of clients: NATS, files, logs, modules."""
_UNLIMITED = 1 << 30

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def read_address(section: str, text: str, key: str = "http") -> tuple[str, int]:
    """Host and port of the setting ``host:port``. Raises BadSetting."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise BadSetting(f"[{section}] {key}: not host:port with a port of at most 65535: {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def check_url(section: str, key: str, url: str, schemes: Sequence[str] = ("http", "https")) -> None:
    """Refuse a setting that is no URL of these schemes with a host. Raises BadSetting."""
    try:
        where = urlsplit(url)
        usable = where.scheme in schemes and bool(where.hostname) and where.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadSetting(
            f"[{section}] {key}: not a URL of {' or '.join(schemes)} with a host: {url!r}"
        )


def read_networks(section: str, texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks of the setting ``trusted``. Raises BadSetting."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise BadSetting(f"[{section}] trusted: {error}") from error


def is_within(address: str | None, networks: Sequence[Network]) -> bool:
    """Whether an address belongs to one of the networks; not when it is none."""
    found = _read_ip(address) if networks and address else None
    return found is not None and any(found in network for network in networks)


def client_of(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The client's address: the peer's, or behind trusted proxies the last one in
    ``X-Forwarded-For`` that is not theirs.
    """
    if not (trusted and forwarded_for):
        return peer
    client = peer
    for address in reversed(forwarded_for.split(",")):
        found = _read_ip(address.strip())
        if found is None or not is_within(client, trusted):
            break
        client = str(found)
    return client


def _read_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def listen(section: str, host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket, ``shared`` with other processes of this user. Raises BadSetting when it
    cannot be opened.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # asyncio sets TCP_NODELAY for IPPROTO_TCP only
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise BadSetting(
            f"[{section}] http: {host}:{port} cannot be listened on: {error.strerror}"
        ) from error
    return listening


def reserve(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen: while it is open, `listen` can have its port (a free one
    for 0), and the kernel gives it to nobody else, as the port of a new connection neither. Raises
    OSError when it is taken.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        reserved.bind((host, port))
    except (OSError, OverflowError, ValueError) as error:  # the last: no name of a host
        reserved.close()
        raise OSError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}"
        ) from None
    return reserved


def take_descriptors() -> int:
    """Permit this process as many descriptors as the system does; returns how many of them are for
    connections of clients.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most == resource.RLIM_INFINITY:
        return _UNLIMITED
    return max(1, most - min(RESERVED, most // 2))


def lower_limit(setting: str, wanted: int, room: int) -> int:
    """The limit of connections that is in force: ``wanted`` (0: none), or ``room``, what the
    descriptors of this process are enough for. A lower one than was asked for is logged.
    """
    if 0 < wanted <= room:
        return wanted
    if wanted:
        log.warning(
            "%s is %d, and %d connections are all that the descriptors of this process are enough for: "
            "that is the limit; raise LimitNOFILE of its unit, or `ulimit -Hn`",
            setting,
            wanted,
            room,
        )
    return room


def write_port(listening: socket.socket, port_file: str, *, tls: bool = False) -> None:
    """Log the address, and write it to ``port_file`` atomically."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if tls else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    log.info("listening on %s", url)
    if port_file:
        replace_file(Path(port_file), url.encode())


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader finds all of it or what was there before. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
