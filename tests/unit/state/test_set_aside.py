"""An input that raises is set aside: nothing of it stands, everything else goes on, and no leader ends for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from iris_bus.memory import Memory
from iris_core import codec, subjects
from iris_core.errors import InvariantBroken
from iris_core.messages import (
    Answer,
    Beat,
    Caller,
    Placement,
    Plan,
    PlanTaken,
    Query,
    Register,
    SubmitJob,
    WorkerReport,
)
from iris_core.resources import Amount
from iris_core.spec import JobSpec
from iris_state import answers
from iris_state.check import check
from iris_state.inputs import Asked, Input
from iris_state.machine import Machine
from tests.support.house import ANN, House
from tests.support.raising import Planted, raising
from tests.support.world import START_MS, World

AFTER = [-1, 0, 1]
"""Which of the changes of a poison input raises when it stands; -1: it raises before any does."""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(Memory())
    house.lead()
    async with asyncio.timeout(30):
        yield house
        await house.end()


def poison(monkeypatch: pytest.MonkeyPatch, words: bytes, after: int, error: type[Exception] = Planted) -> None:
    """Whatever input holds these words raises in every machine, each time, after so many changes."""
    handle = Machine._handle

    def judged(machine: Machine, one: Input) -> None:
        if words in getattr(one, "data", b""):
            with raising(machine, after, error):
                handle(machine, one)
        else:
            handle(machine, one)

    monkeypatch.setattr(Machine, "_handle", judged)


def said(name: str) -> Asked:
    """A submission said to the leader itself."""
    wish = SubmitJob(JobSpec(name=name, command=("true",)), ANN, name, 1)
    return Asked(subjects.straight(subjects.CMD_SUBMIT), codec.pack(wish), f"to{name}")


def machine_of(house: House) -> Machine:
    return house.state.replica.machine


def raised(house: House) -> dict[str, int]:
    return {kind: count for (kind,), count in house.state.metrics.raised._counts.items()}


async def recovered(house: House) -> Machine:
    """The machine of a replica that has read everything anew."""
    other = House(house.memory)
    await other.state.replica.recover()
    return other.state.replica.machine


@pytest.mark.parametrize("after", AFTER)
async def test_a_stored_command_that_raises_is_answered_and_a_dead_letter(
    house: House, monkeypatch: pytest.MonkeyPatch, after: int
):
    poison(monkeypatch, b"/bad", after)
    await house.obeyed("/first")
    replies: list[bytes] = []
    inbox = house.wanting.bus.new_inbox()
    await house.wanting.bus.subscribe(inbox, lambda message: replies.append(message.data))
    for name in ("/a", "/bad", "/b", "/bad"):
        await house.store(name, answer_to=inbox)
    await house.obeyed("/last")
    machine = machine_of(house)
    check(machine.ledger)
    assert [job.name for job in machine.ledger.jobs.values()] == ["/first", "/a", "/b", "/last"]
    told = [codec.unpack(reply, Answer) for reply in replies]
    assert [answer.status for answer in told] == ["created", "internal", "created", "internal"]
    assert b"nothing was changed" in told[1].body
    assert (raised(house), machine.ledger.totals.dead_letters, machine.ledger.epoch) == ({"command": 1}, 1, 1)
    other = await recovered(house)
    assert [job.name for job in other.ledger.jobs.values()] == ["/first", "/a", "/b", "/last"]
    assert other.ledger.answers == machine.ledger.answers


async def test_a_command_said_to_the_leader_that_raises_is_answered(house: House, monkeypatch: pytest.MonkeyPatch):
    await house.obeyed("/a", 3)
    poison(monkeypatch, b"poison", 1)
    answer = codec.unpack(await house.cancel("/a", "poison"), Answer)
    assert answer.status == "internal"
    assert codec.unpack(await house.cancel("/a", "poison"), Answer) == answer
    check(machine_of(house).ledger)
    assert machine_of(house).ledger.jobs[1].counted().keys() == {1}
    assert raised(house) == {"command": 1}
    assert codec.unpack(await house.cancel("/a", "again"), Answer).status == "accepted"


async def test_a_host_whose_report_raises_is_not_heard_for_a_while_and_others_are(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    await house.obeyed("/a")
    poison(monkeypatch, b"w-bad", 0)

    def register(name: str) -> bytes:
        return codec.pack(WorkerReport(name, "1", register=Register(name, "1", {}, Amount(1000), 1)))

    bus = house.wanting.bus
    for _ in range(3):
        bus.publish(subjects.STATE_REPORT, register("w-bad"), reply="nobody")
        bus.publish(subjects.beat("w-bad"), codec.pack(Beat("w-bad", "1", 1, 1)))
        await bus.request(subjects.STATE_REPORT, register("w-good"), timeout=10)
    await house.obeyed("/b")
    assert list(machine_of(house).ledger.workers) == ["w-good"]
    assert raised(house) == {"report": 1}
    check(machine_of(house).ledger)


async def test_a_plan_that_raises_is_refused_whole(house: House, monkeypatch: pytest.MonkeyPatch):
    await house.obeyed("/a", 2)
    report = WorkerReport("w0", "1", register=Register("w0", "1", {}, Amount(64_000, 1 << 40, 1 << 40), 1))
    await house.wanting.bus.request(subjects.STATE_REPORT, codec.pack(report), timeout=10)
    poison(monkeypatch, b"bad-scheduler", 0)
    plan = Plan("bad-scheduler", machine_of(house).sequence, ("w0",), (Placement(1, (0, 1), (0, 0)),))
    reply = await house.wanting.bus.request(subjects.STATE_PLAN, codec.pack(plan), timeout=10)
    taken = codec.unpack(reply.data, PlanTaken)
    assert (taken.placed, taken.refused) == (0, ((1, 0, "set_aside"), (1, 1, "set_aside")))
    assert len(machine_of(house).ledger.queue) == 2
    assert raised(house) == {"plan": 1}


async def test_a_query_that_raises_is_answered_so(house: House, monkeypatch: pytest.MonkeyPatch):
    await house.obeyed("/a")

    def broken(*_: Any) -> Any:
        raise Planted

    monkeypatch.setitem(answers.READS, "job", broken)
    query = codec.pack(Query("job", {"job": "/a"}, ANN))
    reply = await house.wanting.bus.request(subjects.STATE_QUERY, query, timeout=10)
    assert codec.unpack(reply.data, Answer).status == "internal"
    await house.obeyed("/b")
    assert raised(house) == {"query": 1}


async def test_a_broken_invariant_still_ends_the_process(monkeypatch: pytest.MonkeyPatch):
    poison(monkeypatch, b"/bad", 0, InvariantBroken)
    house = House(Memory())
    house.lead()
    await house.store("/bad")
    async with asyncio.timeout(30):
        with pytest.raises(InvariantBroken):
            await house.running


def test_what_raises_before_anything_changed_costs_no_reading_anew(monkeypatch: pytest.MonkeyPatch):
    world = World()
    poison(monkeypatch, b"/bad", -1)
    assert world.submit(JobSpec(name="/bad", command=("true",)), Caller("ann")).status == "internal"
    assert not world.machine.torn
    assert world.submit(JobSpec(name="/good", command=("true",)), Caller("ann")).status == "created"


def test_what_was_not_judged_yet_is_left_for_afterwards(monkeypatch: pytest.MonkeyPatch):
    machine = Machine(World().policy, "m")
    machine.replay(1, machine.bid(START_MS))
    machine.lead(START_MS)
    poison(monkeypatch, b"/bad", 0)
    inputs = [said(name) for name in ("/a", "/bad", "/b", "/c")]
    output = machine.step(inputs, START_MS)
    assert machine.torn
    assert output.left == inputs[2:]
    assert [codec.unpack(data, Answer).status for _, data in output.replies] == ["created", "internal"]
    again = Machine(machine.policy, "m")
    again.replay(1, again.bid(START_MS))
    again.replay(output.sequence, output.commit or b"")
    again.succeed(machine)
    again.lead(START_MS)
    rest = again.step(output.left, START_MS)
    assert [job.name for job in again.ledger.jobs.values()] == ["/a", "/b", "/c"]
    check(again.ledger)
    follower = Machine(machine.policy, "follower")
    follower.replay(1, follower.bid(START_MS))
    for commit in (output, rest):
        follower.replay(commit.sequence, commit.commit or b"")
    assert [job.name for job in follower.ledger.jobs.values()] == ["/a", "/b", "/c"]
