"""Writes the configuration of NATS servers for Iris into a directory, and a key for each service,
worker and observer.

`nats.conf`, or `nats-NAME.conf` for each server of a cluster, is written once and then belongs to
the operator; `accounts.conf`, which it includes, is written anew each time. Source:
docs/access.md#security.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iris_bus.connection.accounts import accounts
from iris_bus.connection.conf_strings import quoted
from iris_bus.connection.keys import Keys, write_private
from iris_core.access.roles import ROLES, SYSTEM, login
from iris_nats.nats_process import LIMITS

_SERVER = """\
# Made by `iris admin nats-config`, which leaves this file alone from now on: it is yours to change.
listen: "0.0.0.0:4222"
{limits}jetstream {{
  store_dir: {store}
  sync_interval: always
}}
{tls}{cluster}include "accounts.conf"
"""
_CLUSTER = """\
server_name: {name}
cluster {{
  name: "iris"
  listen: "0.0.0.0:6222"
  authorization {{ user: "{user}", password: "{password}" }}
  routes: [{routes}]
{tls}}}
"""
_ROUTES_USER = "routes"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files on the server's host: its certificate and key, and the clients' authority,
    if any.
    """

    cert: str
    key: str
    ca: str = ""

    def block(self, indent: str = "") -> str:
        files = {"cert_file": self.cert, "key_file": self.key, "ca_file": self.ca}
        lines = [
            "tls {",
            *(f"  {key}: {quoted(path)}" for key, path in files.items() if path),
            "}",
        ]
        return "".join(f"{indent}{line}\n" for line in lines)


def write(
    directory: Path,
    workers: Sequence[str],
    observers: Sequence[str],
    store: str,
    tls: TlsFiles | None,
    servers: Mapping[str, str],
) -> list[Path]:
    """Write all files for the servers and their users; returns those written or changed. Existing
    keys are kept.

    Args:
        workers, observers: names that get a key, besides those that have one already.
        store: directory of a server's streams. tls: None for plain TCP.
        servers: the servers of a cluster, by name the host where the others reach it; empty for one
            server.

    Raises BadKey, OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = Keys(directory / "keys")
    users = [login(role.name) for role in ROLES if not role.alone]
    users += [
        *(login("worker", name) for name in workers),
        *(login("observer", name) for name in observers),
    ]
    labels = [SYSTEM, *(user.label for user in users)]
    made = [keys.path(label) for label in labels if not keys.path(label).exists()]
    made.append(directory / "accounts.conf")
    write_private(made[-1], accounts(keys.ensure(labels)))
    for path, cluster in _clusters(directory, servers, tls).items():
        if not path.exists():
            block = tls.block() if tls else ""
            text = _SERVER.format(limits=LIMITS, store=quoted(store), tls=block, cluster=cluster)
            write_private(path, text)
            made.append(path)
    return made


def _clusters(directory: Path, servers: Mapping[str, str], tls: TlsFiles | None) -> dict[Path, str]:
    """The file of each server, and the part of it that makes the server one of a cluster.

    Without servers, none where a cluster has been configured.
    """
    if not servers:
        return {} if any(directory.glob("nats-*.conf")) else {directory / "nats.conf": ""}
    password = _password(directory / "keys" / "routes.password")
    hosts = (f"[{host}]" if ":" in host else host for host in servers.values())
    routes = ", ".join(quoted(f"nats://{_ROUTES_USER}:{password}@{host}:6222") for host in hosts)
    block = tls.block("  ") if tls else ""
    return {
        directory / f"nats-{name}.conf": _CLUSTER.format(
            name=quoted(name), user=_ROUTES_USER, password=password, routes=routes, tls=block
        )
        for name in servers
    }


def _password(path: Path) -> str:
    """The password with which servers of the cluster accept each other; made on first use."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(24) + "\n")
    return path.read_text().strip()
