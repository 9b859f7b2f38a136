"""Features that only the in-memory bus has: running without a loop, outages and full streams on
demand.
"""

import dataclasses

import pytest

from iris_bus.contract import Full, Publication, Unavailable
from iris_core import subjects
from tests.support.memory import Memory


def test_without_a_loop_messages_are_delivered_when_asked():
    memory, heard = Memory(), []
    bus = memory.connect().bus
    run(bus.subscribe("iris.*", lambda m: heard.append(m.data)))
    run(bus.subscribe("iris.a", lambda m: bus.publish("iris.b", b"reaction")))
    bus.publish("iris.a", b"1")
    before = list(heard)
    memory.deliver()
    assert (before, heard) == ([], [b"1", b"reaction"])


def test_two_runs_are_alike_to_the_inbox():
    first, second = Memory().connect("state").bus, Memory().connect("state").bus
    assert [first.new_inbox() for _ in range(3)] == [second.new_inbox() for _ in range(3)]


async def test_while_the_server_is_away_nothing_is_stored_and_everything_says_so():
    memory = Memory()
    bus = memory.connect()
    journal, blobs = bus.journal(), bus.blobs("iris-snapshots")
    memory.away = True
    for call in (
        lambda: journal.append(b"x", expected=0),
        journal.end,
        lambda: bus.streams.publish("iris.log.w.0.0", b""),
        lambda: bus.bus.request("iris.a", b"", timeout=1),
        lambda: blobs.put("a", b""),
    ):
        with pytest.raises(Unavailable):
            await call()
    assert not bus.connected
    memory.away = False
    assert await journal.append(b"x", expected=0) == 1


async def test_events_told_while_the_server_is_away_go_out_when_it_is_back():
    memory = Memory()
    bus = memory.connect()
    publisher = bus.publisher()
    await publisher.resume()
    memory.away = True
    publisher.publish([Publication("task.state.running", b"1", "1-0")])
    with pytest.raises(Unavailable):
        await publisher.drain(1)
    memory.away = False
    await publisher.drain(1)
    assert (await bus.streams.last("IRIS_EVENTS")).data == b"1"


async def test_a_stream_at_its_limit_refuses_or_forgets_as_its_row_says():
    small = [dataclasses.replace(row, max_bytes=100) for row in subjects.STREAMS]
    bus = Memory(small).connect()
    for _ in range(10):
        await bus.streams.publish("task.state.running", b"x" * 20)
    await bus.streams.publish("iris.journal", b"x" * 80)
    with pytest.raises(Full):
        await bus.streams.publish("iris.journal", b"x" * 20)
    reader = bus.streams.read("IRIS_EVENTS", 0)
    assert [m.sequence for m in reader.take()] == [9, 10]
    await reader.close()


def run(coroutine):
    """Run what never waits."""
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value
