"""What `results` of a map returns and raises, before any result comes from a cluster."""

import base64
import gc
import pickle
import threading
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from iris.client.client import Client
from iris.client.maps import call_runner, outcomes
from iris.client.maps.future import CallFuture
from iris.client.maps.mapping import Mapped
from iris.client.maps.open_map import OpenMap
from iris.client.maps.outcomes import payload_of
from iris.client.problems import (
    ClientError,
    Conflict,
    Document,
    JobEnded,
    TryAgain,
    Unreachable,
    job_ended,
)
from iris_core.codec import to_json
from iris_core.spec.calls import Calls
from iris_core.views.streams import CallResultView, ResultsView


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


def test_ctrl_c_says_that_the_map_goes_on_and_how_to_come_back(monkeypatch):
    """A traceback of KeyboardInterrupt alone looks as if the calls had ended with the program."""

    def interrupt(*_):
        raise KeyboardInterrupt

    calls = mapped(2)
    calls._job = SimpleNamespace(id="j7", name="/m")
    monkeypatch.setattr(calls._arrival, "wait_for", interrupt)

    with pytest.raises(KeyboardInterrupt) as stopped:
        calls.results()
    assert stopped.value.__notes__ == ["/m goes on: client.map_of('j7'), or iris cancel j7"]


@pytest.mark.parametrize("order", ["items", "done"])
def test_a_map_that_returns_exceptions_raises_none_of_them(order):
    calls = mapped(2, order=order, return_exceptions=True)
    error = KeyError("gone")
    calls.futures[1].set_exception(error)

    with pytest.raises(TimeoutError, match="1 of 2 calls"):
        calls.results(timeout=0)
    calls.futures[0].set_result("a")
    assert calls.results() == (["a", error] if order == "items" else [error, "a"])


@pytest.mark.parametrize(
    ("state", "exit_code", "waits", "lost"),
    [
        ("failed", None, "_LOOK_S", False),
        ("failed", None, "_STORED_S", True),
        ("failed", 1, "_STORED_S", False),
        ("failed", 1, "_LOOK_S", True),
        ("killed", None, "_LOOK_S", True),
    ],
)
def test_what_a_call_raised_may_come_long_after_the_record_of_its_end(
    monkeypatch, state, exit_code, waits, lost
):
    """Two looks that follow each other find the record, and no result. The longer one of two waits
    is for what was stored before its end was reported.
    """
    for name in ("_LOOK_S", "_STORED_S"):
        monkeypatch.setattr(f"iris.client.maps.mapping.{name}", 1000.0 if name == waits else 0.0)
    monkeypatch.setattr("iris.client.maps.mapping.ending_of", lambda *_: ClientError("lost"))
    calls = mapped(1)
    attempt = SimpleNamespace(number=0, exit_code=exit_code, signal=None)
    task = SimpleNamespace(index=0, task="/m/0", state=state, attempts=(attempt,))
    view = SimpleNamespace(
        spec=SimpleNamespace(calls=SimpleNamespace(count=1)), open=False, task_counts={state: 1}
    )
    calls._job = SimpleNamespace(refresh=lambda: view, tasks=lambda state="": [task])
    calls._look()
    assert not calls[0].done()
    calls._look()
    assert calls[0].done() == lost


def test_a_call_whose_large_exception_is_being_fetched_is_not_lost(monkeypatch):
    monkeypatch.setattr("iris.client.maps.mapping._STORED_S", 0.0)
    calls = mapped(1)
    attempt = SimpleNamespace(number=0, exit_code=1, signal=None)
    task = SimpleNamespace(index=0, task="/m/0", state="failed", attempts=(attempt,))
    view = SimpleNamespace(
        spec=SimpleNamespace(calls=SimpleNamespace(count=1)), open=False, task_counts={"failed": 1}
    )
    calls._job = SimpleNamespace(
        id="j1", name="/m", refresh=lambda: view, tasks=lambda state="": [task]
    )
    how = {"cause": "exited", "exit_code": 1, "signal": None, "stored": True}
    large = CallResultView(index=0, attempt=0, kind="error", data="", **how)
    calls._api = SimpleNamespace(
        stream=lambda *_: nullcontext([SimpleNamespace(data=to_json(ResultsView([large])))])
    )

    def fetch(*_):
        for _ in range(3):
            calls._look()
        return pickle.dumps("a")

    monkeypatch.setattr("iris.client.maps.mapping.payload_of", fetch)
    monkeypatch.setattr(
        "iris.client.maps.mapping.outcomes_of", lambda *_: [(None, ValueError("large"))]
    )
    calls._collect()
    with pytest.raises(ValueError, match="large"):
        calls[0].result(0)


