"""The connection of the benchmarks: what a busy cluster does not answer is asked again, and nothing
else.
"""

from contextlib import closing

import pytest

from benchmarks.http import Gateway
from tests.support.answers import Said, answering, in_turn, problem

BUSY = problem(503, "unavailable", "the state service has not answered")


def test_an_unanswered_submission_is_repeated_with_its_key():
    ok = in_turn(BUSY, BUSY, Said(201, {"id": "/a"}))
    with answering(ok) as server, closing(Gateway(server.url)) as gateway:
        assert gateway.submit(key="a", name="/a") == "/a"
        assert [asked.headers["Idempotency-Key"] for asked in server.requests] == ["a"] * 3


@pytest.mark.parametrize(("key", "said"), [("", BUSY), ("a", problem(422, "invalid", "no"))])
def test_other_refusals_end_the_row(key, said):
    with answering(in_turn(said)) as server, closing(Gateway(server.url)) as gateway:
        with pytest.raises(RuntimeError, match=str(said.status)):
            gateway.submit(key=key, name="/a")
        assert len(server.requests) == 1
