"""The contract of a bus, checked on the in-memory bus, on JetStream, and on JetStream in a
container.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from iris_bus.contract import (
    Connection,
    DamagedCommit,
    Fenced,
    Gap,
    Message,
    NoResponders,
    Publication,
    Unavailable,
)
from iris_bus.jetstream import connect
from iris_bus.journal import framing
from iris_core import subjects
from tests.support.docker import DOCKER
from tests.support.memory import Memory

Another = Callable[[], Awaitable[Connection]]


@pytest.fixture(
    params=[
        "memory",
        pytest.param("nats_url", marks=pytest.mark.integration, id="jetstream"),
        pytest.param(
            "container_url",
            marks=[pytest.mark.docker, pytest.mark.needs(*DOCKER)],
            id="container",
        ),
    ]
)
def server(request: pytest.FixtureRequest) -> Memory | str:
    """A bus without anything in it: memory, or a server's address."""
    if request.param == "memory":
        return Memory()
    return request.getfixturevalue(request.param)


@pytest.fixture
async def another(server: Memory | str) -> AsyncIterator[Another]:
    """Makes connections to one bus."""
    made: list[Connection] = []

    async def make() -> Connection:
        if isinstance(server, Memory):
            connection: Connection = server.connect()
        else:
            connection = await connect(server, name="test")
        await connection.streams.ensure()
        made.append(connection)
        return connection

    yield make
    for connection in made:
        await connection.close()


@pytest.fixture
async def bus(another: Another) -> Connection:
    return await another()


