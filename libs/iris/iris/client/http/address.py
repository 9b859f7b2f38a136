"""Finds the gateway's address and token: the first of five sources that has one.

1. an explicit address  2. ``IRIS_URL``  3. ``IRIS_GATEWAY_URL`` (set inside tasks)  4. the context,
``IRIS_CONTEXT`` or the current one  5. the local cluster that is up (``$IRIS_DATA``, else
``~/.local/state/iris``). The token is ``IRIS_TOKEN``, else the content of the file
``IRIS_TOKEN_FILE``; where neither variable is set, also to nothing, it is the context's, or the one
that `iris up` has made for the local cluster, also when its address was given.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from iris.client.decode import from_json
from iris.client.http.contexts import Context, contexts_path, load_contexts
from iris.client.problems import InvalidOption, NoGateway
from iris_core.codec import Undecodable
from iris_core.spec.serving import TASK_TOKEN

CLUSTER_FILE = "cluster.json"
DAMAGE_FILE = "damage.txt"
TOKEN_NAMES = ("IRIS_TOKEN", "IRIS_TOKEN_FILE")
_FIRST = ord(" ")
_LAST = ord("~")
"""A token consists of the ASCII letters after the one, up to the other."""


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway: scheme, host and port without a trailing slash; a bearer token, if any; the name
    of the source.

    ``token_file``: holds the present token, which is replaced before it expires; ``token`` is what
    it was at first.
    """

    url: str
    token: str = ""
    origin: str = ""
    token_file: str = ""

    def bearer(self) -> str:
        """The token to send now; empty for none."""
        return read_token(self.token_file) or self.token


