"""Commands and queries while the other side is slow, away, or loses an answer."""

import asyncio

import pytest

from iris_bus.contract import Full, Message, Unavailable
from iris_bus.memory import Memory
from iris_core.codec import pack, unpack
from iris_core.messages import Answer, Caller, CancelJob
from iris_core.subjects import CMD_CANCEL, STATE_QUERY, direct_subject
from iris_gateway.commands import Commands, Envelope
from iris_gateway.direct import MOST
from iris_gateway.problem import ProblemResponse
from iris_gateway.queries import Queries
from tests.support.gateway import House
from tests.support.rounds import rounds_until


class Flaky:
    """Streams that fail a few times before they store."""

    def __init__(self, streams, *failures: Exception) -> None:
        self.streams = streams
        self.failures = list(failures)
        self.ids: list[str] = []

    async def publish(self, subject, data, *, message_id="", headers=None, timeout=5.0):
        self.ids.append(message_id)
        if self.failures:
            raise self.failures.pop(0)
        return await self.streams.publish(subject, data, message_id=message_id)


def cancel(envelope: Envelope) -> CancelJob:
    return CancelJob("/a", Caller(), envelope.request_id, envelope.at_ms, "", envelope.answer_to)


async def commands(iris: House, streams: object, **more: float) -> Commands:
    numbers = iter(range(100))
    ids = {"new_id": lambda: f"c{next(numbers)}", "now_ms": lambda: 7}
    made = Commands(iris.gateway.bus, streams, **ids, **{"direct_timeout_s": 0.02, **more})
    await made.start()
    return made


class Leader:
    """Hears commands itself; answers them at once unless told otherwise."""

    def __init__(self, iris: House) -> None:
        self.state = iris.state
        self.answers = True
        self.answer = pack(Answer("accepted", b"{}"))
        self.heard: list[str] = []

    async def start(self) -> None:
        await self.state.bus.subscribe(direct_subject(CMD_CANCEL), self.hear)

    def hear(self, message: Message) -> None:
        self.heard.append(unpack(message.data, CancelJob).request_id)
        if self.answers:
            self.state.bus.publish(message.reply, self.answer)


@pytest.fixture
async def leader(iris: House) -> Leader:
    await iris.submit("/a")
    leader = Leader(iris)
    await leader.start()
    return leader


async def test_what_the_leader_answers_itself_is_not_stored(iris: House, leader: Leader):
    streams = Flaky(iris.state.streams)
    answer = await (await commands(iris, streams)).ask(CMD_CANCEL, cancel)
    assert (answer.status, leader.heard, streams.ids) == ("accepted", ["c0"], [])


async def test_a_leader_that_does_not_answer_in_time_is_spared_until_it_answers(iris: House, leader: Leader):
    leader.answers = False
    streams = Flaky(iris.state.streams)
    made = await commands(iris, streams)
    assert (await made.ask(CMD_CANCEL, cancel)).status == "accepted"
    assert (leader.heard, streams.ids) == (["c0"], ["c0.0"])
    leader.answers = True
    assert (await made.ask(CMD_CANCEL, cancel)).status == "accepted"
    assert (leader.heard, streams.ids) == (["c0", "c1"], ["c0.0"])


async def test_what_the_leader_leaves_to_the_inbox_is_stored_at_once(iris: House, leader: Leader):
    leader.answer = b""
    streams = Flaky(iris.state.streams)
    async with asyncio.timeout(5):
        answer = await (await commands(iris, streams, direct_timeout_s=60.0)).ask(CMD_CANCEL, cancel)
    assert (answer.status, leader.heard, streams.ids) == ("accepted", ["c0"], ["c0.0"])


async def test_nothing_is_said_to_a_leader_that_has_not_answered(iris: House, leader: Leader):
    leader.answers = False
    iris.state.mute = True
    streams = Flaky(iris.state.streams)
    made = await commands(iris, streams, retry_for_s=0.1)
    for _ in range(2):
        with pytest.raises(ProblemResponse, match="not answered"):
            await made.ask(CMD_CANCEL, cancel)
    assert (leader.heard, streams.ids) == (["c0"], ["c0.0", "c1.0"])


async def test_only_so_many_are_said_at_once(iris: House, leader: Leader):
    streams = Flaky(iris.state.streams)
    made = await commands(iris, streams, direct_timeout_s=60.0)
    await asyncio.gather(*(made.ask(CMD_CANCEL, cancel) for _ in range(MOST + 5)))
    assert (len(leader.heard), len(streams.ids)) == (MOST, 5)


