"""Endpoints of quotas: the limits of users."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from iris_core.admission.actions import SetQuota
from iris_core.spec.jobs import BANDS, BandName
from iris_core.states import PriorityBand
from iris_core.views.jobs import QuotaView
from iris_core.views.queries import QuotaQuery, QuotasQuery
from iris_gateway.api.cluster import administer
from iris_gateway.api.handling import json_body, listing, page_of, view
from iris_gateway.http.endpoint import Answers, Call, Endpoint, passed_on
from iris_gateway.http.parameters import identifier

QuotaBody = msgspec.defstruct(
    "QuotaBody",
    [("max_band", BandName, BANDS[0])],
    bases=(SetQuota,),
    namespace={"__doc__": "The limits of one user; 0 is unlimited. ``max_band`` is the best band it may ask for."},
    frozen=True,
)


async def put(call: Call) -> Response:
    user = identifier(call.segment("user"), "user")
    limits = msgspec.structs.asdict(await json_body(call, QuotaBody))
    limits["max_band"] = PriorityBand[limits["max_band"].upper()].value
    return passed_on(await administer(call, user, SetQuota(**limits)))


ENDPOINTS = (
    listing("/v1/quotas", QuotasQuery, "List quotas", page_of(QuotaView)),
    view("/v1/quotas/{user}", QuotaQuery, "Show a user's quota", Answers("The quota.", QuotaView)),
    Endpoint(
        "PUT",
        "/v1/quotas/{user}",
        put,
        "Set a user's quota",
        {200: Answers("The quota.", QuotaView)},
        body=QuotaBody,
        admin=True,
        problems=("idempotency_mismatch",),
    ),
)
