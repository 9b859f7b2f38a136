"""Garbage collection of bundles: those of live jobs and those used recently are kept."""

import msgspec
import pytest

from iris_bus.contract import DESCRIBED_BYTES, Blob
from iris_core.states import Cause, JobState
from iris_core.units import DAY_MS
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.records.apply import apply
from iris_state.records.changes import JobAdmitted, JobMoved
from iris_state.records.inputs import RoomMade
from iris_state.replication.replica import Replica
from iris_state.service.bundles import REST_MS, Uses, discardable, summed
from iris_state.service.housekeeping import Housekeeper
from tests.support.memory import Memory
from tests.unit.state.test_snapshot import HOST, done, job

NOW = 100 * DAY_MS
MIB = 1 << 20


def gone(
    *stored: tuple[str, int, int],
    live: str = "",
    ended: dict[str, int] | None = None,
    **limits: int,
) -> str:
    """Names of what goes, of ``(name, MiB, days since it was used)``."""
    blobs = [Blob(name, taking(size), NOW - age * DAY_MS, 1) for name, size, age in stored]
    uses = Uses(set(live), {name: NOW - age * DAY_MS for name, age in (ended or {}).items()})
    said = {"keep_ms": 7 * DAY_MS, "keep_bytes": 0, **limits}
    return "".join(blob.name for blob in discardable(blobs, uses, now_ms=NOW, **said))


def taking(size: int) -> int:
    """The bytes of a bundle that takes so many MiB in its store."""
    return size * MIB - DESCRIBED_BYTES


def test_thousands_of_tiny_ones_are_counted_as_what_they_take():
    tiny = [Blob(str(number), 1, 0, 1, ("eve",)) for number in range(10_000)]
    assert summed(tiny, 1, NOW).of_user == {"eve": 6_010_000}
    gone = list(discardable(tiny, Uses(set(), {}), 0, MIB, NOW))
    assert sum(blob.held for blob in tiny) - sum(blob.held for blob in gone) <= MIB


def test_what_was_not_used_for_long_goes_and_what_a_live_job_names_stays():
    assert gone(("a", 1, 8), ("b", 1, 6), ("c", 1, 9), ("d", 1, 99), live="d") == "ca"


def test_a_bundle_is_used_until_its_last_job_has_ended():
    assert gone(("a", 1, 30), ("b", 1, 30), ended={"a": 3, "b": 8}) == "b"


def test_beyond_the_room_the_one_unused_for_longest_goes_first():
    assert gone(("a", 5, 1), ("b", 5, 3), ("c", 5, 2), keep_bytes=10 * MIB) == "b"
    assert gone(("a", 5, 1), ("b", 5, 3), ("c", 5, 2), live="bc", keep_bytes=1 * MIB) == "a"


def test_beyond_the_room_those_of_the_user_who_has_most_go_first():
    """Also where that one has used each since, and part of it is in use."""

    def left(*stored: tuple[str, int, tuple[str, ...]], live: str = "", keep: int) -> str:
        blobs = [
            Blob(name, taking(size), NOW - (9 - at) * DAY_MS, 1, owners)
            for at, (name, size, owners) in enumerate(stored)
        ]
        gone = discardable(blobs, Uses(set(live), {}), 0, keep * MIB, NOW)
        return "".join(sorted({name for name, *_ in stored} - {blob.name for blob in gone}))

    ada, eve, both = ("ada",), ("eve",), ("ada", "eve")
    assert left(("a", 5, ada), ("e", 4, eve), ("f", 4, eve), keep=9) == "af"
    assert left(("a", 5, ada), ("e", 9, eve), ("f", 4, eve), live="e", keep=14) == "ae"
    assert left(("a", 5, ada), ("e", 4, eve), ("f", 4, eve), keep=5) == "f"
    assert left(("s", 6, both), ("a", 1, ada), ("e", 4, eve), keep=7) == "as"
    assert left(("old", 10, ()), ("a", 5, ada), ("e", 9, eve), keep=14) == "ae"


def test_what_was_used_within_the_hour_stays_whatever_else():
    fresh = Blob("a", 10**12, NOW - REST_MS + 1, 1)
    assert list(discardable([fresh], Uses(set(), {}), 1, 1, NOW)) == []


def test_nothing_goes_where_nothing_is_limited():
    assert gone(("a", 10**15, 99), keep_ms=0) == ""


@pytest.fixture
def replica() -> Replica:
    return Replica("one", Policy(), Memory().connect(), Clock())  # type: ignore[arg-type]


async def test_a_leader_deletes_old_bundles_but_none_that_a_live_job_names(replica: Replica):
    ledger, blobs = replica.machine.ledger, replica.connection.blobs("iris-bundles")
    ended = JobMoved(2, JobState.SUCCEEDED, Cause.EXITED)
    for change in (
        HOST,
        with_bundle(1, "/lives", "a"),
        with_bundle(2, "/over", "b"),
        *done(2, 0),
        ended,
    ):
        apply(ledger, change, 1)
    for name in "abc":
        await blobs.put(name, b"code", at_ms=1)
    await blobs.put("d", b"code", at_ms=replica.clock.now_ms())
    await Housekeeper(replica, lambda: True, ignored).look()
    assert sorted(await blobs.names()) == ["a", "d"]


async def test_a_leader_sums_bundles_by_user_again_when_their_store_has_changed(replica: Replica):
    blobs = replica.connection.blobs("iris-bundles")
    keeper, sums = Housekeeper(replica, lambda: True, ignored), replica.machine.ledger.stored
    now_ms = replica.clock.now_ms()
    await blobs.put("a", b"1234", at_ms=now_ms, owners=["ann"])
    await keeper.sum_bundles()
    assert sums.bundles.of_user == {"ann": 604}
    assert sums.on_day("ann", now_ms // DAY_MS) == 604
    before = sums.bundles
    await keeper.sum_bundles()
    assert sums.bundles is before
    await blobs.touch("a", now_ms, add="bob")
    await blobs.put("b", b"old", at_ms=1, owners=["bob"])
    await keeper.sum_bundles()
    assert sums.bundles.of_user == {"ann": 302, "bob": 302 + 603}
    await keeper.look()
    await keeper.sum_bundles()
    assert sums.bundles.of_user == {"ann": 302, "bob": 302}
    assert sums.on_day("bob", now_ms // DAY_MS) == 302
    assert sums.on_day("bob", now_ms // DAY_MS + 1) == 0


async def test_a_bundle_that_is_asked_for_while_it_is_deleted_stays(replica: Replica):
    """The gateway has said that it is there, so nobody sends it again."""
    blobs = replica.connection.blobs("iris-bundles")
    await blobs.put("a", b"code", at_ms=1)
    keeper = Housekeeper(replica, lambda: True, ignored)
    uses = keeper.uses

    async def meanwhile() -> Uses:
        assert await blobs.touch("a", replica.clock.now_ms())
        return await uses()

    keeper.uses = meanwhile  # type: ignore[method-assign]
    await keeper.look()
    assert await blobs.names() == ["a"]


def ignored(made: RoomMade) -> None:
    """Nothing is deleted to make room."""


def with_bundle(number: int, name: str, digest: str) -> JobAdmitted:
    admitted = job(number, name, 1)
    return msgspec.structs.replace(
        admitted, spec=msgspec.structs.replace(admitted.spec, bundle=digest)
    )
