"""Replaces damaged data by one snapshot of everything that could be read, and an empty journal
after it.

In this order, so that it can be interrupted anywhere and run again: unpublished events, the
snapshot, the journal. Out of scope: reading (`examine`), and the copy of the replaced data
    (`__main__`).
"""

from __future__ import annotations

from iris_bus.contract import Connection, Publication
from iris_core import subjects
from iris_state.admin.examine import Examination
from iris_state.admin.stored import Stored
from iris_state.effects import outbox
from iris_state.effects.outbox import event_place
from iris_state.snapshots import snapshot
from iris_state.snapshots.snapshot import name_of

_PUBLISH_S = 60.0


async def repair(stored: Stored, found: Examination) -> None:
    """Write a store that a state service starts from. Raises Full, Unavailable; it can then be run
    again.
    """
    connection = stored.connection
    machine = found.salvaged.machine
    if (
        await connection.raw(subjects.JOURNAL.name).state() is None
    ):  # otherwise they stay as they are declared
        await connection.streams.ensure()
    last_published = await _publish(connection, found)
    data = snapshot.cut(machine.ledger, found.end, machine.last_ms, last_published)
    await connection.blobs(subjects.SNAPSHOTS_BUCKET).put(name_of(found.end), data)
    await connection.raw(subjects.JOURNAL.name).replace(found.end + 1)


async def _publish(connection: Connection, found: Examination) -> str:
    """Publish the unpublished events of the commits; returns the id of the last one. Raises
    Unavailable.
    """
    publisher = connection.publisher()
    try:
        last_published = await publisher.resume() or found.last_published
        place = event_place(last_published)
        events: list[Publication] = []
        for sequence, facts in found.salvaged.facts:
            events += outbox.unheard(facts, sequence, place)
        publisher.publish(events)
        await publisher.drain(_PUBLISH_S)
        return events[-1].message_id if events else last_published
    finally:
        await publisher.close()
