"""`Client.map`: the payload of its tasks, and the error when a call returns no result."""

import base64
import os
import pickle
import subprocess
import sys
import traceback

import msgspec
import pytest

from iris.client.client import Client
from iris.client.mapping import COMMAND, Mapped, packed_call, read_outcome
from iris.client.problems import JobFailed, RemoteError
from tests.support.answers import Said, answering, events, job_view
from tests.support.fake_state import attempt_of

SCRIPT = """
from dataclasses import dataclass
from pathlib import Path

from iris.client.mapping import packed_call

@dataclass
class Pair:
    left: int

factor = 3
with packed_call(lambda pair: Pair(pair.left * factor), [Pair(1), Pair(2)], None) as packed:
    import os, shutil
    shutil.copytree(packed, os.environ["PACKED"])
"""


def printed_by(packed, index):
    """What one task of a map prints on stdout."""
    environ = {**os.environ, "IRIS_TASK_INDEX": str(index)}
    ran = subprocess.run([sys.executable, *COMMAND[1:]], cwd=packed, env=environ, capture_output=True, check=False)
    return ran.stdout.decode().split()


def outcome_of(packed, index):
    """What one task of a map prints, as the caller reads it."""
    lines = [line.removeprefix("iris-result:") for line in printed_by(packed, index) if line.startswith("iris-result:")]
    return pickle.loads(base64.b64decode("".join(lines[1:])))


def value_of(packed, index):
    return read_outcome(outcome_of(packed, index))


def a_map(printed, state="failed", **members):
    """A gateway with a map of so many tasks that has ended; ``printed`` by each."""
    lines = [
        (
            "log",
            {
                "task": f"/m/{index}",
                "index": index,
                "attempt": 0,
                "stream": "stdout",
                "at": None,
                "offset": n,
                "line": text,
            },
        )
        for index, texts in enumerate(printed)
        for n, text in enumerate(texts)
    ]

    def answer(request):
        if "/logs" in request.path:
            return Said(headers={"Content-Type": "text/event-stream"}, body=events(*lines, ("end", {"state": state})))
        return Said(200, job_view("/m", state, **members))

    return answer


def test_a_lambda_and_what_it_closes_over_travel_by_value():
    offset = 10
    with packed_call(lambda number: number + offset, [1, 2], None) as packed:
        assert [value_of(packed, 0), value_of(packed, 1)] == [11, 12]


def test_a_script_needs_no_guard_and_its_classes_travel_along(tmp_path):
    packed = tmp_path / "packed"
    subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "PACKED": str(packed)}, check=True)
    assert value_of(packed, 1).left == 6


def test_an_exception_comes_back_as_it_was_raised_with_its_traceback():
    def boom(_):
        return 1 / 0

    with packed_call(boom, [None], None) as packed, pytest.raises(ZeroDivisionError) as raised:
        value_of(packed, 0)
    shown = "".join(traceback.format_exception(raised.value))
    assert "in boom\n" in str(raised.value.__cause__)
    assert shown.startswith('iris.client.mapping.RemoteTraceback: \n"""\nTraceback (most recent call last):\n')


def test_an_exception_that_does_not_unpickle_ends_its_future_with_its_text():
    def raises(_):
        class Odd(Exception):
            """It is pickled with other arguments than its constructor takes."""

            def __init__(self, what, number):
                super().__init__(f"{what} {number}")

        raise Odd("the weight", 3)

    with packed_call(raises, [None], None) as packed:
        printed = printed_by(packed, 0)
    with answering(a_map([printed])) as server, Client(server.url) as client:
        (future,) = Mapped(client.job("/m"), 1)
        first = future.exception(20)
    assert type(first) is RemoteError
    assert "Odd: the weight 3 (it cannot be unpickled here: TypeError: " in str(first)
    assert "in raises\n" in str(first.__cause__)


@pytest.mark.parametrize("text", ["not a number", "1"])
def test_whatever_ends_the_reading_of_results_ends_every_future(text):
    with answering(a_map([[f"iris-result:{text}", "iris-result:!"]])) as server, Client(server.url) as client:
        errors = [type(future.exception(20)) for future in Mapped(client.job("/m"), 3)]
    assert errors in ([ValueError] * 3, [EOFError] * 3)


def test_a_future_of_a_map_is_not_cancelled_because_its_task_goes_on():
    with answering(a_map([], "succeeded")) as server, Client(server.url) as client:
        (future,) = Mapped(client.job("/m"), 1)
        assert (future.cancel(), future.cancelled()) == (False, False)
        assert str(future.exception(20)) == "/m/0 succeeded: its result was lost from its output"


def test_a_call_that_ended_without_a_result_says_what_ended_it():
    given = "Traceback ...\niris.client.problems.InvalidOption: the bundle is gone\n"
    attempt = msgspec.to_builtins(attempt_of(0, "failed")) | {"stderr_tail": given}
    task = {"task": "/m/0", "job": "/m", "index": 0, "state": "failed", "pending_reason": None, "worker": "w0"}
    task |= {"failure_count": 1, "preemption_count": 0, "attempts": [attempt]}

    def answer(request):
        if "/logs" in request.path:
            return Said(headers={"Content-Type": "text/event-stream"}, body=events(("end", {"state": "failed"})))
        if "/tasks/" in request.path:
            return Said(200, task)
        return Said(200, job_view("/m", "failed", error="task 0 failed: exit code 1"))

    with answering(answer) as server, Client(server.url) as client:
        (future,) = Mapped(client.job("/m"), 1)
        with pytest.raises(JobFailed, match="the bundle is gone"):
            future.result(20)
