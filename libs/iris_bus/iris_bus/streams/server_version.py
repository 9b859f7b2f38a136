"""The oldest NATS server that Iris runs on. Pure."""

from __future__ import annotations

import re

OLDEST = (2, 12, 3)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class UnsupportedServer(Exception):
    """The NATS server is too old, or its version is not one."""


def check_version(text: str) -> None:
    """Refuse servers older than `OLDEST`: they lack lazily persisted streams or lose data. Raises
    UnsupportedServer.
    """
    found = _VERSION.search(text)
    if found is None:
        raise UnsupportedServer(f"not the version of a nats-server: {text[:80]!r}")
    version = int(found[1]), int(found[2]), int(found[3])
    if version < OLDEST:
        shown, oldest = (".".join(map(str, v)) for v in (version, OLDEST))
        raise UnsupportedServer(f"nats-server {shown} is too old, Iris needs {oldest} or newer")
