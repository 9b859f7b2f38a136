"""Maintains the stores beside the leader's rounds: sums bundles by user, deletes old ones, parts of
aborted uploads and what deleted jobs have stored, and of the user who has most before a stream is
full.

Out of scope: which bundles and whose things go (`bundles`, `room`); what the stores hold
(`store_watch`); snapshots and the journal behind them (`replication.snapshotter`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from iris_bus.contract import Unavailable
from iris_core import subjects
from iris_core.units import show_bytes
from iris_state.records.hosts import running_output
from iris_state.records.indexes.stored import NOT_LISTED, StoredBytes, StoredKind, StoredSums
from iris_state.records.inputs import RoomMade
from iris_state.replication.replica import Replica
from iris_state.service.bundles import Uses, discardable, summed
from iris_state.service.room import (
    FULL,
    OF_KIND,
    SHARED,
    TAIL_BYTES,
    TAIL_MESSAGES,
    Holding,
    Shared,
    Surplus,
    holdings,
    surplus,
)

log = logging.getLogger(__name__)

INTERVAL_S = 300.0
ROOM_INTERVAL_S = 15.0
"""Between two looks at the room in streams."""
_BUNDLES = f"OBJ_{subjects.BUNDLES_BUCKET}"
_SLICE = 2000
"""Jobs examined between two yields to the event loop."""


class Housekeeper:
    """Maintains the stores at intervals while this replica leads.

    Args:
        leads: whether it leads. record: has the leader record that something was deleted.
    """

    def __init__(
        self, replica: Replica, leads: Callable[[], bool], record: Callable[[RoomMade], None]
    ) -> None:
        self._replica = replica
        self._leads = leads
        self._record = record
        connection = replica.connection
        self._streams = connection.streams
        self._bundles = connection.blobs(subjects.BUNDLES_BUCKET)
        self._snapshots = connection.blobs(subjects.SNAPSHOTS_BUCKET)

    async def run(self) -> None:
        looks = count(1)
        while True:
            await asyncio.sleep(ROOM_INTERVAL_S)
            if self._leads():
                is_due = not next(looks) % round(INTERVAL_S / ROOM_INTERVAL_S)
                try:
                    await self.sum_bundles()
                    await self.forget()
                    await self.make_room()
                    if is_due:
                        await self.look()
                except Unavailable as error:
                    log.warning("housekeeping of the stores failed: %s", error)

    async def look(self) -> None:
        """Maintain the buckets once. Raises Unavailable."""
        policy = self._replica.policy
        now_ms = self._replica.clock.now_ms()
        stored = await self._bundles.listed()
        uses = await self.uses()
        for blob in discardable(
            stored, uses, policy.keep_bundles_ms, policy.keep_bundles_bytes, now_ms=now_ms
        ):
            if await self._bundles.discard(blob):
                log.info("deleted expired bundle %s", blob.name, extra={"bytes": blob.bytes})
                self._sums.bundles = self._sums.bundles._replace(end=NOT_LISTED.end)
        for blobs in (self._bundles, self._snapshots):
            await blobs.tidy()

    async def sum_bundles(self) -> None:
        """Sum what users hold of bundles, when it has changed. Raises Unavailable."""
        end = await self._streams.end(_BUNDLES)
        if end != self._sums.bundles.end:
            stored = await self._bundles.listed()
            self._sums.bundles = summed(stored, end, now_ms=self._replica.clock.now_ms())

    @property
    def _sums(self) -> StoredSums:
        return self._replica.machine.ledger.stored

    async def forget(self) -> None:
        """Delete what deleted jobs have stored. Raises Unavailable."""
        leftovers = self._sums.leftovers
        while leftovers:
            job, kinds = leftovers[0]
            for kind in kinds:
                shared = OF_KIND[kind]
                await self._streams.drop(shared.stream.name, shared.subject(job))
            leftovers.popleft()

    async def make_room(self) -> None:
        """Delete what the user who holds most has stored, before a stream is full. Raises
        Unavailable.
        """
        for shared in SHARED:
            standing = await self._streams.standing(shared.stream.name)
            limit = standing.limit_bytes or shared.stream.max_bytes
            if standing.bytes > FULL * limit:
                stored = await self._holdings(shared.kind)
                tail = TAIL_BYTES if shared.kind is StoredKind.OUTPUT else 0
                for one in surplus(stored, standing.bytes, limit, tail):
                    await self._evict(shared, one, stored[one.job].user)

    async def _evict(self, shared: Shared, gone: Surplus, user: str) -> None:
        """Delete something of a job, and have that recorded."""
        keep = TAIL_MESSAGES if gone.keeps_tail else 0
        await self._streams.drop(shared.stream.name, shared.subject(gone.job), keep=keep)
        self._record(RoomMade(gone.job, StoredBytes(**{shared.kind.value: gone.bytes})))
        log.warning(
            "%s are nearly full: deleted %s of j%d, of the user who has most, %s",
            shared.stream.name,
            show_bytes(gone.bytes),
            gone.job,
            user,
            extra={"bytes": gone.bytes, "user": user},
        )

    async def _holdings(self, kind: StoredKind) -> dict[int, Holding]:
        """What each job holds of a kind."""
        ledger = self._replica.machine.ledger
        running = running_output(ledger.with_output())
        jobs = list(ledger.jobs.values())
        found: dict[int, Holding] = {}
        for start in range(0, len(jobs), _SLICE):
            found.update(holdings(jobs[start : start + _SLICE], kind, running))
            await asyncio.sleep(0)
        return found

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
