"""Writes the configuration of a NATS server for Iris into a directory, and a key for each service, worker and observer.

`nats.conf` is written once and then belongs to the operator; `accounts.conf`, which it includes, is
written anew each time. Source: docs/operating.md#security.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iris_bus.accounts import accounts
from iris_bus.keys import Keys, write_private
from iris_bus.nats_process import PAYLOAD_BYTES
from iris_core.roles import ROLES, SYSTEM, login

_SERVER = """\
# Made by `iris admin nats-config`, which leaves this file alone from now on: it is yours to change.
listen: "0.0.0.0:4222"
max_payload: {payload}
max_pending: 256MB
max_connections: 65536
ping_interval: "20s"
jetstream {{
  store_dir: {store}
  sync_interval: always
}}
{tls}include "accounts.conf"
"""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files on the server's host: its certificate and key, and the clients' authority, if any."""

    cert: str
    key: str
    ca: str = ""

    def block(self) -> str:
        ca = f"  ca_file: {json.dumps(self.ca)}\n" if self.ca else ""
        return f"tls {{\n  cert_file: {json.dumps(self.cert)}\n  key_file: {json.dumps(self.key)}\n{ca}}}\n"


def write(
    directory: Path, workers: Sequence[str], observers: Sequence[str], store: str, tls: TlsFiles | None
) -> list[Path]:
    """Write all files for a server and its users; returns those written or changed. Existing keys are kept.

    Args:
        workers, observers: names that get a key, besides those that have one already.
        store: directory of the server's streams. tls: None for plain TCP.

    Raises BadKey, OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = Keys(directory / "keys")
    users = [login(role.name) for role in ROLES if not role.alone]
    users += [*(login("worker", name) for name in workers), *(login("observer", name) for name in observers)]
    labels = [SYSTEM, *(user.label for user in users)]
    made = [keys.path(label) for label in labels if not keys.path(label).exists()]
    made.append(directory / "accounts.conf")
    write_private(made[-1], accounts(keys.ensure(labels)))
    server = directory / "nats.conf"
    if not server.exists():
        text = _SERVER.format(payload=PAYLOAD_BYTES, store=json.dumps(store), tls=tls.block() if tls else "")
        write_private(server, text)
        made.append(server)
    return made
