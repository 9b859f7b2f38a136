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


async def test_a_command_that_a_silent_worker_may_have_started_may_not(
    iris: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("iris_gateway.api.work.executions._ANSWER_S", 0.1)
    await iris.memory.connect("w0").bus.subscribe(subjects.execution("w0"), lambda message: None)
    refused = await start(iris)
    assert (refused.status_code, refused.json()["detail"]) == (503, "w0 does not answer")
    assert (refused.json()["retryable"], "retry-after" in refused.headers) == (False, False)


@pytest.mark.parametrize(
    ("worker", "status"), [("w" * 5000, 404), ("w%0A", 404), ("%F0%9F%92%A9" * 250, 503)]
)
async def test_an_execution_of_a_long_name_ends_no_connection(
    iris: House, worker: str, status: int
):
    """Its worker is part of a subject, and NATS ends the connection of who sends one that is too
    long.
    """
    answer = await iris.http.post(f"/v1/executions/x.{worker}", json={})
    assert answer.status_code == status
