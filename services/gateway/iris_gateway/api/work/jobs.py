"""Endpoints of jobs: submit, list, show, cancel, rerun.

Out of scope: validation (`iris_gateway.api.work.admission`, then the state service).
"""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response

from iris_core.messages.gateway_state import Answer, CancelJob, RequeueTasks, RerunJob, SubmitJob
from iris_core.spec import MAX_REPLICAS, JobSpec
from iris_core.states import JobState, SessionStatus, TaskState, display_name
from iris_core.subjects import CMD_CANCEL, CMD_REQUEUE, CMD_RERUN, CMD_SUBMIT
from iris_core.views import JOB_ORDERS, JOBS_ORDERED, NEWEST_FIRST, HistoryRow, JobView, SessionView, TreeView
from iris_gateway.api.handling import (
    TAG,
    idempotency_key,
    json_body,
    listing,
    page,
    request_key,
    tagged,
    view,
)
from iris_gateway.api.pages import page_of
from iris_gateway.api.work.admission import spec_from
from iris_gateway.api.work.amend import JobPatch, amend
from iris_gateway.api.work.bundles import JobCode, check_code
from iris_gateway.auth.bearer import may_read
from iris_gateway.commands import Envelope
from iris_gateway.http.bodies import BODY_S, check_media_type, read_body
from iris_gateway.http.endpoint import JSON, Answers, Call, Endpoint, passed_on
from iris_gateway.http.parameters import Parameter, job_reference
from iris_gateway.http.problem import ProblemResponse

JOB_STATES = tuple(display_name(state) for state in JobState if state)
TASK_STATES = tuple(display_name(state) for state in TaskState if state)
BANDS = ("production", "interactive", "batch")
IF_EXISTS = ("error", "keep", "replace")
SESSION_STATES = tuple(status.value.lower() for status in SessionStatus)

_A_PREFIX = r"/[A-Za-z0-9._/-]{0,1023}"
_PREFIX = re.compile(rf"{_A_PREFIX}\Z")


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why a job, or a call of a map, is cancelled."""

    reason: str = ""


class RequeueBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why tasks return to the queue."""

    reason: str = ""


class RerunBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks to run again."""

    failed_only: bool = False


class _Made(msgspec.Struct):
    id: str


def job_of(call: Call) -> str:
    """The job in a path."""
    return job_reference(call.segment("job"))


async def submit(call: Call) -> Response:
    parameters = call.parameters()
    if_exists = parameters.choice("if_exists", IF_EXISTS, "error")
    parent = parameters.text("parent")
    parameters.finish()
    above = job_reference(parent) if parent else ""
    key = idempotency_key(call)
    spec = await read_spec(call)
    await check_code(call, spec, spec.user)

    def command(envelope: Envelope) -> SubmitJob:
        return SubmitJob(
            spec=spec,
            caller=call.caller,
            request_id=envelope.request_id,
            submitted_ms=envelope.at_ms,
            idempotency_key=key,
            if_exists=if_exists,
            traceparent=envelope.traceparent,
            parent=above,
        )

    return made(await call.command(CMD_SUBMIT, command))


async def read_spec(call: Call) -> JobSpec:
    """The specification in the body, validated as far as possible without records. Raises ProblemResponse."""
    check_media_type(call.request, JSON)
    return spec_from(await read_body(call.request, call.gateway.settings.body_bytes, BODY_S), call.caller)


def made(answer: Answer) -> Response:
    """201 for a new job, 200 for an existing one."""
    where = {"location": f"/v1/jobs/{msgspec.json.decode(answer.body, type=_Made).id}"}
    if answer.status == "created":
        return passed_on(answer.body, 201, where)
    if answer.status == "replayed":
        where["idempotent-replayed"] = "true"
    return passed_on(answer.body, 200, where)


async def listed(call: Call) -> Response:
    parameters = call.parameters()
    state = parameters.choice("state", JOB_STATES)
    user = parameters.text("user", allow=lambda text: 0 < len(text) <= 128)
    band = parameters.choice("band", BANDS)
    prefix = parameters.text("name_prefix", allow=lambda text: _PREFIX.match(text) is not None, hint="/train")
    label = parameters.text("label", allow=lambda text: "=" in text and len(text) <= 512, hint="team=vision")
    parent = parameters.text("parent")
    order = parameters.choice("order", JOB_ORDERS)
    filters = {"state": state, "user": user, "band": band, "name_prefix": prefix, "label": label, "order": order}
    if parameters.truth("without_routes"):
        filters["without_routes"] = "true"
    return await page(call, "jobs", parameters, **filters, parent=job_reference(parent) if parent else "")


async def shown(call: Call) -> Response:
    call.parameters().finish()
    return tagged(await call.read("job", job=job_of(call)))


async def tree(call: Call) -> Response:
    return await view(call, "tree", job=job_of(call))


async def history(call: Call) -> Response:
    job, parameters = job_of(call), call.parameters()
    if "task" not in call.request.query_params:
        return await page(call, "history", parameters, job=job)
    return await page(call, "history", parameters, task=f"{job}/{parameters.number('task', 0, 0, MAX_REPLICAS)}")


async def sessions(call: Call) -> Response:
    parameters = call.parameters()
    status = parameters.choice("status", SESSION_STATES)
    return await page(call, "sessions", parameters, job=job_of(call), status=status)


async def cancel(call: Call) -> Response:
    job = job_of(call)
    call.parameters().finish()
    body = await json_body(call, CancelBody, CancelBody())
    return passed_on((await send_cancel(call, job, body.reason, request_key(call))).body, 202)


async def send_cancel(call: Call, job: str, reason: str, key: str = "") -> Answer:
    """Cancel a job and all below it, or one call of a map, as the caller. Raises Problem."""
    if call.caller.role == "worker":
        raise ProblemResponse("forbidden", "worker tokens may not cancel jobs")

    def command(envelope: Envelope) -> CancelJob:
        return CancelJob(job, call.caller, envelope.request_id, envelope.at_ms, reason[:500])

    return await call.command(CMD_CANCEL, command, key=key)


async def requeue(call: Call) -> Response:
    return await send_requeue(call, job_of(call))


async def send_requeue(call: Call, target: str) -> Response:
    """Stop what runs of a job or a task and return it to the queue, as the caller. Raises Problem."""
    call.parameters().finish()
    body = await json_body(call, RequeueBody, RequeueBody())
    if call.caller.role == "worker":
        raise ProblemResponse("forbidden", "worker tokens may not requeue tasks")

    def command(envelope: Envelope) -> RequeueTasks:
        return RequeueTasks(target, call.caller, envelope.request_id, envelope.at_ms, body.reason)

    return passed_on((await call.command(CMD_REQUEUE, command, key=request_key(call))).body, 202)


async def rerun(call: Call) -> Response:
    job = job_of(call)
    call.parameters().finish()
    body = await json_body(call, RerunBody, RerunBody())
    return made(await send_rerun(call, job, body.failed_only, request_key(call)))


async def send_rerun(call: Call, job: str, failed_only: bool, key: str = "") -> Answer:
    """Submit a job again, as the caller. Raises Problem."""
    if call.caller.role == "worker":
        raise ProblemResponse("forbidden", "worker tokens may not submit jobs")
    found = msgspec.json.decode(await call.gateway.queries.ask("job", call.caller, job=job), type=JobCode)
    code = found.spec.code if may_read(call.caller, found.user) else ()  # others are refused below
    if not all([await call.gateway.bundles.use(digest, add=found.user) for digest in code]):
        raise ProblemResponse("gone", "the bundle of this job has expired: run it again from its directory")

    def command(envelope: Envelope) -> RerunJob:
        return RerunJob(job, call.caller, envelope.request_id, envelope.at_ms, failed_only)

    return await call.command(CMD_RERUN, command, key=key)


_STATE = Parameter("state", "Only jobs in this state.", {"type": "string", "enum": list(JOB_STATES)})
_USER = Parameter("user", "Only this user's jobs.", {"type": "string", "minLength": 1, "maxLength": 128})
_BAND = Parameter("band", "Only jobs of this band.", {"type": "string", "enum": list(BANDS)})
_NAMED = Parameter("name_prefix", "Only jobs whose name begins so.", {"type": "string", "pattern": f"^{_A_PREFIX}$"})
_LABEL = Parameter("label", "Only jobs with this label, `key=value`.", {"type": "string", "maxLength": 512})
_PARENT = Parameter("parent", "Only the jobs right below this one.", {"type": "string"})
_ORDER = Parameter(
    "order",
    f"Ascending, or behind `-` descending. Any but `{NEWEST_FIRST}` lists the newest {JOBS_ORDERED:,} jobs only.",
    {"type": "string", "enum": list(JOB_ORDERS), "default": NEWEST_FIRST},
)
_NO_ROUTES = Parameter(
    "without_routes", "No jobs that are routes of deployments.", {"type": "boolean", "default": False}
)
_TASK = Parameter(
    "task",
    "Only of the task with this index, and of its gang.",
    {"type": "integer", "minimum": 0, "maximum": MAX_REPLICAS},
)
_IF_EXISTS = Parameter(
    "if_exists",
    "What to do when a job of this name lives: refuse, return it, or cancel it first.",
    {"type": "string", "enum": list(IF_EXISTS), "default": "error"},
)
_UNDER = Parameter(
    "parent",
    "The job this one is a child of: refused when there is none. Without it a child of a job nobody knows is a root.",
    {"type": "string"},
)
_STATUS = Parameter("status", "Only sessions in this status.", {"type": "string", "enum": list(SESSION_STATES)})

_MADE = {
    200: Answers("The job that was there.", JobView, headers={"Location": "The job.", "Idempotent-Replayed": "true"}),
    201: Answers("The job, durable.", JobView, headers={"Location": "The job."}),
}

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/jobs",
        submit,
        "Submit a job",
        _MADE,
        parameters=(_IF_EXISTS, _UNDER),
        body=JobSpec,
        problems=("not_found", "conflict", "idempotency_mismatch", "parent_ended", "forbidden", "over_quota"),
        task=True,
    ),
    listing(
        "/v1/jobs",
        listed,
        "List jobs, newest first",
        page_of(JobView),
        *(_STATE, _USER, _BAND, _NAMED, _LABEL, _PARENT, _ORDER, _NO_ROUTES),
    ),
    Endpoint("GET", "/v1/jobs/{job}", shown, "Show a job", {200: Answers("The job.", JobView, headers=TAG)}, task=True),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/tree",
        tree,
        "Show a job and its descendants",
        {200: Answers("The tree.", TreeView)},
        task=True,
    ),
    listing("/v1/jobs/{job}/history", history, "Decisions about a job", page_of(HistoryRow), _TASK, task=True),
    listing("/v1/jobs/{job}/sessions", sessions, "The sessions of a job", page_of(SessionView), _STATUS, task=True),
    Endpoint(
        "PATCH",
        "/v1/jobs/{job}",
        amend,
        "Hold or release a job, or drop its dependencies",
        {200: Answers("The job as it is now.", JobView, headers=TAG)},
        body=JobPatch,
        problems=("conflict", "forbidden", "precondition_failed"),
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/cancel",
        cancel,
        "Kill a job and its descendants",
        {202: Answers("The job; its processes are being stopped.", JobView)},
        body=CancelBody,
        problems=("forbidden",),
        task=True,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/requeue",
        requeue,
        "Stop the running tasks of a job and return them to the queue",
        {202: Answers("The job; its processes are being stopped.", JobView)},
        body=RequeueBody,
        problems=("conflict", "forbidden"),
        task=True,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/rerun",
        rerun,
        "Submit a job again",
        _MADE,
        body=RerunBody,
        problems=("conflict", "parent_ended", "forbidden", "over_quota"),
        task=True,
    ),
)
