"""Memory back to the system after a crowd has left: the C library keeps what was freed until it is asked.

Not in this room: who is connected (`wire`). A C library without `malloc_trim` keeps what it has.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable

_LOOK_S = 5.0
_CROWD = 50


async def shrink_after_crowds(connected: Callable[[], int], look_s: float = _LOOK_S) -> None:
    """Whenever at least half of many connections have gone since the last time."""
    peak = connected()
    while True:
        await asyncio.sleep(look_s)
        now = connected()
        peak = max(peak, now)
        if peak - now >= max(_CROWD, peak / 2):
            peak = now
            shrink()


def shrink() -> None:
    """A few milliseconds."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
