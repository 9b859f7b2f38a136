"""What the bus keeps when the server dies, stalls, or its answers are lost."""

import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from iris_bus.connection.connection import DEAD
from iris_bus.contract import Fenced, Gap, Publication, Unavailable
from iris_bus.jetstream import JetStreamConnection, connect
from iris_nats.nats_process import NatsProcess
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration


@pytest.fixture
async def kept(own_nats: NatsProcess):
    connection = await connect(own_nats.url, name="test")
    await connection.streams.ensure()
    yield connection
    await connection.close()


async def crash(server: NatsProcess, connection: JetStreamConnection) -> None:
    """Kill the server and return when the connection is back."""
    back = asyncio.Event()
    connection.on_return(back.set)
    os.kill(server.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        await back.wait()


def telling(first: int, last: int) -> list[Publication]:
    return [
        Publication("task.state.running", b"%d" % n, f"{n}-0", {"Iris-Task": f"/a/{n}"})
        for n in range(first, last + 1)
    ]


async def everything(connection: JetStreamConnection, stream: str, wanted: int) -> list[bytes]:
    reader = connection.streams.read(stream, 0)
    got: list[bytes] = []
    try:
        async with asyncio.timeout(60):
            while len(got) < wanted:
                got += [message.data for message in await reader.batch(wait=5)]
    finally:
        await reader.close()
    return got


async def first(reader) -> bytes:
    """The next message of a reader."""
    async with asyncio.timeout(60):
        while not (got := await reader.batch(limit=1)):
            pass
    return got[0].data


async def test_every_append_is_decided_while_the_server_is_killed_repeatedly(own_nats, kept):
    journal = kept.journal()
    enough = asyncio.Event()

    async def write() -> int:
        end = 0
        while not enough.is_set():
            end = await journal.append(b"entry %d" % (end + 1), expected=end)
        return end

    writing = asyncio.create_task(write())
    for _ in range(4):
        await crash(own_nats, kept)
    enough.set()
    end = await writing
    assert [e.data async for e in await journal.replay(0)] == [
        b"entry %d" % n for n in range(1, end + 1)
    ]
    assert (
        kept.reconnects >= 4
    )  # a server killed once more before it was ready is one restart, not two


async def test_an_append_whose_answer_comes_too_late_is_stored_once(own_nats, kept):
    journal = kept.journal()
    await journal.append(b"first", expected=0)
    suspend(own_nats.pid)
    appending = asyncio.create_task(journal.append(b"second", expected=1))
    done, _ = await asyncio.wait(
        {appending}, timeout=2.0
    )  # longer than an append waits for its answer
    own_nats.signal(signal.SIGCONT)
    assert not done
    assert await appending == 2
    assert await journal.append(b"third", expected=2) == 3


async def test_a_zombie_whose_append_was_delayed_is_fenced(own_nats, kept):
    zombie, leader = kept.journal(), (other := await connect(own_nats.url, name="other")).journal()
    end = await zombie.append(b"zombie 1", expected=0)
    end = await leader.append(b"leader's epoch", expected=end)
    for attempt in range(3):
        with pytest.raises(Fenced):
            await zombie.append(b"zombie %d" % attempt, expected=1)
    assert [e.data async for e in await leader.replay(0)] == [b"zombie 1", b"leader's epoch"]
    await other.close()


async def test_a_server_that_stays_away_makes_an_append_unavailable(own_nats, kept):
    from iris_bus.journal.journal import JetJournal

    impatient = JetJournal(kept._link, kept._api, retry_for_s=0.1)
    suspend(own_nats.pid)
    try:
        with pytest.raises(Unavailable):
            await impatient.append(b"x", expected=0)
    finally:
        own_nats.signal(signal.SIGCONT)


async def test_a_reader_misses_and_repeats_nothing_over_restarts(own_nats, kept):
    journal = kept.journal()
    reader = await journal.tail(0)
    enough = asyncio.Event()

    async def write() -> int:
        n = 0
        while not enough.is_set():
            n = await journal.append(b"%d" % (n + 1), expected=n)
        return n

    writing = asyncio.create_task(write())
    got: list[bytes] = []
    for _ in range(3):
        got += [entry.data for entry in await reader.batch(wait=10)]
        await crash(own_nats, kept)
    enough.set()
    written = await writing
    async with asyncio.timeout(60):
        while len(got) < written:
            got += [entry.data for entry in await reader.batch()]
    await reader.close()
    assert got == [b"%d" % n for n in range(1, written + 1)]


async def test_a_reader_whose_consumer_is_deleted_makes_another(kept):
    reader = kept.streams.read("IRIS_LOGS", 0)
    await kept.streams.publish("iris.log.w.0.0", b"1")
    assert await first(reader) == b"1"
    names = await kept._api.call("CONSUMER.NAMES.IRIS_LOGS", {}, dict)
    for name in names["consumers"]:
        await kept._api.call(f"CONSUMER.DELETE.IRIS_LOGS.{name}", None, dict)
    await kept.streams.publish("iris.log.w.0.0", b"2")
    assert await first(reader) == b"2"
    await reader.close()


async def test_a_closed_reader_leaves_no_consumer_behind(kept):
    reader = kept.streams.read("IRIS_LOGS", 0)
    await kept.streams.publish("iris.log.w.0.0", b"1")
    assert await first(reader) == b"1"
    await reader.close()
    async with asyncio.timeout(60):
        while (await kept._api.call("CONSUMER.NAMES.IRIS_LOGS", {}, dict))["consumers"]:
            await kept.bus.flush()


async def test_a_reader_that_fell_behind_what_is_kept_says_so(kept):
    for n in range(1, 12_000):
        kept.bus.publish("task.state.running", b"%d" % n)
    assert await kept.streams.publish("task.state.running", b"12000") == 12_000
    reader = kept.streams.read("IRIS_EVENTS", 0)
    got = [await first(reader)]
    await kept.streams.trim("IRIS_EVENTS", 11_001)
    try:
        while taken := await reader.batch(wait=10):
            got += [m.data for m in taken]
    except Gap:
        await reader.close()
    assert len(got) < 11_000
    assert got == [b"%d" % n for n in range(1, len(got) + 1)]


async def test_a_lost_event_breaks_the_chain_so_that_no_later_one_is_stored(kept):
    events = telling(1, 10)
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    await kept.bus.subscribe("iris.test.answer", lambda m: answer.set_result(m.data))
    for at, event in enumerate(events):
        if at != 2:
            reply = "iris.test.answer" if at == 9 else ""
            headers = {"Nats-Expected-Last-Sequence": str(at), "Nats-Msg-Id": event.message_id}
            kept.bus.publish(event.subject, event.data, reply=reply, headers=headers)
    assert b'"err_code":10071' in await asyncio.wait_for(answer, 60)
    assert await everything(kept, "IRIS_EVENTS", 2) == [b"1", b"2"]
    assert (await kept.streams.last("IRIS_EVENTS")).sequence == 2


async def test_events_are_published_once_while_the_server_is_killed(own_nats, kept):
    publisher = kept.publisher()
    await publisher.resume()
    told = 0
    for _ in range(4):
        for _ in range(10):
            publisher.publish(telling(told + 1, told + 1000))
            told += 1000
            await asyncio.sleep(0)
        await crash(own_nats, kept)
    await publisher.drain(30)
    assert await everything(kept, "IRIS_EVENTS", told) == [b"%d" % n for n in range(1, told + 1)]
    assert publisher.last_published == f"{told}-0"


async def test_events_are_published_once_over_overlapping_writers(own_nats, kept):
    told = 0
    for _ in range(3):
        old, other = kept.publisher(), await connect(own_nats.url, name="other")
        new = other.publisher()
        await old.resume()
        old.publish(telling(told + 1, told + 5000))  # it is deposed with all this under way
        await asyncio.sleep(0)
        last = int((await new.resume()).partition("-")[0] or 0)
        new.publish(telling(last + 1, told + 7000))
        await new.drain(20)
        await old.close()
        await other.close()
        told += 7000
    assert await everything(kept, "IRIS_EVENTS", told) == [b"%d" % n for n in range(1, told + 1)]


async def test_a_publisher_continues_though_every_event_has_expired(own_nats, kept):
    old, new = kept.publisher(), kept.publisher()
    await old.resume()
    old.publish(telling(1, 10))
    await old.drain(5)
    await old.close()
    await kept._api.purge("IRIS_EVENTS")
    await kept.streams.ensure()
    assert await new.resume() == "10-0"
    new.publish(telling(11, 11))
    await new.drain(5)
    assert (await kept.streams.last("IRIS_EVENTS")).sequence == 11


async def test_a_blob_that_lost_a_part_is_refused(kept):
    blobs = kept.blobs("iris-snapshots")
    await blobs.put("a", os.urandom(2_000_000))
    await kept._api.call("STREAM.MSG.DELETE.OBJ_iris-snapshots", {"seq": 2}, dict)
    with pytest.raises(ValueError, match="3 of 4 chunks"):
        await blobs.get("a")


async def test_parts_of_an_upload_that_died_go_and_nothing_else(kept):
    blobs = kept.blobs("iris-bundles")
    await blobs.put("a", b"whole")
    for nuid in ("dead", "other"):
        await kept.streams.publish(f"$O.iris-bundles.C.{nuid}", b"x" * 1000)
    assert [await blobs.tidy(3600) for _ in range(2)] == [0, 0]
    assert await blobs.tidy(0) == 2
    assert (await blobs.get("a"), await blobs.tidy(0)) == (b"whole", 0)


async def test_a_blob_with_other_bytes_than_were_put_is_refused(kept):
    blobs = kept.blobs("iris-snapshots")
    await blobs.put("a", b"good" * 1000)
    stored = await kept._api.message("OBJ_iris-snapshots", seq=1)
    await kept._api.call("STREAM.MSG.DELETE.OBJ_iris-snapshots", {"seq": 1}, dict)
    await kept._api.store(stored.subject, b"evil" * 1000, 5.0)
    with pytest.raises(ValueError, match="does not match"):
        await blobs.get("a")


async def test_a_blob_is_old_or_new_for_whoever_reads_while_it_is_replaced(kept):
    blobs = kept.blobs("iris-snapshots")
    versions = [bytes([n]) * 1_000_000 for n in range(8)]
    await blobs.put("a", versions[0])
    seen = set()

    async def replace() -> None:
        for version in versions[1:]:
            await blobs.put("a", version)

    replacing = asyncio.create_task(replace())
    while not replacing.done():
        seen.add(await blobs.get("a"))
    await replacing
    assert seen <= set(versions)
    assert await blobs.get("a") == versions[-1]


async def test_an_answer_to_a_ping_nobody_waits_for_any_more_does_no_harm(own_nats, kept):
    suspend(own_nats.pid)
    with pytest.raises(Unavailable):
        await kept._link.flush(0.05)
    own_nats.signal(signal.SIGCONT)
    await kept.bus.flush()
    assert (kept.reconnects, kept._link.client._reading_task.done()) == (0, False)


async def test_a_client_whose_read_loop_died_comes_back(own_nats, kept):
    back = asyncio.Event()
    kept.on_return(back.set)
    kept._link.client._reading_task.cancel()
    async with asyncio.timeout(60):
        await back.wait()
    assert await kept.streams.publish("iris.log.w.0.0", b"1", timeout=10) == 1


@asynccontextmanager
async def swallowing(url: str, most: int) -> AsyncIterator[str]:
    """Another address of a server, of which each connection stays open and takes no more than so
    many bytes to the server, as a network that drops large packets.
    """
    address = urlsplit(url)

    async def pass_on(
        source: asyncio.StreamReader, target: asyncio.StreamWriter, left: float
    ) -> None:
        while data := await source.read(1 << 16):
            left -= len(data)
            if left >= 0:
                target.write(data)
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(address.hostname, address.port)
        both = pass_on(reader, back, most), pass_on(there, writer, math.inf)
        await asyncio.gather(*both, return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    login, _, _ = address.netloc.rpartition("@")
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield f"nats://{login}@{place}" if login else f"nats://{place}"
    server.close()


async def test_a_network_that_swallows_large_packets_is_named_in_the_log(own_nats, kept, caplog):
    back = asyncio.Event()
    async with swallowing(own_nats.url, 1 << 20) as url:
        connection = await connect(url, name="far")
        connection.on_return(back.set)
        with pytest.raises(Unavailable):
            await connection.streams.publish("iris.log.w.0.0", bytes(2 << 20), timeout=1)
        async with asyncio.timeout(60):
            await back.wait()
        assert DEAD in caplog.text
        assert await connection.streams.publish("iris.log.w.0.0", b"small", timeout=10) == 1
        await connection.close()


async def test_a_watch_keeps_its_set_without_a_server_and_reads_it_again_later(own_nats, kept):
    writer = await connect(own_nats.url, name="writer")
    bucket, watch = writer.key_value("iris-discovery"), kept.key_value("iris-discovery").watch()
    first = await bucket.put("chat", b"1", expected=0)
    await bucket.put("eval", b"1", expected=0)
    async with asyncio.timeout(60):
        assert set(await watch.next()) == {"chat", "eval"}
        following = asyncio.create_task(watch.next())
        await crash(own_nats, kept)
        await kept._api.retrying(10).info("KV_iris-discovery")
        await kept.bus.flush()
        assert not following.done()  # neither the loss nor the return is a change
        await bucket.put("chat", b"2", expected=first)
        assert {key: entry.value for key, entry in (await following).items()} == {
            "chat": b"2",
            "eval": b"1",
        }
    await watch.close()
    await writer.close()


async def test_a_watch_hears_of_what_went_while_nobody_could_tell_it(own_nats, kept):
    """The marker of the deletion is gone as well, as after an hour, and the bucket counts from 1
    again.
    """
    bucket, watch = kept.key_value("iris-discovery"), kept.key_value("iris-discovery").watch()
    for n in range(5):
        await bucket.put(f"d{n}", b"1", expected=0)
    assert len(await watch.next()) == 5
    await kept._api.change("STREAM.DELETE.KV_iris-discovery", None)
    await kept.streams.ensure()
    await bucket.put("new", b"1", expected=0)
    following = asyncio.create_task(watch.next())
    await crash(own_nats, kept)
    async with asyncio.timeout(60):
        assert set(await following) == {"new"}
    await watch.close()


async def test_a_deleted_key_leaves_nothing_behind_after_an_hour(kept):
    bucket = kept.key_value("iris-discovery")
    await bucket.delete("chat", expected=await bucket.put("chat", b"1", expected=0))
    marker = await kept._api.message("KV_iris-discovery", last_by_subj="$KV.iris-discovery.chat")
    assert (marker.headers["KV-Operation"], marker.headers["Nats-TTL"]) == ("DEL", "1h")


async def test_a_set_that_is_read_while_it_changes_lacks_no_key(kept):
    bucket = kept.key_value("iris-discovery")
    revisions = {f"d{n}": await bucket.put(f"d{n}", b"0", expected=0) for n in range(20)}
    for _ in range(10):
        looking = asyncio.create_task(bucket.all())
        for key in revisions:
            revisions[key] = await bucket.put(key, b"%d" % revisions[key], expected=revisions[key])
        async with asyncio.timeout(60):
            assert set(await looking) == set(revisions)


@pytest.mark.parametrize("subjects", [(), ("task.state.>",)], ids=["whole", "some subjects"])
async def test_a_stream_that_was_made_anew_is_a_gap_for_whoever_reads_on(
    kept: JetStreamConnection, subjects: tuple[str, ...]
):
    """Else messages of the new one would be passed over until it is as long as the old one was."""
    for n in range(5):
        await kept.streams.publish("task.state.running", b"%d" % n)
    reader = kept.streams.read("IRIS_EVENTS", 0, *subjects)
    for n in range(5):
        assert await first(reader) == b"%d" % n
    await kept.raw("IRIS_EVENTS").replace(1)
    await kept.streams.publish("task.state.running", b"new")
    with pytest.raises(Gap):
        await first(reader)
    await reader.close()


@pytest.mark.parametrize("subjects", [(), ("task.state.>",)], ids=["whole", "some subjects"])
async def test_a_stream_that_was_made_anew_before_the_first_read_is_a_gap(
    kept: JetStreamConnection, subjects: tuple[str, ...]
):
    """Whether the new one is longer by then than the old one was, or shorter."""
    for n in range(5):
        await kept.streams.publish("task.state.running", b"%d" % n)
    for count in (1, 10):
        end = await kept.streams.position("IRIS_EVENTS")
        await kept.raw("IRIS_EVENTS").replace(1)
        for n in range(count):
            await kept.streams.publish("task.state.running", b"new %d" % n)
        reader = kept.streams.read("IRIS_EVENTS", end.sequence, *subjects, made=end.made)
        with pytest.raises(Gap):
            await first(reader)
        await reader.close()


async def test_a_position_is_read_on_from_while_its_stream_stays(own_nats, kept):
    """As when a process goes on where the one before it ended, also after the server was killed."""
    journal = kept.journal()
    await journal.append(b"before", expected=0)
    end = await kept.streams.position("IRIS_JOURNAL")
    await crash(own_nats, kept)
    await journal.append(b"next", expected=end.sequence)
    reader = kept.streams.read("IRIS_JOURNAL", end.sequence, made=end.made)
    assert (await first(reader)).endswith(b"next")
    await reader.close()


@pytest.mark.parametrize("request_name", ["CONSUMER.CREATE", "STREAM.INFO"])
async def test_a_stream_that_is_made_anew_while_a_reader_opens_is_a_gap(
    own_nats, kept, monkeypatch, request_name
):
    """Before each request of its opening."""
    for n in range(5):
        await kept.streams.publish("task.state.running", b"%d" % n)
    end = await kept.streams.position("IRIS_EVENTS")
    other = await connect(own_nats.url, name="other")
    call = kept._api.call
    seen: list[str] = []

    async def called(verb: str, *arguments: Any) -> Any:
        if verb.startswith(request_name) and not seen:
            seen.append(verb)
            await other.raw("IRIS_EVENTS").replace(1)
            await other.streams.publish("task.state.running", b"new")
        return await call(verb, *arguments)

    monkeypatch.setattr(kept._api, "call", called)
    reader = kept.streams.read("IRIS_EVENTS", end.sequence, "task.state.>", made=end.made)
    with pytest.raises(Gap):
        await first(reader)
    assert seen
    await reader.close()
    await other.close()


async def test_a_journal_that_was_made_anew_behind_its_replay_is_a_gap(kept):
    journal = kept.journal()
    end = 0
    for n in range(5):
        end = await journal.append(b"%d" % n, expected=end)
    assert len([entry async for entry in await journal.replay(0)]) == 5
    await kept.raw("IRIS_JOURNAL").replace(1)
    reader = await journal.tail(end)
    with pytest.raises(Gap):
        await first(reader)
    await reader.close()


async def test_a_watch_reads_a_bucket_again_that_was_made_anew(kept):
    """While it reads, with a connection that stays."""
    bucket = kept.key_value("iris-discovery")
    watch = kept.key_value("iris-discovery").watch()
    for n in range(5):
        await bucket.put(f"d{n}", b"1", expected=0)
    assert len(await watch.next()) == 5
    following = asyncio.create_task(watch.next())
    await kept.raw("KV_iris-discovery").replace(1)
    await bucket.put("new", b"1", expected=0)
    async with asyncio.timeout(60):
        assert set(await following) == {"new"}
    await watch.close()
