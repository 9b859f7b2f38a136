"""The rate limit of requests for each user."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_gateway.http.problem import ProblemResponse
from iris_gateway.http.rate_limit import RateLimiter
from tests.support.gateway import house


def admitted(pace: RateLimiter, user: str, at_s: float) -> bool:
    try:
        pace.admit(user, at_s)
    except ProblemResponse:
        return False
    return True


def test_a_burst_is_let_through_and_then_the_pace_is_kept():
    pace = RateLimiter(per_s=2, burst=3)
    assert [admitted(pace, "ada", 0.0) for _ in range(4)] == [True, True, True, False]
    assert [admitted(pace, "ada", at) for at in (0.4, 0.5, 0.6, 1.0)] == [False, True, False, True]


def test_one_users_haste_does_not_slow_another():
    pace = RateLimiter(per_s=1, burst=1)
    assert [admitted(pace, user, 0.0) for user in ("ada", "ada", "bob")] == [True, False, True]


def test_no_limit_is_the_default():
    assert all(admitted(RateLimiter(), "ada", 0.0) for _ in range(1000))


@given(st.lists(st.floats(0, 5), max_size=60))
def test_never_more_than_the_burst_and_the_pace_together(gaps: list[float]):
    pace, now, passed = RateLimiter(per_s=2, burst=5), 0.0, 0
    for gap in gaps:
        now += gap
        passed += admitted(pace, "ada", now)
        assert passed <= 5 + 2 * now + 1e-6


async def test_who_is_too_hasty_is_told_when_to_come_back():
    async with house(requests_per_s=0.01, request_burst=2) as iris:
        answers = [await iris.http.get("/v1/jobs") for _ in range(3)]
        probe = await iris.http.get("/healthz")
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 30 < int(answers[2].headers["retry-after"]) <= 100
    assert probe.status_code == 200


def test_the_wait_is_never_shorter_than_a_second():
    pace = RateLimiter(per_s=1000, burst=1)
    pace.admit("ada", 0.0)
    with pytest.raises(ProblemResponse) as raised:
        pace.admit("ada", 0.0)
    assert raised.value.headers["retry-after"] == "1"


async def test_who_has_sent_too_many_bytes_waits_and_reads_on():
    async with house(intake_per_s=100, intake_burst=1000) as iris:
        big = await iris.submit("/a", env={"A": "x" * 5000})
        more, read = await iris.submit("/b"), await iris.http.get("/v1/jobs")
        other = await iris.http.post(
            "/v1/jobs", json={"name": "/c", "command": ["true"]}, headers={"X-Iris-User": "b"}
        )
    assert [answer.status_code for answer in (big, more, read, other)] == [201, 429, 200, 201]
    assert int(more.headers["retry-after"]) > 30
