"""Which processes a gateway knows: those that answer, and for a while those that have stopped
answering.
"""

import asyncio
import time

import pytest

from iris_bus.contract import Message
from iris_core.codec import pack
from iris_core.messages.processes import ReplicaInfo, ServiceInfo
from iris_core.subjects import DESCRIBE
from iris_gateway.processes import FORGET_S, KnownProcess, Processes
from iris_gateway.service import read_keyring
from tests.support.gateway import House, house
from tests.support.memory import Memory

WALL_MS = 1_700_000_000_000
ADA, BO = "ada user " + "a" * 64 + "\n", "bo admin " + "b" * 64 + "\n"


def info(service: str, number: int) -> ServiceInfo:
    return ServiceInfo(service, f"{service}-{number}", "0.1.0", "host", number, number)


async def test_a_process_that_stops_answering_is_silent_and_then_forgotten():
    memory, now_s = Memory(), 1000.0
    asking, answering = memory.connect("gateway").bus, memory.connect("others").bus
    there = [info("state", 2), info("scheduler", 1), info("state", 1)]
    asked = 0

    def answer(message: Message) -> None:
        nonlocal asked
        asked += 1
        answering.publish(message.reply, b"rubbish")
        for one in there:
            answering.publish(message.reply, pack(one))

    await answering.subscribe(DESCRIBE, answer)
    processes = Processes(asking, lambda: now_s, lambda: WALL_MS, wait_s=0.02, last_answer_s=0.05)
    everybody = await processes.all()
    assert [one.info.id for one in everybody] == ["scheduler-1", "state-1", "state-2"]
    there.pop()
    assert await processes.all() == everybody
    assert asked == 1
    now_s += 5
    assert KnownProcess(info("state", 1), 5.0) in await processes.all()
    now_s += FORGET_S
    assert [one.info.id for one in await processes.all()] == ["scheduler-1", "state-2"]


async def test_a_leader_that_is_slow_to_answer_is_waited_for():
    memory = Memory()
    asking, answering = memory.connect("gateway").bus, memory.connect("others").bus
    leader = ServiceInfo("state", "s1", "0.1.0", "host", 1, 1, replica=ReplicaInfo(leads=True))

    def answer(message: Message) -> None:
        asyncio.get_running_loop().call_later(
            0.1, lambda: answering.publish(message.reply, pack(leader))
        )

    await answering.subscribe(DESCRIBE, answer)
    clock = asyncio.get_running_loop().time
    processes = Processes(asking, clock, lambda: WALL_MS, wait_s=0.01, last_answer_s=10.0)
    assert await processes.all() == [KnownProcess(leader)]


async def test_the_clock_and_the_certificates_of_a_process_are_shown(iris: House):
    bus = iris.memory.connect("gateway").bus
    expires = {"/etc/iris/gateway.pem": 1_800_000_000.0}

    def answer(message: Message) -> None:
        now_ms = time.time_ns() // 1_000_000 + 180_000
        told = ServiceInfo(
            "proxy", "p1", "0.1.0", "host-b", 9, 1000, now_ms=now_ms, certificates=expires
        )
        bus.publish(message.reply, pack(told))

    await bus.subscribe(DESCRIBE, answer)
    items = (await iris.http.get("/v1/processes")).json()["items"]
    [found] = [one for one in items if one["service"] == "proxy"]
    assert 170 < found["clock_ahead_s"] <= 180
    assert found["certificates"] == {"/etc/iris/gateway.pem": "2027-01-15T08:00:00Z"}


async def test_the_processes_are_listed_with_what_a_gateway_says_of_its_tokens(iris: House):
    bus = iris.memory.connect("gateway").bus
    told = ServiceInfo("gateway", "g1", "0.1.0", "host-b", 9, 1000, tokens="5e")
    await bus.subscribe(DESCRIBE, lambda message: bus.publish(message.reply, pack(told)))
    found = (await iris.http.get("/v1/processes")).json()["items"]
    assert [
        (one["service"], one["host"], one["pid"], one["silent_s"], one["tokens"]) for one in found
    ] == [
        ("gateway", "host-b", 9, 0.0, "5e"),
        ("state", "host-a", 7, 0.0, ""),
    ]


@pytest.mark.parametrize(("text", "same"), [(f"# all\n{BO}{ADA}", True), (ADA, False), ("", False)])
async def test_what_a_gateway_says_of_its_tokens_is_the_same_for_the_same_tokens(
    tmp_path, text: str, same: bool
):
    said = []
    for number, lines in enumerate((ADA + BO, text)):
        file = tmp_path / f"tokens{number}"
        file.write_text(lines)
        async with house(read_keyring(str(file)), token_file=str(file)) as made:
            said.append(made.gateway.digest_of_tokens())
    assert (said[0] == said[1]) is same
    assert not {"none", ""} & {*said}
