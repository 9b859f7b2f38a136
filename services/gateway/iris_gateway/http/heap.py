"""Returns memory to the system after a burst of connections, because the C library keeps freed
memory.

Out of scope: who is connected (`http_protocol`). Without `malloc_trim` nothing is done.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc

from iris_gateway.http.protocol import Connections

_LOOK_S = 5.0
_BURST = 50


async def shrink_after_bursts(connections: Connections, look_s: float = _LOOK_S) -> None:
    """Called at intervals: release memory when at least half of many connections have closed since
    the last time.
    """
    while True:
        await asyncio.sleep(look_s)
        if connections.most - connections.now >= max(_BURST, connections.most / 2):
            connections.most = connections.now
            shrink()


def shrink() -> None:
    """Release freed memory; takes a few milliseconds."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
