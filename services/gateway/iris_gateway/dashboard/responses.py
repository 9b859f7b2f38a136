"""Responses of the dashboard: HTML in the reader's theme, refusals as pages, and the fields of
forms.

Source: docs/design/page.md, docs/adr/0036-forms-may-change-jobs.md.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from iris_core.limits import SPEC_BYTES
from iris_gateway.auth.bearer import own_pages
from iris_gateway.dashboard import render
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.dispatch.identity import SAFE, token_cookie
from iris_gateway.http.bodies import check_media_type, read_body
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.http.problem_types import uri_of

HTML = "text/html"
FORM = "application/x-www-form-urlencoded"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",  # with no-referrer, a form is sent with `Origin: null`
}
SHOWN_AGAIN = ("invalid", "malformed", "precondition_failed")
"""Refusals of what a form says, after which it is shown again with its mistakes."""
WHOLE = re.compile(r"[0-9]{1,15}")
THEMES = ("light", "dark")
THEME_COOKIE = "iris-theme"
FormFields = dict[str, list[str]]


async def html(call: Call, template: str, status: int = 200, **facts: object) -> Response:
    """An HTML response in the caller's theme, with security headers."""
    return Response(await text_of(call, template, **facts), status, HEADERS, HTML)


async def editor(
    call: Call, template: str, text: str, problem: ProblemResponse | None = None, **facts: object
) -> Response:
    """A form with a specification as JSON; ``problem``: why it was refused."""
    status = 200 if problem is None else problem.kind.status
    facts |= {"specification": text, "problem": problem, "form_key": call.gateway.new_id()}
    return await html(call, template, status, caller=call.caller, **facts)


async def text_of(call: Call, template: str, **facts: object) -> str:
    """A page in the caller's theme, made while other requests have their turns.

    The first time it is made in a thread: a template is compiled in one go.
    """
    pieces = render.pieces(template, **{**_shared(call.request), **facts})
    if template not in render.compiled():
        return await asyncio.to_thread("".join, pieces)
    made = []
    for piece in pieces:
        made.append(piece)
        await call.gateway.turns.give()
    return "".join(made)


def _shared(request: Request) -> dict[str, object]:
    """What every page shows."""
    theme = request.cookies.get(THEME_COOKIE, "")
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return {
        "theme": theme if theme in THEMES else "",
        "back": here if request.method in SAFE else "/",
        "signed_in": token_cookie(request) in request.cookies,
        "here": "",
        "now": datetime.now(UTC),
    }


def refusal(request: Request, problem: ProblemResponse, request_id: str) -> Response:
    """A refusal as a page; a reader who is not signed in is led to the form for that.

    Only what reads can be tried again by a link: what a form sent may have been done.
    """
    if problem.code == "unauthenticated":
        return RedirectResponse("/login", 303)
    kind = problem.kind
    facts = {
        "title": kind.title,
        "problem": problem,
        "request_id": request_id,
        "retry": request.method in SAFE,
        "uri": uri_of(problem.code),
    }
    text = "".join(render.pieces("problem.html", **_shared(request), **facts))
    response = Response(text, kind.status, HEADERS, HTML)
    response.headers.update(problem.headers)
    return response


async def fields_of(request: Request) -> FormFields:
    """The fields of a form that a page of this gateway sent. Raises Problem."""
    own_pages(request.headers)
    check_media_type(request, FORM)
    body = await read_body(request, SPEC_BYTES)
    return parse_qs(body.decode("latin-1"))


def number_of(fields: FormFields, name: str, form: re.Pattern[str] = WHOLE) -> str | None:
    """A number as it is in a field; None when the field is empty. Raises Problem."""
    text = first(fields, name).strip()
    if text and not form.fullmatch(text):
        raise ProblemResponse(
            "malformed", f"{name}: {text[:80]!r} is not a {'whole ' if form is WHOLE else ''}number"
        )
    return text or None


def first(fields: FormFields, name: str, default: str = "") -> str:
    return fields.get(name, [default])[0]
