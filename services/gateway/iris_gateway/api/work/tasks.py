"""Endpoints of tasks: list, show, attempts, and the reasons why they are pending."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from iris_core.views.jobs import ArtifactView, AttemptPage, JobView, TaskView
from iris_core.views.queries import AttemptsQuery, TaskQuery, TasksQuery, WhyQuery
from iris_gateway.api.handling import listing, page_of, view
from iris_gateway.api.work.jobs import CancelBody, RequeueBody, cancel_by_api, requeue_by_api
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint
from iris_gateway.http.parameters import task_reference


class AttemptRecord(msgspec.Struct):
    """What is asked of an attempt here."""

    number: int
    worker: str
    open: bool
    artifact: ArtifactView | None = None
    output_bytes: int = 0


class _AttemptsPage(msgspec.Struct):
    items: list[AttemptRecord]


class TaskRecord(msgspec.Struct):
    """What is asked of a task before something of it is read or done: its record, and who owns
    that.
    """

    id: str
    task: str
    job: str
    user: str
    state: str
    worker: str | None
    attempts: list[AttemptRecord]
    output_evicted_bytes: int = 0

    @property
    def numbers(self) -> tuple[int, int]:
        """The job's number and the task's index, under which other services keep what is of it."""
        job, _, index = self.id[1:].partition("/")
        return int(job), int(index)


def task_of(call: Call) -> str:
    """The task in a path."""
    return task_reference(call.segment("task"), call.of_user)


async def task_record(call: Call, task: str) -> TaskRecord:
    """The record of a task. Raises Problem."""
    return msgspec.json.decode(await call.read(TaskQuery(task)), type=TaskRecord)


async def attempt_record(call: Call, task: str, number: int) -> AttemptRecord | None:
    """One attempt of a task, also one that the task does not show; None: it has none of that
    number. Raises Problem.
    """
    page = await call.read(AttemptsQuery(task, cursor=str(number - 1) if number else "", limit=1))
    found = msgspec.json.decode(page, type=_AttemptsPage).items
    return found[0] if found and found[0].number == number else None


async def cancel(call: Call) -> Response:
    return await cancel_by_api(call, task_of(call))


async def requeue(call: Call) -> Response:
    return await requeue_by_api(call, task_of(call))


_REASONS = Answers("The reasons.", dict[str, Any])

ENDPOINTS = (
    listing("/v1/jobs/{job}/tasks", TasksQuery, "List a job's tasks by index", page_of(TaskView)),
    view("/v1/jobs/{job}/why", WhyQuery, "Why a job waits", _REASONS),
    view("/v1/tasks/{task}", TaskQuery, "Show a task", Answers("The task.", TaskView)),
    listing("/v1/tasks/{task}/attempts", AttemptsQuery, "List a task's attempts", AttemptPage),
    Endpoint(
        "POST",
        "/v1/tasks/{task}/cancel",
        cancel,
        "Kill one call of a map, or one task of an array with keep_going; the others go on",
        answers={202: Answers("Its job; its process is being stopped.", JobView)},
        body=CancelBody,
        task=True,
    ),
    Endpoint(
        "POST",
        "/v1/tasks/{task}/requeue",
        requeue,
        "Stop a running task and return it to the queue, a gang whole",
        answers={202: Answers("Its job; its process is being stopped.", JobView)},
        body=RequeueBody,
        task=True,
    ),
    view("/v1/tasks/{task}/why", WhyQuery, "Why a task waits", _REASONS),
)
