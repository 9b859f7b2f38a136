"""Before artifacts are full, those of the user who holds most are deleted."""

from dataclasses import replace

import msgspec

from iris_core import subjects
from iris_core.messages.state_worker import Artifact, Ended
from iris_core.states import Cause, JobState
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.records.apply import apply
from iris_state.records.changes import Change, JobMoved, Moved
from iris_state.replication.replica import Replica
from iris_state.service.artifacts import StoredOutput, surplus
from iris_state.service.housekeeping import Housekeeper
from tests.support.memory import Memory
from tests.unit.state.test_snapshot import HOST, done, job

PART = 1 << 20


def stored(**users: list[int]) -> dict[int, StoredOutput]:
    """Jobs by user with so many bytes, in the order of their ends."""
    found: dict[int, StoredOutput] = {}
    for user, sizes in users.items():
        for size in sizes:
            found[len(found) + 1] = StoredOutput(user, 100 + len(found), size)
    return found


def test_nothing_goes_while_there_is_room():
    assert surplus(stored(ann=[80]), 80, 100) == []
    assert surplus(stored(ann=[80]), 10**9, 0) == [], "no limit"


def test_the_oldest_of_who_has_most_goes_until_there_is_room():
    assert surplus(stored(ann=[10], bob=[20, 20, 20, 20]), 90, 100) == [2]
    assert surplus(stored(ann=[30, 10], bob=[10, 40]), 90, 100) == [3, 4]


def test_what_no_record_tells_of_is_not_deleted_for():
    assert surplus(stored(ann=[0, 5]), 99, 100) == [2]


def ended(number: int, user: str, size: int) -> list[Change]:
    admitted = job(number, f"/j{number}", 1)
    spec = msgspec.structs.replace(admitted.spec, output="out", user=user)
    *before, end = done(number, 0)
    assert isinstance(end, Moved)
    artifact = Artifact("u", size, 1)
    return [
        msgspec.structs.replace(admitted, spec=spec, user=user),
        *before,
        msgspec.structs.replace(end, ended=Ended(Cause.EXITED, 0, artifact=artifact)),
        JobMoved(number, JobState.SUCCEEDED, Cause.EXITED),
    ]


async def test_one_user_fills_the_artifacts_and_another_keeps_its_own():
    small = replace(subjects.ARTIFACTS, max_bytes=10 * PART + 2000)
    table = [small if one.name == small.name else one for one in subjects.STREAMS]
    replica = Replica("one", Policy(), Memory(table).connect(), Clock())  # type: ignore[arg-type]
    streams = replica.connection.streams
    changes = [HOST, *ended(1, "ann", PART)]
    for number in range(2, 11):
        changes += ended(number, "bob", PART)
    for change in changes:
        apply(replica.machine.ledger, change, 1)
    for number in range(1, 11):
        await streams.publish(subjects.artifact("w0", number, "u"), b"x" * PART)
    await Housekeeper(replica, lambda: True).make_room()
    kept = [
        number
        for number in range(1, 11)
        if await streams.next(small.name, 0, subject=subjects.job_artifacts(number)) is not None
    ]
    assert (kept[0], kept[-1]) == (1, 10)
    assert 6 <= len(kept) <= 8
