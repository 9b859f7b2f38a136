"""Retries while the bus is unreachable, starting, or electing a leader. Out of scope: what may be
repeated safely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from iris_bus.connection.requests import Forbidden
from iris_bus.contract import NoResponders, Unavailable
from iris_core.backoff import Backoff

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5

T = TypeVar("T")


class Busy(Unavailable):
    """The server declined for now; nothing has happened."""


async def with_retries(
    attempt: Callable[[], Awaitable[T]], retry_for_s: float, *, repeat_unknown: bool = True
) -> T:
    """Repeat ``attempt`` with back-off while the bus is Unavailable, for at most ``retry_for_s``
    seconds.

    "No responders" and Busy are known to have had no effect; what else fails is repeated only if
    ``repeat_unknown``.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + retry_for_s
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            harmless = isinstance(error, NoResponders | Busy)
            final = isinstance(error, Forbidden) or not (harmless or repeat_unknown)
            if final or clock() + backoff.pause_s > deadline:
                raise
        await asyncio.sleep(backoff.next_s())
