"""Chooses the route of a request: the one with the fewest outstanding requests, or by its affinity
key.

A route that takes no connection is ejected until a probe finds it again (`probing`).
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from iris_core.spec.serving import Discovery

_OVERLOAD = 1.25


@dataclass(eq=False, slots=True)
class RouteLoad:
    """The load of one route, as this proxy sees it.

    Attributes:
        outstanding: requests sent to it that have not ended. sent: since the last report.
        ejected: it took no connection, and gets no requests while there is another route.
    """

    id: str
    address: str
    stale: bool = False
    outstanding: int = 0
    ejected: bool = False
    sent: int = 0


def merged(present: Iterable[RouteLoad], discovery: Discovery) -> list[RouteLoad]:
    """The routes of a new set; those in both sets keep their counts."""
    known = {(route.id, route.address): route for route in present}
    routes = []
    for found in discovery.routes:
        route = known.get((found.id, found.address)) or RouteLoad(found.id, found.address)
        route.stale = found.state != "healthy"
        routes.append(route)
    return routes


def eligible(routes: Sequence[RouteLoad], tried: Collection[RouteLoad]) -> list[RouteLoad]:
    """The routes a request may use: healthy ones, else stale ones, without ejected and already
    tried ones; when all are ejected, the proxy may be at fault, and all may be tried.
    """
    healthy = [route for route in routes if not route.stale] or list(routes)
    present = [route for route in healthy if not route.ejected] or healthy
    return [route for route in present if route not in tried]


def choose(
    routes: Sequence[RouteLoad], limit: int, randomly: Callable[[int], int], key: str = ""
) -> RouteLoad | None:
    """One of ``routes`` with fewer than ``limit`` outstanding requests; None without one.

    Args:
        randomly: returns a number below its argument, to break ties.
        key: requests with the same key go to the same route, in every proxy, unless it is
            overloaded.
    """
    free = [route for route in routes if route.outstanding < limit]
    if not free:
        return None
    if key:
        most = _OVERLOAD * sum(route.outstanding for route in routes) / len(routes) + 1
        return max(
            [r for r in free if r.outstanding < most] or free, key=lambda r: _weight(key, r.id)
        )
    least = min(route.outstanding for route in free)
    idlest = [route for route in free if route.outstanding == least]
    return idlest[randomly(len(idlest))] if len(idlest) > 1 else idlest[0]


def _weight(key: str, route: str) -> bytes:
    """Rendezvous hashing: the route with the largest weight has the key."""
    return hashlib.blake2b(
        f"{len(key)}:{key}{route}".encode("utf-8", "surrogateescape"), digest_size=8
    ).digest()