class Heard:
    """A subscriber that remembers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._news = asyncio.Event()

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._news.set()

    async def count(self, wanted: int) -> list[bytes]:
        async with asyncio.timeout(60):
            while len(self.messages) < wanted:
                self._news.clear()
                await self._news.wait()
        return [message.data for message in self.messages]


async def read(reader, wanted: int) -> list[bytes]:
    got: list[bytes] = []
    async with asyncio.timeout(60):
        while len(got) < wanted:
            got += [message.data for message in await reader.batch()]
    await reader.close()
    return got


def tellings(first: int, last: int) -> list[Publication]:
    headers = {"Iris-Job": "/a", "Iris-Task": "/a/0", "Iris-Attempt": "0"}
    return [
        Publication("task.state.running", b"%d" % n, f"{n}-0", headers)
        for n in range(first, last + 1)
    ]


# --- core messages


async def test_what_is_published_reaches_every_subscriber_in_order(bus):
    one, other = Heard(), Heard()
    await bus.bus.subscribe("iris.worker.*.heartbeat", one)
    await bus.bus.subscribe("iris.>", other)
    for n in range(100):
        bus.bus.publish(f"iris.worker.{n}.heartbeat", b"%d" % n, headers={"a": "b"})
    expected = [b"%d" % n for n in range(100)]
    assert await one.count(100) == await other.count(100) == expected


async def test_a_callback_never_runs_inside_publish(bus):
    heard = Heard()
    await bus.bus.subscribe("iris.a", heard)
    bus.bus.publish("iris.a", b"1")
    assert heard.messages == []
    assert await heard.count(1) == [b"1"]


async def test_a_queue_group_shares_the_work(bus):
    one, other = Heard(), Heard()
    await bus.bus.subscribe("iris.work", one, queue="q")
    await bus.bus.subscribe("iris.work", other, queue="q")
    for n in range(100):
        bus.bus.publish("iris.work", b"%d" % n)
    await bus.bus.flush()
    async with asyncio.timeout(60):
        while len(one.messages) + len(other.messages) < 100:
            await bus.bus.flush()
    assert one.messages
    assert other.messages


async def test_a_closed_subscription_hears_nothing_more(bus):
    heard, witness = Heard(), Heard()
    subscription = await bus.bus.subscribe("iris.a", heard)
    await bus.bus.subscribe("iris.a", witness)
    await subscription.close()
    bus.bus.publish("iris.a", b"1")
    await witness.count(1)
    assert heard.messages == []


async def test_a_request_brings_one_answer_with_its_headers(bus):
    await bus.bus.subscribe(
        "iris.ask", lambda m: bus.bus.publish(m.reply, b"yes " + m.data, headers={"k": "v"})
    )
    answer = await bus.bus.request("iris.ask", b"you", timeout=30)
    assert (answer.data, answer.headers) == (b"yes you", {"k": "v"})


async def test_a_request_nobody_listens_to_fails_at_once(bus):
    with pytest.raises(NoResponders):
        await bus.bus.request("iris.nobody", b"", timeout=60)


async def test_a_request_nobody_answers_is_unavailable_and_not_dead(bus):
    await bus.bus.subscribe("iris.silent", lambda m: None)
    with pytest.raises(Unavailable) as caught:
        await bus.bus.request("iris.silent", b"", timeout=0.05)
    assert not isinstance(caught.value, NoResponders)


async def test_an_answer_can_be_given_later_to_the_reply_subject(bus):
    chosen = Heard()
    await bus.bus.subscribe("iris.ask", chosen)
    asking = asyncio.create_task(bus.bus.request("iris.ask", b"", timeout=30))
    await chosen.count(1)
    bus.bus.publish(chosen.messages[0].reply, b"later")
    assert (await asking).data == b"later"


async def test_inboxes_are_never_shared(bus):
    assert len({bus.bus.new_inbox() for _ in range(100)}) == 100


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "a\tb", "a" * 5000])
async def test_what_is_no_subject_is_refused(bus, subject):
    with pytest.raises(ValueError, match="not a subject"):
        bus.bus.publish(subject, b"")


async def test_a_closed_connection_says_so(another):
    bus = await another()
    await bus.close()
    with pytest.raises(Unavailable):
        bus.bus.publish("iris.a", b"")


# --- streams


async def test_stored_messages_are_numbered_and_read_in_order(bus):
    numbers = [
        await bus.streams.publish("iris.log.w.0.0", b"%d" % n, headers={"a": "b"}) for n in range(5)
    ]
    reader = bus.streams.read("IRIS_LOGS", 2)
    messages: list[Message] = []
    while len(messages) < 3:
        messages += await reader.batch(wait=60)
    await reader.close()
    assert numbers == [1, 2, 3, 4, 5]
    assert [(m.subject, m.data, m.headers, m.sequence) for m in messages] == [
        ("iris.log.0.0", b"2", {"a": "b"}, 3),
        ("iris.log.0.0", b"3", {"a": "b"}, 4),
        ("iris.log.0.0", b"4", {"a": "b"}, 5),
    ]


async def test_a_subject_no_stream_takes_is_no_responders(bus):
    with pytest.raises(NoResponders):
        await bus.streams.publish("nowhere.at.all", b"", timeout=2)


async def test_a_reader_goes_on_with_what_arrives(bus):
    reader = bus.streams.read("IRIS_LOGS", 0)
    assert await reader.batch(wait=0.05) == []
    await bus.streams.publish("iris.log.w.0.0", b"1")
    assert [m.data for m in await reader.batch(wait=60)] == [b"1"]
    await bus.streams.publish("iris.log.w.0.1", b"2")
    assert [m.data for m in await reader.batch(wait=60)] == [b"2"]
    await reader.close()


async def test_a_reader_says_when_there_is_something_to_take(bus):
    reader = bus.streams.read("IRIS_LOGS", 0)
    news = asyncio.Event()
    reader.on_arrival(news.set)
    assert reader.take() == []
    await bus.streams.publish("iris.log.w.0.0", b"1")
    async with asyncio.timeout(60):
        await news.wait()
    assert [m.data for m in reader.take()] == [b"1"]
    await reader.close()


async def test_a_reader_takes_no_more_than_it_is_asked_to(bus):
    for n in range(5):
        await bus.streams.publish("iris.log.w.0.0", b"%d" % n)
    reader = bus.streams.read("IRIS_LOGS", 0)
    got = []
    async with asyncio.timeout(60):
        while len(got) < 5:
            taken = await reader.batch(limit=2)
            assert len(taken) <= 2
            got += [m.data for m in taken]
    await reader.close()
    assert got == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_reader_of_one_subject_sees_no_other(bus):
    for n in range(6):
        await bus.streams.publish(f"iris.log.w{n}.{n % 2}.0", b"%d" % n)
    assert await read(bus.streams.read("IRIS_LOGS", 0, "iris.log.1.*"), 3) == [b"1", b"3", b"5"]


async def test_a_reader_of_some_subjects_gets_theirs_in_order_and_new_ones(bus):
    for n, state in enumerate(("running", "killed", "pending", "failed")):
        await bus.streams.publish(f"task.state.{state}", b"%d" % n)
    reader = bus.streams.read(
        "IRIS_EVENTS", 0, "task.state.failed", "task.state.killed", "job.state.failed"
    )
    assert await read(reader, 2) == [b"1", b"3"]
    assert not await finished(bus, 3, "task.state.failed", "task.state.killed")
    assert await finished(bus, 4, "task.state.failed", "task.state.killed")
    assert not await finished(bus, 3, "task.>")
    reader = bus.streams.read("IRIS_EVENTS", 4, "task.state.failed", "job.state.failed")
    for n, subject in enumerate(("task.state.killed", "job.state.failed")):
        await bus.streams.publish(subject, b"new %d" % n)
    assert await read(reader, 1) == [b"new 1"]


async def finished(bus, after, *wanted):
    """Whether nothing of these subjects is left after a position."""
    reader = bus.streams.read("IRIS_EVENTS", after, *wanted)
    async with asyncio.timeout(60):
        told = await reader.finished()
    await reader.close()
    return told


async def test_output_is_kept_without_the_token_of_the_worker_that_sent_it(bus):
    """Else each worker would add a subject to each group of tasks, and the server keeps memory for
    every one.
    """
    for worker in ("w1", "w.2"):
        await bus.streams.publish(subjects.output(worker, 64, 16), b"line")
        newest = await bus.streams.last("IRIS_LOGS")
        assert newest is not None
        assert newest.subject == subjects.log(64, 16) == "iris.log.j64.s1"


async def test_messages_of_one_subject_are_read_singly_and_deleted_together(bus):
    for n in range(6):
        await bus.streams.publish(f"iris.artifact.w.{n % 2}.x{n}", b"%d" % n, headers={"n": str(n)})
    first = await bus.streams.next("IRIS_ARTIFACTS", 0, subject="iris.artifact.*.1.*")
    second = await bus.streams.next("IRIS_ARTIFACTS", first.sequence, subject="iris.artifact.*.1.*")
    assert [(m.data, m.headers["n"]) for m in (first, second)] == [(b"1", "1"), (b"3", "3")]
    await bus.streams.drop("IRIS_ARTIFACTS", "iris.artifact.*.1.*")
    left = [
        await bus.streams.next("IRIS_ARTIFACTS", 0, subject=f"iris.artifact.*.{n}.*")
        for n in (0, 1)
    ]
    assert [found and found.data for found in left] == [b"0", None]


async def test_of_deleted_subjects_the_newest_messages_stay_where_that_is_asked(bus):
    for n in range(6):
        await bus.streams.publish(f"iris.artifact.w.{n % 2}.x{n}", b"%d" % n)
    await bus.streams.drop("IRIS_ARTIFACTS", "iris.artifact.*.1.*", keep=2)
    reader = bus.streams.read("IRIS_ARTIFACTS", 0, "iris.artifact.>")
    left = [message.data for message in await reader.batch(wait=9)]
    await reader.close()
    assert left == [b"0", b"2", b"3", b"4", b"5"]


async def test_many_messages_arrive_whole_and_in_order(bus):
    for n in range(3000):
        bus.bus.publish("task.state.running", b"%d" % n)
    assert await read(bus.streams.read("IRIS_EVENTS", 0), 3000) == [b"%d" % n for n in range(3000)]


async def test_a_closed_reader_gives_nothing_more(bus):
    await bus.streams.publish("iris.log.w.0.0", b"1")
    reader = bus.streams.read("IRIS_LOGS", 0)
    await reader.batch(wait=60)
    await reader.close()
    with pytest.raises(Unavailable):
        reader.take()


async def test_reading_behind_what_was_trimmed_is_a_gap(bus):
    for n in range(10):
        await bus.streams.publish("iris.log.w.0.0", b"%d" % n)
    await bus.streams.trim("IRIS_LOGS", 6)
    reader = bus.streams.read("IRIS_LOGS", 3)
    with pytest.raises(Gap):
        await reader.batch(wait=60)
    await reader.close()


async def test_reading_from_zero_begins_at_the_oldest_that_is_kept(bus):
    for n in range(1, 11):
        await bus.streams.publish("iris.log.w.0.0", b"%d" % n)
    await bus.streams.trim("IRIS_LOGS", 9)
    assert await read(bus.streams.read("IRIS_LOGS", 0), 2) == [b"9", b"10"]


async def test_trimming_to_the_end_leaves_readers_where_they_are(bus):
    await bus.streams.publish("iris.log.w.0.0", b"1")
    reader = bus.streams.read("IRIS_LOGS", 0)
    assert [m.data for m in await reader.batch(wait=60)] == [b"1"]
    await bus.streams.trim("IRIS_LOGS", 2)
    assert await bus.streams.publish("iris.log.w.0.0", b"2") == 2
    assert [m.data for m in await reader.batch(wait=60)] == [b"2"]
    await reader.close()


async def test_the_last_message_of_a_stream_or_subject(bus):
    assert await bus.streams.last("IRIS_LOGS") is None
    await bus.streams.publish("iris.log.w.0.0", b"1")
    await bus.streams.publish("iris.log.w.0.1", b"2")
    newest = await bus.streams.last("IRIS_LOGS")
    of_subject = await bus.streams.last("IRIS_LOGS", subject="iris.log.0.0")
    assert (newest.data, newest.sequence, of_subject.data) == (b"2", 2, b"1")
    assert await bus.streams.last("IRIS_LOGS", subject="iris.log.0.2") is None


async def test_the_end_of_a_stream_is_remembered_when_its_messages_are_forgotten(bus):
    assert await bus.streams.end("IRIS_EVENTS") == 0
    for n in (b"1", b"2"):
        await bus.streams.publish("task.state.running", n)
    await bus.streams.trim("IRIS_EVENTS", 3)
    assert (await bus.streams.end("IRIS_EVENTS"), await bus.streams.last("IRIS_EVENTS")) == (
        2,
        None,
    )


async def test_a_plain_publish_on_a_streams_subject_is_stored_too(bus):
    bus.bus.publish("iris.log.w1.1.0", b"line")
    assert await read(bus.streams.read("IRIS_LOGS", 0), 1) == [b"line"]


# --- the journal


async def test_appends_are_numbered_from_one_and_replay_in_order(bus):
    journal = bus.journal()
    for n in range(5):
        assert await journal.append(b"%d" % n, expected=n) == n + 1
    assert [(e.sequence, e.data) async for e in await journal.replay(3)] == [(4, b"3"), (5, b"4")]
    assert await journal.end() == 5


async def test_an_empty_journal_replays_nothing(bus):
    journal = bus.journal()
    assert await journal.end() == 0
    assert [e async for e in await journal.replay(0)] == []


async def test_a_writer_that_is_behind_is_fenced(another):
    old, new = (await another()).journal(), (await another()).journal()
    assert await old.append(b"old 1", expected=0) == 1
    assert await new.append(b"new epoch", expected=1) == 2
    with pytest.raises(Fenced):
        await old.append(b"old 2", expected=1)
    assert [e.data async for e in await new.replay(0)] == [b"old 1", b"new epoch"]


async def test_of_two_writers_at_one_place_exactly_one_wins(another):
    journals = [(await another()).journal() for _ in range(3)]
    outcomes = await asyncio.gather(
        *(journal.append(b"writer %d" % n, expected=0) for n, journal in enumerate(journals)),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Fenced", "Fenced", "int"]
    assert await journals[0].end() == 1


async def test_an_append_that_was_stored_already_is_committed_and_not_fenced(bus):
    journal = bus.journal()
    await journal.append(b"mine", expected=0)
    assert await journal.append(b"mine", expected=0) == 1
    assert await journal.end() == 1


async def test_an_append_beyond_the_end_is_fenced(bus):
    with pytest.raises(Fenced):
        await bus.journal().append(b"x", expected=7)


async def test_a_standby_follows_the_journal(another):
    leader, standby = (await another()).journal(), (await another()).journal()
    await leader.append(b"1", expected=0)
    tail = await standby.tail(0)
    assert [m.data for m in await tail.batch(wait=60)] == [b"1"]
    await leader.append(b"2", expected=1)
    assert [(m.sequence, m.data) for m in await tail.batch(wait=60)] == [(2, b"2")]
    await tail.close()


async def test_a_trimmed_journal_replays_behind_the_cut_only(bus):
    journal = bus.journal()
    for n in range(10):
        await journal.append(b"%d" % n, expected=n)
    await bus.streams.trim("IRIS_JOURNAL", 6)
    assert [e.sequence async for e in await journal.replay(5)] == [6, 7, 8, 9, 10]
    with pytest.raises(Gap):
        await journal.replay(4)
    with pytest.raises(Gap):
        await journal.tail(0)
    assert await journal.append(b"next", expected=10) == 11


async def test_a_journal_trimmed_whole_goes_on_counting(bus):
    journal = bus.journal()
    await journal.append(b"1", expected=0)
    await bus.streams.trim("IRIS_JOURNAL", 2)
    assert (await journal.end(), await journal.append(b"2", expected=1)) == (1, 2)


async def test_a_large_commit_lies_in_parts_and_is_read_as_one(another):
    small, large = b"s" * 10, bytes(range(25))
    journal, standby = (await another()).journal(part_bytes=10), (await another()).journal()
    tail = await standby.tail(0)
    assert [await journal.append(small, expected=0), await journal.append(large, expected=1)] == [
        1,
        4,
    ]
    assert [(e.sequence, e.data) async for e in await standby.replay(0)] == [(1, small), (4, large)]
    assert [e.data async for e in await standby.replay(1)] == [large]
    followed: list[tuple[int, bytes]] = []
    while len(followed) < 2:
        followed += [(e.sequence, e.data) for e in await tail.batch(wait=60)]
    assert followed == [(1, small), (4, large)]
    await tail.close()
    stored = await read((await another()).streams.read("IRIS_JOURNAL", 0), 4)
    assert [framing.verify(n, data) for n, data in enumerate(stored, 1)] == [
        (0, 1),
        (0, 3),
        (1, 3),
        (2, 3),
    ]


async def test_a_commit_whose_writer_ended_between_two_parts_is_read_by_nobody(another):
    journal, follower = (await another()).journal(part_bytes=10), (await another()).journal()
    tail = await follower.tail(0)
    await journal.append(b"first", expected=0)
    begun = next(framing.split(b"never finished", 10))
    await (await another()).streams.publish("iris.journal", begun)
    assert [e.data async for e in await follower.replay(0)] == [b"first"]
    assert await follower.end() == 2
    with pytest.raises(Fenced):
        await follower.append(b"next epoch", expected=1)
    assert await follower.append(b"next epoch", expected=2) == 3
    assert [(e.sequence, e.data) async for e in await journal.replay(0)] == [
        (1, b"first"),
        (3, b"next epoch"),
    ]
    followed: list[tuple[int, bytes]] = []
    while len(followed) < 2:
        followed += [(e.sequence, e.data) for e in await tail.batch(wait=60)]
    assert followed == [(1, b"first"), (3, b"next epoch")]
    await tail.close()


async def test_a_journal_whose_bytes_have_changed_says_where(bus):
    journal = bus.journal()
    await journal.append(b"whole", expected=0)
    (framed,) = framing.split(b"flipped", 100)
    await bus.streams.publish("iris.journal", framed[:-1] + b"!")
    with pytest.raises(DamagedCommit, match="damaged at 2: its checksum does not match") as damaged:
        assert [e.data async for e in await journal.replay(0)] == []
    assert damaged.value.sequence == 2
    tail = await journal.tail(1)
    with pytest.raises(DamagedCommit):
        await tail.batch(wait=60)
    await tail.close()


# --- telling events


async def test_events_are_published_in_order_with_their_headers(bus):
    heard = Heard()
    await bus.bus.subscribe("task.state.*", heard)
    publisher = bus.publisher()
    assert await publisher.resume() == ""
    publisher.publish(tellings(1, 1000))
    await publisher.drain(60)
    assert await heard.count(1000) == [b"%d" % n for n in range(1, 1001)]
    shown = {
        name: heard.messages[0].headers[name]
        for name in ("Iris-Job", "Iris-Task", "Iris-Attempt", "Nats-Msg-Id")
    }
    assert shown == {
        "Iris-Job": "/a",
        "Iris-Task": "/a/0",
        "Iris-Attempt": "0",
        "Nats-Msg-Id": "1-0",
    }
    assert (publisher.last_published, publisher.backlog) == ("1000-0", 0)


async def test_a_new_publisher_continues_after_the_last_published_event(another):
    old = (await another()).publisher()
    await old.resume()
    old.publish(tellings(1, 10))
    await old.drain(60)
    bus = await another()
    new = bus.publisher()
    assert await new.resume() == "10-0"
    new.publish(tellings(11, 20))
    await new.drain(60)
    assert await read(bus.streams.read("IRIS_EVENTS", 0), 20) == [b"%d" % n for n in range(1, 21)]


async def test_two_publishers_of_the_same_events_publish_each_once(another):
    one, other = (await another()).publisher(), (await another()).publisher()
    await one.resume()
    await other.resume()
    for first in range(1, 1001, 50):
        one.publish(tellings(first, first + 49))
        other.publish(tellings(first, first + 49))
    await asyncio.gather(one.drain(60), other.drain(60))
    bus = await another()
    assert await read(bus.streams.read("IRIS_EVENTS", 0), 1000) == [
        b"%d" % n for n in range(1, 1001)
    ]
    assert (await bus.streams.last("IRIS_EVENTS")).sequence == 1000


async def test_a_publisher_is_fenced_by_one_that_published_later_events(another):
    old, new = (await another()).publisher(), (await another()).publisher()
    await old.resume()
    old.publish(tellings(1, 3))
    await old.drain(60)
    await new.resume()
    new.publish(tellings(4, 9))
    await new.drain(60)
    old.publish(tellings(4, 5))
    with pytest.raises(Fenced):
        await old.drain(60)
    with pytest.raises(Fenced):
        old.publish(tellings(6, 6))


# --- blobs


@pytest.mark.parametrize("size", [0, 1, 512 * 1024, 3_000_000])
async def test_a_blob_comes_back_as_it_was_put(bus, size):
    data = bytes(n % 251 for n in range(size)) if size < 10 else b"0123456789abcdef" * (size // 16)
    blobs = bus.blobs("iris-snapshots")
    await blobs.put("a name/with: all* > sorts", data)
    assert await blobs.get("a name/with: all* > sorts") == data
    file = io.BytesIO(data)
    file.seek(0, io.SEEK_END)  # as one that was just written
    await blobs.put("from a file", file)
    assert await blobs.get("from a file") == data
    assert {blob.bytes for blob in await blobs.listed()} == {len(data)}


async def test_a_blob_that_is_not_there_is_none(bus):
    assert await bus.blobs("iris-bundles").get("nothing") is None


async def test_blobs_are_named_by_the_time_they_were_last_put(bus):
    blobs = bus.blobs("iris-snapshots")
    for name in ("a", "b", "c"):
        await blobs.put(name, name.encode())
    await blobs.put("a", b"again")
    assert (await blobs.names(), await blobs.get("a")) == (["b", "c", "a"], b"again")


async def test_a_deleted_blob_is_gone_and_may_come_back(bus):
    blobs = bus.blobs("iris-snapshots")
    await blobs.put("a", b"1")
    await blobs.delete("a")
    await blobs.delete("a")
    assert (await blobs.get("a"), await blobs.names()) == (None, [])
    await blobs.put("a", b"2")
    assert await blobs.get("a") == b"2"


async def test_buckets_do_not_see_each_other(bus):
    await bus.blobs("iris-snapshots").put("a", b"1")
    assert await bus.blobs("iris-bundles").names() == []


async def test_a_blob_is_listed_with_its_size_and_when_it_was_last_used(bus):
    blobs = bus.blobs("iris-bundles")
    await blobs.put("a", b"123", at_ms=5_000)
    [first] = await blobs.listed()
    assert (first.name, first.bytes, first.used_ms) == ("a", 3, 5_000)
    assert (await blobs.touch("a", 9_000), await blobs.touch("b", 9_000)) == (True, False)
    assert [(blob.used_ms, blob.version != first.version) for blob in await blobs.listed()] == [
        (9_000, True)
    ]
    assert await blobs.get("a") == b"123"


async def test_a_blob_is_stored_once_for_all_its_owners(bus):
    blobs = bus.blobs("iris-bundles")
    assert not await blobs.touch("a", 1_000, add="ann")
    await asyncio.gather(*(blobs.put("a", b"123", owners=[name]) for name in ("ann", "bob")))
    assert [await blobs.touch("a", 2_000, owner=name) for name in ("ann", "bob", "cyd")] == [
        True,
        True,
        False,
    ]
    assert await blobs.touch("a", 3_000, add="cyd")
    await blobs.put("a", b"456")
    assert [(blob.owners, blob.bytes) for blob in await blobs.listed()] == [
        (("ann", "bob", "cyd"), 3)
    ]
    await blobs.delete("a")
    await blobs.put("a", b"7", owners=["dan"])
    assert [blob.owners for blob in await blobs.listed()] == [("dan",)]
    assert not await blobs.touch("a", 4_000, owner="ann")


async def test_a_blob_knows_since_when_each_of_its_owners_has_it(bus):
    blobs = bus.blobs("iris-bundles")
    await blobs.put("a", b"1234", at_ms=1_000, owners=["ann"])
    assert await blobs.touch("a", 2_000, add="bob")
    assert await blobs.touch("a", 3_000, add="ann")
    await blobs.put("a", b"5678", at_ms=4_000, owners=["ann", "cyd"])
    [blob] = await blobs.listed()
    assert dict(blob.since_ms) == {"ann": 1_000, "bob": 2_000, "cyd": 4_000}
    counted = [blob.part_since(owner, 2_000) for owner in ("ann", "bob", "cyd", "eve")]
    assert counted == [0, blob.part, blob.part, 0]


async def test_blobs_touched_since_they_were_listed_are_not_discarded(bus):
    blobs = bus.blobs("iris-bundles")
    for again in (lambda: blobs.touch("a", 2_000), lambda: blobs.put("a", b"1", at_ms=1_000)):
        await blobs.put("a", b"1", at_ms=1_000)
        [listed] = await blobs.listed()
        await again()
        assert (await blobs.discard(listed), await blobs.get("a")) == (False, b"1")
    [listed] = await blobs.listed()
    assert (await blobs.discard(listed), await blobs.get("a"), await blobs.listed()) == (
        True,
        None,
        [],
    )
    assert (await blobs.discard(listed), await blobs.touch("a", 3_000)) == (False, False)


# --- values by key


async def seen(watch) -> dict[str, bytes]:
    async with asyncio.timeout(60):
        return {key: entry.value for key, entry in (await watch.next()).items()}


async def test_a_value_is_stored_replaced_and_deleted_under_its_key(bus):
    bucket = bus.key_value("iris-discovery")
    first = await bucket.put("chat", b"1", expected=0)
    await bucket.put("a/b-c_d=2E.e", b"x", expected=0)
    second = await bucket.put("chat", b"2", expected=first)
    assert {k: e.value for k, e in (await bucket.all()).items()} == {
        "chat": b"2",
        "a/b-c_d=2E.e": b"x",
    }
    assert (await bucket.all())["chat"].revision == second > first
    await bucket.delete("chat", expected=second)
    await bucket.delete("chat", expected=second)
    assert list(await bucket.all()) == ["a/b-c_d=2E.e"]
    assert await bucket.put("chat", b"again", expected=0) > second


async def test_a_writer_that_is_behind_changes_no_value(another):
    old, new = (
        (await another()).key_value("iris-discovery"),
        (await another()).key_value("iris-discovery"),
    )
    first = await old.put("chat", b"1", expected=0)
    await new.put("chat", b"2", expected=first)
    for late in (old.put("chat", b"3", expected=first), old.put("chat", b"3", expected=0)):
        with pytest.raises(Fenced):
            await late
    with pytest.raises(Fenced):
        await old.delete("chat", expected=first)
    assert {key: entry.value for key, entry in (await old.all()).items()} == {"chat": b"2"}


async def test_a_value_that_was_stored_already_is_not_fenced(bus):
    bucket = bus.key_value("iris-discovery")
    first = await bucket.put("chat", b"1", expected=0)
    assert await bucket.put("chat", b"1", expected=0) == first


@pytest.mark.parametrize("key", ["", "a b", ".a", "a.", "a..b", "a*", "ä"])
async def test_what_is_no_key_is_refused(bus, key):
    bucket = bus.key_value("iris-discovery")
    with pytest.raises(ValueError, match="not a key"):
        await bucket.put(key, b"", expected=0)
    with pytest.raises(ValueError, match="not a key"):
        await bucket.delete(key, expected=0)


async def test_a_watch_begins_with_the_whole_set_and_follows_every_change(another):
    bucket = (await another()).key_value("iris-discovery")
    revisions = [await bucket.put(f"d{n}", b"%d" % n, expected=0) for n in range(3)]
    await bucket.delete("d0", expected=revisions[0])
    watch = (await another()).key_value("iris-discovery").watch()
    assert await seen(watch) == {"d1": b"1", "d2": b"2"}
    await bucket.put("d3", b"3", expected=0)
    assert await seen(watch) == {"d1": b"1", "d2": b"2", "d3": b"3"}
    await bucket.delete("d1", expected=revisions[1])
    assert await seen(watch) == {"d2": b"2", "d3": b"3"}
    await watch.close()
    with pytest.raises(Unavailable):
        await watch.next()


async def test_a_watch_of_an_empty_bucket_says_that_it_is_empty(bus):
    watch = bus.key_value("iris-discovery").watch()
    assert await seen(watch) == {}
    await watch.close()


async def test_a_waiting_watch_ends_when_it_is_closed(bus):
    watch = bus.key_value("iris-discovery").watch()
    await seen(watch)
    waiting = asyncio.create_task(watch.next())
    await bus.bus.flush()
    await watch.close()
    with pytest.raises(Unavailable):
        await waiting
