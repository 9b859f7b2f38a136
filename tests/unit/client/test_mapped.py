"""The task's side of `Client.map`: what its script may not do while it is only read for what it defines."""

import sys

import msgspec
import pytest

from iris_gateway.client.client import Client
from iris_gateway.client.mapped import MAIN, load_main, refuse_while_loading
from iris_gateway.client.mapping import Mapped
from iris_gateway.client.problems import BadAsk, JobFailed
from tests.support.answers import Said, answering, events, job_view
from tests.support.fake_state import attempt_of

UNGUARDED = """
from iris import Client

def double(number):
    return 2 * number

CALL
"""
CLIENT = 'Client("http://127.0.0.1:1")'


@pytest.fixture(autouse=True)
def inside_a_task(monkeypatch, tmp_path):
    monkeypatch.setenv("IRIS_JOB", "/mapping")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", None)


@pytest.mark.parametrize("call", [f"{CLIENT}.map(double, [1, 2, 3])", f"{CLIENT}.run(['true'])"])
def test_a_script_without_a_guard_does_not_submit_itself_again(tmp_path, call):
    (tmp_path / MAIN).write_text(UNGUARDED.replace("CALL", call))
    with pytest.raises(BadAsk, match="__name__"):
        load_main()


def test_the_function_itself_may_submit_jobs(tmp_path):
    (tmp_path / MAIN).write_text(UNGUARDED.replace("CALL", ""))
    load_main()
    refuse_while_loading()


def test_a_call_that_ended_without_a_result_says_what_ended_it():
    said = "Traceback ...\niris_gateway.client.problems.BadAsk: a script that maps needs a guard\n"
    attempt = msgspec.to_builtins(attempt_of(0, "failed")) | {"stderr_tail": said}
    task = {"task": "/m/0", "job": "/m", "index": 0, "state": "failed", "pending_reason": None, "worker": "w0"}
    task |= {"failure_count": 1, "preemption_count": 0, "attempts": [attempt]}

    def answer(asked):
        if "/logs" in asked.path:
            return Said(headers={"Content-Type": "text/event-stream"}, body=events(("end", {"state": "failed"})))
        if "/tasks/" in asked.path:
            return Said(200, task)
        return Said(200, job_view("/m", "failed", error="task 0 failed: exit code 1"))

    with answering(answer) as server, Client(server.url) as client:
        (future,) = Mapped(client.job("/m"), 1)
        with pytest.raises(JobFailed, match="a script that maps needs a guard"):
            future.result(20)
