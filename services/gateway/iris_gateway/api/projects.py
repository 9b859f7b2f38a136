"""Endpoints of projects. Who may change one is judged by the state service.

A change may name in ``If-Match`` the version it is based on. Source: docs/design/team.md#projects.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from iris_core.admission import actions
from iris_core.admission.projects import validate_project
from iris_core.messages.gateway_state import Answer, ProjectCommand
from iris_core.spec.projects import ProjectSpec
from iris_core.views import queries as q
from iris_core.views.projects import ProjectView, SharePage
from iris_gateway.api.handling import (
    TAG,
    expected_version,
    json_body,
    listing,
    page_of,
    request_key,
    tagged,
    view,
)
from iris_gateway.api.work.admission import decoded
from iris_gateway.api.work.validation import shape_mistakes
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, passed_on
from iris_gateway.http.parameters import identifier
from iris_gateway.http.problem import ProblemResponse, invalid

_PROJECT = Answers("The project.", ProjectView, headers=TAG)
_CHANGES = ("conflict", "idempotency_mismatch", "precondition_failed")


def path_of(call: Call) -> str:
    """The path of the project that a request is about. Raises ProblemResponse not_found."""
    return identifier(call.segment("project"), "project")


async def _command(call: Call, path: str, asked: actions.ProjectAction, key: str) -> Answer:
    command = ProjectCommand(
        asked.action, path, call.caller, *UNSENT, **msgspec.structs.asdict(asked)
    )
    return await call.command(command, key=key)


def read_spec(body: bytes) -> ProjectSpec:
    """What is to be set of a project. Raises ProblemResponse with every mistake."""
    return decoded(body, ProjectSpec, lambda value: shape_mistakes(value, ProjectSpec))


async def send_project(
    call: Call, path: str, spec: ProjectSpec, version: int, *, key: str
) -> Answer:
    """Set a project. Raises ProblemResponse."""
    if mistakes := validate_project(path, spec):
        raise invalid(mistakes)
    return await _command(call, path, actions.SetProject(spec=spec, version=version), key)


async def send_removal(call: Call, path: str, version: int, *, key: str) -> Answer:
    """Remove a project. Raises ProblemResponse."""
    return await _command(call, path, actions.RemoveProject(version=version), key)


async def put(call: Call) -> Response:
    path = path_of(call)
    version = expected_version(call)
    spec = await json_body(call, ProjectSpec)
    answer = await send_project(call, path, spec, version, key=request_key(call))
    return tagged(answer.body, 201 if answer.status == "created" else 200)


async def delete(call: Call) -> Response:
    path = path_of(call)
    if validate_project(path, ProjectSpec()):
        raise ProblemResponse("not_found", f"there is no project {path[:80]}")
    answer = await send_removal(call, path, expected_version(call), key=request_key(call))
    return passed_on(answer.body)


ENDPOINTS = (
    listing("/v1/projects", q.ProjectsQuery, "List projects", page_of(ProjectView)),
    view("/v1/projects/{project}", q.ProjectQuery, "Show a project", _PROJECT),
    Endpoint(
        "PUT",
        "/v1/projects/{project}",
        put,
        "Set a project: make it, or replace what is set of it",
        answers={
            200: _PROJECT,
            201: Answers("The project, which is new.", ProjectView, headers=TAG),
        },
        body=ProjectSpec,
        problems=_CHANGES,
    ),
    listing("/v1/share", q.SharesQuery, "List fair shares", SharePage),
    Endpoint(
        "DELETE",
        "/v1/projects/{project}",
        delete,
        "Remove a project",
        answers={200: Answers("Its path; it is gone.", dict[str, str])},
        problems=_CHANGES,
    ),
)
