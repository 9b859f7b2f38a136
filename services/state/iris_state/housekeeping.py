"""Maintains the stores beside the leader's rounds: deletes old bundles, parts of aborted uploads
and the artifacts of deleted jobs.

Out of scope: which bundles go (`bundles`); what the stores hold (`store_watch`); snapshots and the
journal behind them (`snapshots.snapshotter`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from iris_bus.contract import Unavailable
from iris_core import subjects
from iris_state.bundles import Uses, discardable
from iris_state.replication.replica import Replica

log = logging.getLogger(__name__)

INTERVAL_S = 300.0
_SLICE = 2000
"""Jobs examined between two yields to the event loop."""


class Housekeeper:
    """Maintains the stores at intervals while this replica leads.

    Args:
        leads: whether it leads.
    """

    def __init__(self, replica: Replica, leads: Callable[[], bool]) -> None:
        self._replica = replica
        self._leads = leads
        self._outputs: set[int] = set()
        connection = replica.connection
        self._bundles = connection.blobs(subjects.BUNDLES_BUCKET)
        self._snapshots = connection.blobs(subjects.SNAPSHOTS_BUCKET)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self._leads():
                try:
                    await self.look()
                except Unavailable as error:
                    log.warning("housekeeping of the stores failed: %s", error)

    async def look(self) -> None:
        """Maintain the stores once. Raises Unavailable."""
        policy, now_ms = self._replica.policy, self._replica.clock.now_ms()
        stored = await self._bundles.listed()
        uses = await self.uses()
        for blob in discardable(
            stored, uses, policy.keep_bundles_ms, policy.keep_bundles_bytes, now_ms
        ):
            if await self._bundles.discard(blob):
                log.info("deleted expired bundle %s", blob.name, extra={"bytes": blob.bytes})
        await self._forget(uses)
        for blobs in (self._bundles, self._snapshots):
            await blobs.tidy()

    async def _forget(self, uses: Uses) -> None:
        """Delete artifacts and results of jobs that were deleted since the last call; those of
        others expire by age.
        """
        streams = self._replica.connection.streams
        for number in self._outputs - uses.outputs:
            await streams.drop(subjects.ARTIFACTS.name, subjects.job_artifacts(number))
            await streams.drop(subjects.RESULTS.name, subjects.job_results(number))
        self._outputs = uses.outputs

    async def uses(self) -> Uses:
        """The present uses of bundles. A bundle that a new job names meanwhile was touched for
        it.
        """
        jobs = list(self._replica.machine.ledger.jobs.values())
        uses = Uses(set(), {})
        for start in range(0, len(jobs), _SLICE):
            uses.note(jobs[start : start + _SLICE])
            await asyncio.sleep(0)
        uses.keep(self._replica.machine.ledger.deployments.values())
        return uses
