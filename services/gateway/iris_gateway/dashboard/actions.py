"""Changes by people on pages: cancel one or several jobs after a confirmation, and rerun a job.

Each is a form that works without JavaScript, sends the command that the API sends, and leads back
to a page. Source: docs/adr/0036-forms-may-change-jobs.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from iris_core.access.rights import Membership
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import Caller
from iris_core.views.queries import NamedJobsQuery
from iris_gateway.api.handling import request_key
from iris_gateway.api.work.jobs import RerunBody, send_cancel, send_rerun
from iris_gateway.auth.bearer import may_act
from iris_gateway.dashboard.page_reads import Facts, memberships_of
from iris_gateway.dashboard.render import ENDED
from iris_gateway.dashboard.responses import FormFields, fields_of, first, html
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.dispatch.identity import identify, identify_form
from iris_gateway.http.parameters import job_reference
from iris_gateway.http.problem import ProblemResponse

AT_ONCE = 100
"""Jobs that one form cancels at most."""


async def confirm_cancel(call: Call) -> Response:
    """A page that lists what would be cancelled, and what cannot be."""
    caller = identify(call.gateway, call.request)
    call = replace(call, caller=caller)
    names = _chosen(call.request.query_params.getlist("job"))
    jobs = msgspec.json.decode(await call.read(NamedJobsQuery(tuple(names), limit=AT_ONCE)))[
        "items"
    ]
    missing = {*names} - {name for job in jobs for name in (job["id"], job["name"])}
    memberships = await memberships_of(
        call.gateway, caller, {job["project"] for job in jobs if job["state"] not in ENDED}
    )
    judged = [(job, _obstacle(caller, job, memberships)) for job in jobs]
    refused = [(job, why) for job, why in judged if why]
    live = [job for job, why in judged if not why]
    return await html(
        call,
        "cancel.html",
        title="Cancel jobs",
        caller=caller,
        live=live,
        refused=refused,
        missing=sorted(missing),
        longest=SENTENCE,
    )


def _chosen(references: list[str]) -> list[str]:
    """The distinct jobs of a form, in its order. Raises Problem."""
    jobs = list(dict.fromkeys(map(job_reference, references)))
    if len(jobs) > AT_ONCE:
        raise ProblemResponse(
            "malformed", f"{len(jobs)} jobs are chosen; {AT_ONCE} can be cancelled at once"
        )
    return jobs


def _obstacle(caller: Caller, job: Mapping[str, Any], memberships: Mapping[str, Membership]) -> str:
    """Why a caller cannot cancel a job; empty when nothing is in the way."""
    if job["state"] in ENDED:
        return f"has ended ({job['state']})"
    is_theirs = may_act(caller, job["user"], memberships[job["project"]])
    return "" if is_theirs else f"belongs to {job['user']}"


async def cancel(call: Call) -> Response:
    """Cancel the jobs of the confirmed form; leads to the page of a single one, else says what
    became of each.
    """
    call, fields = await acting(call)
    jobs = _chosen(fields.get("job", []))
    reason = first(fields, "reason")
    now = first(fields, "now") == "1"
    results = await asyncio.gather(*(_cancelled(call, job, reason, now) for job in jobs))
    if len(results) == 1 and not results[0]["problem"]:
        return RedirectResponse(f"/jobs/{results[0]['id']}", 303)
    return await html(
        call, "cancelled.html", title="Cancelled jobs", caller=call.caller, results=results
    )


async def _cancelled(call: Call, job: str, reason: str, now: bool) -> Facts:
    try:
        view = msgspec.json.decode((await send_cancel(call, job, reason, now=now)).body)
    except ProblemResponse as problem:
        return {"id": job, "name": job, "problem": problem.detail}
    return {"id": view["id"], "name": view["name"], "problem": ""}


async def rerun(call: Call) -> Response:
    """Submit a job again; the same form sent twice is one job. Leads to its page, or says what is
    not as it was.
    """
    call, fields = await acting(call)
    job = job_reference(call.segment("job"))
    key = request_key(call, first(fields, "key"))
    wanted = RerunBody(failed_only=first(fields, "failed") == "1")
    made = msgspec.json.decode((await send_rerun(call, job, wanted, key)).body)
    if made.get("warnings"):
        return await html(
            call,
            "rerun.html",
            title=f"Rerun of {made['name']}",
            caller=call.caller,
            job=made,
        )
    return RedirectResponse(f"/jobs/{made['id']}", 303)


async def acting(call: Call) -> tuple[Call, FormFields]:
    """The call as the caller who sent its form, within the rate of requests, and the form. Raises
    Problem.
    """
    caller = identify_form(call.gateway, call.request)
    call.gateway.pace.admit(caller.user, call.gateway.clock())
    return replace(call, caller=caller), await fields_of(call.request)
