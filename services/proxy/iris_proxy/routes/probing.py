"""Probes routes that took no connection, and lets them have requests again once they take one.

Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from iris_proxy.routes.choice import RouteLoad

log = logging.getLogger(__name__)

_FIRST_S = 0.25
_LONGEST_S = 5.0
_CONNECT_S = 2.0


class EjectedRoutes:
    """One task for each ejected route.

    Args:
        is_current: whether a route is still in its deployment's set.
    """

    def __init__(self, is_current: Callable[[RouteLoad], bool]) -> None:
        self._is_current = is_current
        self._tasks: dict[RouteLoad, asyncio.Task[None]] = {}

    def eject(self, route: RouteLoad) -> None:
        """Keep requests from a route that took no connection until it takes one."""
        if route in self._tasks or not self._is_current(route):
            return
        log.warning(
            "the route %s at %s takes no connections and is probed", route.id, route.address
        )
        route.ejected = True
        task = self._tasks[route] = asyncio.get_running_loop().create_task(self._probe(route))
        task.add_done_callback(lambda _: self._tasks.pop(route))

    async def _probe(self, route: RouteLoad) -> None:
        pause_s = _FIRST_S
        while route.ejected and self._is_current(route):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)
            if await _takes_connections(route.address):
                route.ejected = False
                log.info("the route %s at %s takes connections again", route.id, route.address)

    def close(self) -> None:
        for task in tuple(self._tasks.values()):
            task.cancel()


async def _takes_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:  # also a timeout
        return False
    writer.close()
    return True
