"""The endpoints of versions, limits, all enumerations with wire values and colours, and of the
caller.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response

from iris_core import states
from iris_core.names import MAX_COMPONENT, MAX_LEVELS
from iris_core.placement.reasons import ReasonCode
from iris_core.quota import GATEWAY_LIMITS
from iris_core.spec.jobs import MAX_COMMAND_BYTES, MAX_ENV_BYTES, MAX_REPLICAS
from iris_core.tables import deployment, route
from iris_core.views.jobs import CallerView
from iris_core.views.queries import MAX_LIMIT
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, json_response
from iris_gateway.settings import GatewaySettings
from iris_service.version import VERSION

API = "v1"


class Word(msgspec.Struct):
    """One member of an enumeration."""

    name: str
    value: int | str
    terminal: bool = False
    colour: str | None = None
    css_class: str | None = None


class LoginTerms(msgspec.Struct):
    """Where people sign in with `iris login`: an OpenID Connect issuer, and the id of the public
    client there.
    """

    issuer: str
    client: str


class Meta(msgspec.Struct):
    """Body of ``GET /v1/meta``."""

    version: str
    api: str
    limits: dict[str, int]
    enums: dict[str, list[Word]]
    login: LoginTerms | None = None


_ENUMS: dict[str, type[Enum]] = {
    "session_statuses": states.SessionStatus,
    "kernel_statuses": states.KernelStatus,
    "worker_states": states.WorkerState,
    "deployment_lifecycles": states.DeploymentLifecycle,
    "route_statuses": states.RouteStatus,
    "bands": states.PriorityBand,
    "constraint_ops": states.ConstraintOp,
    "causes": states.Cause,
    "reasons": ReasonCode,
}
_TERMINAL = {
    *states.SESSION_TERMINAL,
    *states.KERNEL_TERMINAL,
    *deployment.TERMINAL,
    *route.TERMINAL,
}


async def meta(call: Call) -> Response:
    settings = call.gateway.settings
    login = LoginTerms(settings.oidc_issuer, settings.oidc_client) if settings.oidc_client else None
    return json_response(Meta(VERSION, API, limits_of(settings), vocabulary(), login=login))


async def whoami(call: Call) -> Response:
    return json_response(CallerView(user=call.caller.user, role=call.caller.role))


def limits_of(settings: GatewaySettings) -> dict[str, int]:
    """Limits of a request, a name and a job, in bytes and counts."""
    return {
        "body_bytes": settings.body_bytes,
        "bundle_bytes": settings.bundle_bytes,
        **{limit.name: int(getattr(settings, limit.name)) for limit in GATEWAY_LIMITS},
        "page_items": MAX_LIMIT,
        "replicas": MAX_REPLICAS,
        "name_levels": MAX_LEVELS,
        "name_component_characters": MAX_COMPONENT,
        "command_bytes": MAX_COMMAND_BYTES,
        "env_bytes": MAX_ENV_BYTES,
    }


@cache
def vocabulary() -> dict[str, list[Word]]:
    """Every enumeration of the API."""
    tasks = [
        Word(
            states.display_name(state),
            state.value,
            state in states.TERMINAL,
            states.DISPLAY_COLOURS[state],
            css_class=states.css_class(state),
        )
        for state in states.TaskState
    ]
    look = {word.name: word for word in tasks}
    jobs = [
        Word(
            name,
            state.value,
            state in states.JOB_TERMINAL,
            look[name].colour,
            css_class=look[name].css_class,
        )
        for state in states.JobState
        for name in (states.display_name(state),)
    ]
    return {"task_states": tasks, "job_states": jobs} | {
        name: _words(kind) for name, kind in _ENUMS.items()
    }


def _words(kind: type[Enum]) -> list[Word]:
    return [
        Word(states.display_name(member), _wire(member), member in _TERMINAL) for member in kind
    ]


def _wire(member: Enum) -> Any:
    return member.value


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/meta",
        meta,
        "Versions, limits and words",
        answers={200: Answers("Them.", Meta)},
        public=True,
    ),
    Endpoint(
        "GET",
        "/v1/whoami",
        whoami,
        "The user and role of the token",
        answers={200: Answers("The caller.", CallerView)},
    ),
)
