"""The endpoint of a dry run: whether a job would be placed now, after which preemptions, or never.
Creates nothing.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from iris_bus.contract import NoResponders, Unavailable
from iris_core.codec import Undecodable, from_json, pack, to_json, unpack
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.spec.jobs import JobSpec
from iris_core.subjects import SCHEDULER_PLAN
from iris_core.views.jobs import ClosedGate, PlacementView, PlanView
from iris_core.views.queries import ClosedGateQuery
from iris_gateway.api.work.bundles import check_code
from iris_gateway.api.work.jobs import read_spec
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, json_response
from iris_gateway.http.problem import ProblemResponse

_TIMEOUT_S = 10.0


async def planned(call: Call) -> Response:
    spec = await read_spec(call)
    await check_code(call, spec)
    admission = await admitted(call, spec)
    spec = msgspec.structs.replace(spec, project=admission.project)
    request = PlanRequest(spec, call.caller, call.gateway.now_ms(), admission.steps)
    preview = await ask_scheduler(call, request)
    gated = admission.reason if preview.verdict != "never" else None
    if gated is not None:
        return json_response(
            PlanView(verdict="not_now", placements=[], victims=[], reason=gated, ahead=0)
        )
    placements = [
        PlacementView(task=f"{spec.name}/{at}", index=at, worker=who)
        for at, who in preview.placements
    ]
    return json_response(
        PlanView(
            verdict=preview.verdict,
            placements=placements,
            victims=list(preview.victims),
            reason=preview.reason,
            ahead=preview.ahead,
            variants=dict(preview.variants),
            levels=dict(preview.levels),
        )
    )


async def admitted(call: Call, spec: JobSpec) -> ClosedGate:
    """In which project the job would be, and what it would wait for besides capacity. Raises
    ProblemResponse for an unknown job or project, and for a project that is not open to its user.
    """
    return from_json(await call.read(ClosedGateQuery(to_json(spec).decode())), ClosedGate)


async def ask_scheduler(call: Call, request: PlanRequest) -> PlanPreview:
    """The scheduler's answer. Raises ProblemResponse unavailable."""
    try:
        message = await call.gateway.bus.request(SCHEDULER_PLAN, pack(request), timeout=_TIMEOUT_S)
        return unpack(message.data, PlanPreview)
    except NoResponders:
        raise ProblemResponse("unavailable", "no scheduler is running") from None
    except Unavailable:
        raise ProblemResponse("unavailable", "the scheduler has not answered") from None
    except Undecodable as error:
        raise ProblemResponse(
            "internal", f"the scheduler's answer cannot be read: {error}"
        ) from None


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/jobs:plan",
        planned,
        "Would it fit now?",
        answers={200: Answers("Where and when it would be placed.", PlanView)},
        body=JobSpec,
    ),
)
