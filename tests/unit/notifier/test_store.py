"""In which order records are stored, and what a notifier loses that ends between two of them."""

from __future__ import annotations

import asyncio

import pytest

from iris_bus.contract import Unavailable
from iris_core.messages.gateway_notifier import NotifyVerb
from iris_core.spec.notify import NotifyRule
from iris_notifier.messages import type_of
from iris_notifier.outbox import ONE_BY_ONE, MessageOutbox
from iris_notifier.records import EventPosition, StoreWriter, TargetRecord, WatchedJob
from iris_notifier.store import RecordStore
from tests.support.memory import Memory
from tests.support.memory_store import StoredKeys
from tests.support.notifier import OPS
from tests.unit.notifier.conftest import Stage
from tests.unit.notifier.test_senders import MESSAGE


class Written:
    """Keeps the order of changes of a bucket, and fails the one with the number ``fails_at``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[str] = []
        self.fails_at = -1
        original = StoredKeys.change

        def change(bucket: StoredKeys, key: str, value: bytes | None, expected: int) -> int:
            if len(self.keys) == self.fails_at:
                raise Unavailable("the process ends here")
            self.keys.append(key)
            return original(bucket, key, value, expected)

        monkeypatch.setattr(StoredKeys, "change", change)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    return Written(monkeypatch)


async def test_the_writer_is_stored_first_and_the_position_last(written: Written) -> None:
    store = RecordStore(Memory().connect().key_value("iris-notify"))
    store.save(EventPosition(events=1))
    store.save(StoreWriter(id="a"))
    store.save(WatchedJob(id="j1", name="/a", user="ann"))
    await store.flush()
    assert written.keys == ["writer", "job.j1", "position"]
    store.save(EventPosition(events=2))
    flushing = asyncio.create_task(store.flush())
    store.save(WatchedJob(id="j2", name="/b", user="ann"))
    await flushing
    assert written.keys[3:] == ["writer", "job.j2", "position"]


@pytest.mark.parametrize("number", range(2, 14))
async def test_a_notifier_that_ends_between_two_writes_loses_nothing(
    empty: Stage, written: Written, number: int
) -> None:
    """The write of that number fails once, and the notifier begins anew."""
    empty.start()
    await empty.ask(NotifyVerb.ADD_TARGET, OPS)
    written.fails_at = len(written.keys) + number - 2
    wanted = set()
    for job in range(3):
        name = f"/job-{job}"
        wanted.add(name)
        empty.state.add(f"j{job}", name)
        await empty.state.publish(f"j{job}", "pending", notify=(NotifyRule("ops", ("ended",)),))
        await empty.state.publish(f"j{job}", "succeeded", "pending")
    await empty.until(lambda: len(written.keys) >= written.fails_at)
    await empty.end()
    written.fails_at = -1
    empty.start()
    await empty.until(lambda: {sent.job for _, sent in empty.sender.messages} == wanted)


async def test_a_target_that_is_added_again_begins_anew() -> None:
    """What was sent to one of its name counts for nothing."""
    outbox = MessageOutbox(
        RecordStore(Memory().connect().key_value("iris-notify")), storm_ms=60_000
    )
    target = TargetRecord(user="ann", name="ops", state="active")
    for number in range(2 * ONE_BY_ONE):
        outbox.add_message(target, "failed", f"j1.{number}", MESSAGE, now_ms=1)
    assert outbox.count(target.key) == ONE_BY_ONE + 1
    outbox.forget(target.key)
    for number in range(ONE_BY_ONE):
        outbox.add_message(target, "failed", f"j2.{number}", MESSAGE, now_ms=2)
    assert [one.type for one in outbox.pending(target.key)] == [type_of("failed")] * ONE_BY_ONE
