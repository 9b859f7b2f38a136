"""Replicas of the state service as real processes: what survives kills, pauses and damage."""

import asyncio
import signal
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris_bus.jetstream import JetStreamConnection
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer
from iris_core.messages.processes import Ping
from iris_state.snapshots import snapshot
from iris_state.snapshots.snapshot import commit_of
from tests.support.replicas import RETRY_FOR_S, Replicas, replicas, since
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration

TAKE_OVER_S = 1.5
"""From kill -9 to the first submission the new leader has acknowledged; docs/performance.md B7."""


@pytest.fixture
async def group(
    nats_url: str, connection: JetStreamConnection, tmp_path: Path
) -> AsyncIterator[Replicas]:
    async with replicas(
        nats_url, tmp_path, connection, "state.snapshot_changes=30", "state.events_settle_s=0"
    ) as made:
        yield made


def told_once(ids: list[str]) -> bool:
    places = [tuple(map(int, each.split("."))) for each in ids]
    return places == sorted(set(places))


async def snapshots(group: Replicas, wanted: int) -> list[str]:
    """The names of snapshots once there are so many."""
    blobs = group.connection.blobs(subjects.SNAPSHOTS_BUCKET)
    async with asyncio.timeout(RETRY_FOR_S):
        while True:
            names = sorted(name for name in await blobs.names() if commit_of(name))
            if len(names) >= wanted:
                return names
            await asyncio.sleep(0.05)


async def pongs(group: Replicas, pings: int) -> list[Ping]:
    """Who answers so many pings before one asked behind them is answered; nobody when another leads
    meanwhile.
    """
    heard: list[Ping] = []
    inbox = group.connection.bus.new_inbox()
    listening = await group.connection.bus.subscribe(
        inbox, lambda message: heard.append(codec.unpack(message.data, Ping))
    )
    _, before = await group.leader()
    for _ in range(pings):
        group.connection.bus.publish(subjects.STATE_PING, b"", reply=inbox)
    _, after = await group.leader()
    await listening.close()
    return heard if before.epoch == after.epoch else []


async def test_a_standby_takes_over_when_the_leader_is_killed(group):
    await group.start()
    await group.leader()
    await group.start()
    for number in range(20):
        assert (await group.submit(f"/a{number}")).status == "created"
    leader, before = await group.leader()
    leader.kill()
    pong = await group.until(lambda pong: pong.ready and pong.leader != before.leader)
    assert (await group.submit("/after")).status == "created"
    assert pong.epoch == before.epoch + 1
    assert await group.names() == {*(f"/a{number}" for number in range(20)), "/after"}
    assert told_once(await group.events())


@pytest.mark.soak
async def test_a_take_over_is_quick(group):
    """The median of three: one may fall on a moment at which the machine does something else."""
    await group.start()
    await group.leader()
    seconds = []
    for number in range(3):
        await group.start()
        await group.followed()
        leader, _ = await group.leader()
        began = time.monotonic()
        leader.kill()
        assert (await group.submit(f"/after{number}")).status == "created"
        seconds.append(since(began))
    assert statistics.median(seconds) < TAKE_OVER_S, seconds


async def test_a_frozen_leader_is_replaced_and_follows_when_it_wakes(group):
    await group.start()
    leader, before = await group.leader()
    other = await group.start()
    await group.submit("/before")
    await group.until(lambda pong: pong.sequence >= 2)
    suspend(leader.pid)
    await group.until(lambda pong: pong.leader != before.leader)
    assert (await group.submit("/while")).status == "created"
    leader.send_signal(signal.SIGCONT)
    async with asyncio.timeout(RETRY_FOR_S):
        while "this replica leads no more, and follows again" not in group.log():
            await asyncio.sleep(0.05)
    other.kill()
    again = await group.until(lambda pong: pong.ready and pong.leader == before.leader)
    assert again.epoch == before.epoch + 2
    assert (await group.submit("/after")).status == "created"
    assert await group.names() == {"/before", "/while", "/after"}
    assert told_once(await group.events())
    assert leader.returncode is None
    assert "Traceback" not in group.log()


async def test_only_the_leader_listens(group):
    """One answer to each ping; a leader who was deposed and does not know it yet gives answers of
    an older epoch.
    """
    for _ in range(3):
        await group.start()
    heard: list[Ping] = []
    while len({pong.epoch for pong in heard}) != 1:
        heard = await pongs(group, 20)
    assert len(heard) == 20


