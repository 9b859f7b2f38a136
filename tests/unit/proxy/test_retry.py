"""Which requests may be retried, and how often."""

import pytest

from iris_proxy.retry import Failure, RetryBudget, may_retry

FIRST = {"retries": 0, "has_body": False, "body_read": False, "fresh": False}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
def test_a_connection_that_was_never_made_is_tried_elsewhere_for_any_method(method: str):
    assert may_retry(Failure.NOT_CONNECTED, method, **FIRST)
    assert may_retry(Failure.NOT_CONNECTED, method, **{**FIRST, "has_body": True})
    assert not may_retry(Failure.NOT_CONNECTED, method, **{**FIRST, "has_body": True, "body_read": True})


def test_a_reused_connection_that_was_closed_is_tried_once_more_for_reads_without_a_body():
    again = {
        method: may_retry(Failure.REUSED_CLOSED, method, **FIRST) for method in ("GET", "HEAD", "OPTIONS", "TRACE")
    }
    assert set(again.values()) == {True}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert not may_retry(Failure.REUSED_CLOSED, method, **FIRST)
    assert not may_retry(Failure.REUSED_CLOSED, "GET", **{**FIRST, "has_body": True})
    assert not may_retry(Failure.REUSED_CLOSED, "GET", **{**FIRST, "retries": 1, "fresh": True})


def test_nothing_else_is_tried_again():
    assert not may_retry(Failure.BROKEN, "GET", **FIRST)


def test_a_request_is_sent_at_most_three_times():
    assert [may_retry(Failure.NOT_CONNECTED, "GET", **{**FIRST, "retries": n}) for n in range(4)] == [
        *(True, True),
        *(False, False),
    ]


def test_of_many_requests_a_tenth_is_sent_again_and_ten_more():
    budget, again = RetryBudget(), 0
    for _ in range(1000):
        budget.request()
        again += budget.take()
    assert 105 <= again <= 110
