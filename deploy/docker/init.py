"""Makes the keys, accounts and tokens of the stack once, and puts each into the volume of the
service that needs it.

`init.py WORKER...`, with every volume mounted below /mnt and the one that keeps everything at
/keys. What is there stays. The hosts of the pools in /keys/pools.json, if it is there, get keys too.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

from iris.cluster.pools import slots_in
from iris_core.access.roles import login

KEYS = Path("/keys")
POOLS = KEYS / "pools.json"
USER = 10001
SERVERS = ("nats-1", "nats-2", "nats-3")


def main(workers: list[str]) -> None:
    os.umask(0o077)
    words = [f"--server={server}={server}" for server in SERVERS] + [
        f"--worker={worker}" for worker in workers
    ]
    if POOLS.exists():
        words.append(f"--pools={POOLS}")
    subprocess.run(
        ["iris", "admin", "nats-config", "--out", KEYS, "--store", "/data", *words], check=True
    )
    for server in SERVERS:
        # For the health check in the container.
        monitoring = 'http: "127.0.0.1:8222"\n'
        put(
            Path("/mnt") / server / "nats.conf",
            monitoring + (KEYS / f"nats-{server}.conf").read_text(),
        )
        put(Path("/mnt") / server / "accounts.conf", (KEYS / "accounts.conf").read_text())
    for service in ("state", "scheduler", "gateway", "proxy", "provisioner", "notifier", *workers):
        put(
            Path("/mnt") / service / "nkey.seed",
            seed(f"worker-{service}" if service in workers else service),
        )
    for host in slots_in(POOLS.read_bytes(), POOLS.name) if POOLS.exists() else ():
        label = login("worker", host).label
        put(Path("/mnt/provisioner/slots") / f"{label}.seed", seed(label))
    token = admin_token()
    for service in ("gateway", "proxy"):
        put(Path("/mnt") / service / "tokens", (KEYS / "tokens").read_text())
    put(Path("/mnt/cli/nkey.seed"), seed("admin"))
    put(Path("/mnt/cli/token"), token)
    # Grafana reads it as a user of its own; nobody else has this volume.
    put(Path("/mnt/grafana/password"), grafana_password(), 0o444)


def seed(label: str) -> str:
    return (KEYS / "keys" / f"{label}.seed").read_text()


def admin_token() -> str:
    """The token of the user admin, made and added to the file of tokens when missing."""
    path = KEYS / "token"
    if not path.exists():
        words = [
            "iris",
            "admin",
            "token",
            "add",
            "admin",
            "--role",
            "admin",
            "--file",
            KEYS / "tokens",
        ]
        path.write_text(
            subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        )
    return path.read_text()


def grafana_password() -> str:
    """A random one, made when missing."""
    path = KEYS / "grafana"
    if not path.exists():
        path.write_text(secrets.token_urlsafe(32))
    return path.read_text()


def put(path: Path, text: str, mode: int = 0o400) -> None:
    """Replace a file whole; the service's user owns it and its directory."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.write_text(text)
    new.chmod(mode)
    os.chown(new, USER, USER)
    new.rename(path)
    os.chown(path.parent, USER, USER)


main(sys.argv[1:])
