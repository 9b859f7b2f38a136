"""A follower answers a read as of the requested position or later, or leaves it to the leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from iris_bus.contract import NoResponders
from iris_core import codec, subjects
from iris_core.messages.gateway_state import BEHIND, Answer, Caller, Query
from iris_core.messages.message import AttemptRef
from iris_core.messages.processes import Ping
from iris_core.messages.scheduler_state import JobReason, Plan
from iris_core.messages.state_worker import HeartbeatMessage, Register, WorkerReport
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.replication.follower import Follower
from iris_state.replication.replica import Replica
from tests.support.memory import Memory
from tests.support.serving import Serving
from tests.support.states import ANN, House, house


def job(name: str) -> JobSpec:
    return JobSpec(name=name, command=("true",))


@pytest.fixture
async def pair() -> AsyncIterator[House]:
    """One replica that leads, and one that follows it."""
    async with house() as made:
        made.start("one")
        await made.request(subjects.STATE_PING, None, Ping)
        made.start("two")
        yield made


async def test_who_has_written_reads_what_it_wrote_from_a_follower(pair: House):
    for number in range(20):
        written = await pair.submit(job(f"/a{number}"))
        answer = await pair.ask(subjects.STATE_READ, "job", written.position, job=f"/a{number}")
        assert (answer.status, answer.position >= written.position) == ("ok", True)


async def test_an_absent_follower_leaves_the_question_to_the_leader(pair: House):
    written = await pair.submit(job("/a"))
    assert (
        await pair.ask(subjects.STATE_READ, "job", written.position + 1, job="/a")
    ).status == BEHIND
    leading = await pair.ask(subjects.STATE_QUERY, "job", written.position + 1, job="/a")
    assert (leading.status, leading.position) == ("ok", written.position)


async def test_a_task_that_a_follower_does_not_know_is_left_to_the_leader(
    pair: House,
):
    await pair.submit(job("/a"))
    caller = Caller("ann", "task", attempt=AttemptRef(1, 0, 0), worker="w0")
    query = Query("job", {"job": "/a"}, caller)
    assert (await pair.request(subjects.STATE_READ, query)).status == BEHIND
    assert (await pair.request(subjects.STATE_QUERY, query)).status == "forbidden"


async def test_a_leader_alone_is_known_at_once():
    async with house() as made:
        made.start("one")
        await made.request(subjects.STATE_PING, None, Ping)
        with pytest.raises(NoResponders):
            await made.asking.bus.request(subjects.STATE_READ, b"", timeout=10)


async def test_a_follower_knows_why_jobs_wait_and_what_hosts_say(pair: House):
    written = await pair.submit(job("/a"))
    register = Register("w0", "i0", {}, Amount(1000), 1)
    await pair.request(subjects.report("w0"), WorkerReport("w0", "i0", register=register), Any)
    await pair.ask(subjects.STATE_READ, "job", written.position, job="/a")  # it follows
    reason = Reason(ReasonCode.NOT_ENOUGH_CPU, "asks for 8 cores")
    await pair.request(
        subjects.STATE_PLAN, Plan("s", written.position, reasons=(JobReason(1, reason),)), Any
    )
    pair.asking.bus.publish(
        subjects.heartbeat("w0"),
        codec.pack(HeartbeatMessage("w0", "i0", 1, 1, detail="the disk is slow")),
    )
    shown, worker = {}, {}
    while (
        shown.get("pending_reason", {}).get("code") != "not_enough_cpu"
        or worker.get("detail") != "the disk is slow"
    ):
        shown = codec.from_json((await pair.ask(subjects.STATE_READ, "job", job="/a")).body, dict)
        worker = codec.from_json(
            (await pair.ask(subjects.STATE_READ, "worker", id="w0")).body, dict
        )


async def test_a_follower_that_begins_later_learns_why_jobs_wait():
    async with house() as made:
        made.start("one")
        written = await made.submit(job("/a"))
        reason = Reason(ReasonCode.NOT_ENOUGH_CPU, "asks for 8 cores")
        await made.request(
            subjects.STATE_PLAN, Plan("s", written.position, reasons=(JobReason(1, reason),)), Any
        )
        made.start("two")
        shown: dict[str, Any] = {}
        while shown.get("pending_reason", {}).get("code") != "not_enough_cpu":
            with contextlib.suppress(NoResponders):  # it has not begun
                answer = await made.ask(subjects.STATE_READ, "job", written.position, job="/a")
                shown = codec.from_json(answer.body, dict) if answer.status == "ok" else {}


async def test_a_follower_in_the_way_of_commits_answers_later():
    memory = Memory()
    replica, asking = (
        Replica("one", Policy(read_share=0.01), memory.connect(), Clock()),
        memory.connect(),
    )
    await replica.connection.streams.ensure()
    woken = asyncio.Event()
    follower = Follower(replica, woken.set, lambda: True)
    await follower.start()
    query = codec.pack(Query("overview", {}, ANN))
    answers = []
    for _ in range(2):
        replica.machine.sequence += 1  # somebody writes
        woken.clear()
        answers.append(
            asyncio.ensure_future(asking.bus.request(subjects.STATE_READ, query, timeout=10))
        )
        await woken.wait()
        woken.clear()
        more = follower.answer()
    assert (more, [answer.done() for answer in answers]) == (False, [True, False])
    await woken.wait()
    follower.answer()
    assert codec.unpack((await answers[1]).data, Answer).status == "ok"
    await follower.close()


async def test_time_passes_for_who_follows_though_nothing_is_committed():
    world = Serving()
    world.create(1)
    world.go(20)
    memory = Memory()
    clock = Clock(lambda: world.now_ms * 1_000_000, lambda: 0)
    replica, asking = Replica("one", Policy(), memory.connect(), clock), memory.connect()
    for sequence, data in world.commits:
        facts = replica.machine.replay(sequence, data)
        if any((fact.entity, fact.state) == ("route", "healthy") for fact in facts):
            break  # what follows was committed when the route had been healthy for long enough
    follower = Follower(replica, lambda: None, lambda: False)
    await follower.start()
    query = codec.pack(Query("deployment", {"deployment": "chat"}, ANN))
    answer = asyncio.ensure_future(asking.bus.request(subjects.STATE_READ, query, timeout=10))
    while not answer.done():
        follower.answer()
        await asyncio.sleep(0)
    shown = codec.from_json(codec.unpack(answer.result().data, Answer).body, dict)
    assert (shown["available"], shown["routes"][0]["available"]) == (1, True)
    await follower.close()
