"""Changes of notifications by people on pages: test, pause and resume a target, remove one after a
question, and end a subscription.

Each is a form that works without JavaScript, asks the notifier for what the API asks, and leads back
to the page of notifications. Source: docs/adr/0036-forms-may-change-jobs.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from starlette.responses import RedirectResponse, Response

from iris_core.messages.gateway_notifier import NotifyVerb
from iris_gateway.api.notify import TargetOwner, ask
from iris_gateway.dashboard.actions import acting
from iris_gateway.dashboard.responses import FormFields, first, html
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.dispatch.identity import identify
from iris_gateway.http.problem import ProblemResponse

_CHANGES: Mapping[str, NotifyVerb] = {
    "test": NotifyVerb.TEST_TARGET,
    "pause": NotifyVerb.PAUSE_TARGET,
    "resume": NotifyVerb.RESUME_TARGET,
}
"""The buttons of a target, and what they ask for; each may be asked for twice."""
_PAGE = "/notifications"


async def change_target(call: Call) -> Response:
    """Do what a button says. Whether a test message was delivered is said by the state of its
    target.
    """
    call, fields = await acting(call)
    verb = _CHANGES.get(first(fields, "action"))
    if verb is None:
        raise ProblemResponse("malformed", f"an action is one of {', '.join(_CHANGES)}")
    await ask(call, verb, call.segment("name"), _owner(fields))
    return RedirectResponse(f"{_PAGE}#targets", 303)


async def confirm_remove(call: Call) -> Response:
    """A page that tells what goes with a target."""
    call = replace(call, caller=identify(call.gateway, call.request))
    user = call.request.query_params.get("user", "")
    answer = await ask(call, NotifyVerb.SHOW_TARGET, call.segment("name"), TargetOwner(user))
    target = msgspec.json.decode(answer.body)
    title = f"Remove {target['name']}"
    return await html(call, "remove_target.html", title=title, caller=call.caller, target=target)


async def remove_target(call: Call) -> Response:
    call, fields = await acting(call)
    await ask(call, NotifyVerb.REMOVE_TARGET, call.segment("name"), _owner(fields))
    return RedirectResponse(f"{_PAGE}#targets", 303)


async def unsubscribe(call: Call) -> Response:
    """End a subscription."""
    call, _ = await acting(call)
    await ask(call, NotifyVerb.UNSUBSCRIBE, call.segment("id"))
    return RedirectResponse(f"{_PAGE}#subscriptions", 303)


def _owner(fields: FormFields) -> TargetOwner:
    return TargetOwner(first(fields, "user"))
