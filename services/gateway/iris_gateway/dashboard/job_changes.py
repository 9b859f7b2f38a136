"""Changes of jobs and of the queue by people on pages: hold, release, requeue, and band, timeout
and limit of a job.

Each is a form that works without JavaScript, sends the command that the API sends, and leads back
to the page it was on. Source: docs/adr/0036-forms-may-change-jobs.md,
    docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import RedirectResponse, Response

from iris_core.spec.jobs import BANDS
from iris_gateway.api.handling import request_key
from iris_gateway.api.queue_holds import send_queue_hold
from iris_gateway.api.work.amend import JobPatch, send_amend
from iris_gateway.api.work.jobs import job_of, send_requeue
from iris_gateway.dashboard.actions import acting
from iris_gateway.dashboard.responses import FormFields, first, number_of
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.http.parameters import identifier, task_reference
from iris_gateway.http.problem import ProblemResponse

_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_HOLDS: Mapping[str, JobPatch] = {
    "hold": JobPatch(hold=True),
    "stop": JobPatch(hold=True, stop=True),
    "release": JobPatch(hold=False),
}
"""The buttons of the page that hold or release a job, and what they send."""


async def change(call: Call) -> Response:
    """Send the change of a button, or the values of the form; the same form sent twice is one
    change.

    The page of a task names it, and only that one is requeued.
    """
    (call, fields), job = await acting(call), job_of(call)
    action = first(fields, "action")
    back = f"/jobs/{quote(job, safe='')}"
    key = request_key(call, f"{first(fields, 'key')} {action}")
    if action == "requeue":
        task = first(fields, "task")
        await send_requeue(call, task_reference(task) if task else job, "", key)
        back = f"/tasks/{quote(task, safe='')}" if task else back
    elif action == "update":
        await send_amend(call, job, _patch(fields), int(number_of(fields, "version") or 0), key=key)
    elif action in _HOLDS:
        await send_amend(call, job, _HOLDS[action], 0, key=key)
    else:
        raise ProblemResponse(
            "malformed", f"an action is one of {', '.join(_HOLDS)}, requeue, update"
        )
    return RedirectResponse(back, 303)


async def release_queue(call: Call) -> Response:
    """End a hold on the queue."""
    call, fields = await acting(call)
    hold = identifier(first(fields, "hold"), "hold")
    await send_queue_hold(call, {"hold": hold}, request_key(call, f"{first(fields, 'key')} {hold}"))
    return RedirectResponse("/queue", 303)


def _patch(fields: FormFields) -> JobPatch:
    """What the form says: an empty timeout or number of tasks is no limit."""
    changed: dict[str, Any] = {
        "timeout_s": number_of(fields, "timeout_s", _DECIMAL),
        "max_parallel": number_of(fields, "max_parallel"),
    }
    if band := first(fields, "band"):
        if band not in BANDS:
            raise ProblemResponse(
                "malformed", f"band: {band[:80]!r} is not one of {', '.join(BANDS)}"
            )
        changed["band"] = band
    return msgspec.convert(changed, JobPatch, strict=False)
