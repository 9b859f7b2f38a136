"""Backup of a running cluster into one file, and restore onto an empty one.

The records are those of one commit: the newest snapshot and the journal after it, replayed here
while the leader runs and written as a new snapshot. With them: bundles, the records of the notifier,
    and on request events and output. Out of scope: the file (`archive`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from iris_bus.contract import Message, Publication
from iris_bus.jetstream import JetStreamConnection
from iris_bus.streams.publisher import MARK
from iris_core import codec, subjects
from iris_core.subjects import RECORDS_LOST, Stream
from iris_state.admin.archive import Item, Writer, read
from iris_state.admin.salvage import NUMBERS
from iris_state.check import records as check
from iris_state.clock import Clock
from iris_state.effects.outbox import event_place
from iris_state.machine.machine import Machine, unseen_epoch
from iris_state.policy import Policy
from iris_state.replication.replica import Replica
from iris_state.snapshots import snapshot
from iris_state.snapshots.snapshot import name_of

_AT_ONCE = 64
_STREAMS = {
    "event": subjects.EVENTS.name,
    "log": subjects.LOGS.name,
    "notice": f"KV_{subjects.NOTIFY_BUCKET}",
}
"""Where items of these kinds are stored as they are."""
_WRITER = f"$KV.{subjects.NOTIFY_BUCKET}.{subjects.NOTIFY_WRITER}"
_POSITION = f"$KV.{subjects.NOTIFY_BUCKET}.{subjects.NOTIFY_POSITION}"
_NUMBER_MS = 10
"""On average no more than one job is submitted in this time between two restores of one backup: then
no two jobs get one number.
"""
_UNFINISHED = "a restore onto these servers was not finished: run `iris admin restore` again"


class NotEmpty(Exception):
    """The cluster to restore onto holds records."""


class About(msgspec.Struct, frozen=True):
    """What a backup holds.

    Attributes:
        at_ms: the time of the last commit (Unix, ms). sequence: that commit.
        last_published: the id of its last event. events: the sequence of the last event that had
            been published.
    """

    at_ms: int
    sequence: int
    last_published: str
    events: int
    jobs: int
    workers: int
    with_events: bool = False
    with_logs: bool = False


async def backup(connection: JetStreamConnection, path: Path, *, events: bool, logs: bool) -> About:
    """Write a backup of everything that is committed now, while the cluster runs.

    Raises DamagedCommit, InvariantBroken when the records are inconsistent, Unavailable, OSError.
    """
    notices = await _notices(connection)  # before the records: it has read no event that they lack
    replica = Replica("backup", Policy(), connection, Clock())
    await replica.recover()
    machine = replica.machine
    check.check(machine.ledger)
    newest_event = await connection.streams.last(subjects.EVENTS.name)
    published = newest_event.headers.get("Nats-Msg-Id", "") if newest_event is not None else ""
    unpublished = replica.unpublished.behind(published) or []
    about = About(
        machine.last_ms,
        machine.sequence,
        max([*(event.message_id for event in unpublished), published], key=event_place),
        newest_event.sequence if newest_event is not None else 0,
        jobs=len(machine.ledger.jobs),
        workers=len(machine.ledger.workers),
        with_events=events,
        with_logs=logs,
    )
    with Writer(path) as out:
        out.add(Item("about", "", codec.to_json(about)))
        data = snapshot.cut(machine.ledger, machine.sequence, machine.last_ms, about.last_published)
        out.add(Item("snapshot", name_of(machine.sequence), data))
        bundles = connection.blobs(subjects.BUNDLES_BUCKET)
        for blob in await bundles.listed():
            bundle = await bundles.get(blob.name)
            if bundle is not None:
                out.add(Item("bundle", blob.name, bundle, dict.fromkeys(blob.owners, "")))
        for notice in notices:
            out.add(notice)
        if events:
            async for item in _events(connection, machine.sequence, unpublished):
                out.add(item)
        if logs:
            async for message in _stored(connection, subjects.LOGS, 0):
                out.add(_item("log", message))
    await connection.streams.annotate(
        subjects.JOURNAL.name, subjects.LAST_BACKUP, str(replica.clock.now_ms())
    )
    return about


async def restore(connection: JetStreamConnection, path: Path) -> tuple[About, int]:
    """Fill an empty cluster from a backup, or one on which a state service has begun anew after a
    loss; what the backup holds, and the number of the next job.

    Until it is done no state service leads there; after an interruption it can be run again. Raises
    BadArchive before anything is changed, NotEmpty, DamagedCommit, Full, Unavailable.
    """
    about = verify(path)
    await _refuse_records(connection)
    await connection.streams.ensure()
    await connection.streams.annotate(subjects.JOURNAL.name, RECORDS_LOST, _UNFINISHED)
    raw = {kind: connection.raw(stream) for kind, stream in _STREAMS.items()}
    firsts = [item.sequence for item in read(path) if item.kind == "event" and item.sequence]
    await raw["event"].replace(firsts[0] if firsts else max(about.events, 1) + 1)
    await raw["log"].replace(1)
    await raw["notice"].replace(1)
    bundles = connection.blobs(subjects.BUNDLES_BUCKET)
    image = Item("snapshot", "", b"")
    last: list[Message] = []
    for batch in _batches(read(path)):
        last += [_restored(item) for item in batch if item.name == _WRITER]
        for kind, stream in raw.items():
            await stream.store([_restored(item) for item in batch if item.kind == kind])
        for item in batch:
            if item.kind == "bundle":
                await bundles.put(item.name, item.data, owners=item.headers)
            elif item.kind == "snapshot":
                image = item
    await raw["notice"].store(last)  # whoever has read some of them reads all again
    events = await raw["event"].state()
    mark = f"{events.last_seq if events else 0} {about.last_published}"
    await connection.streams.annotate(subjects.EVENTS.name, MARK, mark)
    snapshots = connection.blobs(subjects.SNAPSHOTS_BUCKET)
    for name in await snapshots.names():
        await snapshots.delete(name)
    renumbered, next_number = _with_unseen_numbers(image.data, about.at_ms, Clock().now_ms())
    await snapshots.put(image.name, renumbered)
    await connection.raw(subjects.JOURNAL.name).replace(about.sequence + 1)
    await connection.streams.annotate(subjects.JOURNAL.name, RECORDS_LOST, "")
    # The archive is a backup of what is there now: without the note, "no backup for two days" fires.
    await connection.streams.annotate(subjects.JOURNAL.name, subjects.LAST_BACKUP, str(about.at_ms))
    return about, next_number


def _with_unseen_numbers(data: bytes, from_ms: int, now_ms: int) -> tuple[bytes, int]:
    """A snapshot of that time whose next job and next leader get numbers that no process knows, and
    the number of that job. A host may still run what was submitted after the backup, and would take
    a job of the same number for that; whoever has heard of a later leader than the backup has would
    drop the orders of an earlier one. Both count with the time, so they are other ones each time that
    a backup is restored.
    """
    image = snapshot.read(data)
    machine = Machine(Policy(), "restore")
    machine.restore(image)
    machine.ledger.next_number += NUMBERS + max(0, now_ms - from_ms) // _NUMBER_MS
    machine.ledger.epoch = max(machine.ledger.epoch, unseen_epoch(now_ms))
    renumbered = snapshot.cut(
        machine.ledger, image.rest.sequence, image.rest.at_ms, image.rest.last_published
    )
    return renumbered, machine.ledger.next_number


async def _refuse_records(connection: JetStreamConnection) -> None:
    """Raises NotEmpty when the cluster has records of its own, DamagedCommit, Unavailable."""
    state = await connection.raw(subjects.JOURNAL.name).state()
    if state is None or not state.last_seq:
        return
    if (await connection.streams.standing(subjects.JOURNAL.name)).notes.get(RECORDS_LOST):
        return
    replica = Replica("restore", Policy(), connection, Clock())
    await replica.recover()
    ledger = replica.machine.ledger
    if ledger.next_number > 1 or ledger.next_deployment > 1 or ledger.quotas:
        raise NotEmpty(
            f"the journal has {state.last_seq} entries and {len(ledger.jobs)} jobs: a backup is restored onto an empty "
            "cluster only; docs/disaster-recovery.md says how servers are emptied"
        )


def verify(path: Path) -> About:
    """Read a whole backup and return what it holds. Raises BadArchive, OSError."""
    about: About | None = None
    for item in read(path):
        if item.kind == "about":
            about = codec.from_json(item.data, About)
        elif item.kind == "snapshot":
            snapshot.read(item.data)
    assert about is not None
    return about


async def _stored(
    connection: JetStreamConnection, stream: Stream, after: int
) -> AsyncIterator[Message]:
    raw = connection.raw(stream.name)
    state = await raw.state()
    if state is not None:
        async for message in raw.readable(max(after, state.first_seq - 1, 0), state.last_seq):
            yield message


async def _notices(connection: JetStreamConnection) -> list[Item]:
    """The records of the notifier; none of a cluster of a release before it."""
    if await connection.raw(_STREAMS["notice"]).state() is None:
        return []
    found = await connection.key_value(subjects.NOTIFY_BUCKET).all()
    return [
        Item("notice", f"$KV.{subjects.NOTIFY_BUCKET}.{key}", entry.value)
        for key, entry in found.items()
    ]


async def _events(
    connection: JetStreamConnection, end: int, unpublished: Sequence[Publication]
) -> AsyncIterator[Item]:
    """Every event of commits up to ``end``, in order, including those that are not published
    yet.
    """
    last = (0, -1)
    async for message in _stored(connection, subjects.EVENTS, 0):
        place = event_place(message.headers.get("Nats-Msg-Id", ""))
        if place[0] <= end:
            last = place
            yield _item("event", message)
    for event in unpublished:
        if event_place(event.message_id) > last:
            yield Item(
                "event",
                event.subject,
                event.data,
                {**event.headers, "Nats-Msg-Id": event.message_id},
            )


def _item(kind: str, message: Message) -> Item:
    return Item(
        kind, message.subject, message.data, dict(message.headers), sequence=message.sequence
    )


def _restored(item: Item) -> Message:
    """The message to publish so that the stream holds what the backup holds."""
    subject = subjects.restored_output(item.name) if item.kind == "log" else item.name
    data = _in_new_stream(item.data) if item.name == _POSITION else item.data
    return Message(subject, data, item.headers)


def _in_new_stream(position: bytes) -> bytes:
    """The notifier's position without the time at which its stream was made: the numbers of the
    restored one continue those of the backup, so it is a position there.
    """
    record = codec.unpack(position, dict[str, Any])
    record.pop("made", None)
    return codec.pack(record)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _AT_ONCE)):
        yield batch