class ClusterFile(msgspec.Struct, frozen=True):
    """``DIR/cluster.json`` of a local cluster, for scripts: its address, processes, and metrics
    addresses.

    ``proxy_url``: the proxy of deployments, under ``/d/<name>/``. ``stop_s``: how long stopping
    everything may take. ``nats_seed``: the file with the key of the role admin on the NATS server.
    ``token_file``: the one with the token of an admin; empty when `iris up` made none. ``ready_s``:
    how long its start may take. ``gone``: workers that are not started again, and when they ended,
        in seconds since the epoch.
    """

    url: str
    nats_url: str
    pids: dict[str, list[int]] = {}
    metrics: dict[str, list[str]] = {}
    proxy_url: str = ""
    stop_s: float = 40.0
    nats_seed: str = ""
    token_file: str = ""
    ready_s: float = 300.0
    gone: dict[str, float] = {}


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The default data directory of the local cluster."""
    if environ.get("IRIS_DATA"):
        return Path(environ["IRIS_DATA"]).absolute()
    state = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "iris"


def read_cluster(data: Path) -> ClusterFile | None:
    """The local cluster on ``data``, None when it is not running."""
    try:
        return from_json((data / CLUSTER_FILE).read_bytes(), ClusterFile)
    except (OSError, Undecodable):
        return None


def find_gateway(
    url: str | None = None, *, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> Address:
    """The gateway to use. Raises NoGateway when no source has one, InvalidOption for an invalid
    address.
    """
    token, file = (environ.get(name, "").strip() for name in TOKEN_NAMES)
    sources = (
        (url, "--url"),
        *(((environ.get(name), name)) for name in ("IRIS_URL", "IRIS_GATEWAY_URL")),
    )
    if not context:
        for given, origin in sources:
            if given:
                return _address(given, token, origin, file, environ=environ)
    chosen = find_context(context or environ.get("IRIS_CONTEXT"), environ)
    if chosen is not None:
        return _address(
            chosen.url,
            token or ("" if names_token(environ) else chosen.token),
            "context",
            file,
            environ=environ,
        )
    data = data_dir(environ)
    if local := read_cluster(data):
        return _address(local.url, token, f"the local cluster in {data}", file, environ=environ)
    if (data / CLUSTER_FILE).exists():
        raise InvalidOption(
            f"{data / CLUSTER_FILE} is damaged: it does not say where the cluster is; "
            "`iris down` and `iris up` write it anew"
        )
    raise NoGateway(
        f"no gateway configured, and no local cluster is up in {data}: start one with `iris up`, set IRIS_DATA to the "
        "data directory of another, or set --url or IRIS_URL"
    )


def _address(url: str, token: str, origin: str, file: str, environ: Mapping[str, str]) -> Address:
    """``file`` is read again for each request, unless a token is given that is not a task's. When
    the environment names neither, the token is that of the local cluster, if this is its address.
    """
    if not token and not names_token(environ) and (local := _local_cluster(url, environ)):
        url = local.url
        file = local.token_file
    file = file if not token or token.startswith(TASK_TOKEN) else ""
    return Address(check_url(url), token or read_token(file), origin, file)


def _local_cluster(url: str, environ: Mapping[str, str]) -> ClusterFile | None:
    """The local cluster, if this is its address and it is up: another user's program that listens
    there after it has crashed must not get the token. Nor must one that ``localhost`` leads to by
        IPv6: the cluster's own address is used.
    """
    try:
        local = read_cluster(data_dir(environ))
    except RuntimeError:  # a user without a home, as in a container
        return None
    return local if local is not None and leads_to(url, local.url) and _is_up(local) else None


def leads_to(url: str, local_url: str) -> bool:
    """Whether an address in any spelling is that of a local cluster, which writes its own in
    numbers.
    """
    try:
        (scheme, host, port), (scheme_there, there, port_there) = map(_parts, (url, local_url))
    except ValueError:
        return False
    if (scheme, port) != (scheme_there, port_there) or isinstance(there, str):
        return False
    if isinstance(host, str):
        return host == "localhost" and (there.is_loopback or there.is_unspecified)
    return host == there or (there.is_unspecified and (host.is_loopback or host.is_unspecified))


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def _parts(url: str) -> tuple[str, IpAddress | str, int]:
    """Scheme, host and port of a URL without a path. Raises ValueError."""
    parts = urlsplit(url.strip())
    if parts.path.strip("/"):
        raise ValueError(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    try:
        return parts.scheme, ipaddress.ip_address(parts.hostname or ""), port
    except ValueError:
        return parts.scheme, parts.hostname or "", port


def _is_up(cluster: ClusterFile) -> bool:
    """Whether its supervisor is a process of this user on this machine."""
    try:
        [pid] = cluster.pids["supervisor"]
        os.kill(pid, 0)
    except (KeyError, ValueError, OSError):
        return False
    return True


def names_token(environ: Mapping[str, str]) -> bool:
    """Whether a variable is to have the token. An empty one is none: a script that has lost its
    secret must not act by the token of the context, or of the local cluster's admin.
    """
    return any(name in environ for name in TOKEN_NAMES)


def read_token(file: str) -> str:
    """The token in a file; empty without one. Raises InvalidOption for a file that cannot be read,
    or that holds something else than a token.
    """
    try:
        token = Path(file).read_bytes().strip() if file else b""
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InvalidOption(f"the token in {file} cannot be read: {error.strerror}") from None
    if wrong := [at for at, byte in enumerate(token) if not _FIRST < byte <= _LAST]:
        at = wrong[0]
        raise InvalidOption(
            f"{file} does not hold a token: byte {at} is 0x{token[at]:02x}; write the token into it "
            "again, or, if `iris up` made it, delete it: the next start makes another"
        )
    return token.decode("ascii")


def find_context(name: str | None, environ: Mapping[str, str]) -> Context | None:
    """The context of that name, or the current one. Raises InvalidOption for an unknown name."""
    contexts = load_contexts(contexts_path(environ))
    if name and name not in contexts.known:
        raise InvalidOption(
            f"there is no context {name!r}; `iris context list` shows those there are"
        )
    return contexts.known.get(name or contexts.current)


def check_url(text: str) -> str:
    """``http(s)://host[:port]`` without a trailing slash. Raises InvalidOption."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise InvalidOption(
            f"{text!r} is not the address of a gateway; write for example http://127.0.0.1:8080"
        )
    return text.rstrip("/")
