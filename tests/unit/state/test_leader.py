"""The leading replica on an in-memory bus."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from iris_bus.contract import Message, NoResponders
from iris_bus.journal import framing
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Caller, CancelJob, Query
from iris_core.messages.scheduler_state import Delta, Placement, Plan, PlanTaken
from iris_core.messages.state_worker import HeartbeatMessage, Order, Register, WorkerReport
from iris_core.spec.resources import Amount
from iris_state.replication import leader
from tests.support.house import ANN, POLICY, House
from tests.support.memory import Memory


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(Memory())
    async with asyncio.timeout(60):
        yield house
        await house.end()


async def test_it_answers_commands_as_soon_as_it_leads(house: House):
    house.lead()
    assert (await house.cancel("/a", "c1")).status == "not_found"


async def test_commands_over_the_limit_are_refused_and_the_others_carried_out(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leader, "WAITING", 3)
    house.lead()
    await house.submit("/first")
    answers = await asyncio.gather(*(house.submit(f"/a{number}") for number in range(20)))
    created = [answer for answer in answers if answer.status == "created"]
    busy = [answer for answer in answers if answer.status == "unavailable"]
    assert len(created) >= 3
    assert len(created) + len(busy) == 20
    assert b"as many commands waiting as it takes" in busy[0].body
    assert len(house.state.replica.machine.ledger.jobs) == 1 + len(created)


async def test_commands_that_wait_are_bounded_by_bytes_as_well(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leader, "WAITING_BYTES", 1000)
    house.lead()
    await house.submit("/first")
    answers = await asyncio.gather(*(house.submit(f"/a{number}") for number in range(20)))
    assert {answer.status for answer in answers} == {"created", "unavailable"}
    assert (await house.submit("/last")).status == "created"


@pytest.mark.parametrize(
    "subject", [subjects.CMD_CANCEL, subjects.STATE_QUERY, subjects.SNAPSHOT_FULL]
)
async def test_a_request_without_a_reply_subject_gets_no_answer_and_harms_nobody(
    house: House, subject: str
):
    house.lead()
    await house.submit("/a")
    cancel = codec.pack(CancelJob("/a", ANN, "c1", 1))
    house.wanting.bus.publish(subject, cancel, reply="no subject")
    assert (await house.cancel("/nobody", "c2")).status == "not_found"
    assert not house.running.done()


@pytest.mark.parametrize(("replicas", "again"), [(1, True), (10_000, False)])
async def test_a_large_snapshot_is_not_taken_as_often_as_a_small_one(
    house: House, replicas: int, again: bool
):
    house.lead()
    for number in range(POLICY.snapshot_changes):
        await house.submit(f"/a{number}", replicas)
    first = await house.snapshot()
    for number in range(20):
        await house.submit(f"/b{number}")
    assert (await house.snapshot() != first) == again


async def test_one_whom_another_has_followed_orders_nobody_to_do_anything():
    house = House(Memory())
    house.lead()
    async with asyncio.timeout(60):
        await house.submit("/a")
        ordered: list[bytes] = []
        await house.wanting.bus.subscribe(
            subjects.order("w0"), lambda message: ordered.append(message.data)
        )
        losing = asyncio.create_task(house.lose_the_lead())
        house.wanting.bus.publish(
            subjects.heartbeat("w0"),
            codec.pack(HeartbeatMessage("w0", "a start nobody has heard of", 1, 1)),
        )
        await losing
        await house.end()
    assert not ordered


async def test_nothing_is_answered_on_a_subject_that_is_no_inbox():
    """Whoever asks would choose what the state service publishes where, and it may publish
    anywhere.
    """
    house = House(Memory())
    house.lead()
    async with asyncio.timeout(60):
        await house.submit("/a")
        bus, heard = house.wanting.bus, list[Message]()
        report = codec.pack(
            WorkerReport("w0", "1", register=Register("w0", "1", {}, Amount(1000), 1))
        )
        query = codec.pack(Query("job", {"job": "/a"}, Caller("ann")))
        asked = (
            (subjects.report("w0"), report),
            (subjects.STATE_QUERY, query),
            (subjects.STATE_PING, b""),
        )
        await bus.subscribe(subjects.order("w1"), heard.append)
        for subject, data in asked:
            bus.publish(subject, data, reply=subjects.order("w1"))
        await house.submit("/b")
        for subject, data in asked:
            assert (await bus.request(subject, data, timeout=10)).data
        assert heard == []
        await house.end()


async def test_who_takes_over_goes_on_behind_a_commit_that_was_not_finished():
    memory = Memory()
    async with asyncio.timeout(60):
        first = House(memory)
        first.lead()
        await first.submit("/a")
        await first.end()
        unfinished = next(framing.split(b"a commit of two parts", 11))
        await first.wanting.streams.publish(subjects.JOURNAL_SUBJECT, unfinished)
        second = House(memory)
        second.lead()
        await second.submit("/b")
        await second.end()
        third = House(memory)
        third.lead()
        await third.submit("/c")
        names = [job.name for job in third.state.replica.machine.ledger.jobs.values()]
        await third.end()
    assert names == ["/a", "/b", "/c"]


async def test_a_commit_in_parts_is_taken_over_whole():
    memory = Memory()
    policy = msgspec.structs.replace(POLICY, journal_part_bytes=16)
    async with asyncio.timeout(60):
        for name in ("/a", "/b", "/c"):
            house = House(memory, policy)
            house.lead()
            await house.submit(name)
            await house.end()
        machine = house.state.replica.machine
        assert [job.name for job in machine.ledger.jobs.values()] == ["/a", "/b", "/c"]
        assert machine.sequence == await house.wanting.journal().end() > 12


async def test_hosts_that_are_gone_for_good_are_not_kept_in_mind(house: House):
    house.lead()
    await house.submit("/a")
    leading = house.state._leader
    assert leading is not None
    for number in range(100):
        await leading._orders.send(f"w{number}", Order("1", 1))
    assert len(leading._orders.unreached) <= len(house.state.replica.machine.ledger.workers)


async def _registered(house: House) -> None:
    """A host with room, and nothing else."""
    report = codec.pack(
        WorkerReport("w0", "1", register=Register("w0", "1", {}, Amount(4000, 1 << 30), 1))
    )
    with contextlib.suppress(NoResponders):
        await house.wanting.bus.request(subjects.report("w0"), report, timeout=10)


def _plan_for(delta: Delta) -> Plan:
    placements = tuple(Placement(queued.job, (0,), (0,)) for queued in delta.queued)
    return Plan("s", delta.version, ("w0",), placements)


async def test_the_plan_of_a_new_task_is_part_of_its_commit():
    house = House(Memory(), msgspec.structs.replace(POLICY, plan_wait_s=1.0))
    house.lead()
    async with asyncio.timeout(60):
        await house.cancel("/nobody", "c1")
        await _registered(house)
        bus, deltas = house.wanting.bus, list[Delta]()
        answer = asyncio.get_running_loop().create_future()
        inbox = bus.new_inbox()

        def plan(message: Message) -> None:
            delta = codec.unpack(message.data, Delta)
            deltas.extend([delta] if delta.after >= before else [])
            if delta.queued and len(deltas) == 1:
                bus.publish(subjects.STATE_PLAN, codec.pack(_plan_for(delta)), reply=inbox)

        before = house.state.replica.machine.sequence
        await bus.subscribe(
            inbox, lambda message: answer.set_result(codec.unpack(message.data, PlanTaken))
        )
        await bus.subscribe(subjects.SNAPSHOT, plan)
        submitted = await house.submit("/a")
        taken = await answer
        assert (submitted.position, taken.version, taken.placed) == (before + 1, before + 1, 1)
        while len(deltas) < 2:
            await asyncio.sleep(0)
        assert [(one.version - before, one.after - before, one.drafts) for one in deltas[:2]] == [
            (0, 0, 0),
            (1, 0, 1),
        ]
        assert [(len(one.queued), len(one.opened)) for one in deltas[:2]] == [(1, 0), (0, 1)]
        await house.end()
        jobs = house.state.replica.machine.ledger.jobs
        later = House(house.memory)
        later.lead()
        await later.cancel("/nobody", "c2")
        assert later.state.replica.machine.ledger.jobs == jobs
        await later.end()


async def test_a_plan_that_does_not_come_is_waited_for_seldom():
    house = House(Memory(), msgspec.structs.replace(POLICY, plan_wait_s=0.001))
    house.lead()
    async with asyncio.timeout(60):
        await house.cancel("/nobody", "c1")
        before = house.state.replica.machine.sequence
        deltas: list[tuple[int, int, int]] = []

        def note(message: Message) -> None:
            delta = codec.unpack(message.data, Delta)
            if delta.after >= before:
                deltas.append((delta.version - before, delta.after - before, delta.drafts))

        await house.wanting.bus.subscribe(subjects.SNAPSHOT, note)
        await house.submit("/a")
        await house.submit("/b")
        while len(deltas) < 3:
            await asyncio.sleep(0)
        assert deltas == [(0, 0, 0), (1, 0, 1), (2, 1, 0)]
        await house.end()
