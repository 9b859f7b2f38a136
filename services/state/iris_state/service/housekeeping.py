"""Maintains the stores beside the leader's rounds: deletes old bundles, parts of aborted uploads
and the artifacts of deleted jobs, and those of the user who has most before their stream is full.

Out of scope: which bundles and artifacts go (`bundles`, `artifacts`); what the stores hold
(`store_watch`); snapshots and the journal behind them (`replication.snapshotter`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from iris_bus.contract import Unavailable
from iris_core import subjects
from iris_state.replication.replica import Replica
from iris_state.service.artifacts import FULL, NOTHING_STORED, StoredOutput, stored_output, surplus
from iris_state.service.bundles import Uses, discardable

log = logging.getLogger(__name__)

INTERVAL_S = 300.0
ROOM_INTERVAL_S = 15.0
"""Between two looks at the room for artifacts."""
_DECODED = 50
"""Ended jobs whose tasks are decoded between two yields."""
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
        self._stored: dict[int, StoredOutput] = {}
        connection = replica.connection
        self._bundles = connection.blobs(subjects.BUNDLES_BUCKET)
        self._snapshots = connection.blobs(subjects.SNAPSHOTS_BUCKET)

    async def run(self) -> None:
        looks = count(1)
        while True:
            await asyncio.sleep(ROOM_INTERVAL_S)
            if self._leads():
                is_due = not next(looks) % round(INTERVAL_S / ROOM_INTERVAL_S)
                try:
                    await (self.look() if is_due else self.make_room())
                except Unavailable as error:
                    log.warning("housekeeping of the stores failed: %s", error)

    async def look(self) -> None:
        """Maintain the stores once. Raises Unavailable."""
        policy = self._replica.policy
        now_ms = self._replica.clock.now_ms()
        stored = await self._bundles.listed()
        uses = await self.uses()
        for blob in discardable(
            stored, uses, policy.keep_bundles_ms, policy.keep_bundles_bytes, now_ms=now_ms
        ):
            if await self._bundles.discard(blob):
                log.info("deleted expired bundle %s", blob.name, extra={"bytes": blob.bytes})
        await self._forget(uses)
        await self.make_room()
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

    async def make_room(self) -> None:
        """Delete artifacts of the user who has most before their stream is full. Raises
        Unavailable.
        """
        streams = self._replica.connection.streams
        stream = subjects.ARTIFACTS
        standing = await streams.standing(stream.name)
        limit = standing.limit_bytes or stream.max_bytes
        if standing.bytes <= FULL * limit:
            return
        await self._count_stored()
        for number in surplus(self._stored, standing.bytes, limit):
            await streams.drop(stream.name, subjects.job_artifacts(number))
            stored, self._stored[number] = self._stored[number], NOTHING_STORED
            about = {"bytes": stored.bytes, "user": stored.user}
            log.warning(
                "artifacts are nearly full: deleted those of j%d, of the user who has most, %s",
                number,
                stored.user,
                extra=about,
            )

    async def _count_stored(self) -> None:
        """Look at the ended jobs with artifacts that were not looked at before."""
        jobs = self._replica.machine.ledger.jobs
        self._stored = {number: one for number, one in self._stored.items() if number in jobs}
        for looked_at, job in enumerate(list(jobs.values())):
            if job.is_terminal and job.spec.output and job.number not in self._stored:
                self._stored[job.number] = stored_output(job)
            if not looked_at % _DECODED:
                await asyncio.sleep(0)

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
