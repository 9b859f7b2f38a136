"""Before a stream of artifacts, output or results is full, what the user who holds most has stored is
deleted, and it is recorded; what deleted jobs have left is deleted too.
"""

from dataclasses import replace

import msgspec
import pytest

from iris_core import codec, subjects
from iris_core.messages.state_worker import Artifact, Ended
from iris_core.spec.calls import Calls
from iris_core.states import Cause, JobState
from iris_state.check.ledger import stored_bytes_are_summed
from iris_state.clock import Clock
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.apply import apply
from iris_state.records.changes import Change, Commit, Evicted, JobMoved, JobPruned, Moved
from iris_state.records.indexes.stored import StoredBytes, StoredKind
from iris_state.records.inputs import RoomMade
from iris_state.records.ledger import Ledger
from iris_state.replication.replica import Replica
from iris_state.service.housekeeping import Housekeeper
from iris_state.service.room import (
    OF_KIND,
    TAIL_BYTES,
    TAIL_MESSAGES,
    Holding,
    Surplus,
    holdings,
    surplus,
)
from iris_state.snapshots import snapshot
from tests.support.memory import Memory
from tests.unit.state.test_snapshot import HOST, done, job

CALLS = Calls(runner="a" * 64, function="b" * 64, segments=("c" * 64,), firsts=(0,), count=1)
STREAMS_OF_JOBS = (subjects.ARTIFACTS, subjects.LOGS, subjects.RESULTS)
PART = 1 << 20
PUBLISHED = {
    StoredKind.ARTIFACTS: lambda job: subjects.artifact("w0", job, "u"),
    StoredKind.OUTPUT: lambda job: subjects.output("w0", job, 0, PART),
    StoredKind.RESULTS: lambda job: subjects.results("w0", job),
}


def stored(**users: list[int]) -> dict[int, Holding]:
    """Jobs by user with so many bytes, in the order of their ends."""
    found: dict[int, Holding] = {}
    for user, sizes in users.items():
        for size in sizes:
            found[len(found) + 1] = Holding(user, 100 + len(found), size)
    return found


def jobs(gone: list[Surplus]) -> list[int]:
    return [one.job for one in gone]


def test_nothing_goes_while_there_is_room():
    assert surplus(stored(ann=[80]), 80, 100) == []
    assert surplus(stored(ann=[80]), 10**9, 0) == [], "no limit"


def test_the_oldest_of_who_has_most_goes_until_there_is_room():
    assert jobs(surplus(stored(ann=[10], bob=[20, 20, 20, 20]), 90, 100)) == [2]
    assert jobs(surplus(stored(ann=[30, 10], bob=[10, 40]), 90, 100)) == [3, 4]


def test_what_no_record_tells_of_is_not_deleted_for():
    assert jobs(surplus(stored(ann=[5]), 99, 100)) == [1]
    assert surplus({}, 99, 100) == []


def test_of_much_output_the_newest_stays_while_that_is_enough():
    assert surplus(stored(ann=[10], bob=[80]), 90, 100, tail_bytes=20) == [Surplus(2, 60, True)]
    assert surplus(stored(bob=[41, 41]), 100, 100, tail_bytes=20) == [
        Surplus(1, 21, keeps_tail=True),
        Surplus(1, 20),
    ]


def ended(number: int, user: str, kind: StoredKind, size: int) -> list[Change]:
    """A job of the user that has ended and stored so much."""
    admitted = job(number, f"/j{number}", 1)
    calls = CALLS if kind is StoredKind.RESULTS else None
    spec = msgspec.structs.replace(admitted.spec, output="out", user=user, calls=calls)
    *before, end = done(number, 0)
    assert isinstance(end, Moved)
    said = Ended(
        Cause.EXITED,
        0,
        artifact=Artifact("u", size, 1) if kind is StoredKind.ARTIFACTS else None,
        output_bytes=size if kind is StoredKind.OUTPUT else 0,
        result_bytes=size if kind is StoredKind.RESULTS else 0,
    )
    return [
        msgspec.structs.replace(admitted, spec=spec, user=user, name=f"/{user}{number}"),
        *before,
        JobMoved(number, JobState.RUNNING),
        msgspec.structs.replace(end, ended=said),
        JobMoved(number, JobState.SUCCEEDED, Cause.EXITED),
    ]


