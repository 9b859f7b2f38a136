"""Endpoints of commands that people execute beside tasks: start one and read it as JSON lines,
write to it. The same for a task's own terminal, and for connections to its ports. A task executes
commands beside the tasks of its own job: `srun` in a script of several hosts.

Nothing is kept here: the id of an execution names its worker, so any gateway passes input on. The
response of the start is its output; who closes that connection ends the command.
Source: docs/adr/0044-commands-beside-tasks-are-read-by-requests.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.responses import Response

from iris_bus.contract import NoResponders, Unavailable
from iris_core import subjects
from iris_core.access.rights import Verb, is_task, may
from iris_core.admission.jobs import command_bytes
from iris_core.codec import pack, to_json, unpack
from iris_core.messages.gateway_worker import (
    CloseExecution,
    ExecutionOutput,
    ExecutionTaken,
    ReadExecution,
    StartExecution,
    WriteExecution,
)
from iris_core.messages.message import AttemptRef
from iris_core.spec.field_rules import BASE64
from iris_core.spec.jobs import MAX_COMMAND_BYTES
from iris_core.views.queries import WorkerQuery
from iris_core.views.streams import ExecutionLine, ExecutionPosition
from iris_gateway.api.handling import json_body
from iris_gateway.api.work.tasks import task_of, task_record
from iris_gateway.dispatch.endpoint import JSON_LINES, Answers, Call, Endpoint, json_response
from iris_gateway.dispatch.sse import stream
from iris_gateway.http.parameters import identifier
from iris_gateway.http.problem import ProblemResponse

log = logging.getLogger(__name__)

_ANSWER_S = 8.0
"""Longer than a worker waits for output before it answers without."""
_RETRY_FOR_S = 10.0
_RETRY_S = 0.25
_ALIVE = b"\n"
_NOBODY = AttemptRef(0, 0, 0)

M = TypeVar("M")


class ExecutionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A command to execute beside a task; with ``tty`` on a terminal of that size and type
    (TERM).
    """

    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    tty: bool = False
    rows: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 24
    columns: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 80
    term: Annotated[str, msgspec.Meta(max_length=64)] = ""


class TerminalBody(msgspec.Struct, forbid_unknown_fields=True):
    """The size of the terminal at which a task's own is used."""

    rows: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 24
    columns: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 80


