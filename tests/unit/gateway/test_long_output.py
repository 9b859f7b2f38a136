"""Long output: it is never held as lines, and other requests have their turn meanwhile."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from iris_core import subjects
from iris_gateway.streams.logs import LogQuery
from iris_gateway.streams.readers import Turns
from tests.support.gateway import house, listening

CHUNKS, CHUNK = 8, "y\n" * 8_000


@pytest.mark.parametrize("form", ["text", "jsonl", "sse"])
async def test_a_flood_of_short_lines_is_never_held_as_lines(form):
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        for number in range(CHUNKS):
            final = number == CHUNKS - 1
            await iris.state.print(1, 0, CHUNK, offset=number * len(CHUNK), final=final)
        size = 0
        tracemalloc.start()
        try:
            async with http.stream("GET", f"/v1/jobs/j1/logs?format={form}") as response:
                async for piece in response.aiter_bytes():
                    size += len(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size > CHUNKS * len(CHUNK)
    assert peak < 4_000_000  # an object for each line would be 10 MB


async def test_a_reader_of_a_silent_task_reads_little_of_a_flood():
    async with house() as iris:
        await iris.submit("/a", replicas=2)
        assert subjects.log(1, 0) == subjects.log(1, 1)
        for number in range(CHUNKS):
            await iris.state.print(1, 0, CHUNK, offset=number * len(CHUNK))
        await iris.state.print(1, 1, "hello\n", final=True)
        streams = iris.memory.connect("test").streams
        reader = streams.read(subjects.LOGS.name, 0, *LogQuery(1, 1).subjects)
        sizes = [len(message.data) for message in await reader.batch(wait=60)]
        await reader.close()
        assert sum(sizes) < subjects.SHARED_OUTPUT_BYTES + 1000
        assert (await iris.http.get("/v1/tasks/j1%2F1/logs?attempt=all")).text == "hello\n"
        assert (await iris.http.get("/v1/tasks/j1%2F0/logs")).text == CHUNKS * CHUNK


async def test_the_last_lines_of_a_flood_are_never_held_as_lines():
    async with house() as iris, listening(iris) as http:
        await iris.submit("/a")
        for number in range(CHUNKS):
            await iris.state.print(1, 0, CHUNK, offset=number * len(CHUNK))
        tracemalloc.start()
        try:
            answer = await http.get("/v1/jobs/j1/logs?tail=50000")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert answer.text == "0| y\n" * 50_000
    assert peak < 4_000_000


async def test_of_many_long_answers_one_goes_on_in_each_round_of_the_loop():
    turns = Turns()
    clock = asyncio.get_running_loop().time
    steps: list[int] = []
    rounds: list[int] = []

    async def long(number: int) -> None:
        for _ in range(20):
            until = clock() + 0.003
            while clock() < until:
                pass
            steps.append(number)
            await turns.give()

    answers = [asyncio.create_task(long(number)) for number in range(4)]
    while not all(answer.done() for answer in answers):
        await asyncio.sleep(0)
        rounds.append(len(steps))
    begun = rounds.index(max(4, rounds[0]))  # each makes its first step in the first round
    grown = [
        after - before for before, after in zip(rounds[begun:], rounds[begun + 1 :], strict=False)
    ]
    assert max(grown) <= 1
    assert steps.count(0) == steps.count(3) == 20
    assert set(steps[20:24]) == {0, 1, 2, 3}  # in turn
