"""The endpoint of a map's results: server-sent events that resume where they were broken off."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
from starlette.responses import Response

from iris_core.messages.gateway_worker import CallResult
from iris_core.names import to_token
from iris_core.states import display_name
from iris_core.subjects import RESULTS
from iris_core.views.queries import JobQuery
from iris_core.views.streams import CallResultView, ResultsEnd, ResultsView
from iris_gateway.api.work.jobs import job_of
from iris_gateway.api.work.tasks import attempt_record
from iris_gateway.auth.bearer import require_named, require_reader
from iris_gateway.dispatch.endpoint import EVENT_STREAM, Answers, Call, Endpoint
from iris_gateway.dispatch.sse import GREETING, frame, resume_in, stream
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.completion import ENDED, Completion, position_of
from iris_gateway.streams.feed import Lagging
from iris_gateway.streams.recent_maps import MapJob, Since
from iris_gateway.streams.results import ResultBatch

log = logging.getLogger(__name__)

_STILL_HERE = b":\n\n"
FRAME_RESULTS = 500
FRAME_BYTES = 256 << 10
"""Of results that are one event, unless a single one is larger."""
_LOOKS = 20
_LOOK_AGAIN_S = 0.25
"""A follower may not know yet of an attempt that has ended."""


class ResultHosts:
    """The workers that results of a map are taken from: those on which a call of it has run.

    A worker may store results of any job, since the stream knows none, and who asks for them
    unpickles them.
    """

    def __init__(self, call: Call, job: MapJob) -> None:
        self._call = call
        self._job = job
        self._known: set[str] = set()

    async def may_send(self, batch: ResultBatch) -> bool:
        """Whether they are of such a worker: its first result is that of an attempt there. Raises
        ProblemResponse.
        """
        if batch.worker not in self._known:
            if not (batch.results and await self._ran(batch.worker, batch.results[0])):
                log.error(
                    "results of %s refused: none of its calls ran on %s", self._job.id, batch.worker
                )
                return False
            self._known.add(batch.worker)
        return True

    async def _ran(self, worker: str, result: CallResult) -> bool:
        for _ in range(_LOOKS):
            try:
                attempt = await attempt_record(
                    self._call, f"{self._job.id}/{result.index}", result.attempt
                )
            except ProblemResponse as problem:
                if problem.retryable:
                    raise
                return False
            if attempt is not None:
                return to_token(attempt.worker) == worker
            await asyncio.sleep(_LOOK_AGAIN_S)
        return False


async def followed(call: Call) -> Response:
    reference, _, named = job_of(call).partition("@")
    known = _known(call, reference)
    job, since = known or await _found(call, job_of(call))
    require_reader(call.caller, job.user, job.name)
    require_named(call.caller, job.user, job.name, named)
    after = await resume_in(call, RESULTS)
    if job.has_returned and not after:
        await _check_kept(call, job)
    return stream(call, _written(call, job, since, after))


async def _check_kept(call: Call, job: MapJob) -> None:
    """Raises ProblemResponse gone when no result of a map that has returned is there, unavailable."""
    if not await call.gateway.results.last(int(job.id[1:])):
        words = f"the results of {job.name} ({job.id}) are not kept any more"
        raise ProblemResponse("gone", f"{words}: {job.why_gone}; iris rerun {job.id} runs it again")


def _known(call: Call, job: str) -> tuple[MapJob, Since] | None:
    """A map whose job need not be read. For a task it is: the state service alone knows what the
    task may reach.
    """
    if call.caller.attempt is not None:
        return None
    return call.gateway.recent_maps.take(job, call.gateway.clock())


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
    number = int(job.id[1:])
    found = (job.state, since.events)
    reader = call.gateway.results
    hosts = ResultHosts(call, job)
    shown: set[int] = set()
    is_whole = not after and job.state in ENDED
    async with Completion(
        call.gateway.ends, number, job.name, "", ask=ask, found=found, calls=True
    ) as ending:
        with contextlib.suppress(Lagging):  # its reader reconnects and continues
            async for batches in reader.follow(number, after, ending, since.results):
                for part in batches:
                    if await hosts.may_send(part):
                        if is_whole:
                            shown.update(result.index for result in part.results)
                        for piece in _frames(part):
                            yield piece
                            await reader.turns.give()
                is_silent = not batches
                while bad := ending.take_bad_ends():
                    is_silent = False
                    yield frame("results", _ended(bad))
                    await reader.turns.give()
                if is_silent:
                    yield _STILL_HERE
            if not ending.cut_off:
                missing = job.without(shown) if is_whole else ""
                yield frame(
                    "end", ResultsEnd(ending.state, missing, job.why_gone if missing else "")
                )


def _frames(batch: ResultBatch) -> Iterator[bytes]:
    """The results of one message, at most `FRAME_RESULTS` or so many bytes at once; only the last piece
    has the place to resume from.
    """
    shown: list[CallResultView] = []
    size = 0
    for result in batch.results:
        if shown and (len(shown) == FRAME_RESULTS or size + len(result.data) > FRAME_BYTES):
            yield frame("results", ResultsView(shown))
            shown = []
            size = 0
        shown.append(_shown(result))
        size += len(result.data)
    yield frame("results", ResultsView(shown), batch.sequence)


def _ended(bad: Sequence[tuple[int, int]]) -> ResultsView:
    indexes = tuple(index for index, _ in bad)
    return ResultsView([], ended=indexes, ended_attempts=tuple(attempt for _, attempt in bad))


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
        answers={
            200: Answers(
                "Results as they arrive, until the job has ended.",
                ResultsView,
                media_types=(EVENT_STREAM,),
            )
        },
        problems=("gone",),
        task=True,
    ),
)
