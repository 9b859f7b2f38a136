"""An input that raises is set aside: none of its changes apply, other inputs proceed, and the
leader goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from iris_bus.contract import Message
from iris_core import codec, subjects
from iris_core.errors import InvariantBroken
from iris_core.messages.gateway_state import Answer, Caller, Query, SubmitJob
from iris_core.messages.scheduler_state import Placement, Plan, PlanTaken
from iris_core.messages.state_worker import (
    HeartbeatMessage,
    Order,
    OrderTaken,
    Register,
    WorkerReport,
)
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import JobState, WorkerState
from iris_core.tables.session import PREPARE
from iris_core.views.queries import JobQuery
from iris_state import views
from iris_state.check.records import check
from iris_state.effects.kinds import ReplyTo, Unjudged
from iris_state.machine.machine import Machine
from iris_state.machine.quarantine import Quarantine
from iris_state.policy import Policy
from iris_state.records.inputs import Heartbeat, Input, Request, Timer, TimerKey
from iris_state.views.pages import at_once
from tests.support.house import ANN, House
from tests.support.memory import Memory
from tests.support.raising import Planted, raising
from tests.support.script import Script
from tests.support.world import START_MS, World

AFTER = [-1, 0, 1]
"""Which of the changes of a poison input raises when it stands; -1: it raises before any does."""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(Memory())
    house.lead()
    async with asyncio.timeout(60):
        yield house
        await house.end()


def poison(
    monkeypatch: pytest.MonkeyPatch, words: bytes, after: int, error: type[Exception] = Planted
) -> None:
    """Whatever input holds these words raises in every machine, each time, after so many
    changes.
    """
    handle = Machine._handle

    def judged(machine: Machine, one: Input) -> None:
        if words in getattr(one, "data", b""):
            with raising(machine, after, error):
                handle(machine, one)
        else:
            handle(machine, one)

    monkeypatch.setattr(Machine, "_handle", judged)


def said(name: str) -> Request:
    """A submission as the leader hears it."""
    command = SubmitJob(JobSpec(name=name, command=("true",)), ANN, name, 1)
    return Request(subjects.CMD_SUBMIT, codec.pack(command), f"to{name}")


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
async def test_a_command_that_raises_is_answered_and_changes_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch, after: int
):
    poison(monkeypatch, b"/bad", after)
    told = [await house.submit(name) for name in ("/first", "/a", "/bad", "/b", "/bad", "/last")]
    machine = machine_of(house)
    check(machine.ledger)
    assert [job.name for job in machine.ledger.jobs.values()] == ["/first", "/a", "/b", "/last"]
    statuses = ["created", "created", "internal", "created", "internal", "created"]
    assert [answer.status for answer in told] == statuses
    assert b"nothing was changed" in told[2].body
    assert raised(house) == {"command": 1}
    assert machine.ledger.epoch == machine.ledger.first_epoch, "the leader goes on"
    letters = codec.from_json(at_once(views.read(machine.ledger, Query("dead_letters"))), dict)
    assert (letters["total"], [letter["number"] for letter in letters["items"]]) == (1, [1])
    assert "nothing was changed" in letters["items"][0]["detail"]
    other = await recovered(house)
    assert [job.name for job in other.ledger.jobs.values()] == ["/first", "/a", "/b", "/last"]
    assert other.ledger.answers == machine.ledger.answers


async def test_a_repeated_cancellation_that_raised_is_answered_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    await house.submit("/a", 3)
    poison(monkeypatch, b"poison", 1)
    answer = await house.cancel("/a", "poison")
    assert answer.status == "internal"
    assert await house.cancel("/a", "poison") == answer
    check(machine_of(house).ledger)
    assert machine_of(house).ledger.jobs[1].counted().keys() == {1}
    assert raised(house) == {"command": 1}
    assert (await house.cancel("/a", "again")).status == "accepted"


async def test_a_report_that_raises_silences_its_host_for_a_while(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    await house.submit("/a")
    poison(monkeypatch, b"w-bad", 0)

    def register(name: str) -> bytes:
        return codec.pack(
            WorkerReport(name, "1", register=Register(name, "1", {}, Amount(1000), 1))
        )

    bus = house.wanting.bus
    for _ in range(3):
        bus.publish(subjects.report("w-bad"), register("w-bad"), reply="_INBOX.nobody")
        bus.publish(subjects.heartbeat("w-bad"), codec.pack(HeartbeatMessage("w-bad", "1", 1, 1)))
        await bus.request(subjects.report("w-good"), register("w-good"), timeout=10)
    await house.submit("/b")
    assert list(machine_of(house).ledger.workers) == ["w-good"]
    assert raised(house) == {"report": 1}
    check(machine_of(house).ledger)


async def test_a_plan_that_raises_is_refused_whole(house: House, monkeypatch: pytest.MonkeyPatch):
    await house.submit("/a", 2)
    report = WorkerReport(
        "w0", "1", register=Register("w0", "1", {}, Amount(64_000, 1 << 40, 1 << 40), 1)
    )
    await house.wanting.bus.request(subjects.report("w0"), codec.pack(report), timeout=10)
    poison(monkeypatch, b"bad-scheduler", 0)
    plan = Plan(
        "bad-scheduler", machine_of(house).sequence, ("w0",), (Placement(1, (0, 1), (0, 0)),)
    )
    reply = await house.wanting.bus.request(subjects.STATE_PLAN, codec.pack(plan), timeout=10)
    taken = codec.unpack(reply.data, PlanTaken)
    assert (taken.placed, taken.refused) == (0, ((1, 0, "set_aside"), (1, 1, "set_aside")))
    assert len(machine_of(house).ledger.queue) == 2
    assert raised(house) == {"plan": 1}


async def test_a_hosts_answer_from_before_a_reload_is_not_an_answer(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    """What its host reported in between is newer, and no longer known."""
    bus, orders = house.wanting.bus, asyncio.Queue[Message]()
    await house.submit("/a", 3)
    register = WorkerReport(
        "w0", "1", register=Register("w0", "1", {}, Amount(1000), 1), monotonic_ms=1
    )
    await bus.request(subjects.report("w0"), codec.pack(register), timeout=10)
    await bus.subscribe(subjects.order("w0"), orders.put_nowait)
    leader, torn = house.state._leader, machine_of(house)
    assert leader is not None
    delivering = asyncio.create_task(leader._orders.send("w0", Order("1", 1)))
    before = await orders.get()
    poison(monkeypatch, b"poison", 1)
    await house.cancel("/a", "poison")
    probe = await orders.get()
    assert machine_of(house) is not torn
    bus.publish(before.reply, codec.pack(OrderTaken("1", monotonic_ms=2)))
    await delivering
    await house.submit("/b")
    presence = machine_of(house).ledger.presence["w0"]
    assert (presence.answered, presence.reported_ms) == (False, 0)
    bus.publish(probe.reply, codec.pack(OrderTaken("1", monotonic_ms=3)))
    async with asyncio.timeout(60):
        while not presence.answered:
            await asyncio.sleep(0)
    assert presence.reported_ms == 3


async def test_a_query_that_raises_is_answered_so(house: House, monkeypatch: pytest.MonkeyPatch):
    await house.submit("/a")

    def broken(*_: Any) -> Any:
        raise Planted

    monkeypatch.setitem(views.READS, JobQuery, broken)
    query = codec.pack(Query("job", {"job": "/a"}, ANN))
    reply = await house.wanting.bus.request(subjects.STATE_QUERY, query, timeout=10)
    assert codec.unpack(reply.data, Answer).status == "internal"
    await house.submit("/b")
    assert raised(house) == {"query": 1}


async def test_a_broken_invariant_still_ends_the_process(monkeypatch: pytest.MonkeyPatch):
    poison(monkeypatch, b"/bad", 0, InvariantBroken)
    house = House(Memory())
    house.lead()
    submitting = asyncio.create_task(house.submit("/bad"))
    async with asyncio.timeout(60):
        with pytest.raises(InvariantBroken):
            await house.running
    submitting.cancel()


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
    left = [one.input for one in output.of(Unjudged)]
    assert left == inputs[2:]
    assert [codec.unpack(one.data, Answer).status for one in output.of(ReplyTo)] == [
        "created",
        "internal",
    ]
    again = Machine(machine.policy, "m")
    again.replay(1, again.bid(START_MS))
    again.replay(output.sequence, output.commit or b"")
    again.succeed(machine)
    again.lead(START_MS)
    rest = again.step(left, START_MS)
    assert [job.name for job in again.ledger.jobs.values()] == ["/a", "/b", "/c"]
    check(again.ledger)
    follower = Machine(machine.policy, "follower")
    follower.replay(1, follower.bid(START_MS))
    for commit in (output, rest):
        follower.replay(commit.sequence, commit.commit or b"")
    assert [job.name for job in follower.ledger.jobs.values()] == ["/a", "/b", "/c"]


# ── timers ────────────────────────────────────────────────────────────────────────────────────────


def break_timer(
    monkeypatch: pytest.MonkeyPatch, bad: TimerKey, after: int, error: type[Exception] = Planted
) -> list[tuple[TimerKey, ...]]:
    """A timer of this key raises in every machine, each time, after so many changes; returns what
    has raised so far.
    """
    broken: list[tuple[TimerKey, ...]] = []
    handle = Machine._handle

    def judged(machine: Machine, one: Input | Timer) -> None:
        if isinstance(one, Timer) and bad in one.keys:
            broken.append(one.keys)
            with raising(machine, after, error):
                handle(machine, one)
        else:
            handle(machine, one)

    monkeypatch.setattr(Machine, "_handle", judged)
    return broken


TIMED = """
    worker w0 cpu=2
    submit /bad timeout=60
    submit /good timeout=60
    place /bad/0 w0
    place /good/0 w0
    /bad/0 running
    /good/0 running
