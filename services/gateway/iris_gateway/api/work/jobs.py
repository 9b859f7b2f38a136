"""Endpoints of jobs: submit, list, show, cancel, rerun.

Out of scope: validation (`iris_gateway.api.work.admission`, then the state service).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from iris_core.admission.actions import ReasonText
from iris_core.messages.gateway_state import Answer, CancelJob, RequeueTasks, RerunJob, SubmitJob
from iris_core.spec.jobs import MAX_REPLICAS, Dependency, EnvVariables, IndexText, JobSpec
from iris_core.spec.resources import REQUESTED, up_to_largest
from iris_core.views.jobs import HistoryRow, JobView, SessionView, TreeView
from iris_core.views.queries import (
    HistoryQuery,
    JobQuery,
    JobsQuery,
    PageQuery,
    SessionsQuery,
    TreeQuery,
    about,
)
from iris_gateway.api.handling import (
    TAG,
    json_body,
    listing,
    page_of,
    request_key,
    view,
)
from iris_gateway.api.notify import check_targets
from iris_gateway.api.work.admission import spec_from
from iris_gateway.api.work.amend import JobPatch, amend
from iris_gateway.api.work.bundles import JobCode, check_code
from iris_gateway.auth.bearer import may_read, refuse_worker
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import JSON, Answers, Call, Endpoint, passed_on
from iris_gateway.http.bodies import check_media_type, read_body
from iris_gateway.http.parameters import job_reference
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.recent_maps import MapJob, Since


class SubmitParameters(msgspec.Struct, frozen=True):
    """How a job is submitted."""

    if_exists: Annotated[
        str,
        about(
            "What to do when a live job of its owner has this name: refuse, return it, or cancel it first.",
            one_of=("error", "keep", "replace"),
        ),
    ] = "error"
    parent: Annotated[
        str,
        about(
            "The job this one is a child of: refused when there is none. "
            "Without it a child of a job nobody knows is a root.",
        ),
    ] = ""
    beside: Annotated[
        bool,
        about(
            "From a task: its job has no parent, outlives the task's job, and is no child of it."
        ),
    ] = False


class HistoryParameters(PageQuery, frozen=True):
    """Which decisions about a job."""

    task: (
        Annotated[
            int, about("Only of the task with this index, and of its gang.", ge=0, le=MAX_REPLICAS)
        ]
        | None
    ) = None


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why a job, or a call of a map, is cancelled, and how.

    Attributes:
        now: KILL at once, without the stop signal and the grace period, also what is being stopped
            already.
    """

    reason: ReasonText = ""
    now: bool = False


class RequeueBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why tasks return to the queue."""

    reason: ReasonText = ""


OtherAmounts = msgspec.defstruct(
    "OtherAmounts",
    [
        (one.name, Annotated[int, up_to_largest(one.name)] | msgspec.UnsetType, msgspec.UNSET)
        for one in REQUESTED
    ],
    namespace={
        "__doc__": "Amounts that each task has instead of those it had; what is left out stays."
    },
    frozen=True,
    forbid_unknown_fields=True,
)


class RerunBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks to run again, with which other variables and resources, and after which jobs.

    ``tasks``: only these, by their indexes: ``3-7,9``; with ``failed_only`` those of them that did
    not succeed. ``env`` adds variables and replaces those of its names. The new job waits for
    ``after`` and not for what the first one waited for.
    """

    failed_only: bool = False
    env: EnvVariables = {}
    after: tuple[Dependency, ...] = ()
    tasks: IndexText = ""
    resources: OtherAmounts = OtherAmounts()  # type: ignore[valid-type]


class _Made(msgspec.Struct):
    id: str


def job_of(call: Call) -> str:
    """The job in a path."""
    return job_reference(call.segment("job"), call.of_user)


async def submit(call: Call) -> Response:
    how = call.asked(SubmitParameters)
    key = call.idempotency_key
    spec = await read_spec(call)
    await check_code(call, spec, spec.user)
    unchecked = await check_targets(call, spec)
    command = SubmitJob(
        spec,
        call.caller,
        *UNSENT,
        idempotency_key=key,
        if_exists=how.if_exists,
        parent=how.parent,
        beside=how.beside,
    )
    ends = call.gateway.ends
    results = call.gateway.results
    since = (
        Since(ends.newest, results.new.position)
        if spec.calls is not None and ends.reading
        else None
    )
    answer = await call.command(command)
    call.add_note(unchecked)
    if since is not None and answer.status == "created":
        made_map = msgspec.json.decode(answer.body, type=MapJob)
        call.gateway.recent_maps.note(made_map, since, call.gateway.clock())
    return made(answer)


async def read_spec(call: Call) -> JobSpec:
    """The specification in the body, validated as far as possible without records. Raises
    ProblemResponse.
    """
    check_media_type(call.request, JSON)
    return spec_from(await read_body(call.request, call.gateway.settings.body_bytes), call.caller)


