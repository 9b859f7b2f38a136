"""Routing of reads: to a follower that is recent enough, else to the leader; answers state their
position.
"""

import asyncio

import pytest

from iris_core.codec import pack, to_json, unpack
from iris_core.messages.gateway_state import BEHIND, Answer, Query
from iris_core.subjects import STATE_READ
from iris_gateway.http.problem import ProblemResponse
from tests.support.gateway import House
from tests.support.rounds import rounds_until

FOLLOWER_S = 1.0
"""For how long a gateway waits for a follower."""


class Follower:
    """A replica that follows, as far as a test says, and answers when it says."""

    def __init__(self, iris: House, position: int) -> None:
        self.bus = iris.memory.connect().bus
        self.position = position
        self.asked: list[Query] = []
        self.held: list[tuple[str, bytes]] | None = None

    async def listen(self) -> None:
        await self.bus.subscribe(STATE_READ, self.on_read, queue="followers")

    def on_read(self, message) -> None:
        query = unpack(message.data, Query)
        self.asked.append(query)
        known = query.at_least <= self.position
        answer = (
            Answer("ok", to_json({"by": "follower"}), self.position) if known else Answer(BEHIND)
        )
        if self.held is not None:
            self.held.append((message.reply, pack(answer)))
        else:
            self.bus.publish(message.reply, pack(answer))

    def release(self) -> None:
        held, self.held = self.held, None
        for reply, data in held:
            self.bus.publish(reply, data)


@pytest.fixture
async def follower(iris: House) -> Follower:
    made = Follower(iris, 10)
    await made.listen()
    return made


async def test_a_follower_is_asked_before_the_leader_and_tells_its_position(
    iris: House, follower: Follower
):
    response = await iris.http.get("/v1/overview")
    assert (response.json(), response.headers["iris-position"]) == ({"by": "follower"}, "10")
    assert iris.state.queries == []


async def test_a_read_after_a_write_sees_the_write(iris: House, follower: Follower):
    iris.state.scripted["SubmitJob"] = Answer("created", to_json({"id": "j1"}), 9)
    written = await iris.submit("/a")
    await iris.http.get("/v1/overview")
    assert (written.headers["iris-position"], follower.asked[-1].at_least) == ("9", 9)


async def test_the_leader_answers_what_a_follower_does_not_know_yet(
    iris: House, follower: Follower
):
    iris.state.scripted["overview"] = Answer("ok", to_json({"by": "leader"}), 12)
    response = await iris.http.get("/v1/overview", headers={"Iris-Position": "12"})
    assert (follower.asked[-1].at_least, response.json()) == (12, {"by": "leader"})
    assert response.headers["iris-position"] == "12"


async def test_what_one_caller_claims_to_know_is_not_asked_of_others(
    iris: House, follower: Follower
):
    for claimed in ("999999999999999999", "9" * 40, "-1", "x"):
        await iris.http.get("/v1/overview", headers={"Iris-Position": claimed})
    response = await iris.http.get("/v1/overview")
    assert (follower.asked[-1].at_least, response.json()) == (0, {"by": "follower"})


async def test_an_event_that_was_told_is_known_to_reads_behind_it(iris: House, follower: Follower):
    told = await iris.state.streams.publish(
        "job.state.running", b"{}", headers={"Nats-Msg-Id": "8.0"}
    )
    await rounds_until(lambda: iris.gateway.feed.newest == told)
    await iris.http.get("/v1/overview")
    assert follower.asked[-1].at_least == 8


async def test_a_follower_that_hangs_is_not_waited_for_twice(iris: House):
    asked = []
    await iris.memory.connect().bus.subscribe(STATE_READ, asked.append, queue="followers")
    for _ in range(2):
        assert (await iris.http.get("/v1/overview")).status_code == 200
    assert len(asked) == 1


async def test_who_hears_everything_and_answers_nothing_delays_one_read_only(iris: House):
    asked, clock = [], asyncio.get_running_loop().time
    await iris.memory.connect().bus.subscribe(">", asked.append)
    await iris.http.get("/v1/overview")

    async def looked_s() -> float:
        """How long a read takes that looks for a follower."""
        before = sum(message.subject == STATE_READ for message in asked)
        while True:
            began_s = clock()
            assert (await iris.http.get("/v1/overview")).status_code == 200
            if sum(message.subject == STATE_READ for message in asked) > before:
                return clock() - began_s

    for _ in range(5):  # a busy machine may delay some of them
        if await looked_s() < FOLLOWER_S:
            return
    raise AssertionError("each read that looks for a follower waits for it")


async def test_a_slow_follower_is_waited_for_and_the_leader_is_left_alone(
    iris: House, follower: Follower
):
    await iris.http.get("/v1/overview")
    follower.held = []
    asyncio.get_running_loop().call_later(1.2, follower.release)
    answers = await asyncio.gather(
        *(iris.http.get("/v1/overview", headers={"Iris-Position": f"{n}"}) for n in range(8))
    )
    assert [response.json() for response in answers] == [{"by": "follower"}] * 8
    assert iris.state.queries == []


async def test_a_late_answer_of_a_follower_brings_reads_back_to_it(iris: House, follower: Follower):
    follower.held = []
    assert (await iris.http.get("/v1/overview")).json() != {"by": "follower"}
    follower.release()
    for _ in range(3):
        response = await iris.http.get("/v1/overview")
    assert response.json() == {"by": "follower"}


async def test_nobody_at_all_is_said_to_be_unavailable(impatient: House):
    await impatient.state.stop()
    response = await impatient.http.get("/v1/overview")
    assert (response.status_code, "iris-position" in response.headers) == (503, False)
    assert (
        ProblemResponse("unavailable", "").headers["retry-after"] == response.headers["retry-after"]
    )


async def test_the_home_page_asks_for_its_views_at_the_same_time(iris: House, follower: Follower):
    follower.held = []
    page = asyncio.create_task(iris.http.get("/"))
    await rounds_until(lambda: len(follower.asked) == 13)
    page.cancel()
