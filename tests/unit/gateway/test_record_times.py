"""Tokens of tasks expire by the times of records, whatever the wall clock of the gateway says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from iris_core.codec import pack
from iris_core.messages.processes import Ping
from iris_core.subjects import STATE_PING
from iris_gateway.record_times import RecordTimes
from tests.support.gateway import House, house
from tests.support.memory import Memory
from tests.unit.gateway.test_task_tokens import HOUR_MS, KEY, made, write_keys

AT_MS = 1_000_000_000_000


@pytest.fixture
async def iris() -> AsyncIterator[House]:
    async with house(token_file="a file") as started:
        await write_keys(started, KEY)
        yield started


@pytest.mark.parametrize("off_ms", [-6 * HOUR_MS, 0, 6 * HOUR_MS])
async def test_a_token_is_taken_whatever_the_clock_of_the_gateway_says(iris: House, off_ms: int):
    iris.state.pong = Ping("fake", now_ms=AT_MS)
    iris.gateway.now_ms = lambda: AT_MS + off_ms
    assert await iris.gateway.record_times.ask()
    headers = {"Authorization": f"Bearer {made(now_ms=AT_MS)}"}
    assert (await iris.http.get("/v1/jobs/j7", headers=headers)).status_code == 404
    expired = {"Authorization": f"Bearer {made(now_ms=AT_MS - 2 * HOUR_MS)}"}
    assert (await iris.http.get("/v1/jobs/j7", headers=expired)).status_code == 401


async def test_times_pass_steadily_from_the_last_answer():
    memory, steady_ns = Memory(), 5_000_000_000
    bus = memory.connect("state").bus
    times = RecordTimes(memory.connect("gateway").bus, lambda: 7, lambda: steady_ns)
    assert not await times.ask()
    assert times.now_ms() == 7
    answer = pack(Ping("leader", now_ms=AT_MS))
    await bus.subscribe(STATE_PING, lambda asked: bus.publish(asked.reply, answer))
    assert await times.ask()
    steady_ns += 3_000_000_000
    assert times.now_ms() == AT_MS + 3000