def made(answer: Answer) -> Response:
    """201 for a new job, 200 for an existing one."""
    where = {"location": f"/v1/jobs/{msgspec.json.decode(answer.body, type=_Made).id}"}
    if answer.status == "created":
        return passed_on(answer.body, 201, where)
    if answer.status == "replayed":
        where["idempotent-replayed"] = "true"
    return passed_on(answer.body, 200, where)


async def history(call: Call) -> Response:
    job = job_of(call)
    wanted = call.asked(HistoryParameters)
    of = {"job": job} if wanted.task is None else {"task": f"{job}/{wanted.task}"}
    return passed_on(await call.read(HistoryQuery(**of, limit=wanted.limit, cursor=wanted.cursor)))


async def cancel(call: Call) -> Response:
    return await cancel_by_api(call, job_of(call))


async def cancel_by_api(call: Call, target: str) -> Response:
    """Cancel a job or a task for the reason in the body."""
    body = await json_body(call, CancelBody)
    return passed_on(
        (await send_cancel(call, target, body.reason, request_key(call), now=body.now)).body, 202
    )


async def send_cancel(
    call: Call, job: str, reason: str, key: str = "", *, now: bool = False
) -> Answer:
    """Cancel a job and all below it, or one call of a map, as the caller. Raises Problem."""
    return await call.command(CancelJob(job, call.caller, *UNSENT, reason, now), key=key)


async def requeue(call: Call) -> Response:
    return await requeue_by_api(call, job_of(call))


async def requeue_by_api(call: Call, target: str) -> Response:
    """Requeue a job or a task for the reason in the body."""
    body = await json_body(call, RequeueBody)
    return passed_on((await send_requeue(call, target, body.reason, request_key(call))).body, 202)


async def send_requeue(call: Call, target: str, reason: str, key: str = "") -> Answer:
    """Stop what runs of a job or a task and return it to the queue, as the caller. Raises
    Problem.
    """
    return await call.command(RequeueTasks(target, call.caller, *UNSENT, reason), key=key)


async def rerun(call: Call) -> Response:
    job = job_of(call)
    body = await json_body(call, RerunBody)
    return made(await send_rerun(call, job, body, request_key(call)))


async def send_rerun(call: Call, job: str, wanted: RerunBody, key: str = "") -> Answer:
    """Submit a job again, as the caller. Raises Problem."""
    refuse_worker(call.caller, RerunJob)
    found = msgspec.json.decode(
        await call.gateway.queries.ask(JobQuery(job), call.caller), type=JobCode
    )
    code = found.spec.code if may_read(call.caller, found.user) else ()  # others are refused below
    if not all([await call.gateway.bundles.use(digest, add=found.user) for digest in code]):
        raise ProblemResponse(
            "gone", "the bundle of this job has expired: run it again from its directory"
        )
    amounts = msgspec.to_builtins(wanted.resources)
    command = RerunJob(
        job,
        call.caller,
        *UNSENT,
        failed_only=wanted.failed_only,
        env=wanted.env,
        after=wanted.after,
        tasks=wanted.tasks,
        resources=amounts,
    )
    return await call.command(command, key=key)


_MADE = {
    200: Answers(
        "The job that was there.",
        JobView,
        headers={"Location": "The job.", "Idempotent-Replayed": "true"},
    ),
    201: Answers("The job, durable.", JobView, headers={"Location": "The job."}),
}

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/jobs",
        submit,
        "Submit a job",
        answers=_MADE,
        parameters=SubmitParameters,
        body=JobSpec,
        problems=("not_found", "idempotency_mismatch", "parent_ended"),
        task=True,
    ),
    listing("/v1/jobs", JobsQuery, "List jobs, newest first", page_of(JobView)),
    view("/v1/jobs/{job}", JobQuery, "Show a job", Answers("The job.", JobView, headers=TAG)),
    view(
        "/v1/jobs/{job}/tree",
        TreeQuery,
        "Show a job and its descendants",
        Answers("The tree.", TreeView),
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/history",
        history,
        "Decisions about a job",
        answers={200: Answers("One page.", page_of(HistoryRow))},
        parameters=HistoryParameters,
        task=True,
    ),
    listing(
        "/v1/jobs/{job}/sessions", SessionsQuery, "The sessions of a job", page_of(SessionView)
    ),
    Endpoint(
        "PATCH",
        "/v1/jobs/{job}",
        amend,
        "Hold or release a job, or drop its dependencies",
        answers={200: Answers("The job as it is now.", JobView, headers=TAG)},
        body=JobPatch,
        problems=("conflict", "precondition_failed"),
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/cancel",
        cancel,
        "Kill a job and its descendants",
        answers={202: Answers("The job; its processes are being stopped.", JobView)},
        body=CancelBody,
        task=True,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/requeue",
        requeue,
        "Stop the running tasks of a job and return them to the queue",
        answers={202: Answers("The job; its processes are being stopped.", JobView)},
        body=RequeueBody,
        task=True,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{job}/rerun",
        rerun,
        "Submit a job again",
        answers=_MADE,
        body=RerunBody,
        problems=("parent_ended",),
        task=True,
    ),
)
