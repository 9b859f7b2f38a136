"""A host's wall clock is set, forward or back: times of records pass as if nobody had done it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec
import pytest

from iris_core import codec
from iris_state.clock import Clock, step_to_say
from iris_state.policy import Policy
from iris_state.records.changes import Commit
from tests.support.house import POLICY, House
from tests.support.memory import Memory

BEGAN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAYS_MS = 6 * 24 * HOUR_MS
STEPS = (DAYS_MS, -DAYS_MS, HOUR_MS, -5000)


@dataclass
class Machine:
    """A host with a clock that people set, and one that nobody does."""

    boot: str
    since_boot_ms: int = 1000
    booted_ms: int = BEGAN_MS

    def clock(self, policy: Policy = POLICY) -> Clock:
        return Clock(
            lambda: (self.booted_ms + self.since_boot_ms) * 1_000_000,
            lambda: self.since_boot_ms * 1_000_000,
            self.boot,
            ignores_others=policy.take_clock,
        )

    def pass_time(self, ms: int) -> None:
        self.since_boot_ms += ms


async def times_of(memory: Memory) -> list[int]:
    journal = memory.connect().journal()
    return [codec.unpack(one.data, Commit).at_ms async for one in await journal.replay(0)]


async def lead_once(memory: Memory, machine: Machine, name: str, policy: Policy = POLICY) -> None:
    house = House(memory, policy, machine.clock(policy))
    house.lead()
    assert (await house.submit(name)).status == "created"
    await house.end()


@pytest.mark.parametrize("step_ms", STEPS)
async def test_a_leader_that_starts_again_goes_on_with_its_times(step_ms):
    memory, machine = Memory(), Machine("b0")
    await lead_once(memory, machine, "/a")
    machine.booted_ms += step_ms
    machine.pass_time(2000)
    await lead_once(memory, machine, "/b")
    times = await times_of(memory)
    assert times == sorted(times)
    assert times[-1] - times[0] == 2000


@pytest.mark.parametrize("step_ms", STEPS)
async def test_nothing_passes_for_who_leads_while_the_clock_is_set(step_ms, caplog):
    memory, machine = Memory(), Machine("b0")
    house = House(memory, POLICY, machine.clock())
    house.lead()
    await house.submit("/a")
    machine.booted_ms += step_ms
    machine.pass_time(2000)
    with caplog.at_level(logging.WARNING):
        await house.submit("/b")
    await house.end()
    times = await times_of(memory)
    assert times[-1] - times[0] == 2000
    said = [record.getMessage() for record in caplog.records if "clock was set" in record.message]
    words = f"{abs(step_ms) / 1000:.1f} s {'behind' if step_ms > 0 else 'ahead of'} it"
    assert len(said) == 1
    assert words in said[0]


async def test_one_that_has_heard_the_leader_goes_on_with_its_times():
    memory, here, there = Memory(), Machine("b0"), Machine("b1", 5000, BEGAN_MS + DAYS_MS)
    policy = msgspec.structs.replace(POLICY, ping_interval_s=0.01)
    first, second = House(memory, policy, here.clock()), House(memory, policy, there.clock())
    first.lead()
    await first.submit("/a")
    second.lead()
    async with asyncio.timeout(60):
        while not second.state.ready:
            await asyncio.sleep(0)
        await first.end()
        assert (await second.submit("/b")).status == "created"
        await second.end()
    times = await times_of(memory)
    assert times[-1] - times[0] == 0


async def test_a_host_that_has_led_before_goes_on_with_the_times_of_all():
    memory, here, there = Memory(), Machine("b0"), Machine("b1", 10, BEGAN_MS + HOUR_MS)
    await lead_once(memory, here, "/a")
    await lead_once(memory, there, "/b")
    for one in (here, there):
        one.pass_time(2000)
    here.booted_ms += DAYS_MS
    await lead_once(memory, here, "/c")
    there.booted_ms -= DAYS_MS
    await lead_once(memory, there, "/d")
    times = await times_of(memory)
    assert times == sorted(times)
    assert times[-1] == BEGAN_MS + HOUR_MS + 2010


async def test_another_boot_begins_with_its_own_clock():
    memory, machine = Memory(), Machine("b0")
    await lead_once(memory, machine, "/a")
    await lead_once(memory, Machine("b1", 10, BEGAN_MS + HOUR_MS), "/b")
    times = await times_of(memory)
    assert times[-1] == BEGAN_MS + HOUR_MS + 10


async def test_an_operator_has_a_clock_that_was_wrong_taken():
    memory, machine = Memory(), Machine("b0")
    await lead_once(memory, machine, "/a")
    machine.booted_ms += HOUR_MS
    policy = msgspec.structs.replace(POLICY, take_clock=True)
    await lead_once(memory, machine, "/b", policy)
    times = await times_of(memory)
    assert times[-1] - times[0] == HOUR_MS


def test_a_set_clock_is_said_once_and_once_more_when_right_again():
    assert not step_to_say(0, 1500)
    assert "7.0 s ahead of it" in step_to_say(0, 7000)
    assert not step_to_say(7000, 7900)
    assert "agree with it again" in step_to_say(7000, 10)
