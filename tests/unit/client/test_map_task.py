"""`Client.map`: the payload of its tasks, and the error when a call returns no result."""

import base64
import os
import pickle
import subprocess
import sys

import msgspec
import pytest

from iris.client.client import Client
from iris.client.mapping import COMMAND, Mapped, packed_call
from iris.client.problems import JobFailed
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


def outcome_of(packed, index):
    """What one task of a map prints, as the caller reads it."""
    environ = {**os.environ, "IRIS_TASK_INDEX": str(index)}
    ran = subprocess.run([sys.executable, *COMMAND[1:]], cwd=packed, env=environ, capture_output=True, check=False)
    lines = [
        line.removeprefix("iris-result:") for line in ran.stdout.decode().split() if line.startswith("iris-result:")
    ]
    return pickle.loads(base64.b64decode("".join(lines[1:])))


def test_a_lambda_and_what_it_closes_over_travel_by_value():
    offset = 10
    with packed_call(lambda number: number + offset, [1, 2], None) as packed:
        assert [outcome_of(packed, 0), outcome_of(packed, 1)] == [("value", 11), ("value", 12)]


def test_a_script_needs_no_guard_and_its_classes_travel_along(tmp_path):
    packed = tmp_path / "packed"
    subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "PACKED": str(packed)}, check=True)
    kind, pair = outcome_of(packed, 1)
    assert (kind, pair.left) == ("value", 6)


def test_an_exception_comes_back_as_it_was_raised():
    with packed_call(lambda _: 1 / 0, [None], None) as packed:
        kind, error = outcome_of(packed, 0)
    assert (kind, type(error)) == ("error", ZeroDivisionError)


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
