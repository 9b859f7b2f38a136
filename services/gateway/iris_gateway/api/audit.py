"""The endpoint of the audit: who did what. The state service decides which entries a caller reads."""

from __future__ import annotations

from starlette.responses import Response

from iris_core.names import MAX_COMPONENT, MAX_LEVELS
from iris_core.views import AuditView
from iris_gateway.api.handling import listing, page
from iris_gateway.api.pages import page_of
from iris_gateway.api.work.logs import SINCE
from iris_gateway.http.endpoint import Call
from iris_gateway.http.parameters import Parameter

_LENGTH = MAX_LEVELS * (MAX_COMPONENT + 1)
"""Of the longest name of a job; other names are shorter."""


async def listed(call: Call) -> Response:
    parameters = call.parameters()
    by, of = (parameters.text(name, allow=lambda text: 0 < len(text) <= _LENGTH) for name in ("by", "of"))
    since_ms = parameters.since_ms("since", call.gateway.now_ms())
    return await page(call, "audit", parameters, by=by, of=of, since_ms=since_ms)


_BY = Parameter("by", "Only commands of this user.", {"type": "string", "minLength": 1, "maxLength": _LENGTH})
_OF = Parameter(
    "of",
    "Only what was done to this job (or those above it), worker or deployment, or to what this user owns.",
    {"type": "string", "minLength": 1, "maxLength": _LENGTH},
)
_SINCE = Parameter("since", "Only since this time, or not longer ago than this: `7d`.", SINCE)

ENDPOINTS = (listing("/v1/audit", listed, "Audit log, newest first", page_of(AuditView), _BY, _OF, _SINCE),)
