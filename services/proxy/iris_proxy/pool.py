"""Connections to every route there is, and to those that have left but still answer something."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Iterator

from iris_proxy.choice import RouteLoad
from iris_proxy.upstream import Upstream


class Pool:
    """One `Upstream` per address.

    Args:
        idle_s: how long an idle connection is kept.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._upstreams: dict[str, Upstream] = {}
        self._users: Counter[str] = Counter()
        self._wanted: Collection[str] = ()
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def use(self, route: RouteLoad) -> Iterator[Upstream]:
        """The route's connections, kept open at least until the block ends."""
        address = route.address
        upstream = self._upstreams.get(address)
        if upstream is None:
            upstream = self._upstreams[address] = Upstream(address, self._idle_s)
        self._users[address] += 1
        try:
            yield upstream
        finally:
            self._users[address] -= 1
            self._drop_unused(address)

    def keep(self, addresses: Collection[str]) -> None:
        """Close what is idle and not among these any more; the rest when its last request has ended."""
        self._wanted = addresses
        for address in list(self._upstreams):
            self._drop_unused(address)

    async def close(self) -> None:
        self._wanted = ()
        for address in list(self._upstreams):
            self._close(address)
        if self._closing:
            await asyncio.wait(self._closing)

    def _drop_unused(self, address: str) -> None:
        if not self._users[address] and address not in self._wanted:
            self._close(address)

    def _close(self, address: str) -> None:
        del self._users[address]
        task = asyncio.ensure_future(self._upstreams.pop(address).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
