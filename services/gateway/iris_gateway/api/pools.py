"""Endpoints of the fleet: pools, which admins set, and the slices that are made of them.

A change may name in ``If-Match`` the version it is based on. Out of scope: what is decided about
slices (`iris_state.fleet`). Source: docs/design/fleet.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from iris_core.admission import actions
from iris_core.codec import from_json, to_json
from iris_core.errors import Mistake
from iris_core.messages.gateway_state import Answer, FleetCommand
from iris_core.spec import field_rules
from iris_core.spec.field_rules import seconds
from iris_core.spec.pools import PoolSpec
from iris_core.views import queries as q
from iris_core.views.fleet import (
    FleetView,
    PoolChangeView,
    PoolPlanView,
    PoolView,
    SliceView,
)
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
from iris_gateway.api.work.admission import pool_from
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import JSON, Answers, Call, Endpoint, passed_on
from iris_gateway.http.bodies import check_media_type, read_body
from iris_gateway.http.parameters import identifier
from iris_gateway.http.problem import invalid

_POOL = Answers("The pool.", PoolView, headers=TAG)
_CHANGES = ("conflict", "idempotency_mismatch", "precondition_failed")


class ChangeReason(msgspec.Struct, forbid_unknown_fields=True):
    """Why something is changed; shown in the audit."""

    reason: actions.ReasonText = ""


class SliceDrain(ChangeReason, forbid_unknown_fields=True):
    """How a slice is given back: whatever runs there after ``deadline_s`` ends; null: when nothing
    runs.
    """

    deadline_s: Annotated[float, seconds(0)] | None = None


class PoolStays(msgspec.Struct):
    """Of the answer to a removal: whether the pool waits for its last slice."""

    removing: bool = False


class RemovalParameters(msgspec.Struct):
    """How a pool is removed."""

    drain: Annotated[
        bool, q.about("Also while it has slices: idle ones go, what runs on others ends first.")
    ] = False


def name_of(call: Call) -> str:
    """The pool in a path."""
    return identifier(call.segment("pool"), "pool")


async def send_fleet(call: Call, target: str, asked: actions.FleetAction, key: str = "") -> Answer:
    """Do something with a pool, or a slice. ``key``: of a form. Raises ProblemResponse."""
    command = FleetCommand(
        asked.action, target, call.caller, *UNSENT, **msgspec.structs.asdict(asked)
    )
    return await call.command(command, key=request_key(call, key))


async def _spec(call: Call) -> PoolSpec:
    """The specification in the request's body. Raises ProblemResponse with every mistake."""
    body = await read_body(call.request, call.gateway.settings.body_bytes)
    check_media_type(call.request, JSON)
    return pool_from(body)


async def put(call: Call) -> Response:
    name = name_of(call)
    version = expected_version(call)
    spec = await _spec(call)
    if spec.name != name:
        message = f"{spec.name!r} is not {name!r}, the name in the path"
        raise invalid([Mistake(pointer="/name", code="not_of_path", message=message)])
    answer = await send_fleet(call, name, actions.SetPool(spec=spec, version=version))
    return tagged(answer.body, 201 if answer.status == "created" else 200)


async def delete(call: Call) -> Response:
    name = name_of(call)
    drain = call.asked(RemovalParameters).drain
    version = expected_version(call)
    answer = await send_fleet(call, name, actions.RemovePool(drain=drain, version=version))
    return passed_on(answer.body, 202 if from_json(answer.body, PoolStays).removing else 200)


async def pause(call: Call) -> Response:
    return await _switch(call, actions.PausePool)


async def resume(call: Call) -> Response:
    return await _switch(call, actions.ResumePool)


async def _switch(call: Call, kind: type[actions.PausePool] | type[actions.ResumePool]) -> Response:
    name = name_of(call)
    version = expected_version(call)
    reason = (await json_body(call, ChangeReason)).reason
    return tagged((await send_fleet(call, name, kind(reason=reason, version=version))).body)


async def plan(call: Call) -> Response:
    spec = await _spec(call)
    return passed_on(await call.read(q.PoolPlanQuery(to_json(spec).decode())))


def slice_of(call: Call) -> str:
    """The slice in a path: its name, or its id."""
    return identifier(call.segment("slice"), "slice")


async def drain(call: Call) -> Response:
    target = slice_of(call)
    asked = await json_body(call, SliceDrain)
    if mistakes := field_rules.mistakes(asked):
        raise invalid(mistakes)
    action = actions.DrainSlice(reason=asked.reason, deadline_s=asked.deadline_s)
    return passed_on((await send_fleet(call, target, action)).body, 202)


ENDPOINTS = (
    listing("/v1/pools", q.PoolsQuery, "List pools", page_of(PoolView)),
    Endpoint(
        "POST",
        "/v1/pools:plan",
        plan,
        "What would a pool do now?",
        answers={200: Answers("What it would do.", PoolPlanView)},
        body=PoolSpec,
    ),
    view("/v1/pools/{pool}", q.PoolQuery, "Show a pool", _POOL),
    Endpoint(
        "PUT",
        "/v1/pools/{pool}",
        put,
        "Set a pool: make it, or replace its specification",
        answers={200: _POOL, 201: Answers("The pool, which is new.", PoolView, headers=TAG)},
        body=PoolSpec,
        admin=True,
        problems=(*_CHANGES, "over_quota"),
    ),
    Endpoint(
        "DELETE",
        "/v1/pools/{pool}",
        delete,
        "Remove a pool",
        answers={
            200: Answers("Its name; it is gone.", dict[str, str]),
            202: Answers("The pool; it goes with its last slice.", PoolView),
        },
        parameters=RemovalParameters,
        admin=True,
        problems=_CHANGES,
    ),
    Endpoint(
        "POST",
        "/v1/pools/{pool}/pause",
        pause,
        "Let a pool neither grow nor shrink",
        answers={200: _POOL},
        body=ChangeReason,
        admin=True,
        problems=_CHANGES,
    ),
    Endpoint(
        "POST",
        "/v1/pools/{pool}/resume",
        resume,
        "Let a pool grow and shrink again, and forget what hindered it",
        answers={200: _POOL},
        body=ChangeReason,
        admin=True,
        problems=_CHANGES,
    ),
    listing(
        "/v1/pools/{pool}/history",
        q.PoolHistoryQuery,
        "What happened to the slices of a pool, newest first",
        page_of(PoolChangeView),
    ),
    view("/v1/fleet", q.FleetQuery, "All pools together", Answers("They.", FleetView)),
    listing(
        "/v1/fleet/slices",
        q.FleetSlicesQuery,
        "List slices of pools, newest first",
        page_of(SliceView),
    ),
    view(
        "/v1/fleet/slices/{slice}",
        q.FleetSliceQuery,
        "Show a slice of a pool",
        Answers("The slice.", SliceView),
    ),
    Endpoint(
        "POST",
        "/v1/fleet/slices/{slice}/drain",
        drain,
        "Give a slice of a pool back",
        answers={202: Answers("The slice.", SliceView)},
        body=SliceDrain,
        admin=True,
        problems=("conflict", "idempotency_mismatch"),
    ),
)
