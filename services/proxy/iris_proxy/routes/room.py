"""Leaves room at a proxy to the deployments of others beside those of one user. Pure."""

from __future__ import annotations

from collections import Counter

from iris_proxy.http.refusal import ProxyRefusal


class RequestRoom:
    """The requests under way at a proxy, by the user of their deployment.

    Args:
        connections: how many connections of clients it serves.
    """

    def __init__(self, connections: int) -> None:
        self._most = max(1, connections * 3 // 4)
        self._under_way = Counter[str]()

    def enter(self, user: str) -> None:
        """A request to a deployment of this user begins. Raises ProxyRefusal."""
        if self._under_way[user] >= self._most:
            most = (
                f"requests to deployments of its user have {self._most} connections of this proxy, "
                "three quarters of [proxy] max_connections"
            )
            raise ProxyRefusal("overloaded", most, closes=True)
        self._under_way[user] += 1

    def leave(self, user: str) -> None:
        """A request that has entered has ended."""
        self._under_way[user] -= 1
        if not self._under_way[user]:
            del self._under_way[user]
