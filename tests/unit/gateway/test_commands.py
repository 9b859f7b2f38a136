"""Commands and queries while the state service is slow, unreachable, or loses an answer."""

import asyncio
import gc
from collections import Counter
from typing import get_args

import pytest

from iris_bus.contract import Message, Subscription
from iris_core.codec import pack, unpack
from iris_core.messages.gateway_state import (
    SUBJECT_OF,
    Answer,
    Caller,
    CancelJob,
    SubmitJob,
    UserCommand,
)
from iris_core.spec.jobs import JobSpec
from iris_core.subjects import CMD_CANCEL, CMD_SUBMIT, STATE_QUERY, is_command
from iris_core.views.queries import JobsQuery
from iris_gateway.commands import (
    NO_LEADER,
    NOT_SENT,
    TOO_MANY_OF_USER,
    UNANSWERED,
    UNSENT,
    Commands,
)
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.queries import Queries
from tests.support.gateway import House
from tests.support.memory import Memory
from tests.support.rounds import rounds_until

CANCEL = CancelJob("/a", Caller(), *UNSENT)
SIZE = len(pack(CancelJob("/a", Caller("eve"), "c0", 7)))


def of_user(caller: Caller) -> CancelJob:
    return CancelJob("/a", caller, *UNSENT)


def commands(memory: Memory, **more: float) -> Commands:
    numbers = iter(range(100))
    return Commands(
        memory.connect().bus,
        new_id=lambda: f"c{next(numbers)}",
        now_ms=lambda: 7,
        **{"try_timeout_s": 0.02, **more},
    )


class Leader:
    """Hears commands, and answers them when it is told to."""

    def __init__(self, memory: Memory, *statuses: str) -> None:
        self.bus = memory.connect().bus
        self.statuses = list(statuses)
        self.heard: list[Message] = []

    async def lead(self) -> Subscription:
        return await self.bus.subscribe(CMD_CANCEL, self.hear)

    def hear(self, message: Message) -> None:
        """Answer as planned, then as accepted; "" is silence."""
        self.heard.append(message)
        status = self.statuses.pop(0) if self.statuses else "accepted"
        if status:
            self.bus.publish(message.reply, pack(Answer(status, b'{"detail": "busy"}', 5)))

    @property
    def requests(self) -> list[str]:
        return [unpack(message.data, CancelJob).request_id for message in self.heard]


async def test_a_command_is_answered_by_the_leader():
    memory = Memory()
    leader = Leader(memory)
    await leader.lead()
    answer = await commands(memory).ask(CMD_CANCEL, CANCEL)
    assert (answer.status, leader.requests) == ("accepted", ["c0"])


async def test_one_that_is_not_answered_is_repeated_under_the_same_request_id():
    memory = Memory()
    leader = Leader(memory, "", "", "")
    await leader.lead()
    answer = await commands(memory).ask(CMD_CANCEL, CANCEL)
    assert (answer.status, leader.requests) == ("accepted", ["c0"] * 4)


async def test_while_nobody_leads_it_is_repeated_until_somebody_does():
    memory = Memory()
    leader = Leader(memory)
    asking = asyncio.create_task(commands(memory).ask(CMD_CANCEL, CANCEL))
    await asyncio.sleep(0)
    await leader.lead()
    assert ((await asking).status, leader.requests) == ("accepted", ["c0"])


async def test_the_next_leader_is_asked_when_the_one_that_heard_it_is_gone():
    memory = Memory()
    first, second = Leader(memory, *[""] * 100), Leader(memory)
    leading = await first.lead()
    asking = asyncio.create_task(commands(memory).ask(CMD_CANCEL, CANCEL))
    await rounds_until(lambda: first.heard)
    await leading.close()
    await second.lead()
    assert ((await asking).status, second.requests) == ("accepted", ["c0"])


async def test_a_leader_that_takes_no_more_is_asked_again():
    memory = Memory()
    leader = Leader(memory, "unavailable", "unavailable")
    await leader.lead()
    answer = await commands(memory).ask(CMD_CANCEL, CANCEL)
    assert (answer.status, leader.requests) == ("accepted", ["c0"] * 3)


async def test_a_slow_leader_is_waited_for_longer_with_each_try():
    """Otherwise one that takes longer than a try may last would never be heard."""
    memory, slow_s = Memory(), 0.1
    leader = Leader(memory)
    loop = asyncio.get_running_loop()
    await leader.bus.subscribe(
        CMD_CANCEL, lambda message: loop.call_later(slow_s, leader.hear, message) and None
    )
    assert (await commands(memory, try_timeout_s=0.02).ask(CMD_CANCEL, CANCEL)).status == "accepted"


async def refusal(memory: Memory, **more: float) -> ProblemResponse:
    with pytest.raises(ProblemResponse) as raised:
        await commands(memory, retry_for_s=0.1, **more).ask(CMD_CANCEL, CANCEL)
    assert (raised.value.kind.status, raised.value.headers) == (503, {"retry-after": "1"})
    return raised.value


async def test_a_command_that_nobody_heard_had_no_effect_and_says_so():
    assert (await refusal(Memory())).detail == NO_LEADER


