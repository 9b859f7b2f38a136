"""Memory back to the system after a crowd has left: the C library keeps what was freed until it is asked.

Out of scope: who is connected (`http_protocol`). A C library without `malloc_trim` keeps what it has.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc

from iris_gateway.http_protocol import Connections

_LOOK_S = 5.0
_BURST = 50


async def shrink_after_bursts(connections: Connections, look_s: float = _LOOK_S) -> None:
    """Whenever at least half of many connections have gone since the last time, however short they were there."""
    while True:
        await asyncio.sleep(look_s)
        if connections.most - connections.now >= max(_BURST, connections.most / 2):
            connections.most = connections.now
            shrink()


def shrink() -> None:
    """A few milliseconds."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
