"""Trying again while the bus is away, starting, or choosing a leader. Not in this room: what may be repeated safely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from iris_bus.asks import Forbidden
from iris_bus.contract import NoResponders, Unavailable

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5

T = TypeVar("T")


class Busy(Unavailable):
    """The server declined for now; nothing has happened."""


async def patiently(attempt: Callable[[], Awaitable[T]], patience: float, *, repeat_unknown: bool = True) -> T:
    """Repeat ``attempt`` with back-off while the bus is Unavailable, for at most ``patience`` seconds.

    "No responders" and Busy are known to have had no effect; what else fails is repeated only if ``repeat_unknown``.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            harmless = isinstance(error, NoResponders | Busy)
            hopeless = isinstance(error, Forbidden) or not (harmless or repeat_unknown)
            if hopeless or clock() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