async def test_where_it_was_refused_every_time_the_sender_is_told_why():
    memory = Memory()
    await Leader(memory, *["unavailable"] * 100).lead()
    assert (await refusal(memory)).detail == "busy"


@pytest.mark.parametrize("rest", ["", "unavailable"])
async def test_a_command_that_may_have_been_heard_says_that_it_may_have_effect(rest: str):
    memory = Memory()
    await Leader(memory, "", *[rest] * 100).lead()
    assert (await refusal(memory)).detail == UNANSWERED


async def test_only_so_many_are_outstanding_and_one_that_was_not_sent_is_told_so():
    memory = Memory()
    leader = Leader(memory, *[""] * 1000)
    await leader.lead()
    made = commands(memory, outstanding=3, retry_for_s=0.4, try_timeout_s=0.2)
    users = [Caller(f"u{number}") for number in range(5)]
    asking = [asyncio.create_task(made.ask(CMD_CANCEL, of_user(one))) for one in users]
    refused = await asyncio.gather(*asking, return_exceptions=True)
    details = Counter(one.detail for one in refused if isinstance(one, ProblemResponse))
    assert (details, set(leader.requests)) == ({UNANSWERED: 3, NOT_SENT: 2}, {"c0", "c1", "c2"})


@pytest.mark.parametrize("limit", [{"outstanding": 4}, {"outstanding_bytes": 4 * SIZE}])
async def test_one_user_has_half_of_what_is_outstanding_and_is_told_so(limit: dict[str, int]):
    memory = Memory()
    leader = Leader(memory, *[""] * 1000)
    await leader.lead()
    made = commands(memory, retry_for_s=0.4, try_timeout_s=0.2, **limit)
    users = [Caller(name) for name in ("eve", "eve", "eve", "eve", "ada")]
    asking = [asyncio.create_task(made.ask(CMD_CANCEL, of_user(one))) for one in users]
    refused = await asyncio.gather(*asking, return_exceptions=True)
    assert [one.detail for one in refused if isinstance(one, ProblemResponse)] == [
        UNANSWERED,
        UNANSWERED,
        TOO_MANY_OF_USER,
        TOO_MANY_OF_USER,
        UNANSWERED,
    ]
    assert set(leader.requests) == {"c0", "c1", "c4"}


async def test_who_waits_is_sent_when_another_is_answered():
    memory = Memory()
    leader = Leader(memory)
    await leader.lead()
    made = commands(memory, outstanding=2, try_timeout_s=5.0)
    answers = await asyncio.gather(*(made.ask(CMD_CANCEL, CANCEL) for _ in range(9)))
    assert [answer.status for answer in answers] == ["accepted"] * 9


async def test_an_answer_of_another_release_is_said_to_be_unreadable():
    memory = Memory()
    bus = memory.connect().bus
    await bus.subscribe(CMD_CANCEL, lambda message: bus.publish(message.reply, b"\xc1"))
    with pytest.raises(ProblemResponse, match="cannot be read"):
        await commands(memory).ask(CMD_CANCEL, CANCEL)


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
    waiting = [asyncio.create_task(queries.ask(JobsQuery(limit=1), Caller())) for _ in range(50)]
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
    before = asyncio.create_task(queries.ask(JobsQuery(), Caller()))
    await rounds_until(lambda: asked)
    after = asyncio.create_task(queries.ask(JobsQuery(), Caller()))
    await asyncio.sleep(0)
    answering.publish(asked[0].reply, pack(Answer("ok", b'"old"')))
    await rounds_until(lambda: len(asked) == 2)
    answering.publish(asked[1].reply, pack(Answer("ok", b'"new"')))
    assert (await before, await after) == (b'"old"', b'"new"')


@pytest.mark.parametrize("equal", [1, 2])
async def test_a_read_that_fails_when_nobody_waits_for_it_ends_nothing(equal: int):
    """What nobody reads of a task is an error that nobody has caught, which ends a service."""
    uncaught: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: uncaught.append(context))
    before = asyncio.all_tasks()
    queries = Queries(Memory().connect().bus, retry_for_s=0.2)
    waiting = [asyncio.create_task(queries.ask(JobsQuery(), Caller())) for _ in range(equal)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait({*waiting})
    while under_way := asyncio.all_tasks() - before:
        await asyncio.wait(under_way)
    del task, waiting, under_way
    gc.collect()
    assert uncaught == []


@pytest.mark.parametrize("kind", get_args(UserCommand))
def test_every_command_has_a_subject_and_words_of_its_refusal(kind):
    assert is_command(SUBJECT_OF[kind])
    assert kind.does


async def test_a_command_is_stamped_when_it_is_sent():
    memory = Memory()
    leader = Leader(memory)
    subscription = await leader.bus.subscribe(CMD_SUBMIT, leader.hear)
    command = SubmitJob(JobSpec(name="/a", command=("true",)), Caller(), *UNSENT)
    await commands(memory).ask(CMD_SUBMIT, command)
    await commands(memory).ask(CMD_SUBMIT, command, key="mine")
    await subscription.close()
    sent = [unpack(message.data, SubmitJob) for message in leader.heard]
    assert [(one.request_id, one.submitted_ms) for one in sent] == [("c0", 7), ("mine", 7)]
