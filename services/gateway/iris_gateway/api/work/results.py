"""The endpoint of a map's results: server-sent events that resume where they were broken off."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response

from iris_core.messages.gateway_worker import CallResult
from iris_core.states import display_name
from iris_core.subjects import RESULTS
from iris_core.views.queries import JobQuery
from iris_core.views.streams import CallResultView, ResultsEnd, ResultsView
from iris_gateway.api.work.jobs import job_of
from iris_gateway.auth.bearer import require_reader
from iris_gateway.http.endpoint import EVENT_STREAM, Answers, Call, Endpoint
from iris_gateway.streams.completion import Completion, position_of
from iris_gateway.streams.feed import Lagging
from iris_gateway.streams.recent_maps import MapJob, Since
from iris_gateway.streams.sse import GREETING, frame, resume_in, stream

_STILL_HERE = b":\n\n"


async def followed(call: Call) -> Response:
    job, since = _known(call) or await _found(call, job_of(call))
    require_reader(call.caller, job.user, job.name)
    return stream(call, _written(call, job, since, await resume_in(call, RESULTS)))


def _known(call: Call) -> tuple[MapJob, Since] | None:
    """A map whose job need not be read. For a task it is: the state service alone knows what the task may reach."""
    if call.caller.attempt is not None:
        return None
    return call.gateway.recent_maps.take(job_of(call), call.gateway.clock())


async def _found(call: Call, job: str) -> tuple[MapJob, Since]:
    """A job, and the position in the feed of ends before it was read."""
    since = Since(await position_of(call.gateway.ends))
    return await _look(call, job), since


async def _look(call: Call, job: str) -> MapJob:
    return msgspec.json.decode(await call.read(JobQuery(job)), type=MapJob)


async def _written(call: Call, job: MapJob, since: Since, after: int) -> AsyncIterator[bytes]:
    """``since``: before the job was read or submitted."""

    async def ask() -> str:
        return (await _look(call, job.id)).state

    yield GREETING
    number, found, reader = int(job.id[1:]), (job.state, since.events), call.gateway.results
    async with Completion(call.gateway.ends, number, job.name, "", ask, found, calls=True) as ending:
        with contextlib.suppress(Lagging):  # its reader reconnects and continues
            async for batches in reader.follow(number, after, ending, since.results):
                for sequence, results in batches:
                    yield frame("results", ResultsView([_shown(result) for result in results]), sequence)
                bad, ending.bad_ends = ending.bad_ends, []
                if bad:
                    yield frame("results", ResultsView([], ended=tuple(int(task.rpartition("/")[2]) for task in bad)))
                elif not batches:
                    yield _STILL_HERE
            if not ending.cut_off:
                yield frame("end", ResultsEnd(ending.state))


def _shown(result: CallResult) -> CallResultView:
    return CallResultView(
        index=result.index,
        attempt=result.attempt,
        kind=result.kind,
        data=base64.b64encode(result.data).decode(),
        cause=display_name(result.cause),
        exit_code=result.code,
        signal=result.signal,
        stored=result.stored,
        error=result.error,
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/jobs/{job}/results",
        followed,
        "What the calls of a map return",
        {200: Answers("Results as they arrive, until the job has ended.", ResultsView, media_types=(EVENT_STREAM,))},
        problems=("gone",),
        task=True,
    ),
)