"""
TIMEOUT = ("limit", ("timeout", 1, 0))


@pytest.mark.parametrize("after", [-1, 0])
def test_a_timeout_that_raises_is_judged_again_later_and_others_are_judged(
    script: Script, monkeypatch: pytest.MonkeyPatch, after: int
):
    broken = break_timer(monkeypatch, TIMEOUT, after)
    script.play(TIMED)
    script.play("""
        wait 61
        /good/0 -> KILLED
        /bad/0  -> RUNNING
    """)
    assert broken == [(TIMEOUT,)]
    monkeypatch.undo()
    script.play("""
        wait 5
        /bad/0  -> KILLED
    """)


@pytest.mark.parametrize("after", [-1, 0])
def test_a_timer_that_always_raises_is_judged_less_and_less_often(
    script: Script, monkeypatch: pytest.MonkeyPatch, after: int
):
    broken = break_timer(monkeypatch, TIMEOUT, after)
    script.play(TIMED)
    world = script.world
    began_ms = world.now_ms
    raised_s = []
    while world.now_ms - began_ms < 400_000:
        seen = len(broken)
        world.wait(1)
        raised_s += [(world.now_ms - began_ms) // 1000] * (len(broken) - seen)
    assert raised_s == [60, 65, 75, 95, 135, 215, 375]
    assert len(world.machine.timers.aside) == 1


def test_a_dead_host_is_lost_in_time_though_inputs_raise(
    script: Script, monkeypatch: pytest.MonkeyPatch
):
    poison(monkeypatch, b"/bad", 0)
    script.play("""
        worker w0
        worker w1
        submit /a
        place /a/0 w0
        /a/0 running
    """)
    script.world.hosts["w0"].silent = True
    for number in range(5):
        script.play(f"""
            wait 8
            submit /bad{number} -> internal
        """)
    script.play("""
        worker? w0 -> lost
        worker? w1 -> healthy
        /a/0       -> PENDING
    """)


@pytest.mark.parametrize("after", [-1, 0, 1])
def test_of_silent_hosts_only_the_one_that_raises_is_not_lost(
    script: Script, monkeypatch: pytest.MonkeyPatch, after: int
):
    bad = ("silent", "w1")
    broken = break_timer(monkeypatch, bad, after)
    script.play("""
        worker w0
        worker w1
        worker w2
        submit /a
        place /a/0 w1
        /a/0 running
    """)
    for host in script.world.hosts.values():
        host.silent = True
    script.play("wait 100")
    states = {worker.id: worker.state for worker in script.world.ledger.workers.values()}
    lost = WorkerState.LOST
    assert states == {"w0": lost, "w1": WorkerState.HEALTHY, "w2": lost}
    assert [len(keys) for keys in broken[:2]] == [3, 1]
    assert set(broken[1:]) == {(bad,)}
    monkeypatch.undo()
    script.play("""
        wait 100
        worker? w1 -> lost
        /a/0       -> PENDING
    """)


@pytest.mark.parametrize("after", [-1, 0])
def test_of_overdue_sessions_only_the_one_that_raises_stays(
    script: Script, monkeypatch: pytest.MonkeyPatch, after: int
):
    bad = (PREPARE.name, (1, 0))
    broken = break_timer(monkeypatch, bad, after)
    script.play("""
        worker w0 cpu=2
        submit /bad
        submit /good
        place /bad/0 w0
        place /good/0 w0
        wait 61
        /good/0 -> PENDING
        /bad/0  -> ASSIGNED
    """)
    assert broken == [(bad, (PREPARE.name, (2, 0))), (bad,)]
    monkeypatch.undo()
    script.play("""
        wait 5
        /bad/0  -> PENDING
    """)


@pytest.mark.parametrize("after", [-1, 0])
def test_a_job_that_cannot_be_forgotten_stays_and_others_are_forgotten(
    monkeypatch: pytest.MonkeyPatch, after: int
):
    script = Script(Policy(keep_jobs=1))
    break_timer(monkeypatch, ("prune", 1), after)
    for name in ("bad", "b", "c"):
        script.play(f"submit /{name}")
        script.play(f"cancel /{name}")
    script.play("wait 1")
    assert list(script.world.ledger.jobs) == [1, 3]
    monkeypatch.undo()
    script.play("wait 6")
    assert list(script.world.ledger.jobs) == [3]


async def test_a_timer_that_raises_is_said_with_its_traceback_and_counted(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    bad = ("limit", ("scheduling", 1, 0))
    break_timer(monkeypatch, bad, 0)
    spec = JobSpec(name="/late", command=("true",), scheduling_timeout_s=0.01)
    await house.ask(subjects.CMD_SUBMIT, SubmitJob(spec, ANN, "late", 1))
    while not raised(house):
        await asyncio.sleep(0)
    await house.submit("/b")
    assert raised(house) == {"timer": 1}
    assert machine_of(house).ledger.jobs[1].state is JobState.PENDING
    assert "a timer was set aside, because judging it raised" in caplog.text
    assert f"what had come due: ({bad!r},)" in caplog.text
    assert "Planted: planted" in caplog.text


def test_a_broken_invariant_in_a_timer_still_ends_the_process(monkeypatch: pytest.MonkeyPatch):
    script = Script()
    break_timer(monkeypatch, TIMEOUT, 0, InvariantBroken)
    script.play(TIMED)
    with pytest.raises(InvariantBroken):
        script.world.wait(61)


def test_a_host_that_is_never_heard_again_is_not_kept_in_mind():
    quarantine, beats = (
        Quarantine(),
        [
            Heartbeat("", codec.pack(HeartbeatMessage(f"w{number}", "1", 1, 1)))
            for number in range(1000)
        ],
    )
    for at_ms, heartbeat in enumerate(beats):
        quarantine.put(heartbeat, at_ms)
    assert quarantine.holds(beats[999], 998)
    assert not quarantine.holds(beats[0], 999)
    assert not quarantine._until
