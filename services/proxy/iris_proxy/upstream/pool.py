"""Connections to all routes."""

from __future__ import annotations

from collections.abc import Collection

from iris_proxy.upstream.upstream import Upstream


class Pool:
    """One `Upstream` per address.

    Args:
        idle_s: how long an idle connection is kept.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._upstreams: dict[str, Upstream] = {}
        self._wanted: Collection[str] = ()

    def upstream(self, address: str) -> Upstream:
        """The connections of a route; those of a removed route close after their request."""
        found = self._upstreams.get(address)
        if found is None:
            found = Upstream(address, self._idle_s)
            if address in self._wanted:
                self._upstreams[address] = found
            else:
                found.close()
        return found

    def keep(self, addresses: Collection[str]) -> None:
        """Close connections to all other routes: idle ones now, others when their request ends."""
        self._wanted = addresses
        for address in self._upstreams.keys() - addresses:
            self._upstreams.pop(address).close()

    def close(self) -> None:
        self.keep(frozenset())
