"""Chooses the route of a request: the one with the fewest outstanding requests, or by its affinity key.

Routes whose connections failed three times in a row are ejected for a while, never more than half of them.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from iris_core.serving import Discovery

_FAILURES = 3
_EJECTED_S = 5.0
_LONGEST_EJECTION_S = 60.0
_OVERLOAD = 1.25


@dataclass(eq=False, slots=True)
class RouteLoad:
    """The load and failures of one route, as this proxy sees them.

    Attributes:
        outstanding: requests sent to it that have not ended. sent: since the last report.
        failures: failed connections in a row. ejections: ejections in a row.
        ejected_until_s: it gets no requests until this time of the caller's clock.
    """

    id: str
    address: str
    stale: bool = False
    outstanding: int = 0
    failures: int = 0
    ejections: int = 0
    ejected_until_s: float = 0.0
    sent: int = 0

    def failed(self, now_s: float) -> None:
        """A connection was refused or timed out."""
        self.failures += 1
        if self.failures >= _FAILURES and now_s >= self.ejected_until_s:
            self.ejected_until_s = now_s + min(_EJECTED_S * 2**self.ejections, _LONGEST_EJECTION_S)
            self.ejections += 1

    def connected(self) -> None:
        """Reset the failures: it has answered."""
        self.failures = self.ejections = 0
        self.ejected_until_s = 0.0


def merged(present: Iterable[RouteLoad], discovery: Discovery) -> list[RouteLoad]:
    """The routes of a new set; those in both sets keep their counts."""
    known = {(route.id, route.address): route for route in present}
    routes = []
    for found in discovery.routes:
        route = known.get((found.id, found.address)) or RouteLoad(found.id, found.address)
        route.stale = found.state != "healthy"
        routes.append(route)
    return routes


def eligible(routes: Sequence[RouteLoad], tried: Collection[RouteLoad], now_s: float) -> list[RouteLoad]:
    """The routes a request may use: healthy ones, else stale ones, without ejected and already tried ones."""
    healthy = [route for route in routes if not route.stale] or list(routes)
    ejected = sorted((r for r in healthy if r.ejected_until_s > now_s), key=lambda r: -r.ejected_until_s)
    if not ejected and not tried:
        return healthy
    out = ejected[: len(healthy) // 2]
    return [route for route in healthy if route not in out and route not in tried]


def choose(routes: Sequence[RouteLoad], limit: int, randomly: Callable[[int], int], key: str = "") -> RouteLoad | None:
    """One of ``routes`` with fewer than ``limit`` outstanding requests; None without one.

    Args:
        randomly: returns a number below its argument, to break ties.
        key: requests with the same key go to the same route, in every proxy, unless it is overloaded.
    """
    free = [route for route in routes if route.outstanding < limit]
    if not free:
        return None
    if key:
        most = _OVERLOAD * sum(route.outstanding for route in routes) / len(routes) + 1
        return max([r for r in free if r.outstanding < most] or free, key=lambda r: _weight(key, r.id))
    least = min(route.outstanding for route in free)
    idlest = [route for route in free if route.outstanding == least]
    return idlest[randomly(len(idlest))] if len(idlest) > 1 else idlest[0]


def _weight(key: str, route: str) -> bytes:
    """Rendezvous hashing: the route with the largest weight has the key."""
    return hashlib.blake2b(f"{len(key)}:{key}{route}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
