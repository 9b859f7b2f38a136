"""What becomes of messages that are not taken at once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from iris_core import subjects
from iris_core.messages.gateway_notifier import NotifyVerb
from iris_core.spec.notify import NotifyRule
from iris_notifier.senders import SendResult
from tests.support.notifier import OPS, QUICK
from tests.unit.notifier.conftest import Stage

ENDED = (NotifyRule("ops", ("ended",)),)
REFUSED = SendResult(False, "answered 500: busy")
GONE = SendResult(False, "answered 410", is_gone=True)


async def end(stage: Stage, *numbers: int) -> None:
    for number in numbers:
        job = f"j{number}"
        stage.state.add(job, f"/job-{number}")
        await stage.state.publish(job, "pending", notify=ENDED)
        await stage.state.publish(job, "succeeded", "pending")


async def target(stage: Stage) -> dict[str, object]:
    return dict((await stage.ask(NotifyVerb.SHOW_TARGET, name="ops"))[1])


async def log(stage: Stage, **query: str) -> list[dict[str, object]]:
    items = (await stage.ask(NotifyVerb.LIST_DELIVERIES, query))[1]["items"]
    return [one for one in items if one["type"] != "iris.test"]


async def given_up(stage: Stage) -> dict[object, object]:
    """Why messages were given up, by their job."""
    return {row["job"]: row["error"] for row in await log(stage, status="given_up")}


async def test_a_message_is_tried_again_with_its_id_and_keeps_its_place(stage: Stage) -> None:
    stage.sender.results = [REFUSED, REFUSED]
    await end(stage, 1, 2)
    found = await stage.sender.has_sent(2)
    assert [sent.id.partition(".")[0] for _, sent in found] == ["j1", "j2"]
    await stage.until(lambda: not stage.sender.results)
    rows = {row["job"]: (row["status"], row["tries"]) for row in await log(stage)}
    assert rows == {"/job-1": ("delivered", 3), "/job-2": ("delivered", 1)}


async def test_410_pauses_a_target_and_its_messages_wait(stage: Stage) -> None:
    stage.sender.results = [GONE]
    await end(stage, 1)
    await stage.until(lambda: not stage.sender.results)
    await end(stage, 2)
    async with asyncio.timeout(10):
        while (await target(stage))["pending"] != 2:
            pass
    assert [(await target(stage))[name] for name in ("state", "detail")] == [
        "paused",
        "the other side wants no more messages: answered 410",
    ]
    await stage.ask(NotifyVerb.RESUME_TARGET, name="ops")
    assert [sent.job for _, sent in await stage.sender.has_sent(2)] == ["/job-1", "/job-2"]


async def test_what_could_not_be_sent_for_long_is_given_up_and_said(empty: Stage) -> None:
    empty.settings = msgspec.structs.replace(QUICK, retry_for_s=0.05)
    empty.start()
    await empty.ask(NotifyVerb.ADD_TARGET, OPS)
    empty.sender.results = [REFUSED] * 100
    await end(empty, 1)
    async with asyncio.timeout(10):
        while "/job-1" not in (errors := await given_up(empty)):
            await end(empty, 9)  # something happens; otherwise this is looked at once a minute
    assert errors["/job-1"] == "answered 500: busy"
    found = await target(empty)
    assert (found["state"], found["detail"]) == (
        "paused",
        "no message was delivered: answered 500: busy",
    )


async def test_an_unverified_target_gets_nothing_before_its_test(empty: Stage) -> None:
    empty.start()
    empty.sender.results = [REFUSED]
    status, made = await empty.ask(NotifyVerb.ADD_TARGET, OPS)
    assert (status, made["state"], made["detail"]) == ("created", "unverified", REFUSED.detail)
    await end(empty, 1)
    status, body = await empty.ask(NotifyVerb.RESUME_TARGET, name="ops")
    assert (status, "was delivered yet" in body["detail"]) == ("conflict", True)
    assert empty.sender.sent == []
    assert (await empty.ask(NotifyVerb.TEST_TARGET, name="ops"))[1]["state"] == "active"
    assert [sent.job for _, sent in await empty.sender.has_sent(1)] == ["/job-1"]


async def test_a_paused_target_is_sent_nothing_until_it_is_resumed(stage: Stage) -> None:
    assert (await stage.ask(NotifyVerb.PAUSE_TARGET, name="ops"))[1]["state"] == "paused"
    await end(stage, 1)
    async with asyncio.timeout(10):
        while (await target(stage))["pending"] != 1:
            pass
    assert stage.sender.messages == []
    await stage.ask(NotifyVerb.RESUME_TARGET, name="ops")
    await stage.sender.has_sent(1)


async def test_what_waits_for_a_target_goes_with_it(stage: Stage) -> None:
    await stage.ask(NotifyVerb.PAUSE_TARGET, name="ops")
    await end(stage, 1)
    async with asyncio.timeout(10):
        while (await target(stage))["pending"] != 1:
            pass
    assert (await stage.ask(NotifyVerb.REMOVE_TARGET, name="ops"))[0] == "ok"
    assert await log(stage) == []
    assert [key for key in stage.memory.key_values["iris-notify"].values if "target" in key] == []


async def test_a_target_for_which_too_much_waits_gets_a_summary(
    empty: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_notifier.outbox.MAX_PENDING", 3)
    empty.settings = msgspec.structs.replace(QUICK, storm_s=0.001)  # each message its own window
    empty.start()
    await empty.ask(NotifyVerb.ADD_TARGET, OPS)
    await empty.ask(NotifyVerb.PAUSE_TARGET, name="ops")
    await end(empty, *range(1, 9))
    async with asyncio.timeout(10):
        while sum(int(str(row["jobs"])) for row in await log(empty)) < 8:
            pass
    assert (await target(empty))["pending"] == 4
    await empty.ask(NotifyVerb.RESUME_TARGET, name="ops")
    assert [sent.jobs for _, sent in await empty.sender.has_sent(4)] == [1, 1, 1, 5]


async def test_a_second_notifier_takes_over_and_repeats_nothing(stage: Stage) -> None:
    await end(stage, 1)
    await stage.sender.has_sent(1)
    second = stage.start()
    stop, task = stage._running.pop(0)
    stop.set()
    await task
    await end(stage, 2)
    assert [sent.job for _, sent in await stage.sender.has_sent(2)] == ["/job-1", "/job-2"]
    assert second.is_active


async def test_of_two_that_work_one_is_refused_and_stands_by(empty: Stage) -> None:
    first, second = empty.start(), empty.start()  # neither has heard the other
    await empty.ask(NotifyVerb.ADD_TARGET, OPS)
    await end(empty, *range(1, 6))
    found = await empty.sender.has_sent(5)
    assert sorted({sent.job for _, sent in found}) == [f"/job-{number}" for number in range(1, 6)]
    await empty.until(lambda: first.is_active != second.is_active)


async def test_records_that_cannot_be_read_stop_nobody(empty: Stage) -> None:
    bucket = empty.memory.connect().key_value(subjects.NOTIFY_BUCKET)
    await bucket.put("target.x.y", b"\xc1", expected=0)
    await bucket.put("later.release", b"\x80", expected=0)
    empty.start()
    assert (await empty.ask(NotifyVerb.ADD_TARGET, OPS))[0] == "created"
    assert {"later.release", "target.x.y"} <= set(await bucket.all())
