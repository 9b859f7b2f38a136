"""Changes of projects by people on pages: what the caller may set of one, as JSON, and its removal.

Forms that work without JavaScript, send the commands that the API sends, and lead back to the page
of projects. Source: docs/adr/0036-forms-may-change-jobs.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from iris_core.codec import to_json
from iris_core.spec.projects import parent_of
from iris_core.views.queries import ProjectQuery
from iris_gateway.api.handling import request_key
from iris_gateway.api.projects import path_of, read_spec, send_project, send_removal
from iris_gateway.api.work.admission import json_from
from iris_gateway.dashboard.actions import acting
from iris_gateway.dashboard.page_reads import memberships_of
from iris_gateway.dashboard.project_rights import FIELDS, is_removable, settable
from iris_gateway.dashboard.responses import SHOWN_AGAIN, editor, first, html, number_of
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.dispatch.identity import identify
from iris_gateway.http.problem import ProblemResponse


async def edit(call: Call) -> Response:
    """A form with what the caller may set of a project."""
    call = replace(call, caller=identify(call.gateway, call.request))
    shown = await _shown(call)
    fields = await _settable(call, shown["path"])
    return await _form(call, shown, fields, _text(shown, fields))


async def update(call: Call) -> Response:
    """Set what the form says, and leave the other fields as they are; one that is refused is shown
    again with its mistakes.
    """
    call, form = await acting(call)
    shown = await _shown(call)
    path = shown["path"]
    fields = await _settable(call, path)
    text = first(form, "specification")
    key = request_key(call, first(form, "key"))
    try:
        given = json_from(text.encode("utf-8", "replace"))
        body = {**_set(shown, FIELDS), **given} if isinstance(given, dict) else given
        spec = read_spec(to_json(body))
        await send_project(call, path, spec, int(number_of(form, "version") or 0), key=key)
    except ProblemResponse as problem:
        if problem.code not in SHOWN_AGAIN:
            raise
        return await _form(call, shown, fields, text, problem)
    return RedirectResponse("/projects", 303)


async def confirm_remove(call: Call) -> Response:
    """A page that tells what goes with a project."""
    call = replace(call, caller=identify(call.gateway, call.request))
    shown = await _shown(call)
    path = shown["path"]
    if not is_removable(path, await _settable(call, path)):
        raise ProblemResponse("forbidden", f"{path} is removed by admins of what is above it")
    facts = {"project": shown, "form_key": call.gateway.new_id()}
    return await html(
        call, "remove_project.html", title=f"Remove {path}", caller=call.caller, **facts
    )


async def remove(call: Call) -> Response:
    """Remove a project in the version that the page has shown."""
    call, form = await acting(call)
    version = int(number_of(form, "version") or 0)
    key = request_key(call, first(form, "key"))
    await send_removal(call, path_of(call), version, key=key)
    return RedirectResponse("/projects", 303)


async def _shown(call: Call) -> Any:
    return msgspec.json.decode(await call.read(ProjectQuery(path_of(call))))


async def _settable(call: Call, path: str) -> tuple[str, ...]:
    """The fields that the caller may set. Raises ProblemResponse forbidden."""
    memberships = await memberships_of(call.gateway, call.caller, {path, parent_of(path)})
    fields = settable(call.caller, path, memberships)
    if not fields:
        raise ProblemResponse("forbidden", f"{path} is set by its admins, and by those above it")
    return fields


def _set(shown: Any, fields: Sequence[str]) -> dict[str, Any]:
    """What is set of a project now."""
    return {name: shown[name] for name in fields if name in shown}


def _text(shown: Any, fields: Sequence[str]) -> str:
    return json.dumps(_set(shown, fields), indent=2)


async def _form(
    call: Call,
    shown: Any,
    fields: Sequence[str],
    text: str,
    problem: ProblemResponse | None = None,
) -> Response:
    facts = {"title": f"Change {shown['path']}", "project": shown, "fields": fields}
    facts["removable"] = is_removable(shown["path"], fields)
    return await editor(call, "edit_project.html", text, problem, **facts)
