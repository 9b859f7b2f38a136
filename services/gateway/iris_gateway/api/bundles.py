"""Endpoints of bundles: code for jobs, stored under the digest of its bytes."""

from __future__ import annotations

from starlette.responses import Response

from iris_gateway.bodies import chunks
from iris_gateway.endpoint import BYTES, Answers, Call, Endpoint
from iris_gateway.problem import ProblemResponse

_BUNDLE_S = 600.0
ACCEPTED = frozenset({BYTES, "application/gzip", "application/x-gzip", "application/x-tar", "application/zip"})


async def head(call: Call) -> Response:
    call.parameters().finish()
    if not await call.gateway.bundles.has(call.segment("sha256")):
        raise ProblemResponse("not_found", "this bundle is not stored here")
    return Response(status_code=200)


async def put(call: Call) -> Response:
    call.parameters().finish()
    given = call.request.headers.get("content-type", BYTES).partition(";")[0].strip().lower()
    if given not in ACCEPTED:
        raise ProblemResponse(
            "unsupported_media_type", f"a bundle is {BYTES}, not {given[:80]!r}", headers={"accept": BYTES}
        )
    if call.caller.attempt is not None:  # no command follows that would find out that the attempt has ended
        await call.read("job", job=f"j{call.caller.attempt.job}")
    settings, digest = call.gateway.settings, call.segment("sha256")
    parts = chunks(call.request, settings.bundle_bytes, _BUNDLE_S, settings.body_idle_s)
    new = await call.gateway.bundles.put(call.caller.user, digest, parts)
    return Response(status_code=201 if new else 200, headers={"location": f"/v1/bundles/{digest}"})


_STORED = {"Location": "The bundle."}

ENDPOINTS = (
    Endpoint(
        "HEAD",
        "/v1/bundles/{sha256}",
        head,
        "Whether a bundle is stored",
        {200: Answers("It is.", media_types=())},
        task=True,
    ),
    Endpoint(
        "PUT",
        "/v1/bundles/{sha256}",
        put,
        "Store a bundle",
        {
            200: Answers("It was there.", media_types=(), headers=_STORED),
            201: Answers("It is stored.", media_types=(), headers=_STORED),
        },
        body=BYTES,
        task=True,
    ),
)
