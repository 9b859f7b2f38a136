"""The endpoint of artifacts: the output directory of an attempt that has ended, as tar.gz."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from starlette.responses import Response

from iris_core import subjects
from iris_core.views.jobs import ArtifactView
from iris_core.views.queries import about
from iris_gateway.api.work.tasks import (
    AttemptRecord,
    TaskRecord,
    attempt_record,
    task_of,
    task_record,
)
from iris_gateway.auth.bearer import require_reader
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint
from iris_gateway.dispatch.sse import stream
from iris_gateway.http.problem import ProblemResponse

GZIP = "application/gzip"
_LAST = 9_999_999


class ArtifactParameters(msgspec.Struct, frozen=True):
    """Of which attempt."""

    attempt: (
        Annotated[int, about("Its number; the last one by default.", ge=0, le=_LAST)] | None
    ) = None


async def fetched(call: Call) -> Response:
    wanted = call.asked(ArtifactParameters).attempt
    task = await task_record(call, task_of(call))
    require_reader(call.caller, task.user, task.task)
    attempt = await _attempt(call, task, wanted)
    artifact = _stored(task, attempt)
    subject = subjects.artifact(attempt.worker, task.numbers[0], artifact.upload or "")
    body = call.gateway.artifacts.parts(subject, artifact.bytes)
    response = stream(call, _continued(await anext(body), body))
    response.headers["content-type"] = GZIP
    response.headers["content-length"] = str(artifact.bytes)
    file = f"{task.task.strip('/').replace('/', '-')}-attempt-{attempt.number}.tar.gz"
    response.headers["content-disposition"] = f'attachment; filename="{file}"'
    return response


async def _attempt(call: Call, task: TaskRecord, wanted: int | None) -> AttemptRecord:
    """One attempt, also one that the task does not show; None: the last one. Raises ProblemResponse
    not_found.
    """
    shown = (
        [one for one in task.attempts if one.number == wanted]
        if wanted is not None
        else task.attempts[-1:]
    )
    found = shown[0] if shown else None
    if wanted is not None and found is None:
        found = await attempt_record(call, task.id, wanted)
    if found is None:
        what = "no attempt yet" if wanted is None else f"no attempt {wanted}"
        raise ProblemResponse("not_found", f"{task.task} has {what}")
    return found


def _stored(task: TaskRecord, attempt: AttemptRecord) -> ArtifactView:
    """What is kept of an attempt. Raises ProblemResponse conflict, not_found."""
    who = f"attempt {attempt.number} of {task.task}"
    artifact = attempt.artifact
    if attempt.open:
        raise ProblemResponse(
            "conflict", f"{who} has not ended; its output directory is stored then"
        )
    if artifact is None:
        raise ProblemResponse(
            "not_found", f"{who} has no artifact: its job has no output directory, or it was lost"
        )
    if artifact.upload is None:
        raise ProblemResponse("not_found", f"{who} has no artifact: {artifact.note}{_others(task)}")
    return artifact


def _others(task: TaskRecord) -> str:
    numbers = [
        str(one.number) for one in task.attempts if one.artifact is not None and one.artifact.upload
    ]
    return f"; there is one of attempt {', '.join(numbers)}" if numbers else ""


async def _continued(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A body whose first part is known; until then a problem is answered as a document."""
    yield first
    async for part in rest:
        yield part


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/tasks/{task}/artifact",
        fetched,
        "The output directory of an attempt that has ended",
        answers={200: Answers("A tar archive.", media_types=(GZIP,))},
        parameters=ArtifactParameters,
        problems=("conflict", "gone"),
        task=True,
    ),
)
