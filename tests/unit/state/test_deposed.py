"""A replica that can lead no more follows again, in the same process."""

import asyncio

import pytest

from iris_bus.contract import DamagedCommit
from iris_core import subjects
from iris_state.replication import leader, replica
from tests.support.house import House
from tests.support.memory import Memory


async def names(house: House) -> set[str]:
    return {job.name for job in house.state.replica.machine.ledger.jobs.values()}


async def leads_again(house: House) -> None:
    while not house.state.leads:
        assert not house.running.done()
        await asyncio.sleep(0.01)


async def test_who_is_deposed_follows_and_leads_when_the_other_is_gone(caplog):
    house = House(Memory())
    house.lead()
    async with asyncio.timeout(60):
        await house.submit("/before")
        other = await house.lose_the_lead()
        await leads_again(house)
        assert house.state.replica.machine.ledger.epoch == other.machine.ledger.epoch + 1
        assert (await house.submit("/after")).status == "created"
        assert await names(house) == {"/before", "/after"}
        await house.end()
    assert "this replica leads no more, and follows again: another replica has" in caplog.text


async def test_who_cannot_reach_the_bus_leads_again_when_it_is_back(
    caplog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leader, "_CONFIRM_S", 0.0)
    memory = Memory()
    house = House(memory)
    house.lead()
    async with asyncio.timeout(60):
        await house.submit("/before")
        memory.away = True
        while house.state.leads:
            assert not house.running.done()
            await asyncio.sleep(0.01)
        while "the records cannot be read" not in caplog.text:
            await asyncio.sleep(0.01)
        memory.away = False
        await leads_again(house)
        assert (await house.submit("/after")).status == "created"
        assert await names(house) == {"/before", "/after"}
        await house.end()


async def test_a_server_that_tells_an_older_end_of_the_journal_shows_no_damage(caplog):
    memory = Memory()
    first = House(memory)
    first.lead()
    async with asyncio.timeout(60):
        await first.submit("/a")
        await first.end()
        memory.copies, memory.older_ends = 3, [1]
        second = House(memory)
        second.lead()
        await leads_again(second)
        assert await names(second) == {"/a"}
        await second.end()
    assert "the journal ends at 1, not at" in caplog.text


async def test_a_journal_that_stays_shorter_is_damaged(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replica, "STALE_S", 0.0)
    memory = Memory()
    first = House(memory)
    first.lead()
    async with asyncio.timeout(60):
        await first.submit("/a")
        await first.end()
        stored = memory.streams[subjects.JOURNAL.name]
        memory.copies, memory.older_ends = 3, [stored.last - 1] * 10
        with pytest.raises(DamagedCommit, match="snapshots or events hold commit"):
            await House(memory).state.run()
