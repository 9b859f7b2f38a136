"""Endpoints of holds on the queue."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import HoldQueue
from iris_core.spec.jobs import BandName
from iris_core.views.jobs import QueueHoldView
from iris_core.views.queries import QueueHoldsQuery
from iris_gateway.api.handling import json_body, listing, page_of, request_key
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, passed_on
from iris_gateway.http.parameters import identifier

_Text = Annotated[str, msgspec.Meta(max_length=SENTENCE)]


class QueueHoldBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs wait, present and future ones: those with every given part. A label is
    ``key=value``.
    """

    user: _Text = ""
    band: BandName | None = None
    label: Annotated[_Text, msgspec.Meta(extra_json_schema={"pattern": "^$|="})] = ""
    reason: _Text = ""


async def hold(call: Call) -> Response:
    body = await json_body(call, QueueHoldBody)
    wanted = {
        "user": body.user,
        "band": body.band or "",
        "label": body.label,
        "reason": body.reason,
    }
    return passed_on(await send_queue_hold(call, wanted, request_key(call)), 201)


async def release(call: Call) -> Response:
    number = identifier(call.segment("hold"), "hold")
    return passed_on(await send_queue_hold(call, {"hold": number}, request_key(call)))


async def send_queue_hold(call: Call, wanted: dict[str, Any], key: str = "") -> bytes:
    """Hold a part of the queue, or release it, as the caller. Raises Problem."""
    return (await call.command(HoldQueue(call.caller, *UNSENT, **wanted), key=key)).body


ENDPOINTS = (
    listing("/v1/queue/holds", QueueHoldsQuery, "Holds on the queue", page_of(QueueHoldView)),
    Endpoint(
        "POST",
        "/v1/queue/holds",
        hold,
        "Hold the queue of a user, a band or a label",
        answers={201: Answers("The hold.", QueueHoldView)},
        body=QueueHoldBody,
    ),
    Endpoint(
        "DELETE",
        "/v1/queue/holds/{hold}",
        release,
        "End a hold on the queue",
        answers={200: Answers("Its id.", dict[str, str])},
    ),
)
