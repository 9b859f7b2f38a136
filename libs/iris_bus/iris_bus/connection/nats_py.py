"""nats-py, imported without aiohttp, which it needs for WebSockets only.

aiohttp is a third of the time in which a service is imported, and 10 MB of its memory. What needs
it, such as the proxy, imports it as usual. Out of scope: what is changed in nats-py (`client`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _absent(module: str) -> Iterator[None]:
    """Let imports of ``module`` fail, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


with _absent("aiohttp"):
    from nats import errors
    from nats.aio.client import Client, Srv
    from nats.aio.subscription import Subscription
    from nats.aio.transport import TcpTransport

__all__ = ["Client", "Srv", "Subscription", "TcpTransport", "errors"]
