"""The keys that sign tokens of tasks: one set, kept by every leader.
docs/adr/0040-tokens-of-attempts.md.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from iris_bus.contract import KeyValue
from iris_core import codec, subjects
from iris_core.access.task_tokens import KEYS, ROTATE_MS, SigningKey
from iris_state.policy import Policy
from iris_state.replication import task_keys
from iris_state.replication.task_keys import TaskKeyStore
from tests.support.house import House
from tests.support.memory import Memory

HOUR_MS = 3_600_000


class Leader:
    """A leader's keys, by a clock that the test sets."""

    def __init__(self, memory: Memory, now_ms: int) -> None:
        self.now_ms = now_ms
        self.keys: Sequence[SigningKey] = ()
        self.bucket: KeyValue = memory.connect().key_value(subjects.KEYS_BUCKET)
        self.store = TaskKeyStore(self.bucket, lambda: self.now_ms, HOUR_MS, self.use)

    def use(self, keys: Sequence[SigningKey]) -> None:
        self.keys = keys

    async def stored(self) -> Sequence[SigningKey]:
        return task_keys.read_keys((await self.bucket.all())[KEYS].value)


Lead = Callable[[int], Leader]


@pytest.fixture
async def lead() -> AsyncIterator[Lead]:
    """Makes leaders on one bus."""
    memory, made = Memory(), list[Leader]()

    def make(now_ms: int) -> Leader:
        made.append(Leader(memory, now_ms))
        return made[-1]

    async with asyncio.timeout(60):
        yield make
        for leader in made:
            await leader.store.close()


async def test_the_next_leader_has_the_same_keys(lead: Lead):
    first = lead(0)
    await first.store.known.wait()
    second = lead(1000)
    await second.store.known.wait()
    assert len(first.keys) == 1
    assert first.keys == second.keys == await first.stored()


async def test_two_that_lead_at_once_make_one_set(lead: Lead):
    leaders = [lead(0) for _ in range(5)]
    for leader in leaders:
        await leader.store.known.wait()
    assert len({leader.keys for leader in leaders}) == 1


async def test_a_key_that_is_a_day_old_is_joined_by_another_and_then_goes(lead: Lead):
    first = lead(0)
    await first.store.known.wait()
    [old] = first.keys
    second = lead(ROTATE_MS)
    await second.store.known.wait()
    assert [key.id for key in second.keys][:-1] == [old.id]
    third = lead(ROTATE_MS + 2 * HOUR_MS)
    await third.store.known.wait()
    assert list(third.keys) == [second.keys[-1]]


async def test_keys_that_cannot_be_read_are_made_anew(lead: Lead):
    first = lead(0)
    await first.store.known.wait()
    entry = (await first.bucket.all())[KEYS]
    await first.bucket.put(KEYS, b"?", expected=entry.revision)
    second = lead(0)
    await second.store.known.wait()
    assert len(second.keys) == 1
    assert second.keys != first.keys


async def test_a_leader_whose_keys_were_lost_in_the_bucket_stores_them_again(
    lead: Lead, caplog: pytest.LogCaptureFixture
):
    first = lead(0)
    await first.store.known.wait()
    keys = first.keys
    await first.bucket.delete(KEYS, expected=(await first.bucket.all())[KEYS].revision)
    await first.store.check()
    assert await first.stored() == first.keys == keys
    assert "were lost on the NATS servers, and are stored again" in caplog.text


@pytest.mark.parametrize("has_jobs", [False, True])
async def test_a_leader_that_misses_the_keys_of_an_earlier_one_says_so(
    has_jobs: bool, caplog: pytest.LogCaptureFixture
):
    bucket = Memory().connect().key_value(subjects.KEYS_BUCKET)
    store = TaskKeyStore(bucket, lambda: 0, HOUR_MS, lambda _: None, has_jobs=has_jobs)
    async with asyncio.timeout(60):
        await store.known.wait()
    await store.close()
    assert ("tokens of tasks that run are refused" in caplog.text) is has_jobs


async def test_a_leader_signs_with_the_stored_keys_and_logs_none_of_them(
    caplog: pytest.LogCaptureFixture,
):
    house = House(Memory())
    with caplog.at_level("DEBUG"):
        house.lead()
        async with asyncio.timeout(60):
            await house.submit("/a")
            keys = house.state.replica.machine.round.orders.keys
            stored = (await house.wanting.key_value(subjects.KEYS_BUCKET).all())[KEYS].value
            assert codec.unpack(stored, tuple[SigningKey, ...]) == keys
            await house.end()
    assert len(keys) == 1
    assert repr(keys[0].secret) not in caplog.text
    assert keys[0].secret.hex() not in caplog.text


async def test_attempts_that_are_to_have_no_token_get_none():
    house = House(Memory(), Policy(task_token_s=0))
    house.lead()
    async with asyncio.timeout(60):
        await house.submit("/a")
        assert not house.state.replica.machine.round.orders.keys
        await house.end()
