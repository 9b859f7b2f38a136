"""The start of a command beside a task over HTTP: what a refusal says of whether it has begun."""

from __future__ import annotations

import httpx
import pytest

from iris_core import subjects
from tests.support.fake_state import attempt_of
from tests.support.gateway import House

PATH = "/v1/tasks/%2Fa%2F0/executions"


async def start(iris: House) -> httpx.Response:
    await iris.submit("/a")
    task = iris.state.tasks["/a/0"]
    task.state, task.worker, task.attempts = "running", "w0", [attempt_of(0)]
    return await iris.http.post(PATH, json={"command": ["true"]})


async def test_a_command_that_no_worker_was_asked_for_may_be_started_again(iris: House):
    refused = await start(iris)
    assert (refused.status_code, refused.json()["detail"]) == (503, "w0 is not connected")
    assert (refused.json()["retryable"], refused.headers["retry-after"]) == (True, "1")


async def test_a_command_that_a_silent_worker_may_have_started_may_not(iris: House, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("iris_gateway.api.work.executions._ANSWER_S", 0.1)
    await iris.memory.connect("w0").bus.subscribe(subjects.execution("w0"), lambda message: None)
    refused = await start(iris)
    assert (refused.status_code, refused.json()["detail"]) == (503, "w0 does not answer")
    assert (refused.json()["retryable"], "retry-after" in refused.headers) == (False, False)
