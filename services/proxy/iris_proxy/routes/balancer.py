"""Balances the requests of one deployment over its routes, and queues those that no route can take
yet.

When all routes are full, requests wait in a FIFO queue of limited length and time; those for a
deployment that is scaled to zero wait for its first route.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from iris_core.messages.proxy_state import DeploymentLoad, DeploymentRequests
from iris_core.spec.serving import LATENCY_MS, Discovery, ProxyPolicy
from iris_proxy.http.refusal import ProxyRefusal, without_route
from iris_proxy.routes.choice import RouteLoad, choose, eligible, merged

Granted = asyncio.Future[RouteLoad]


@dataclass(eq=False, slots=True)
class _Waiting:
    future: Granted
    tried: Collection[RouteLoad]
    key: str


class Balancer:
    """The routes of one deployment.

    Args:
        queue_requests: the largest number that may wait. wake_s: how long they wait for a first
            route.
        on_wake: called when the first request waits for a first route.

    Attributes:
        under_way: requests sent to routes that have not ended, including those on removed routes.
        is_scaled: by a rule, so that its load is reported.
        user: whose deployment it is.
    """

    def __init__(
        self,
        discovery: Discovery,
        queue_requests: int,
        wake_s: float = 30.0,
        on_wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue_requests = queue_requests
        self._wake_s = wake_s
        self._on_wake = on_wake
        self._waiting: deque[_Waiting] = deque()
        self._name = discovery.deployment
        self.user = discovery.user
        self._reason = ""
        self.policy = ProxyPolicy()
        self.routes: list[RouteLoad] = []
        self.under_way = self._arrived = self._requests = self._answered = self._failed = 0
        self._latency = [0] * (len(LATENCY_MS) + 1)
        self.update(discovery)

    @property
    def outstanding(self) -> int:
        """Requests received and not answered: under way and queued."""
        return self.under_way + len(self._waiting)

    def load(self) -> DeploymentLoad:
        """The load to report; requests that arrived since the previous report are counted once."""
        arrived = self._arrived
        self._arrived = 0
        return DeploymentLoad(self._name, self.outstanding, arrived)

    def requests(self) -> DeploymentRequests | None:
        """The requests and answers since the last call, None when there were none."""
        if not (self._requests or self._answered):
            return None
        routes = {route.id: route.sent for route in self.routes if route.sent}
        for route in self.routes:
            route.sent = 0
        latency = tuple(self._latency) if any(self._latency) else ()
        found = DeploymentRequests(
            self._name, self._requests, routes, self._answered, failed=self._failed, latency=latency
        )
        self._requests = self._answered = self._failed = 0
        self._latency = [0] * len(self._latency)
        return found

    def answered(self, status: int, waited_s: float | None) -> None:
        """Count an answer; ``waited_s``: until its head came from the route, None for one of the
        proxy.
        """
        self._answered += 1
        self._failed += status >= 500
        if waited_s is not None:
            self._latency[bisect_left(LATENCY_MS, waited_s * 1000)] += 1

    def update(self, discovery: Discovery) -> None:
        """Use a new set of routes; requests under way on a removed route continue."""
        self.policy = discovery.proxy
        self.user = discovery.user
        self.routes = merged(self.routes, discovery)
        self._reason = discovery.reason
        self._wakes = discovery.wakes
        self.is_scaled = discovery.minimum is not None
        self._serve()

    async def acquire(self, key: str = "", tried: Collection[RouteLoad] = ()) -> RouteLoad:
        """A route with capacity, in use until `release`. Raises ProxyRefusal if none becomes free
        in time.
        """
        if not tried:
            self._arrived += 1
            self._requests += 1
        route = None if self._waiting else self._take(key, tried)
        if route is not None:
            return route
        if len(self._waiting) >= self._queue_requests:
            raise self._late("and as many wait as may")
        waiting = _Waiting(asyncio.get_running_loop().create_future(), tried, key)
        self._waiting.append(waiting)
        wait_s = self._wake_s if self._wakes else self.policy.queue_s
        if self._wakes and len(self._waiting) == 1:
            self._on_wake()
        route = None
        try:
            async with asyncio.timeout(wait_s):
                route = await waiting.future
        except TimeoutError:
            raise self._late(f"none had room for {wait_s:g} s") from None
        finally:
            if route is None:
                self._leave(waiting)
        return route

    def _late(self, why: str) -> ProxyRefusal:
        return without_route(self._name, "starting") if self._wakes else overloaded(self._name, why)

    def release(self, route: RouteLoad) -> None:
        """Release the route of an ended request."""
        route.outstanding -= 1
        self.under_way -= 1
        if self._waiting:
            self._serve()

    def _take(self, key: str, tried: Collection[RouteLoad]) -> RouteLoad | None:
        """A route with capacity; None if all are full or the first one starts. Raises ProxyRefusal
        without routes.
        """
        if self._wakes:
            return None
        candidates = eligible(self.routes, tried)
        if not candidates:
            raise without_route(self._name, self._reason)
        route = choose(candidates, self.policy.max_outstanding, random.randrange, key)
        if route is not None:
            self.take_again(route)
        return route

    def take_again(self, route: RouteLoad) -> None:
        """Count a request on a route, in use until `release`."""
        route.outstanding += 1
        route.sent += 1
        self.under_way += 1

    def _serve(self) -> None:
        """Assign free capacity to queued requests, in order."""
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
        """Leave the queue; a route assigned to a request that was just cancelled becomes free
        again.
        """
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        elif not waiting.future.cancelled() and waiting.future.exception() is None:
            self.release(waiting.future.result())


def overloaded(name: str, why: str) -> ProxyRefusal:
    return ProxyRefusal(
        "overloaded", f"every route of {name} has as many requests as it may, {why}"
    )