async def test_that_nothing_was_stored_is_not_said_of_what_the_leader_may_have_heard(iris: House, leader: Leader):
    leader.answers = False
    with pytest.raises(ProblemResponse, match="not answered yet") as raised:
        await (await commands(iris, Flaky(iris.state.streams, Full("full")))).ask(CMD_CANCEL, cancel)
    assert "nothing was stored" not in str(raised.value)


async def test_a_submission_that_may_not_have_been_stored_is_stored_again_under_the_same_id(iris: House):
    await iris.submit("/a")
    streams = Flaky(iris.state.streams, Unavailable("away"), Unavailable("away"))
    answer = await (await commands(iris, streams)).ask(CMD_CANCEL, cancel)
    assert answer.status == "accepted"
    assert streams.ids == ["c0.0"] * 3


async def test_an_answer_that_was_lost_is_asked_for_again_under_the_same_request(iris: House):
    await iris.submit("/a")
    iris.state.mute = True
    asking = asyncio.create_task((await commands(iris, iris.state.streams, nudge_s=0.05)).ask(CMD_CANCEL, cancel))
    await rounds_until(lambda: len(iris.state.commands) >= 2)
    iris.state.mute = False
    assert (await asking).status == "accepted"
    assert {command.request_id for command in iris.state.commands[1:]} == {"c0"}


async def test_a_full_inbox_is_said_at_once(iris: House):
    with pytest.raises(ProblemResponse, match="full") as raised:
        await (await commands(iris, Flaky(iris.state.streams, Full("full")))).ask(CMD_CANCEL, cancel)
    assert raised.value.kind.status == 503


async def test_an_inbox_that_fills_up_behind_a_stored_command_is_not_its_refusal(iris: House):
    await iris.submit("/a")
    iris.state.mute = True
    streams = Flaky(iris.state.streams)
    asking = asyncio.create_task((await commands(iris, streams, nudge_s=0.05)).ask(CMD_CANCEL, cancel))
    await rounds_until(lambda: streams.ids)
    streams.failures.append(Full("full"))
    await rounds_until(lambda: not streams.failures)
    iris.state.mute = False
    assert (await asking).status == "accepted"


async def test_a_state_service_that_never_answers_is_waited_for_only_so_long(iris: House):
    iris.state.mute = True
    with pytest.raises(ProblemResponse) as raised:
        await (await commands(iris, iris.state.streams, retry_for_s=0.05)).ask(CMD_CANCEL, cancel)
    assert raised.value.headers == {"retry-after": "1"}


async def test_an_answer_nobody_waits_for_changes_nothing(iris: House):
    made = await commands(iris, iris.state.streams)
    iris.state.bus.publish(f"{made._inbox}.unknown", pack(Answer("ok")))
    await iris.submit("/a")
    assert (await made.ask(CMD_CANCEL, cancel)).status == "accepted"


async def test_a_read_is_repeated_until_somebody_leads(iris: House):
    await iris.state.stop()
    asking = asyncio.create_task(iris.http.get("/v1/jobs"))
    await asyncio.sleep(0)
    await iris.state.start()
    assert (await asking).status_code == 200


async def test_equal_reads_at_one_time_are_asked_at_most_twice():
    """The one under way, and one more for everybody who came after it was sent."""
    memory = Memory()
    asked = []
    await memory.connect().bus.subscribe(STATE_QUERY, asked.append)
    bus, answering = memory.connect().bus, memory.connect().bus
    queries = Queries(bus)
    waiting = [asyncio.create_task(queries.ask("jobs", Caller(), limit=1)) for _ in range(50)]
    answered = 0
    while not all(task.done() for task in waiting):
        await asyncio.sleep(0)
        for message in asked[answered:]:
            answered += 1
            answering.publish(message.reply, pack(Answer("ok", b"%d" % answered)))
    bodies = [task.result() for task in waiting]
    assert (answered, bodies) == (2, [b"1"] + [b"2"] * 49)


async def test_a_read_after_a_write_never_shares_an_answer_from_before_it():
    memory = Memory()
    asked = []
    await memory.connect().bus.subscribe(STATE_QUERY, asked.append)
    answering = memory.connect().bus
    queries = Queries(memory.connect().bus)
    before = asyncio.create_task(queries.ask("jobs", Caller()))
    await rounds_until(lambda: asked)
    after = asyncio.create_task(queries.ask("jobs", Caller()))
    await asyncio.sleep(0)
    answering.publish(asked[0].reply, pack(Answer("ok", b'"old"')))
    await rounds_until(lambda: len(asked) == 2)
    answering.publish(asked[1].reply, pack(Answer("ok", b'"new"')))
    assert (await before, await after) == (b'"old"', b'"new"')
