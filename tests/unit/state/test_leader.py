"""The replica that leads, on a bus in memory: what it hears itself does not overtake what was stored before."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from iris_bus import framing
from iris_bus.contract import Fenced
from iris_bus.memory import Memory
from iris_core import codec, subjects
from iris_core.messages import Answer, CancelJob, HeartbeatMessage, Order
from iris_state.replication.leader import BATCH, DEFER
from tests.support.house import ANN, POLICY, SAY_CANCEL, House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(Memory())
    async with asyncio.timeout(30):
        yield house
        await house.end()


def status(answer: bytes) -> str:
    return codec.unpack(answer, Answer).status


async def test_what_was_stored_while_nobody_led_comes_before_what_is_said(house: House):
    await house.store("/a", times=BATCH)
    await house.store("/b")
    house.lead()
    assert await house.cancel("/b", "c1") == DEFER


async def test_once_that_is_read_the_leader_hears(house: House):
    await house.store("/a")
    house.lead()
    await house.executed("/b")
    assert status(await house.cancel("/a", "c1")) == "accepted"


async def test_a_leader_of_an_empty_inbox_hears_at_once(house: House):
    house.lead()
    assert status(await house.cancel("/a", "c1")) == "not_found"


async def test_what_is_said_does_not_overtake_a_crowd(house: House):
    house.lead()
    await house.executed("/a")
    await house.store("/a", times=BATCH)
    await house.store("/b")
    assert await house.cancel("/b", "c1") == DEFER


@pytest.mark.parametrize("subject", [SAY_CANCEL, subjects.STATE_QUERY, subjects.SNAPSHOT_FULL])
async def test_who_wants_an_answer_where_none_can_be_sent_gets_none_and_ends_nobody(house: House, subject: str):
    house.lead()
    await house.executed("/a")
    cancel = codec.pack(CancelJob("/a", ANN, "c1", 1, "", ""))
    house.wanting.bus.publish(subject, cancel, reply="no subject")
    assert status(await house.cancel("/nobody", "c2")) == "not_found"
    assert not house.running.done()


@pytest.mark.parametrize(("replicas", "again"), [(1, True), (10_000, False)])
async def test_a_large_snapshot_is_not_taken_as_often_as_a_small_one(house: House, replicas: int, again: bool):
    house.lead()
    for number in range(POLICY.snapshot_changes):
        await house.executed(f"/a{number}", replicas)
    first = await house.snapshot()
    for number in range(20):
        await house.executed(f"/b{number}")
    assert (await house.snapshot() != first) == again


async def test_one_whom_another_has_followed_orders_nobody_to_do_anything():
    house = House(Memory())
    house.lead()
    async with asyncio.timeout(30):
        await house.executed("/a")
        ordered: list[bytes] = []
        await house.wanting.bus.subscribe(subjects.order("w0"), lambda message: ordered.append(message.data))
        journal = house.wanting.journal()
        await journal.append(b"what another leader has written", expected=await journal.end())
        house.wanting.bus.publish(
            subjects.heartbeat("w0"), codec.pack(HeartbeatMessage("w0", "a start nobody has heard of", 1, 1))
        )
        with pytest.raises(Fenced):
            await house.running
    assert not ordered


async def test_who_takes_over_goes_on_behind_a_commit_that_was_not_finished():
    memory = Memory()
    async with asyncio.timeout(30):
        first = House(memory)
        first.lead()
        await first.executed("/a")
        await first.end()
        unfinished = next(framing.split(b"a commit of two parts", 11))
        await first.wanting.streams.publish(subjects.JOURNAL_SUBJECT, unfinished)
        second = House(memory)
        second.lead()
        await second.executed("/b")
        await second.end()
        third = House(memory)
        third.lead()
        await third.executed("/c")
        names = [job.name for job in third.state.replica.machine.ledger.jobs.values()]
        await third.end()
    assert names == ["/a", "/b", "/c"]


async def test_a_commit_in_parts_is_taken_over_whole():
    memory = Memory()
    policy = msgspec.structs.replace(POLICY, journal_part_bytes=16)
    async with asyncio.timeout(30):
        for name in ("/a", "/b", "/c"):
            house = House(memory, policy)
            house.lead()
            await house.executed(name)
            await house.end()
        machine = house.state.replica.machine
        assert [job.name for job in machine.ledger.jobs.values()] == ["/a", "/b", "/c"]
        assert machine.sequence == await house.wanting.journal().end() > 12


async def test_hosts_that_are_gone_for_good_are_not_kept_in_mind(house: House):
    house.lead()
    await house.executed("/a")
    leader = house.state._leader
    assert leader is not None
    for number in range(100):
        await leader._deliver_one(f"w{number}", Order("1", 1))
    assert len(leader._unreached) <= len(house.state.replica.machine.ledger.workers)
