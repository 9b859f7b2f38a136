"""Endpoints of deployments: create, list, show, change, delete; their routes, history, and the
reasons of their status.

A change holds the changed fields, and in ``If-Match`` the version it is based on. Out of scope:
validation (`iris_gateway.api.work.admission`, then the state service), discovery
(`iris_gateway.api.discovery`).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from iris_core.admission import actions
from iris_core.admission.jobs import MASK
from iris_core.admission.patches import merged
from iris_core.codec import to_builtins, to_json
from iris_core.errors import Mistake
from iris_core.messages.gateway_state import Answer, DeployCommand
from iris_core.spec.field_rules import between, seconds
from iris_core.spec.serving import MAX_ROUTES, DeploymentSpec
from iris_core.views import queries as q
from iris_core.views.deployments import DeploymentView, RouteView
from iris_core.views.jobs import HistoryRow
from iris_gateway.api.handling import (
    TAG,
    expected_version,
    listing,
    page_of,
    request_key,
    tagged,
    view,
)
from iris_gateway.api.work.admission import all_mistakes, deployment_from, json_from
from iris_gateway.api.work.bundles import check_bundle
from iris_gateway.api.work.validation import shape_mistakes
from iris_gateway.auth.bearer import may_repeat
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import JSON, Answers, Call, Endpoint, passed_on
from iris_gateway.http.bodies import check_media_type, read_body
from iris_gateway.http.parameters import identifier
from iris_gateway.http.problem import ProblemResponse, invalid


class DeploymentPatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One change of a deployment: of its specification, or ``paused``, or ``revision``.

    Objects are merged into the present ones, null resets to the default (RFC 7396); a changed
    template or port is a new revision. ``paused``: pause or resume an update. ``revision``: roll
        back to it; 0: the one before.
    """

    replicas: Annotated[int, between(0, MAX_ROUTES)] | UnsetType = UNSET
    port: str | UnsetType = UNSET
    template: dict[str, Any] | UnsetType = UNSET
    update: dict[str, Any] | UnsetType | None = UNSET
    scaling: dict[str, Any] | UnsetType | None = UNSET
    proxy: dict[str, Any] | UnsetType | None = UNSET
    settle_s: Annotated[float, seconds(0, 3600)] | UnsetType | None = UNSET
    grace_s: Annotated[float, seconds(0, 86_400)] | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET
    revision: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | UnsetType = UNSET


_CONTROLS = ("paused", "revision")
_SPECIFIED = tuple(name for name in DeploymentPatch.__struct_fields__ if name not in _CONTROLS)


class _Named(msgspec.Struct):
    name: str


_BUNDLE = "/template/bundle"


class _Specified(msgspec.Struct):
    user: str
    spec: DeploymentSpec


def name_of(call: Call) -> str:
    """The deployment in a path, by name or id."""
    return identifier(call.segment("deployment"), "deployment")


async def create(call: Call) -> Response:
    check_media_type(call.request, JSON)
    spec = deployment_from(
        await read_body(call.request, call.gateway.settings.body_bytes), call.caller
    )
    await check_bundle(call, spec.template.bundle, spec.user, _BUNDLE)
    answer = await _command(call, spec.name, actions.CreateDeployment(spec=spec))
    name = msgspec.json.decode(answer.body, type=_Named).name
    return tagged(answer.body, 201, {"location": f"/v1/deployments/{name}"})


async def _command(call: Call, name: str, asked: actions.DeploymentAction, key: str = "") -> Answer:
    """Send a command. ``key``: the key of a form."""
    command = DeployCommand(
        asked.action, name, call.caller, *UNSENT, **msgspec.structs.asdict(asked)
    )
    return await call.command(command, key=request_key(call, key))


async def patch(call: Call) -> Response:
    name = name_of(call)
    version = expected_version(call)
    body = await read_body(call.request, call.gateway.settings.body_bytes)
    if body:
        check_media_type(call.request, JSON, MERGE_PATCH)
    value = json_from(body or b"{}")
    return tagged((await send_change(call, name, value, version)).body)


async def send_change(call: Call, name: str, value: Any, version: int, key: str = "") -> Answer:
    """Send one change, a `DeploymentPatch`. ``version``: the one it is based on, 0 for any. Raises
    ProblemResponse.
    """
    asked = await _change(call, name, value)
    return await _command(call, name, msgspec.structs.replace(asked, version=version), key)


async def send_delete(call: Call, name: str, version: int, key: str = "") -> Answer:
    """Delete a deployment. Raises ProblemResponse."""
    return await _command(call, name, actions.DeleteDeployment(version=version), key)