def test_the_end_of_a_call_that_others_have_added_is_looked_at_later():
    """The job cannot be read now; that is no reason to give the others up."""

    def refresh():
        raise ClientError("nobody answers")

    how = {"cause": "exited", "exit_code": 0, "signal": None, "stored": False}
    value = base64.b64encode(pickle.dumps("a")).decode()
    first = CallResultView(index=0, attempt=0, kind="value", data=value, **how)
    told = [ResultsView([], ended=(5,)), ResultsView([first])]
    calls = mapped(1)
    calls._job = SimpleNamespace(id="j1", name="/m", refresh=refresh)
    events = [SimpleNamespace(data=to_json(one)) for one in told]
    calls._api = SimpleNamespace(stream=lambda *_: nullcontext(events))
    calls._collect()
    assert calls[0].result(0) == "a"


def test_calls_that_two_threads_learn_of_at_a_time_are_adopted_once():
    class Added:
        @property
        def count(self) -> int:
            if len(views) > 1:  # the other thread reads the job, and is first
                views.pop()
                calls._learn()
            return 2

    views = [None, None]
    calls = mapped(1)
    calls._job = SimpleNamespace(
        refresh=lambda: SimpleNamespace(spec=SimpleNamespace(calls=Added()), open=True)
    )
    calls._learn()
    assert len(calls) == 2


def killed() -> JobEnded:
    """What a call raises whose task was killed."""
    return job_ended({"name": "/m/0", "state": "killed", "error": "cancelled"})


def test_a_call_whose_kill_is_heard_before_its_answer_is_cancelled():
    calls = mapped(1)
    calls._job = SimpleNamespace(id="j1", name="/m")
    calls._api = SimpleNamespace(cancel=lambda name: calls._fail(calls.futures, killed()))

    assert calls[0].cancel()
    assert calls[0].cancelled()


def test_a_call_that_is_submitted_while_it_is_cancelled_is_killed():
    asked = []
    calls = mapped(1)
    calls._job = SimpleNamespace(id="j1", name="/m")
    calls._api = SimpleNamespace(cancel=asked.append)

    class Submitted(CallFuture):
        """The answer to its submission comes when `cancel` has seen that there was none."""

        seen = 0

        @property
        def _mapped(self):
            self.seen += 1
            return calls if self.seen > 1 else None

    future = Submitted()
    future.index = 0
    assert future.cancel()
    assert asked == ["j1/0"]


def test_two_that_cancel_a_call_at_a_time_both_hear_that_it_is():
    """The second asks while the first waits for its answer."""
    answers = []

    def cancel(name):
        if not answers:
            answers.append(None)
            answers.append(calls[0].cancel())

    calls = mapped(1)
    calls._job, calls._api = SimpleNamespace(id="j1", name="/m"), SimpleNamespace(cancel=cancel)

    assert calls[0].cancel()
    assert answers == [None, True]


def test_a_kill_that_comes_second_does_not_take_back_the_first():
    """The second hears that the call has ended, which the first has done but not heard yet."""
    seconds = []

    def cancel(name):
        if seconds:
            raise Conflict(409, Document(title="it has ended"))
        seconds.append(None)
        seconds.append(calls[0].cancel())
        calls._fail(calls.futures, killed())

    calls = mapped(1)
    calls._job, calls._api = SimpleNamespace(id="j1", name="/m"), SimpleNamespace(cancel=cancel)

    assert calls[0].cancel()
    assert (seconds, calls[0].cancelled()) == ([None, False], True)


def test_a_call_that_ends_while_it_is_cancelled_is_not():
    def refuse(name):
        calls[0].settle(7, None)
        raise Conflict(409, Document(title="it has ended"))

    calls = mapped(1)
    calls._job, calls._api = SimpleNamespace(id="j1", name="/m"), SimpleNamespace(cancel=refuse)

    assert not calls[0].cancel()
    assert calls[0].result(0) == 7


