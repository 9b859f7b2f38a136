"""Prometheus queries of scaling rules: answers, errors and timeouts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from iris_core import codec
from iris_core.messages.proxy_state import LoadReport, QueriedLoad
from iris_core.subjects import LOADS
from iris_state.policy import Policy
from iris_state.replication.load_queries import ANSWER_BYTES, LoadQueries, value_of
from tests.support.answers import Answering, Asked, Said, answering
from tests.support.memory import Memory


def vector(*values: object) -> Said:
    results = [{"metric": {"n": str(n)}, "value": [1.5, value]} for n, value in enumerate(values)]
    return Said(200, {"status": "success", "data": {"resultType": "vector", "result": results}})


async def asked(policy: Policy, wanted: Mapping[str, str]) -> tuple[QueriedLoad, ...]:
    """What the leader reports first."""
    connection = Memory().connect()
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await connection.bus.subscribe(LOADS, lambda message: heard.put_nowait(message.data))
    queries = LoadQueries(connection.bus, policy, lambda: wanted)
    try:
        async with asyncio.timeout(60):
            report = codec.unpack(await heard.get(), LoadReport)
    finally:
        await queries.close()
        await connection.close()
    assert (report.proxy, report.loads) == ("", ())
    return report.queried


async def asked_of(answer: Answering, **wanted: str) -> tuple[QueriedLoad, ...]:
    with answering(answer) as prometheus:
        return await asked(Policy(prometheus=prometheus.url, prometheus_interval_s=0.1), wanted)


async def test_each_query_is_asked_as_it_is_and_its_value_reported():
    def answer(request: Asked) -> Said:
        url = urlsplit(request.path)
        assert url.path == "/api/v1/query"
        return vector({'sum(a{b="c d"})': "12.5", "e": "0"}[parse_qs(url.query)["query"][0]])

    found = await asked_of(answer, one='sum(a{b="c d"})', two="e")
    assert found == (QueriedLoad("one", 12.5), QueriedLoad("two", 0.0))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            Said(
                400, {"status": "error", "errorType": "bad_data", "error": "parse error at char 3"}
            ),
            "parse error at",
        ),
        (Said(503, b"<html>"), "Prometheus answered 503, which cannot be read"),
        (Said(302, {}, {"Location": "http://127.0.0.1:1/"}), "Prometheus answered 302"),
        (Said(200, {"data": {"resultType": "matrix", "result": []}}), "no scalar or vector"),
        (Said(200, b"x" * (ANSWER_BYTES + 1)), "too long"),
        (Said(hang_up=True), "disconnected"),
        (vector(), "the query has 0 results, not one"),
        (vector("1", "2"), "has 2 results, not one: aggregate them"),
        (vector("NaN"), "gives nan"),
        (vector("+Inf"), "gives inf"),
        (vector("-1"), "gives -1"),
    ],
)
async def test_what_is_not_one_value_is_an_error_that_says_so(said: Said, error: str):
    [found] = await asked_of(lambda _: said, chat="q")
    assert (found.deployment, found.value, error in found.error) == ("chat", 0.0, True), found


async def test_a_late_answer_is_an_error_and_the_next_query_is_sent():
    done = threading.Event()

    def never(_: Asked) -> Said:
        done.wait(20)
        return vector("1")

    with answering(never) as prometheus:
        policy = Policy(
            prometheus=prometheus.url, prometheus_interval_s=0.1, prometheus_timeout_s=0.05
        )
        [found] = await asked(policy, {"chat": "q"})
        done.set()
    assert found.error == "Prometheus did not answer within 0.05 s"


async def test_without_an_address_the_owner_is_told():
    [found] = await asked(Policy(prometheus_interval_s=0.1), {"chat": "q"})
    assert found.error == "[state] prometheus is not set"


async def test_nobody_listens_there():
    [found] = await asked(
        Policy(prometheus="http://127.0.0.1:1", prometheus_interval_s=0.1), {"chat": "q"}
    )
    assert "127.0.0.1:1" in found.error


def test_a_scalar_is_a_value_too():
    assert value_of(b'{"data": {"resultType": "scalar", "result": [1.5, "7"]}}', 200) == 7.0


@pytest.mark.parametrize("result", [b"7", b"[1.5]", b"null", b'[1.5, "many"]', b"[1.5, {}]"])
def test_rubbish_is_a_value_error(result: bytes):
    with pytest.raises(ValueError, match=r"cannot be read|could not convert"):
        value_of(b'{"data": {"resultType": "scalar", "result": %b}}' % result, 200)
    with pytest.raises(ValueError, match=r"cannot be read|could not convert"):
        value_of(b'{"data": {"resultType": "vector", "result": [%b]}}' % result, 200)
