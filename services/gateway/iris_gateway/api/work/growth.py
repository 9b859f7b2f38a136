"""The endpoint of open jobs: add calls, close the job, or only show that its client is there.

Source: docs/design/calls.md#open-maps.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from iris_core.admission.actions import ReasonText
from iris_core.messages.gateway_state import GrowJob
from iris_core.spec.calls import FileDigest
from iris_core.views.jobs import JobView
from iris_core.views.queries import JobQuery
from iris_gateway.api.handling import json_body, request_key
from iris_gateway.api.work.bundles import JobCode, check_bundle
from iris_gateway.api.work.jobs import job_of
from iris_gateway.auth.bearer import refuse_worker
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, passed_on

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class GrowthBody(msgspec.Struct, forbid_unknown_fields=True):
    """Calls that are added to an open job; without any, its client shows that it is there.

    Attributes:
        offset: after so many calls: another number is refused, unless these calls were added
            before.
        segments: the digests of the files of their arguments. firsts: of each the index of the
            first task.
        count: how many calls they are. close: the job takes no further calls. reason: why, shown
            with the job.
    """

    offset: _Count = 0
    segments: tuple[FileDigest, ...] = ()
    firsts: tuple[_Count, ...] = ()
    count: _Count = 0
    close: bool = False
    reason: ReasonText = ""


async def grow(call: Call) -> Response:
    job = job_of(call)
    body = await json_body(call, GrowthBody)
    refuse_worker(call.caller, GrowJob)
    if body.segments:
        owner = msgspec.json.decode(await call.read(JobQuery(job)), type=JobCode).user
        for digest in body.segments:
            await check_bundle(call, digest, owner, "/segments")
    command = GrowJob(job, call.caller, *UNSENT, **msgspec.structs.asdict(body))
    return passed_on((await call.command(command, key=request_key(call))).body)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/jobs/{job}/calls",
        grow,
        "Add calls to an open map, or close it",
        answers={200: Answers("The job as it is now.", JobView)},
        body=GrowthBody,
        task=True,
    ),
)