def test_an_open_map_that_is_closed_while_it_adds_has_each_call_once():
    """Its process ends; a reader of its results hears of the added call before the answer to the
    request is here.
    """
    closers, view = (
        [],
        SimpleNamespace(spec=SimpleNamespace(calls=SimpleNamespace(count=2)), open=False),
    )

    def post(path, kind, body=None):
        closers.append(threading.Thread(target=opened.close))
        closers[0].start()
        is_closed.wait(10)
        closers[0].join(0.5)
        calls._learn()

    calls = mapped(1)
    calls._job = SimpleNamespace(
        id="j1",
        name="/m",
        refresh=lambda: view,
        view=SimpleNamespace(
            spec=SimpleNamespace(calls=SimpleNamespace(count=1, chunksize=1, idle_s=1.0))
        ),
    )
    calls._fed = calls._open = True
    is_closed = threading.Event()
    client = SimpleNamespace(
        post=post,
        close_map=lambda job, reason: is_closed.set(),
        transport=SimpleNamespace(send=lambda request: None),
    )
    opened = OpenMap(client, calls)
    opened.add([b"x"], [CallFuture()])
    closers[0].join(10)

    assert (len(calls), calls.is_open) == (2, False)


def test_an_open_map_that_two_threads_close_is_closed_once():
    """The end of a process and the end of its executor may come at the same time."""
    asked = []
    calls = mapped(1)
    calls._job = SimpleNamespace(
        id="j1",
        name="/m",
        view=SimpleNamespace(
            spec=SimpleNamespace(calls=SimpleNamespace(count=1, chunksize=1, idle_s=1.0))
        ),
    )
    calls._fed = calls._open = True
    opened = OpenMap(SimpleNamespace(close_map=lambda job, reason: asked.append(reason)), calls)

    class Closed(threading.Event):
        """Another thread closes the map between the look at this and the next step."""

        def is_set(self):
            opened._closed = threading.Event()
            other = threading.Thread(target=opened.close, args=("other",))
            other.start()
            other.join(10)
            return False

        def set(self):
            self.is_set()

    opened._closed = Closed()
    opened.close("first")
    assert len(asked) == 1


def test_a_large_result_is_fetched_again_when_its_gateway_restarts(monkeypatch, tmp_path):
    monkeypatch.setattr(outcomes, "_RETRY_S", 0.0)
    answers = [
        Unreachable("reset by peer"),
        TryAgain(503, Document()),
        Conflict(409, Document()),
        b"large",
    ]
    seen = []

    def fetch(task, directory, attempt):
        seen.append(directory)
        answer = answers.pop(0)
        (Path(directory) / call_runner.LARGE_NAME).write_bytes(b"larg")
        if not isinstance(answer, bytes):
            raise answer
        (Path(directory) / call_runner.LARGE_NAME).write_bytes(answer)

    api = SimpleNamespace(fetch=fetch, transport=SimpleNamespace(current_timeout_s=60.0))
    result = CallResultView(
        index=0,
        attempt=0,
        kind="value",
        data="",
        cause="exited",
        exit_code=0,
        signal=None,
        stored=True,
    )
    assert payload_of(api, "j1", result) == b"large"
    assert len(set(seen)) == 4
    api.transport.current_timeout_s = -1.0
    answers.append(Unreachable("refused"))
    with pytest.raises(Unreachable):
        payload_of(api, "j1", result)


@pytest.mark.parametrize(
    "away",
    [
        Unreachable("the gateway does not answer"),
        TryAgain(503, Document(detail="there is no leader")),
    ],
)
def test_calls_whose_gateway_is_away_say_how_to_come_back(away):
    def refuse(*_):
        raise away

    calls = mapped(2)
    calls._job = SimpleNamespace(id="j7", name="/m")
    calls._api = SimpleNamespace(stream=refuse)
    calls._collect()
    for future in calls.futures:
        with pytest.raises(type(away)) as raised:
            future.result(0)
        assert (
            str(raised.value)
            == f"{away}; /m goes on: `client.map_of('j7')` resumes it, `iris wait j7` waits for it"
        )
        assert raised.value.__cause__ is away
