"""What addresses of hosts say. Pure."""

from __future__ import annotations

import contextlib
import ipaddress

LOOPBACK = "loopback_address"
"""The warning of a worker that tells others to reach it at loopback, though its NATS is elsewhere."""
LOOPBACK_BESIDE_NATS = "loopback_beside_nats"
"""That of one whose NATS is at loopback too: it is right to, unless another worker is elsewhere."""


def is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"
