"""Which failed requests are sent again, where, and how often."""

import pytest

from iris_proxy.routes.retry import Failure, Retry, RetryBudget, SentRequest, where_to_retry

ALL = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH")
SAFE, IDEMPOTENT = ALL[:4], ALL[:6]


def where(failure: Failure, method: str, **facts: object) -> Retry:
    return where_to_retry(failure, SentRequest(method, **facts))


@pytest.mark.parametrize("method", ALL)
def test_an_unopened_connection_is_tried_elsewhere_for_any_method(method: str):
    assert where(Failure.NOT_CONNECTED, method) is Retry.OTHER_ROUTE
    assert where(Failure.NOT_CONNECTED, method, has_body=True) is Retry.OTHER_ROUTE
    assert where(Failure.NOT_CONNECTED, method, has_body=True, body_read=True) is Retry.NOWHERE


def test_a_read_on_an_idle_connection_is_repeated_at_the_same_address():
    again = {method: where(Failure.REUSED_CLOSED, method) for method in ALL}
    assert again == {
        method: Retry.SAME_ROUTE if method in SAFE else Retry.NOWHERE for method in ALL
    }
    assert where(Failure.REUSED_CLOSED, "GET", has_body=True) is Retry.NOWHERE
    for failure in Failure:
        assert where(failure, "GET", retries=1, begun=True) is Retry.NOWHERE


@pytest.mark.parametrize("failure", [Failure.NEW_CLOSED, Failure.BROKEN])
def test_what_a_route_may_have_begun_goes_to_no_other_route(failure: Failure):
    assert {where(failure, method) for method in ALL} == {Retry.NOWHERE}


def test_idempotent_requests_without_a_body_go_to_another_route():
    begun = {"idempotent": True, "retries": 1, "begun": True}
    for failure in (Failure.NEW_CLOSED, Failure.REUSED_CLOSED, Failure.NOT_CONNECTED):
        again = {method: where(failure, method, **begun) for method in ALL}
        assert again == {
            method: Retry.OTHER_ROUTE if method in IDEMPOTENT else Retry.NOWHERE for method in ALL
        }
        assert where(failure, "PUT", **begun, has_body=True) is Retry.NOWHERE
    assert where(Failure.BROKEN, "GET", **begun) is Retry.NOWHERE
    assert where(Failure.REUSED_CLOSED, "GET", idempotent=True) is Retry.SAME_ROUTE


def test_a_request_is_sent_at_most_three_times():
    sent = [where(Failure.NOT_CONNECTED, "GET", retries=n) for n in range(4)]
    assert sent == [Retry.OTHER_ROUTE, Retry.OTHER_ROUTE, Retry.NOWHERE, Retry.NOWHERE]


def test_of_many_requests_a_tenth_is_sent_again_and_ten_more():
    budget, again = RetryBudget(), 0
    for _ in range(1000):
        budget.request()
        again += budget.take()
    assert 105 <= again <= 110
