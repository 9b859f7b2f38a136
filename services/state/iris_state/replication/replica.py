"""The part that leader and followers share: a machine that has applied the journal up to some
commit.

It loads the newest valid snapshot, replays the journal after it, and applies what the leader
appends. Out of scope: leader election (`replication.standby`), and the work of the leader
(`replication.leader`). Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from iris_bus.contract import Connection, DamagedCommit, EventPublisher, Fenced, Gap, JournalEntry
from iris_core import subjects
from iris_state.clock import Clock
from iris_state.effects.outbox import event_place
from iris_state.machine.machine import Machine
from iris_state.policy import FLEET_POLICY, FleetPolicy, Policy
from iris_state.replication.snapshotter import newest, newest_commit
from iris_state.replication.unpublished import UnpublishedEvents

log = logging.getLogger(__name__)

_RECOVERIES = 3
_TURN = 64
_LOOK_S = 1.0
STALE_S = 25.0
"""So long a NATS server that leads a stream no more may believe that it does: it gives up 10 to 20 s
after it has heard of no other.
"""


class Replica:
    """One replica.

    Args:
        name: unique per start. fleet: limits and times of the fleet.

    Attributes:
        machine: the records; replaced by `recover`.
        unpublished: facts of the newest commits, for the next leader.
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        connection: Connection,
        clock: Clock,
        fleet: FleetPolicy = FLEET_POLICY,
    ) -> None:
        self.name = name
        self.fleet = fleet
        self.policy = policy
        self.connection = connection
        self.clock = clock
        self.journal = connection.journal(policy.journal_part_bytes)
        self.machine = Machine(policy, name, fleet)
        self.unpublished = UnpublishedEvents()

    def forget(self) -> None:
        """Let go of all records, which are to be read anew and are not needed twice meanwhile."""
        self.machine = Machine(self.policy, self.name, self.fleet)
        self.unpublished = UnpublishedEvents()

    async def recover(self) -> None:
        """Apply everything up to the journal's present end.

        Raises DamagedCommit when a commit that no intact snapshot covers is missing or damaged,
        OtherVersion, Unavailable.
        """
        try:
            for _ in range(_RECOVERIES):
                with contextlib.suppress(
                    Gap
                ):  # the journal may have been trimmed after a newer snapshot meanwhile
                    await self._recover()
                    return
        except DamagedCommit as damaged:
            image = await newest(self.connection.blobs(subjects.SNAPSHOTS_BUCKET), "")
            if image is None or image.rest.sequence < damaged.sequence:
                raise
            log.error("%s; the snapshot of %d has what it did", damaged, image.rest.sequence)
        log.error("journal trimmed past the last published event: some events are lost")
        try:
            await self._recover(all_events=False)
        except Gap as gap:
            raise DamagedCommit(self.machine.sequence + 1, str(gap)) from gap

    async def _recover(self, *, all_events: bool = True) -> None:
        began_ms = self.clock.now_ms()
        streams = self.connection.streams
        last = await streams.last(subjects.EVENTS.name)
        last_published = last.headers.get("Nats-Msg-Id", "") if last is not None else ""
        blobs = self.connection.blobs(subjects.SNAPSHOTS_BUCKET)
        known = max(await newest_commit(blobs), event_place(last_published)[0])
        if known > (end := await self.settled_end(known)):
            raise DamagedCommit(
                end + 1, f"the journal ends at {end}, snapshots or events hold commit {known}"
            )
        image = await newest(blobs, last_published if all_events else "")
        if all_events and not await streams.end(subjects.EVENTS.name):
            # nothing was ever published, or power loss has lost it: the whole journal is published
            # again
            image = None
        machine = Machine(self.policy, self.name, self.fleet)
        if image is not None:
            machine.restore(image)
            last_published = last_published or image.rest.last_published
        self.machine, self.unpublished = (
            machine,
            UnpublishedEvents(machine.sequence, last_published),
        )
        begin = machine.sequence
        try:
            async for entry in await self.journal.replay(begin):
                self.apply(entry.sequence, entry.data)
                if entry.sequence % _TURN == 0:
                    await asyncio.sleep(
                        0
                    )  # a leader that reloads its records answers pings meanwhile
        except DamagedCommit as damaged:
            raise DamagedCommit(
                damaged.sequence, f"{damaged.why}; {self._whole(begin, end)}"
            ) from damaged
        self._continue_times()
        log.info(
            "recovered",
            extra={
                "snapshot": begin,
                "entries": machine.sequence - begin,
                "seconds": (self.clock.now_ms() - began_ms) / 1000,
                "jobs": len(machine.ledger.jobs),
            },
        )

    def _continue_times(self) -> None:
        """Let times pass as they did for the last leader on this host, and not before the last
        commit.
        """
        self.clock.continue_for(self.machine.ledger.boots)
        self.clock.start_after(self.machine.last_ms)

    def _whole(self, begin: int, end: int) -> str:
        """Up to which commit the journal could be read, for a repair."""
        machine = self.machine
        at = datetime.fromtimestamp(machine.last_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return (
            f"the record is whole up to commit {machine.sequence} (epoch {machine.ledger.epoch}, {at}), of which a "
            f"snapshot holds {begin}; the journal ends at {end}"
        )

    def apply(self, sequence: int, data: bytes) -> None:
        """Apply one commit of the journal. Raises DamagedCommit."""
        self.unpublished.add(sequence, self.machine.replay(sequence, data))

    def follow(self, entries: Sequence[JournalEntry]) -> None:
        for entry in entries:
            self.apply(entry.sequence, entry.data)

    async def take_over(self, publisher: EventPublisher, epoch: int) -> bool:
        """Catch up, and append an epoch of this replica; False when another replica was first.

        Args:
            epoch: the newest one when no leader was found.

        Raises Gap when this replica has fallen behind what is kept, Full, Unavailable.
        """
        end = (
            await self.journal.end()
        )  # after the last commit, if its writer ended within another one
        async for entry in await self.journal.replay(self.machine.sequence):
            self.apply(entry.sequence, entry.data)
        if self.machine.ledger.epoch != epoch:
            return False
        if self.unpublished.behind(await publisher.resume()) is None:
            raise Gap("the events have fallen back behind what this replica remembers")
        self._continue_times()
        bid = self.machine.bid(self.clock.now_ms(), self.clock.boot, self.clock.boot_ms())
        try:
            sequence = await self.journal.append(bid, expected=max(end, self.machine.sequence))
        except Fenced:
            return False
        self.apply(sequence, bid)
        return True

    async def settled_end(self, least: int) -> int:
        """Where the journal ends, asked again for a while when that is before ``least``: a server
        that was suspended or cut off answers as the journal's leader until it hears of the next
        one, and does not know what was stored meanwhile. Raises Unavailable.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + STALE_S
        while (end := await self.journal.end()) < least:
            copies = (await self.connection.streams.standing(subjects.JOURNAL.name)).declared
            if copies <= 1 or clock() > until_s:
                return end
            log.warning("the journal ends at %d, not at %d; asking again", end, least)
            await asyncio.sleep(_LOOK_S)
        return end

    async def still_leads(self) -> bool:
        """Whether the journal still ends with this replica's own commit. Raises Unavailable."""
        return await self.journal.end() == self.machine.sequence