class Room:
    """A replica that leads, a stream of each kind that holds ten parts, and its housekeeper."""

    def __init__(self) -> None:
        small = [
            replace(one, max_bytes=10 * PART + 2000) if one in STREAMS_OF_JOBS else one
            for one in subjects.STREAMS
        ]
        connection = Memory(small).connect()
        self.replica = Replica("one", Policy(), connection, Clock())  # type: ignore[arg-type]
        self.streams = connection.streams
        self.keeper = Housekeeper(self.replica, lambda: True, self.record)
        self.apply(HOST)

    @property
    def ledger(self) -> Ledger:
        return self.replica.machine.ledger

    def record(self, made: RoomMade) -> None:
        self.replica.machine.step([made], 1)
        stored_as_told(self.ledger)

    def apply(self, *changes: Change) -> None:
        for change in changes:
            apply(self.ledger, change, 1)
        self.ledger.facts.clear()

    async def fill(self, kind: StoredKind) -> None:
        """A part of a job of ann, then nine of bob, each in the stream and on record."""
        for number in range(1, 11):
            self.apply(*ended(number, "ann" if number == 1 else "bob", kind, PART))
            await self.streams.publish(PUBLISHED[kind](number), b"x" * PART)

    async def kept(self, kind: StoredKind) -> list[int]:
        shared = OF_KIND[kind]
        return [
            number
            for number in range(1, 11)
            if await self.streams.next(shared.stream.name, 0, subject=shared.subject(number))
        ]


def stored_as_told(ledger: Ledger) -> None:
    assert list(stored_bytes_are_summed(ledger)) == []


@pytest.mark.parametrize("kind", StoredKind)
async def test_one_user_fills_a_stream_and_another_keeps_its_own(kind):
    room = Room()
    await room.fill(kind)
    await room.keeper.make_room()
    kept = await room.kept(kind)
    assert (kept[0], kept[-1]) == (1, 10)
    assert 6 <= len(kept) <= 8
    gone = {number for number in range(1, 11) if number not in kept}
    assert {n for n, one in room.ledger.jobs.items() if one.evicted.of(kind) == PART} == gone
    assert room.ledger.stored.of_user == {
        "ann": {kind: PART},
        "bob": {kind: (9 - len(gone)) * PART},
    }


async def test_what_a_running_job_prints_is_deleted_before_what_others_have():
    room = Room()
    room.apply(*ended(1, "ann", StoredKind.OUTPUT, PART))
    running = job(2, "/flood", 1)
    spec = msgspec.structs.replace(running.spec, user="bob")
    room.apply(msgspec.structs.replace(running, spec=spec, user="bob"))
    room.ledger.presence["w0"].output_bytes = {2: 9 * PART}
    room.ledger.output_hosts.add("w0")
    await room.streams.publish(PUBLISHED[StoredKind.OUTPUT](1), b"x" * PART)
    for _ in range(9):
        await room.streams.publish(PUBLISHED[StoredKind.OUTPUT](2), b"x" * PART)
    await room.keeper.make_room()
    assert await room.kept(StoredKind.OUTPUT) == [1]
    assert room.ledger.jobs[2].evicted == StoredBytes(output=9 * PART)
    of_two = dict(holdings([room.ledger.jobs[2]], StoredKind.OUTPUT, {2: 10 * PART}))
    assert of_two[2].bytes == PART, "what it prints from then on counts again"


async def test_of_much_output_the_newest_messages_stay():
    room = Room()
    room.apply(*ended(1, "ann", StoredKind.OUTPUT, 3 * TAIL_BYTES))
    for _ in range(2 * TAIL_MESSAGES):
        await room.streams.publish(PUBLISHED[StoredKind.OUTPUT](1), b"x" * (PART // 14))
    await room.keeper.make_room()
    name, subject = subjects.LOGS.name, subjects.job_logs(1)
    reader = room.streams.read(name, 0, subject)
    assert len(await reader.batch(wait=9)) == TAIL_MESSAGES
    assert room.ledger.jobs[1].held.output == TAIL_BYTES


async def test_what_a_deleted_job_has_stored_is_deleted():
    room = Room()
    for kind in StoredKind:
        await room.streams.publish(PUBLISHED[kind](1), b"x")
        await room.streams.publish(PUBLISHED[kind](2), b"x")
    room.apply(*ended(1, "ann", StoredKind.RESULTS, PART))
    room.apply(JobPruned(1))
    assert room.ledger.stored.of_user == {}
    await room.keeper.forget()
    assert [await room.kept(kind) for kind in StoredKind] == [[2]] * 3
    assert not room.ledger.stored.leftovers


def test_an_eviction_is_in_the_journal_and_in_snapshots():
    room = Room()
    room.apply(*ended(1, "ann", StoredKind.OUTPUT, PART))
    machine = room.replica.machine
    output = machine.step([RoomMade(1, StoredBytes(output=7)), RoomMade(9, StoredBytes(1))], 5)
    assert output.commit is not None
    assert codec.unpack(output.commit, Commit).changes == [Evicted(1, StoredBytes(output=7))]
    again = Machine(Policy(), "other")
    again.restore(snapshot.read(snapshot.cut(machine.ledger, 1, 5, "1.0")))
    assert again.ledger.jobs[1].held == StoredBytes(output=PART - 7)
    assert again.ledger.stored.of_user == {"ann": {StoredKind.OUTPUT: PART - 7}}
