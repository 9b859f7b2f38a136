"""Asks the servers about every stream and bucket at intervals, for metrics: copies, bytes, servers,
the last backup.

Out of scope: what is deleted (`housekeeping`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from iris_bus.contract import StoreStanding, Streams, Unavailable
from iris_core.subjects import STORES
from iris_service.observing import CollectorGuard
from iris_state.replication.store_metrics import StoreCollector

INTERVAL_S = 15.0


class StoreWatch:
    """Looks at the stores while this replica leads.

    Args:
        leads: whether it leads.
        guard: what a failure to look is counted in; it ends nothing.
    """

    def __init__(
        self,
        streams: Streams,
        collector: StoreCollector,
        leads: Callable[[], bool],
        guard: CollectorGuard | None = None,
    ) -> None:
        self._streams = streams
        self._collector = collector
        self._leads = leads
        self._guard = guard or CollectorGuard()

    async def run(self) -> None:
        while True:
            if self._leads():
                with self._guard.surviving("stores"):
                    await self.look()
            else:
                self._collector.standings = {}
                self._collector.storage = {}
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Look once. A store of which no server tells has no current copy."""
        before = self._collector.standings
        self._collector.standings = {
            store: await self._standing(store, before.get(store, StoreStanding()))
            for store in STORES
        }
        with contextlib.suppress(Unavailable):  # nobody answers: the figures of the last look stay
            self._collector.storage = await self._streams.storage()

    async def _standing(self, store: str, before: StoreStanding) -> StoreStanding:
        try:
            return await self._streams.standing(store)
        except Unavailable:
            return replace(before, current=0)
