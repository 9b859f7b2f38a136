"""Changes of deployments by people on pages: scale, update, pause, resume, roll back, and delete
after a confirmation.

Each is a form that works without JavaScript, sends the command that the API sends, and leads back
to the page of the deployment. Source: docs/adr/0036-forms-may-change-jobs.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from iris_core.admission.jobs import MASK
from iris_core.views.queries import DeploymentQuery
from iris_gateway.api.deployments import name_of, send_change, send_delete
from iris_gateway.api.work.admission import json_from
from iris_gateway.dashboard.actions import acting
from iris_gateway.dashboard.drawings.bars import segment
from iris_gateway.dashboard.responses import (
    SHOWN_AGAIN,
    FormFields,
    editor,
    first,
    html,
    number_of,
)
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.dispatch.identity import identify
from iris_gateway.http.problem import ProblemResponse


def _number(fields: FormFields, name: str) -> int:
    text = number_of(fields, name)
    if text is None:
        raise ProblemResponse("malformed", f"{name}: a whole number is missing")
    return int(text)


_CHANGES: Mapping[str, Callable[[FormFields], dict[str, Any]]] = {
    "scale": lambda fields: {"replicas": _number(fields, "replicas")},
    "pause": lambda _: {"paused": True},
    "resume": lambda _: {"paused": False},
    "rollback": lambda fields: {"revision": _number(fields, "revision")},
}
"""The buttons of the page, and the changes that they send."""


async def change(call: Call) -> Response:
    """Send the change of a button; the same form sent twice is one change."""
    (call, fields), name = await acting(call), name_of(call)
    made = _CHANGES.get(first(fields, "action"))
    if made is None:
        raise ProblemResponse("malformed", f"an action is one of {', '.join(_CHANGES)}")
    await send_change(call, name, made(fields), 0, key=first(fields, "key"))
    return _back(name)


async def edit(call: Call) -> Response:
    """A form with the specification of a deployment."""
    call, name = _reading(call), name_of(call)
    shown = await _shown(call, name)
    return await _form(call, shown, json.dumps(_editable(shown["spec"]), indent=2))


async def update(call: Call) -> Response:
    """Send the specification of the form as a change; one that is refused is shown again with its
    mistakes.
    """
    (call, fields), name = await acting(call), name_of(call)
    text = first(fields, "specification")
    key = first(fields, "key")
    try:
        await send_change(
            call,
            name,
            json_from(text.encode("utf-8", "replace")),
            _number(fields, "version"),
            key=key,
        )
    except ProblemResponse as problem:
        if problem.code not in SHOWN_AGAIN:
            raise
        return await _form(call, await _shown(call, name), text, problem)
    return _back(name)


async def confirm_delete(call: Call) -> Response:
    """A page that tells what would stop."""
    call = _reading(call)
    shown = await _shown(call, name_of(call))
    facts = {"caller": call.caller, "deployment": shown, "form_key": call.gateway.new_id()}
    return await html(call, "delete_deployment.html", title=f"Delete {shown['name']}", **facts)


async def delete(call: Call) -> Response:
    (call, fields), name = await acting(call), name_of(call)
    await send_delete(call, name, 0, first(fields, "key"))
    return _back(name)


def _reading(call: Call) -> Call:
    return replace(call, caller=identify(call.gateway, call.request))


async def _shown(call: Call, name: str) -> Any:
    return msgspec.json.decode(await call.read(DeploymentQuery(name)))


def _editable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What of a specification can be changed; values that are not shown stay as they are."""
    template = {**spec["template"]}
    env = {key: value for key, value in template.pop("env", {}).items() if value != MASK}
    return {
        "template": {**template, **({"env": env} if env else {})},
        **{name: value for name, value in spec.items() if name not in ("name", "user", "template")},
    }


async def _form(
    call: Call, shown: Any, text: str, problem: ProblemResponse | None = None
) -> Response:
    facts = {"title": f"Update {shown['name']}", "deployment": shown}
    return await editor(call, "edit_deployment.html", text, problem, **facts)


def _back(name: str) -> Response:
    return RedirectResponse(f"/deployments/{segment(name)}", 303)
