"""Changes of the fleet by admins on pages: pause and resume a pool, give a slice back.

Each is a form that works without JavaScript, sends the command that the API sends, and leads back
to the page it was on. Source: docs/adr/0036-forms-may-change-jobs.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import RedirectResponse, Response

from iris_core.admission import actions
from iris_gateway.api.pools import name_of, send_fleet, slice_of
from iris_gateway.dashboard.actions import acting
from iris_gateway.dashboard.drawings.bars import segment
from iris_gateway.dashboard.responses import first, number_of
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.http.problem import ProblemResponse

_SWITCHES: Mapping[str, type[actions.PausePool | actions.ResumePool]] = {
    "pause": actions.PausePool,
    "resume": actions.ResumePool,
}
"""The buttons of the page of a pool, and what they send."""


async def change_pool(call: Call) -> Response:
    """Send the change of a button; the same form sent twice is one change."""
    (call, fields), name = await acting(call), name_of(call)
    kind = _SWITCHES.get(first(fields, "action"))
    if kind is None:
        raise ProblemResponse("malformed", f"an action is one of {', '.join(_SWITCHES)}")
    await send_fleet(call, name, kind(reason=first(fields, "reason")), key=first(fields, "key"))
    return RedirectResponse(f"/fleet/pools/{segment(name)}", 303)


async def drain_slice(call: Call) -> Response:
    """Give a slice back: when nothing runs there, or after so many minutes whatever runs."""
    (call, fields), name = await acting(call), slice_of(call)
    minutes = number_of(fields, "minutes")
    asked = actions.DrainSlice(
        reason=first(fields, "reason"), deadline_s=None if minutes is None else 60.0 * int(minutes)
    )
    await send_fleet(call, name, asked, key=first(fields, "key"))
    return RedirectResponse(f"/fleet/slices/{segment(name)}", 303)
