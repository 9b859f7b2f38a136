"""Endpoints of task output: plain text, JSON lines, or server-sent events; the present output, or
followed to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from starlette.responses import Response

from iris_core.subjects import LOGS
from iris_core.units import show_bytes
from iris_core.views.jobs import StoredView
from iris_core.views.queries import JobQuery, about
from iris_core.views.streams import LogEnd, LogLineView
from iris_gateway.api.work.jobs import job_of
from iris_gateway.api.work.tasks import TaskRecord, task_of, task_record
from iris_gateway.auth.bearer import require_reader
from iris_gateway.dispatch.endpoint import EVENT_STREAM, JSON_LINES, TEXT, Answers, Call, Endpoint
from iris_gateway.dispatch.sse import counted, frame, resume_in, stream
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.completion import ENDED, Completion
from iris_gateway.streams.log_formats import PlainText, Shown, Write
from iris_gateway.streams.log_lines import EXPIRED, LastLines
from iris_gateway.streams.logs import LogQuery, Reading

FORMATS = {"text": TEXT, "jsonl": JSON_LINES, "sse": EVENT_STREAM}
STREAMS = ("stdout", "stderr")
MAX_TAIL = 100_000

_STILL_HERE = b":\n\n"
STILL_HERE_S = 5.0
"""After so long without a line a stream of events gets a sign of life."""


class TaskLogsParameters(msgspec.Struct, frozen=True):
    """Which output of a task, and in which form."""

    follow: Annotated[bool, about("Go on until the end.")] = False
    attempt: Annotated[
        str,
        about(
            "Its number, `last`, or `all`.",
            pattern="^(all|last|0|[1-9][0-9]{0,6})$",
            example="0, last, all",
        ),
    ] = "last"
    tail: (
        Annotated[int, about("Only this many of the lines there are.", ge=0, le=MAX_TAIL)] | None
    ) = None
    since_ms: Annotated[
        int, about("Nothing printed before this time, or longer ago than this: `10m`.")
    ] = 0
    stream: Annotated[
        tuple[Annotated[str, about("", one_of=STREAMS)], ...], about("stdout or stderr only.")
    ] = ()
    format: Annotated[str, about("Instead of an Accept header.", one_of=FORMATS)] = ""
    unfinished: Annotated[
        bool,
        about("With `follow`: also what there is of a line that has not ended, as `continued`."),
    ] = False


class JobLogsParameters(TaskLogsParameters, frozen=True):
    """Which output of a job, and in which form."""

    attempt: Annotated[
        str, about("Its number, or `all`.", pattern="^(all|0|[1-9][0-9]{0,6})$", example="0, all")
    ] = "all"


class _Job(msgspec.Struct):
    id: str
    name: str
    user: str
    state: str
    stored: StoredView | None = None
    evicted: StoredView | None = None


@dataclass(frozen=True, slots=True)
class LogRequest:
    """One validated request for output.

    Attributes:
        job, task: names; the task's is empty for a whole job.
        state: at the time of the request. ask: reads it again.
        tail: so many of the present last lines; None: all.
        after: the sequence after which to continue, 0 for the beginning.
        stored_bytes: of what is asked for, so much was stored by attempts that have ended.
    """

    query: LogQuery
    job: str
    task: str
    state: str
    ask: Callable[[], Awaitable[str]]
    media_type: str
    write: Write
    follow: bool
    tail: int | None
    after: int
    stored_bytes: int

    def check_found(self, reading: Reading) -> None:
        """Raises ProblemResponse gone when nothing is there of what was stored."""
        ended = not self.follow or self.state in ENDED
        is_read = not self.after and self.tail != 0  # else what is there may be before it
        if self.stored_bytes and ended and is_read and not reading.found:
            size = show_bytes(self.stored_bytes)
            words = f"the output of {self.task or self.job}, {size}, is not here: "
            raise ProblemResponse("gone", words + self.query.why_gone)


async def of_task(call: Call) -> Response:
    asked = call.asked(TaskLogsParameters)
    task = await task_record(call, task_of(call))
    require_reader(call.caller, task.user, task.job)

    async def ask() -> str:
        return (await task_record(call, task.id)).state

    attempt = asked.attempt
    if attempt.isdigit() and not (task.attempts and int(attempt) <= task.attempts[-1].number):
        raise ProblemResponse("not_found", f"{task.task} has no attempt {attempt}; {_made(task)}")
    last = task.attempts[-1].number if task.attempts else 0
    only = (
        int(attempt)
        if attempt.isdigit()
        else last
        if attempt == "last" and not asked.follow
        else None
    )
    first = last if attempt == "last" else 0
    query = LogQuery(
        *task.numbers,
        only,
        first,
        frozenset(asked.stream or STREAMS),
        asked.since_ms,
        asked.unfinished,
        why_gone=_why_gone(task.user, task.output_evicted_bytes),
    )
    wanted = (one for one in task.attempts if query.wants_attempt(one.number))
    return await _respond(
        call,
        asked,
        query,
        (task.job, task.task, task.state),
        stored_bytes=sum(one.output_bytes for one in wanted),
        ask=ask,
        plain=PlainText(prefixed=False).write,
    )


async def of_job(call: Call) -> Response:
    asked = call.asked(JobLogsParameters)

    async def look(job: str) -> _Job:
        return msgspec.json.decode(await call.read(JobQuery(job)), type=_Job)

    job = await look(job_of(call))
    require_reader(call.caller, job.user, job.name)

    async def ask() -> str:
        return (await look(job.id)).state

    only = int(asked.attempt) if asked.attempt.isdigit() else None
    evicted = job.evicted.output_bytes if job.evicted is not None else 0
    why = _why_gone(job.user, evicted)
    query = LogQuery(
        int(job.id[1:]),
        None,
        only,
        0,
        streams=frozenset(asked.stream or STREAMS),
        since_ms=asked.since_ms,
        unfinished=asked.unfinished,
        evicted=f"[iris: {show_bytes(evicted)} of this output not here: {why}]" if evicted else "",
        why_gone=why,
    )
    stored_bytes = job.stored.output_bytes if job.stored is not None and only is None else 0
    return await _respond(
        call,
        asked,
        query,
        (job.name, "", job.state),
        stored_bytes=stored_bytes,
        ask=ask,
        plain=PlainText(prefixed=True).write,
    )


def _why_gone(user: str, evicted_bytes: int) -> str:
    """Why output of a job is not there any more, of which so much was deleted to make room."""
    return f"deleted to make room, {user} held most" if evicted_bytes else EXPIRED


async def _respond(
    call: Call,
    asked: TaskLogsParameters,
    query: LogQuery,
    known: tuple[str, str, str],
    stored_bytes: int,
    ask: Callable[[], Awaitable[str]],
    plain: Write,
) -> Response:
    job, task, state = known
    follow = asked.follow and call.request.method == "GET"
    media_type = FORMATS[asked.format] if asked.format else _accepted(call)
    after = await resume_in(call, LOGS)
    shown = Shown(job)
    write = {TEXT: plain, JSON_LINES: shown.write_json_lines, EVENT_STREAM: shown.write_frames}[
        media_type
    ]
    request = LogRequest(
        query,
        job,
        task,
        state,
        ask=ask,
        media_type=media_type,
        write=write,
        follow=follow,
        tail=None if after else asked.tail,
        after=after,
        stored_bytes=stored_bytes,
    )
    until = await call.gateway.logs.last(query)
    if not until:
        request.check_found(Reading(query))
    body = _written(call, request, until)
    if until > after:
        body = _continued(request, await anext(body), body)
    if media_type == EVENT_STREAM or follow:
        response = stream(call, body)
        response.headers["content-type"] = _content_type(media_type)
        return response
    return counted(call, body, media_type)


async def _continued(
    request: LogRequest, first: bytes, rest: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """A response whose first piece is known: until then a problem is answered as a problem
    document.

    Afterwards the connection is broken off, which a client does not take for the end. A reader of
    server-sent events resumes; for a person who reads plain text the last line tells it.
    """
    yield first
    try:
        async for piece in rest:
            yield piece
    except ProblemResponse as problem:
        if request.media_type == TEXT:
            yield f"[iris: {problem.detail}]\n".encode()
        raise


async def _written(call: Call, request: LogRequest, until: int) -> AsyncIterator[bytes]:
    reading = Reading(request.query, request.after)
    state = request.state
    if request.tail is None:
        async for piece in _there(call, request, reading, until):
            yield piece
    else:
        kept = LastLines(request.tail)
        scan = asyncio.ensure_future(call.gateway.logs.tail(request.query, kept, until))
        try:
            while not (await asyncio.wait({scan}, timeout=STILL_HERE_S))[0]:
                if request.media_type == EVENT_STREAM:
                    yield _STILL_HERE
        finally:
            scan.cancel()
        reading = await scan
        async for piece in _pieces(call, request.write(kept.blocks(), reading.safe)):
            yield piece
    request.check_found(reading)
    if request.follow:
        feed = call.gateway.feed if request.task else call.gateway.ends
        async with Completion(
            feed, request.query.job, request.job, request.task, ask=request.ask
        ) as ending:
            async for piece in _coming(call, request, reading, ending):
                yield piece
            if ending.cut_off:
                return  # its reader reconnects and continues
            state = ending.state
    async for piece in _pieces(call, request.write(reading.rest(), reading.position)):
        yield piece
    if request.media_type == EVENT_STREAM:
        yield frame(
            "end", LogEnd(state=state, unfinished=len(reading.unfinished)), reading.position
        )


async def _there(
    call: Call, request: LogRequest, reading: Reading, until: int
) -> AsyncIterator[bytes]:
    """The present output; a stream of events gets signs of life while no line matches."""
    if until <= reading.position:
        return
    clock = asyncio.get_running_loop().time
    sent_s = clock()
    with call.gateway.logs.open(reading) as reader:
        async for blocks in call.gateway.logs.present(reading, reader, until):
            if blocks or request.media_type != EVENT_STREAM or clock() < sent_s + STILL_HERE_S:
                async for piece in _pieces(call, request.write(blocks, reading.safe)):
                    yield piece
                sent_s = clock() if blocks else sent_s
            else:
                yield _STILL_HERE
                sent_s = clock()


async def _coming(
    call: Call, request: LogRequest, reading: Reading, ending: Completion
) -> AsyncIterator[bytes]:
    with call.gateway.logs.open(reading) as reader:
        async for blocks in call.gateway.logs.coming(reading, reader, ending):
            if not blocks and request.media_type == EVENT_STREAM:
                yield _STILL_HERE
            async for piece in _pieces(call, request.write(blocks, reading.safe)):
                if piece:
                    yield piece


async def _pieces(call: Call, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each is made when the one before it has been sent, and other requests have had their turn."""
    for piece in pieces:
        yield piece
        await call.gateway.logs.turns.give()


def _made(task: TaskRecord) -> str:
    """Which attempts exist, as text."""
    last = task.attempts[-1].number if task.attempts else -1
    return (
        "it has none yet"
        if last < 0
        else "its only one is 0"
        if not last
        else f"its last one is {last}"
    )


def _accepted(call: Call) -> str:
    """The media type of the response by ``Accept``."""
    return next((kind for kind in (EVENT_STREAM, JSON_LINES) if call.accepts(kind)), TEXT)


def _content_type(media_type: str) -> str:
    return media_type if media_type == JSON_LINES else f"{media_type}; charset=utf-8"


_ANSWERS = {200: Answers("The output.", LogLineView, media_types=(TEXT, JSON_LINES, EVENT_STREAM))}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/tasks/{task}/logs",
        of_task,
        "Output of a task",
        answers=_ANSWERS,
        parameters=TaskLogsParameters,
        problems=("gone",),
        task=True,
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/logs",
        of_job,
        "Output of all tasks of a job",
        answers=_ANSWERS,
        parameters=JobLogsParameters,
        problems=("gone",),
        task=True,
    ),
)
