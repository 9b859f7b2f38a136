"""The endpoint of artifacts: the output directory of an attempt that has ended, as tar.gz."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response

from iris_core.views import ArtifactView
from iris_gateway.api.logs import check_may_read
from iris_gateway.api.tasks import task_of
from iris_gateway.endpoint import Answers, Call, Endpoint
from iris_gateway.parameters import Parameter
from iris_gateway.problem import ProblemResponse
from iris_gateway.sse import stream

GZIP = "application/gzip"
_LAST = 9_999_999


class _EndedAttempt(msgspec.Struct):
    number: int
    open: bool
    artifact: ArtifactView | None = None


class _TaskWithArtifacts(msgspec.Struct):
    task: str
    job: str
    attempts: list[_EndedAttempt]


class _AttemptsPage(msgspec.Struct):
    items: list[_EndedAttempt]


async def fetched(call: Call) -> Response:
    name, parameters = task_of(call), call.parameters()
    wanted = parameters.number("attempt", 0, 0, _LAST) if "attempt" in call.request.query_params else None
    parameters.allow("attempt")
    parameters.finish()
    task = msgspec.json.decode(await call.read("task", task=name), type=_TaskWithArtifacts)
    await check_may_read(call, task.job)
    attempt = await _attempt(call, name, task, wanted)
    artifact = _stored(task, attempt)
    body = call.gateway.artifacts.parts(artifact.subject or "", artifact.bytes)
    response = stream(call, _continued(await anext(body), body))
    response.headers["content-type"] = GZIP
    response.headers["content-length"] = str(artifact.bytes)
    file = f"{task.task.strip('/').replace('/', '-')}-attempt-{attempt.number}.tar.gz"
    response.headers["content-disposition"] = f'attachment; filename="{file}"'
    return response


async def _attempt(call: Call, name: str, task: _TaskWithArtifacts, wanted: int | None) -> _EndedAttempt:
    """One attempt; None: the last one. Raises ProblemResponse not_found."""
    found = task.attempts[-1:]
    if wanted is not None:
        cursor = str(wanted - 1) if wanted else ""
        page = await call.read("attempts", task=name, cursor=cursor, limit=1)
        found = msgspec.json.decode(page, type=_AttemptsPage).items
    if not found:
        what = "no attempt yet" if wanted is None else f"no attempt {wanted}"
        raise ProblemResponse("not_found", f"{task.task} has {what}")
    return found[0]


def _stored(task: _TaskWithArtifacts, attempt: _EndedAttempt) -> ArtifactView:
    """What is kept of an attempt. Raises ProblemResponse conflict, not_found."""
    who, artifact = f"attempt {attempt.number} of {task.task}", attempt.artifact
    if attempt.open:
        raise ProblemResponse("conflict", f"{who} has not ended; its output directory is stored then")
    if artifact is None:
        raise ProblemResponse("not_found", f"{who} has no artifact: its job has no output directory, or it was lost")
    if artifact.subject is None:
        raise ProblemResponse("not_found", f"{who} has no artifact: {artifact.note}{_others(task)}")
    return artifact


def _others(task: _TaskWithArtifacts) -> str:
    numbers = [str(one.number) for one in task.attempts if one.artifact is not None and one.artifact.subject]
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
        {200: Answers("A tar archive.", media_types=(GZIP,))},
        parameters=(Parameter("attempt", "Its number; the last one by default.", {"type": "integer", "minimum": 0}),),
        problems=("conflict", "forbidden", "gone"),
        task=True,
    ),
)
