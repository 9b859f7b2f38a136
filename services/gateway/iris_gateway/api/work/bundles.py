"""Endpoints of bundles: code for jobs, stored under the digest of its bytes."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from iris_core.errors import Mistake
from iris_core.messages.gateway_state import Caller
from iris_core.spec.calls import Calls
from iris_core.spec.jobs import JobSpec, code_of
from iris_core.views.queries import JobQuery, QuotaQuery
from iris_gateway.bundles import DayLimit
from iris_gateway.dispatch.endpoint import BYTES, Answers, Call, Endpoint
from iris_gateway.http.bodies import chunks
from iris_gateway.http.problem import ProblemResponse, invalid


class _Spec(msgspec.Struct):
    bundle: str | None
    calls: Calls | None = None

    @property
    def code(self) -> tuple[str, ...]:
        return code_of(self.bundle, self.calls)


class JobCode(msgspec.Struct):
    """The code of a job, and whose it is; masked for others."""

    user: str
    spec: _Spec


_BUNDLE_S = 600.0
ACCEPTED = frozenset(
    {BYTES, "application/gzip", "application/x-gzip", "application/x-tar", "application/zip"}
)


async def head(call: Call) -> Response:
    if not await call.gateway.bundles.has(call.caller, call.segment("sha256")):
        raise ProblemResponse("not_found", "this bundle is not stored here")
    return Response(status_code=200)


async def put(call: Call) -> Response:
    given = call.request.headers.get("content-type", BYTES).partition(";")[0].strip().lower()
    if given not in ACCEPTED:
        raise ProblemResponse(
            "unsupported_media_type",
            f"a bundle is {BYTES}, not {given[:80]!r}",
            headers={"accept": BYTES},
        )
    if (
        call.caller.attempt is not None
    ):  # no command follows that would find out that the attempt has ended
        await call.read(JobQuery(f"j{call.caller.attempt.job}"))
    settings = call.gateway.settings
    digest = call.segment("sha256")
    parts = chunks(call.request, settings.bundle_bytes, _BUNDLE_S, settings.body_idle_s)
    owner = Caller(user=call.caller.user)  # the token of a task reads no quota
    quota = await call.gateway.queries.ask(QuotaQuery(owner.user), owner)
    limit = msgspec.json.decode(quota, type=DayLimit)
    new = await call.gateway.bundles.put(call.caller, digest, parts, limit)
    return Response(status_code=201 if new else 200, headers={"location": f"/v1/bundles/{digest}"})


async def check_bundle(
    call: Call, digest: str | None, owner: str | None = None, pointer: str = "/bundle"
) -> None:
    """Refuse code that the caller may not run: one's own, what runs in the caller's own task, and
    for admins any.

    ``owner``: of the job, who owns what an admin has named for it; None for a plan. Raises
    ProblemResponse invalid, which does not tell whether somebody else has stored it.
    """
    if digest is None or await call.gateway.bundles.has(call.caller, digest, owner):
        return
    if digest in await _own_code(call) and await call.gateway.bundles.use(
        digest, add=call.caller.user
    ):
        return
    hint = f"PUT /v1/bundles/{digest} first"
    raise invalid(
        [Mistake(pointer=pointer, code="no_such_bundle", message="is not stored here", hint=hint)]
    )


async def check_code(call: Call, spec: JobSpec, owner: str | None = None) -> None:
    """The same for everything that a job's tasks get from the store."""
    await check_bundle(call, spec.bundle, owner)
    for digest in spec.calls.digests if spec.calls is not None else ():
        await check_bundle(call, digest, owner, "/calls")


async def _own_code(call: Call) -> tuple[str, ...]:
    """The code of the task that calls; its owner may not have stored it, but has it in a job that
    runs.
    """
    if call.caller.attempt is None:
        return ()
    own = await call.read(JobQuery(f"j{call.caller.attempt.job}"))
    return msgspec.json.decode(own, type=JobCode).spec.code


_STORED = {"Location": "The bundle."}

ENDPOINTS = (
    Endpoint(
        "HEAD",
        "/v1/bundles/{sha256}",
        head,
        "Whether you have stored a bundle, or as an admin anybody has",
        answers={200: Answers("It is.", media_types=())},
        task=True,
    ),
    Endpoint(
        "PUT",
        "/v1/bundles/{sha256}",
        put,
        "Store a bundle",
        answers={
            200: Answers("It was there.", media_types=(), headers=_STORED),
            201: Answers("It is stored.", media_types=(), headers=_STORED),
        },
        body=BYTES,
        task=True,
    ),
)