async def _change(call: Call, name: str, value: Any) -> actions.DeploymentAction:
    """The action of a patch. Raises ProblemResponse with every mistake."""
    mistakes = shape_mistakes(value, DeploymentPatch)
    wanted = {
        field: value[field] for field in _SPECIFIED if isinstance(value, dict) and field in value
    }
    controls = [field for field in _CONTROLS if isinstance(value, dict) and field in value]
    owner = None
    code = None
    if wanted:
        deployment = msgspec.json.decode(await call.read(q.DeploymentQuery(name)), type=_Specified)
        if not may_repeat(call.caller, deployment.user):
            words = f"{name} belongs to {deployment.user}; only its owner or an admin may change it"
            raise ProblemResponse("forbidden", words)
        owner = deployment.user
        code = deployment.spec.template.bundle
        known = {mistake.pointer for mistake in mistakes}
        whole = merged(_without_masks(deployment.spec), wanted)
        mistakes += [
            mistake
            for mistake in all_mistakes(whole, DeploymentSpec)
            if mistake.pointer not in known
        ]
    if not mistakes and len(controls) + bool(wanted) != 1:
        message = "changes more than one thing" if wanted or controls else "changes nothing"
        hint = "fields of the specification, or paused, or revision"
        mistakes = [Mistake(pointer="", code="not_one_change", message=message, hint=hint)]
    if mistakes:
        raise invalid(mistakes)
    if controls == ["paused"]:
        return actions.PauseDeployment() if value["paused"] else actions.ResumeDeployment()
    if controls == ["revision"]:
        return actions.RollBackDeployment(revision=value["revision"])
    if wanted.keys() == {"replicas"}:
        return actions.ScaleDeployment(replicas=wanted["replicas"])
    if (other := (wanted.get("template") or {}).get("bundle")) != code:
        await check_bundle(call, other, owner, _BUNDLE)
    return actions.UpdateDeployment(patch=to_json(wanted))


def _without_masks(spec: DeploymentSpec) -> Any:
    """Plain values in which nothing stands for a value that is not shown: what is not changed is
    not a mistake.
    """
    env = {key: value for key, value in spec.template.env.items() if value != MASK}
    return to_builtins(
        msgspec.structs.replace(spec, template=msgspec.structs.replace(spec.template, env=env))
    )


async def delete(call: Call) -> Response:
    name = name_of(call)
    version = expected_version(call)
    return passed_on((await send_delete(call, name, version)).body, 202)


MERGE_PATCH = "application/merge-patch+json"
_CHANGES = ("conflict", "idempotency_mismatch", "precondition_failed")

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/deployments",
        create,
        "Create a deployment",
        answers={
            201: Answers(
                "The deployment, durable.",
                DeploymentView,
                headers={"Location": "The deployment.", **TAG},
            )
        },
        body=DeploymentSpec,
        problems=("idempotency_mismatch",),
    ),
    listing(
        "/v1/deployments",
        q.DeploymentsQuery,
        "List deployments, newest first",
        page_of(DeploymentView),
    ),
    view(
        "/v1/deployments/{deployment}",
        q.DeploymentQuery,
        "Show a deployment with its routes",
        Answers("The deployment.", DeploymentView, headers=TAG),
    ),
    Endpoint(
        "PATCH",
        "/v1/deployments/{deployment}",
        patch,
        "Scale, update, pause, resume or roll back a deployment",
        answers={200: Answers("The deployment; its routes follow.", DeploymentView, headers=TAG)},
        body=DeploymentPatch,
        problems=_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/v1/deployments/{deployment}",
        delete,
        "Delete a deployment and its routes",
        answers={202: Answers("The deployment; its routes are being stopped.", DeploymentView)},
        problems=_CHANGES,
    ),
    listing(
        "/v1/deployments/{deployment}/routes",
        q.DeploymentRoutesQuery,
        "The routes of a deployment: those that have not ended before those that have, newest first",
        page_of(RouteView),
    ),
    listing(
        "/v1/deployments/{deployment}/history",
        q.DeploymentHistoryQuery,
        "What was decided about a deployment and its routes",
        page_of(HistoryRow),
    ),
    view(
        "/v1/deployments/{deployment}/requests",
        q.DeploymentRequestsQuery,
        "Requests, errors and latency of a deployment in each minute of the last hour, as proxies report them",
        Answers("The minutes with requests, oldest first.", dict[str, Any]),
    ),
    view(
        "/v1/deployments/{deployment}/why",
        q.DeploymentWhyQuery,
        "Why a deployment is as it is",
        Answers("The reasons.", dict[str, Any]),
    ),
)