class TunnelBody(msgspec.Struct, forbid_unknown_fields=True):
    """A TCP port on which a process of the task listens, at whatever address of its host."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class ExecutionInput(msgspec.Struct, forbid_unknown_fields=True):
    """What it is to read next, in base64, from position ``offset`` on; ``end``: nothing follows. A
    signal for its process group: INT, QUIT, TERM, HUP, KILL, USR1 or USR2. The new size of its
        terminal.
    """

    offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    data: Annotated[
        bytes, msgspec.Meta(max_length=256 * 1024, extra_json_schema={"pattern": f"^{BASE64}$"})
    ] = b""
    end: bool = False
    signal: Annotated[str, msgspec.Meta(max_length=8)] = ""
    rows: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    columns: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0


async def start(call: Call) -> Response:
    body = await json_body(call, ExecutionBody)
    if (size := command_bytes(body.command)) > MAX_COMMAND_BYTES:
        raise ProblemResponse(
            "too_large", f"the command has {size} bytes; the limit is {MAX_COMMAND_BYTES}"
        )
    request = StartExecution(
        "",
        _NOBODY,
        "",
        tuple(body.command),
        tty=body.tty,
        rows=body.rows,
        columns=body.columns,
        term=body.term,
    )
    return await _begin(call, request, "run a command in", command=body.command)


async def open_terminal(call: Call) -> Response:
    body = await json_body(call, TerminalBody)
    request = StartExecution(
        "", _NOBODY, "", (), rows=body.rows, columns=body.columns, terminal=True
    )
    return await _begin(call, request, "connect to the terminal of", terminal=True)


async def open_tunnel(call: Call) -> Response:
    body = await json_body(call, TunnelBody)
    return await _begin(
        call, StartExecution("", _NOBODY, "", (), port=body.port), "connect to", port=body.port
    )


async def _begin(call: Call, wanted: StartExecution, what: str, **said: object) -> Response:
    """Ask the task's worker for what is ``wanted``, for the caller; returns its output. ``said``:
    for the log.

    Raises ProblemResponse.
    """
    task = await task_record(call, task_of(call))
    own = call.caller.attempt
    if is_task(call.caller) and (own is None or own.job != task.numbers[0]):
        raise ProblemResponse(
            "forbidden", f"the token of a task runs commands in its own job only, not in {task.job}"
        )
    if not may(call.caller, Verb.EXECUTE, task.user):
        raise ProblemResponse(
            "forbidden",
            f"{task.job} belongs to {task.user}; only its owner or an admin may do this",
        )
    if task.state != "running" or not task.worker or not task.attempts:
        raise ProblemResponse(
            "conflict", f"{task.task} is {task.state}; a command runs beside a running task only"
        )
    execution = f"{call.gateway.new_id()}.{task.worker}"
    ref = AttemptRef(*task.numbers, task.attempts[-1].number)
    request = msgspec.structs.replace(wanted, execution=execution, ref=ref, user=call.caller.user)
    response = stream(call, _lines(call, execution))
    taken = await _ask(call, execution, request, ExecutionTaken, repeatable=False)
    if taken.error:
        raise ProblemResponse("conflict", f"cannot {what} {task.task}: {taken.error}")
    log.info(
        "execution begins",
        extra={
            "user": call.caller.user,
            "task": task.task,
            "id": task.id,
            "worker": task.worker,
            "execution": execution,
            **said,
        },
    )
    response.headers["content-type"] = JSON_LINES
    return response


async def write(call: Call) -> Response:
    execution, body = (
        identifier(call.segment("execution"), "execution"),
        await json_body(call, ExecutionInput),
    )
    request = WriteExecution(
        execution,
        call.caller.user,
        body.offset,
        body.data,
        end=body.end,
        signal=body.signal,
        rows=body.rows,
        columns=body.columns,
    )
    taken = await _ask(call, execution, request, ExecutionTaken)
    if taken.error:
        raise ProblemResponse("not_found", f"no such execution: {taken.error}")
    return json_response(ExecutionPosition(position=taken.position))


async def _lines(call: Call, execution: str) -> AsyncIterator[bytes]:
    """The output of a command, each piece a line, its end last; who stops reading ends the
    command.
    """
    gateway = call.gateway
    last = ExecutionOutput(0)
    spoken = gateway.clock()
    try:
        yield _line(ExecutionLine(execution=execution))
        while not last.ended:
            if gateway.closing:
                last = ExecutionOutput(last.number, ended=True, error="the gateway is stopping")
            else:
                last, before = await _next(call, execution, last.number), last.number
                if last.number == before:
                    if gateway.clock() - spoken >= gateway.settings.keep_alive_s:
                        yield _ALIVE
                        spoken = gateway.clock()
                    continue
            yield _line(
                ExecutionLine(
                    stdout=last.stdout,
                    stderr=last.stderr,
                    ended=last.ended,
                    exit_code=last.exit_code,
                    signal=last.signal,
                    error=last.error,
                    closed=last.closed,
                )
            )
            spoken = gateway.clock()
    finally:
        gateway.bus.publish(_subject(execution), pack(CloseExecution(execution)))
        end = {"exit_code": last.exit_code, "signal": last.signal, "error": last.error}
        log.info("execution ended", extra={"user": call.caller.user, "execution": execution, **end})


async def _next(call: Call, execution: str, after: int) -> ExecutionOutput:
    """The next piece of output; an end with words when the worker does not answer for some time."""
    deadline = call.gateway.clock() + _RETRY_FOR_S
    while True:
        try:
            return await _ask(call, execution, ReadExecution(execution, after), ExecutionOutput)
        except ProblemResponse as problem:
            if call.gateway.clock() > deadline:
                return ExecutionOutput(after + 1, ended=True, error=problem.detail)
            await asyncio.sleep(_RETRY_S)


async def _ask(
    call: Call, execution: str, request: Any, kind: type[M], *, repeatable: bool = True
) -> M:
    """Send a request to the worker of an execution. Raises ProblemResponse unavailable, or
    not_found.

    Args:
        repeatable: what was received and not answered may be sent again.
    """
    try:
        answer = await call.gateway.bus.request(
            _subject(execution), pack(request), timeout=_ANSWER_S
        )
    except NoResponders:
        await call.read(WorkerQuery(_worker(execution)))  # refuses one that there is not
        raise ProblemResponse("unavailable", f"{_worker(execution)} is not connected") from None
    except Unavailable:
        raise ProblemResponse(
            "unavailable", f"{_worker(execution)} does not answer", retryable=repeatable
        ) from None
    return unpack(answer.data, kind)


def _worker(execution: str) -> str:
    return execution.partition(".")[2]


def _subject(execution: str) -> str:
    return subjects.execution(_worker(execution))


def _line(line: ExecutionLine) -> bytes:
    return to_json(line) + b"\n"


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/tasks/{task}/executions",
        start,
        "Execute a command beside a task",
        answers={
            200: Answers(
                "Its output as it comes, and its end.", ExecutionLine, media_types=(JSON_LINES,)
            )
        },
        body=ExecutionBody,
        task=True,
    ),
    Endpoint(
        "POST",
        "/v1/tasks/{task}/terminal",
        open_terminal,
        "Read a task's own terminal",
        answers={
            200: Answers(
                "What it shows as that comes, and its end.",
                ExecutionLine,
                media_types=(JSON_LINES,),
            )
        },
        body=TerminalBody,
    ),
    Endpoint(
        "POST",
        "/v1/tasks/{task}/tunnels",
        open_tunnel,
        "Connect to a port of a task",
        answers={
            200: Answers(
                "What arrives by the connection, and its end.",
                ExecutionLine,
                media_types=(JSON_LINES,),
            )
        },
        body=TunnelBody,
    ),
    Endpoint(
        "POST",
        "/v1/executions/{execution}",
        write,
        "Write to a command that is executed, a terminal or a connection",
        answers={200: Answers("The position up to which its input is taken.", ExecutionPosition)},
        body=ExecutionInput,
        task=True,
    ),
)
