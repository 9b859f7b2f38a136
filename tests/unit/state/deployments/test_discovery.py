"""The bucket that proxies watch holds the current discovery of each deployment, also after a change
of leader.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from iris_bus.contract import Entry, KeyValue
from iris_core import codec, subjects
from iris_core.spec.serving import DiscoveredRoute, Discovery
from iris_state.replication.discovery import DiscoveryWriter
from tests.support.house import House
from tests.support.memory import Memory
from tests.support.serving import spec

ONE = DiscoveredRoute("r1-1", "10.0.0.1:31000")


def bucket_of(memory: Memory) -> KeyValue:
    return memory.connect().key_value(subjects.DISCOVERY_BUCKET)


def at(version: int, *routes: DiscoveredRoute, name: str = "chat") -> Discovery:
    return Discovery(name, version, routes)


async def until(bucket: KeyValue, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The sets in the bucket, once they are as wanted."""
    watch = bucket.watch()
    async with asyncio.timeout(60):
        while True:
            found = read(await watch.next())
            if holds(found):
                await watch.close()
                return found


def read(stored: Mapping[str, Entry]) -> dict[str, Any]:
    return {name: json.loads(entry.value) for name, entry in stored.items()}


async def leads() -> None:
    """The journal says so."""


async def test_each_set_is_written_whole():
    memory = Memory()
    writer = DiscoveryWriter(bucket_of(memory), [], leads)
    writer.note([at(1, ONE), at(2, name="other")])
    found = await until(bucket_of(memory), lambda sets: len(sets) == 2)
    assert found["chat"]["routes"] == [
        {"id": "r1-1", "address": "10.0.0.1:31000", "state": "healthy"}
    ]
    await writer.close()


class Held:
    """A bucket that stores nothing until it is let; ``asked``: it was to store a set."""

    def __init__(self, bucket: KeyValue) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    async def put(self, key: str, value: bytes, *, expected: int) -> int:
        self.asked.set()
        await self.let.wait()
        return await self._bucket.put(key, value, expected=expected)


async def test_who_waits_for_a_set_goes_on_when_it_is_stored():
    memory = Memory()
    bucket = Held(bucket_of(memory))
    writer = DiscoveryWriter(bucket, [], leads)  # type: ignore[arg-type]
    writer.note([at(1, ONE)])
    async with asyncio.timeout(60):
        await bucket.asked.wait()
        waiting = asyncio.create_task(writer.stored())
        await asyncio.sleep(0)
        assert not waiting.done()
        bucket.let.set()
        await waiting
        assert set(await bucket.all()) == {"chat"}
    await writer.close()


async def test_a_new_leader_writes_what_differs_and_removes_the_rest():
    memory = Memory()
    bucket = bucket_of(memory)
    same = await bucket.put("chat", codec.to_json(at(4, ONE)), expected=0)
    await bucket.put("moved", codec.to_json(at(3, name="moved")), expected=0)
    await bucket.put("gone", codec.to_json(at(2, name="gone")), expected=0)
    writer = DiscoveryWriter(bucket_of(memory), [at(4, ONE), at(5, ONE, name="moved")], leads)
    await until(
        bucket, lambda sets: set(sets) == {"chat", "moved"} and sets["moved"]["version"] == 5
    )
    assert (await bucket.all())["chat"].revision == same, "the same set is not written again"
    await writer.close()


async def test_a_leader_that_was_deposed_overwrites_nothing_newer():
    memory = Memory()
    bucket = bucket_of(memory)
    old = DiscoveryWriter(bucket_of(memory), [at(1, ONE)], leads)
    await until(bucket, lambda sets: "chat" in sets)
    new = DiscoveryWriter(bucket_of(memory), [at(1, ONE)], leads)
    new.note([at(3)])
    await until(bucket, lambda sets: sets["chat"]["version"] == 3)
    old.note([at(2, ONE), at(2, ONE, name="other")])
    found = await until(bucket, lambda sets: "other" in sets)
    assert found["chat"]["version"] == 3
    await old.close()
    await new.close()


async def test_a_leader_paused_before_its_first_write_overwrites_nothing():
    memory = Memory()
    bucket = bucket_of(memory)
    await bucket.put("chat", codec.to_json(at(5)), expected=0)
    asked, confirmed = asyncio.Event(), asyncio.Event()

    async def leads_no_more() -> None:
        asked.set()
        await confirmed.wait()

    old = DiscoveryWriter(bucket_of(memory), [at(4, ONE)], leads_no_more)
    async with asyncio.timeout(60):
        await asked.wait()
    await old.close()
    assert read(await bucket.all())["chat"]["version"] == 5


async def test_a_name_that_is_forgotten_is_removed():
    memory = Memory()
    bucket = bucket_of(memory)
    writer = DiscoveryWriter(bucket_of(memory), [at(1, ONE)], leads)
    await until(bucket, lambda sets: "chat" in sets)
    writer.note([], ["chat"])
    await until(bucket, lambda sets: not sets)
    await writer.close()


async def test_the_leader_writes_a_deployments_set_once_its_commit_is_durable():
    memory = Memory()
    house = House(memory)
    house.lead()
    async with asyncio.timeout(60):
        assert (await house.deploy("create", spec(2))).status == "created"
        found = await until(bucket_of(memory), lambda sets: "chat" in sets)
        assert (found["chat"]["reason"], found["chat"].get("routes", [])) == ("starting", [])
        await house.end()
