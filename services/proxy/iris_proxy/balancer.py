"""One deployment's routes as this proxy uses them: who gets the next request, and who waits for room.

Requests that find every route full wait in line, first come first served, at most so many and so long.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from iris_core.serving import Discovery, ProxyPolicy
from iris_proxy.choice import RouteLoad, choose, eligible, merged
from iris_proxy.refusal import ProxyRefusal, without_route

Granted = asyncio.Future[RouteLoad]


@dataclass(eq=False, slots=True)
class _Waiting:
    future: Granted
    tried: Collection[RouteLoad]
    key: str


class Balancer:
    """The routes of one deployment.

    Args:
        clock: seconds that only grow.
        queue_requests: that may wait.

    Attributes:
        under_way: requests that routes have been given and that have not ended, also on routes that have left.
    """

    def __init__(self, discovery: Discovery, clock: Callable[[], float], queue_requests: int) -> None:
        self._clock = clock
        self._queue_requests = queue_requests
        self._waiting: deque[_Waiting] = deque()
        self._name = discovery.deployment
        self._reason = ""
        self.policy = ProxyPolicy()
        self.routes: list[RouteLoad] = []
        self.under_way = 0
        self.update(discovery)

    @property
    def outstanding(self) -> int:
        """Requests that have come and have not been answered: under way, and in line."""
        return self.under_way + len(self._waiting)

    def update(self, discovery: Discovery) -> None:
        """Take up a new set; what is under way on a route that has left goes on."""
        self.policy = discovery.proxy
        self.routes = merged(self.routes, discovery)
        self._reason = discovery.reason
        self._serve()

    async def acquire(self, key: str = "", tried: Collection[RouteLoad] = ()) -> RouteLoad:
        """A route with room, counted as taken until `release`. Raises ProxyRefusal when there is none in time."""
        route = None if self._waiting else self._take(key, tried)
        if route is not None:
            return route
        if len(self._waiting) >= self._queue_requests:
            raise overloaded(self._name, "and as many wait as may")
        waiting = _Waiting(asyncio.get_running_loop().create_future(), tried, key)
        self._waiting.append(waiting)
        route = None
        try:
            async with asyncio.timeout(self.policy.queue_s):
                route = await waiting.future
        except TimeoutError:
            raise overloaded(self._name, f"none had room for {self.policy.queue_s:g} s") from None
        finally:
            if route is None:
                self._leave(waiting)
        return route

    def release(self, route: RouteLoad) -> None:
        """A request has ended."""
        route.outstanding -= 1
        self.under_way -= 1
        if self._waiting:
            self._serve()

    def _take(self, key: str, tried: Collection[RouteLoad]) -> RouteLoad | None:
        """A route with room, None when all are full. Raises ProxyRefusal when there is none at all."""
        candidates = eligible(self.routes, tried, self._clock())
        if not candidates:
            raise without_route(self._name, self._reason)
        route = choose(candidates, self.policy.max_outstanding, random.randrange, key)
        if route is not None:
            route.outstanding += 1
            self.under_way += 1
        return route

    def _serve(self) -> None:
        """Give room to those who wait, in their order."""
        while self._waiting:
            first = self._waiting[0]
            if not first.future.done():
                try:
                    route = self._take(first.key, first.tried)
                except ProxyRefusal as refusal:
                    first.future.set_exception(refusal)
                else:
                    if route is None:
                        return
                    first.future.set_result(route)
            self._waiting.popleft()

    def _leave(self, waiting: _Waiting) -> None:
        """Out of the line; what was given to somebody who has just left is free again."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        elif not waiting.future.cancelled() and waiting.future.exception() is None:
            self.release(waiting.future.result())


def overloaded(name: str, why: str) -> ProxyRefusal:
    return ProxyRefusal(503, "overloaded", f"every route of {name} has as many requests as it may, {why}")