async def test_who_has_just_written_is_given_time_to_listen(group):
    await group.start()
    leader, before = await group.leader()
    leader.kill()
    await group.start("state.election_timeout_s=8")
    await group.until(lambda pong: pong.epoch == before.epoch + 1)
    assert '"nobody leads","before":"somebody"' in group.log()


async def test_the_same_key_is_one_job_across_a_change_of_leaders(group):
    await group.start()
    leader, before = await group.leader()
    await group.start()
    first = await group.submit("/a", key="k", request="one")
    leader.kill()
    await group.until(lambda pong: pong.leader != before.leader)
    again = await group.submit("/a", key="k", request="one")
    other = await group.submit("/a", key="k", request="two")
    assert (first.status, again.status, other.status) == ("created", "created", "replayed")
    ids = {codec.from_json(answer.body, dict)["id"] for answer in (first, again, other)}
    assert len(ids) == 1


async def test_a_start_begins_with_a_snapshot_and_trims_behind_it(group):
    await group.start()
    await group.leader()
    for number in range(80):
        await group.submit(f"/a{number}")
    await snapshots(group, 2)
    streams = group.connection.streams
    async with asyncio.timeout(RETRY_FOR_S):
        while (
            await streams.next(subjects.JOURNAL.name, 0, subject=subjects.JOURNAL_SUBJECT)
        ).sequence == 1:
            await asyncio.sleep(0.05)
    leader, _ = await group.leader()
    leader.kill()
    await leader.wait()
    await group.start()
    await group.leader()
    assert len(await group.names()) == 80


async def test_a_damaged_newest_snapshot_costs_nothing(group):
    await group.start()
    await group.leader()
    for number in range(80):
        await group.submit(f"/a{number}")
    await snapshots(group, 2)
    leader, _ = await group.leader()
    leader.kill()
    await leader.wait()
    blobs = group.connection.blobs(subjects.SNAPSHOTS_BUCKET)
    newest = max(
        await blobs.names(), key=snapshot.commit_of
    )  # until it was killed, the leader took more of them
    await blobs.put(newest, b"IRISSNAP and then nothing")
    await group.start()
    await group.leader()
    assert len(await group.names()) == 80
    assert "is damaged, taking the one before" in group.log()


async def test_a_snapshot_of_a_later_release_is_refused_in_words(group):
    data = bytearray(snapshot.cut(snapshot.Ledger(), 1, 1))
    data[8] = snapshot.VERSION + 1
    await group.connection.journal().append(b"the commit it was cut behind", expected=0)
    await group.connection.blobs(subjects.SNAPSHOTS_BUCKET).put(snapshot.name_of(1), bytes(data))
    process = await group.start()
    async with asyncio.timeout(RETRY_FOR_S):
        assert await process.wait() == 1
    assert (
        f"has version {snapshot.VERSION + 1}, this release knows {snapshot.VERSION}" in group.log()
    )


async def test_who_sends_what_nobody_can_read_is_told_so_and_blocks_nobody(group):
    await group.start()
    await group.leader()
    unreadable = [
        (subjects.CMD_SUBMIT, data) for data in (b"", b"\xc1", b"\x93\x01\x02\x03", b"{}" * 1000)
    ]
    for subject, data in (*unreadable, ("iris.state.command.nonsense", b"\x90")):
        reply = await group.connection.bus.request(subject, data, timeout=30)
        assert codec.unpack(reply.data, Answer).status == "unavailable"
    assert (await group.submit("/after")).status == "created"


async def test_a_full_journal_ends_in_refusal_and_nothing_is_lost(group):
    """The commit is refused, so nobody is told anything; whoever begins again declares the stream
    as it should be.
    """
    await group.start()
    await group.leader()
    await group.submit("/before")
    api = group.connection._api
    config = (await api.info(subjects.JOURNAL.name)).config
    await api.call(f"STREAM.UPDATE.{subjects.JOURNAL.name}", {**config, "max_bytes": 1}, dict)
    leader, before = await group.leader()
    assert (await group.submit("/meanwhile")).status == "created"
    assert "maximum bytes exceeded" in group.log()
    _, after = await group.leader()
    assert (leader.returncode, after.epoch) == (None, before.epoch + 1)
    assert await group.names() == {"/before", "/meanwhile"}
