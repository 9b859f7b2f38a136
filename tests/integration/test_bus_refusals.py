"""Errors of the bus when a stream is full, a permission is missing, or another writer holds the
journal.
"""

import asyncio
import json

import pytest

from iris_bus.contract import Full, Unavailable
from iris_bus.jetstream import connect
from iris_core.subjects import STORES, STREAMS
from tests.support.nats_config import configured_nats

pytestmark = pytest.mark.integration


async def shrink(connection, stream: str, max_bytes: int) -> None:
    config = (await connection._api.info(stream)).config
    await connection._api.call(f"STREAM.UPDATE.{stream}", {**config, "max_bytes": max_bytes}, dict)


async def test_a_journal_at_its_limit_refuses_and_stores_nothing(connection):
    journal = connection.journal()
    await journal.append(b"1", expected=0)
    await shrink(connection, "IRIS_JOURNAL", 1000)
    with pytest.raises(Full):
        await journal.append(b"x" * 2000, expected=1)
    assert await journal.append(b"2", expected=1) == 2


async def test_declaring_again_puts_a_changed_stream_right(connection):
    await shrink(connection, "IRIS_LOGS", 1000)
    await connection.streams.ensure()
    assert (await connection._api.info("IRIS_LOGS")).config["max_bytes"] == 8 << 30


async def test_no_stream_is_compressed_and_one_that_was_is_so_no_longer(connection):
    config = (await connection._api.info("IRIS_LOGS")).config
    await connection._api.change("STREAM.UPDATE.IRIS_LOGS", {**config, "compression": "s2"})
    await connection.streams.ensure()
    names = [*(stream.name for stream in STREAMS), *STORES[len(STREAMS) :]]
    configs = [(await connection._api.info(name)).config for name in names]
    assert {config["compression"] for config in configs} == {"none"}


async def test_a_message_no_server_would_take_is_refused_here(connection):
    with pytest.raises(ValueError, match="more than one message may hold"):
        connection.bus.publish("iris.a", b"x" * (9 << 20))


async def test_a_wrong_password_is_said_at_once(nats_server):
    wrong = nats_server.url.replace(":iris@", ":wrong@")
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable, match=r"(?i)authorization violation"):
            await connect(wrong, name="test", retry_for_s=60)


async def test_servers_that_have_no_leader_yet_are_asked_again(tmp_path):
    no_leader = {
        "code": 503,
        "err_code": 10008,
        "description": "JetStream system temporarily unavailable",
    }
    answers = [{"error": no_leader}, {"error": no_leader}, {"state": {"last_seq": 7}}]
    async with configured_nats(tmp_path / "nats", "jetstream: disabled") as server:
        connection = await connect(server.url, name="test")

        def answer(message):
            connection.bus.publish(message.reply, json.dumps(answers.pop(0)).encode())

        await connection.bus.subscribe("$JS.API.STREAM.INFO.IRIS_EVENTS", answer)
        with pytest.raises(Unavailable, match="10008"):
            await connection._api.info("IRIS_EVENTS")
        assert await connection.streams.end("IRIS_EVENTS") == 7
        await connection.close()


async def test_a_connection_that_closes_unasked_is_lost_for_good(nats_server):
    lost: list[Exception] = []
    connection = await connect(nats_server.url, name="test", on_lost=lost.append)
    await connection._link.client.close()
    with pytest.raises(Unavailable):
        connection.bus.publish("iris.a", b"")
    await connection.close()
    assert [type(error) for error in lost] == [Unavailable]
