"""Reads do not delay the writer: large listings do not stop a leader, and followers answer without
one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iris_bus.contract import Unavailable
from iris_bus.jetstream import JetStreamConnection
from iris_core import codec, subjects
from iris_core.messages.gateway_state import BEHIND, Answer, Caller, Query, SubmitJob
from iris_core.messages.processes import Ping
from iris_core.spec.jobs import JobSpec
from iris_core.views.queries import JobQuery, JobsQuery
from iris_gateway.http.position import Position
from iris_gateway.queries import Queries
from iris_state.service.service import StateService
from tests.support.replicas import Replicas, replicas
from tests.support.states import house

pytestmark = pytest.mark.integration

ANN = Caller("ann")
JOBS = 10_000
BOUND_S = 0.05
LARGEST = 4 << 20


@pytest.fixture
async def group(
    nats_url: str, connection: JetStreamConnection, tmp_path: Path
) -> AsyncIterator[Replicas]:
    async with replicas(nats_url, tmp_path, connection) as made:
        yield made


def listings() -> list[dict[str, object]]:
    """Two hundred different ones, most of which find little."""
    states = ("pending", "running", "killed", "failed")
    found: list[dict[str, object]] = [
        {"state": state, "user": user} for state in states for user in ("ann", "bob")
    ]
    found += [{"name_prefix": f"/p{number}"} for number in range(92)]
    found += [{"label": f"n={number}", "band": "interactive"} for number in range(100)]
    return found


def job(number: int) -> JobSpec:
    return JobSpec(
        name=f"/p{number % 92}-{number}", command=("true",), labels={"n": str(number % 100)}
    )


async def test_two_hundred_listings_of_ten_thousand_jobs_make_no_round_long():
    async with house() as made:
        state = made.start("one")
        await made.request(subjects.STATE_PING, None, Ping)
        for begin in range(0, JOBS, 500):
            await asyncio.gather(*(made.submit(job(n)) for n in range(begin, begin + 500)))
        before = rounds_over(state, BOUND_S)
        reading = asyncio.gather(
            *(made.ask(subjects.STATE_QUERY, "jobs", **each) for each in listings())
        )
        written = 0
        while not reading.done():
            assert (
                await made.submit(JobSpec(name=f"/meanwhile-{written}", command=("true",)))
            ).status == "created"
            written += 1
        assert {answer.status for answer in reading.result()} <= {
            "ok",
            "unavailable",
        }  # what had no time says so
        assert written > len(listings()) / 20
        assert rounds_over(state, BOUND_S) == before


def rounds_over(state: StateService, seconds: float) -> float:
    """How many rounds have taken longer."""
    buckets = {
        sample.labels["le"]: sample.value
        for family in state.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "iris_round_seconds_bucket"
    }
    return float(buckets["+Inf"] - buckets[str(seconds)])


async def fill(group: Replicas) -> None:
    """Have very many jobs admitted, and return when the last of them is."""
    for begin in range(0, JOBS, 500):
        asked = (
            group.ask(subjects.CMD_SUBMIT, SubmitJob(job(number), ANN, f"r{number}", 1))
            for number in range(begin, begin + 500)
        )
        await asyncio.gather(*asked)


async def test_two_hundred_listings_of_ten_thousand_jobs_depose_nobody(group: Replicas):
    await group.start()
    _, before = await group.leader()
    await fill(group)
    bus = group.connection.bus
    questions = [codec.pack(Query("jobs", each, ANN)) for each in listings()]
    reading = asyncio.gather(
        *(bus.request(subjects.STATE_QUERY, each, timeout=30) for each in questions)
    )
    written = itertools.count()
    while not reading.done():
        assert (await group.submit(f"/meanwhile-{next(written)}")).status == "created"
    assert {codec.unpack(each.data, Answer).status for each in reading.result()} <= {
        "ok",
        "unavailable",
    }
    _, after = await group.leader()
    assert (after.leader, after.epoch) == (before.leader, before.epoch)


async def test_sixty_large_jobs_are_listed_without_an_answer_no_server_takes(group: Replicas):
    await group.start()
    _, before = await group.leader()
    env = {f"V{number}": "x" * 1000 for number in range(240)}
    for number in range(60):
        spec = JobSpec(name=f"/large-{number}", command=("true",), env=env)
        await group.ask(subjects.CMD_SUBMIT, SubmitJob(spec, ANN, f"r{number}", 1))
    queries = Queries(group.connection.bus)
    page = await queries.ask(JobsQuery(limit=100), ANN)
    assert len(codec.from_json(page, dict)["items"]) == 60
    assert len(page) < LARGEST
    assert codec.from_json(await queries.ask(JobQuery("/large-0"), ANN), dict)["spec"]["env"] == env
    assert (await group.leader())[1].epoch == before.epoch


async def test_reads_go_on_without_the_leader_and_miss_nothing_written(group: Replicas):
    await group.start()
    _, before = await group.leader()
    await group.start()
    position = Position()
    queries = Queries(group.connection.bus, position)
    followed = asyncio.create_task(answered_by_follower(group))
    leader, _ = await group.leader()
    async with asyncio.timeout(60):
        await followed
    for number in itertools.count():
        if number == 10:
            leader.kill()
        written = await group.submit(f"/a{number}")
        assert written.status == "created"
        position.note(written.position)
        assert (
            codec.from_json(await queries.ask(JobQuery(f"/a{number}"), ANN), dict)["name"]
            == f"/a{number}"
        )
        if number > 10 and (await group.until(lambda pong: pong.ready)).epoch > before.epoch:
            break
    assert await group.names() == {f"/a{done}" for done in range(number + 1)}


async def answered_by_follower(group: Replicas) -> None:
    """Return once a replica that follows has answered."""
    question = codec.pack(Query("overview", {}, ANN))
    while True:
        try:
            answer = await group.connection.bus.request(subjects.STATE_READ, question, timeout=5)
        except Unavailable:
            await asyncio.sleep(0.02)
        else:
            status = codec.unpack(answer.data, Answer).status
            if status == "ok":
                return
            assert status in (BEHIND, "unavailable")  # it is not there yet, or has had no time
