"""What `results` of a map returns and raises, before any result comes from a cluster."""

import gc
import weakref

import pytest

from iris.client.client import Client
from iris.client.mapping import CallFuture, Mapped
from iris_core.spec import Calls


def mapped(count: int, **shown) -> Mapped:
    """A map that nothing follows: its futures are set by the test."""
    calls = Calls(runner="r", function="f", segments=(), firsts=(), count=count)
    return Mapped(None, Client("http://127.0.0.1:1"), calls, **shown)


@pytest.mark.parametrize("order", ["items", "done"])
def test_a_failed_call_is_raised_while_earlier_ones_run(order):
    calls = mapped(4, order=order)
    calls.futures[3].set_result(3)
    calls.futures[2].set_exception(KeyError("gone"))

    for timeout in (0, 5, None):
        with pytest.raises(KeyError, match="gone"):
            calls.results(timeout)


def test_of_two_failed_calls_the_first_in_the_order_of_iteration_is_raised():
    for order, first in (("items", "one"), ("done", "two")):
        calls = mapped(3, order=order)
        calls.futures[2].set_exception(ValueError("two"))
        calls.futures[1].set_exception(ValueError("one"))

        with pytest.raises(ValueError, match=first):
            calls.results()


def test_futures_that_their_owner_drops_are_not_kept():
    futures = [CallFuture(), CallFuture()]
    calls = mapped(2, futures=futures)
    futures[1].set_result("large")
    dropped = weakref.ref(futures.pop())
    gc.collect()

    assert dropped() is None
    with pytest.raises(TimeoutError, match="1 of 2"):
        calls.results(0)


@pytest.mark.parametrize("order", ["items", "done"])
def test_a_timeout_says_how_many_calls_have_not_ended(order):
    calls = mapped(3, order=order)
    calls.futures[0].set_result("a")

    with pytest.raises(TimeoutError, match="2 of 3 calls have not ended"):
        calls.results(timeout=0)


@pytest.mark.parametrize("order", ["items", "done"])
def test_a_map_that_returns_exceptions_raises_none_of_them(order):
    calls = mapped(2, order=order, return_exceptions=True)
    error = KeyError("gone")
    calls.futures[1].set_exception(error)

    with pytest.raises(TimeoutError, match="1 of 2 calls"):
        calls.results(timeout=0)
    calls.futures[0].set_result("a")
    assert calls.results() == (["a", error] if order == "items" else [error, "a"])
