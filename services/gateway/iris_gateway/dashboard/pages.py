"""The dashboard's paths: authorization, and an HTML page for every request, refusals included.

With authentication on, a token is entered once and kept in a cookie that permits reads only. Source:
docs/design/interfaces.md#dashboard.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib import resources
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from iris_core.messages import Caller
from iris_core.states import DISPLAY_COLOURS, TaskState
from iris_gateway.auth import own_pages
from iris_gateway.bodies import BODY_S, check_media_type, read_body
from iris_gateway.dashboard import glyphs, page_data, render
from iris_gateway.dashboard.page_data import Facts, PageData
from iris_gateway.endpoint import Answers, Call, Endpoint, EndpointHandler
from iris_gateway.identity import COOKIE, identify
from iris_gateway.problem import ProblemResponse
from iris_gateway.problem_types import PROBLEM_TYPES, PROBLEMS

HTML = "text/html"
FORM = "application/x-www-form-urlencoded"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
_FORM_BYTES = 4096
_THEMES = ("light", "dark")
THEME_COOKIE = "iris-theme"
_THEME_S = 365 * 86_400
_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STATIC = resources.files("iris_gateway.dashboard") / "static"


def page(path: str, title: str, template: str, collect: Callable[[PageData], Awaitable[Facts]]) -> EndpointHandler:
    """The endpoint that renders one template; the collected data may override the title."""

    async def show(call: Call) -> Response:
        try:
            caller = identify(call.gateway.keyring, call.request)
            facts = await collect(_look(call, caller))
        except ProblemResponse as problem:
            if problem.code == "unauthenticated":
                return RedirectResponse("/login", 303)
            return html(call, "problem.html", problem.kind.status, title=problem.kind.title, problem=problem)
        return html(call, template, **{"title": title, "here": path, "caller": caller, **facts})

    return show


def _look(call: Call, caller: Caller) -> PageData:
    segments = {name: call.segment(name) for name in call.request.path_params}
    return PageData(call.gateway, caller, segments, dict(call.request.query_params), datetime.now(UTC))


def html(call: Call, template: str, status: int = 200, **facts: object) -> Response:
    """An HTML response in the caller's theme, with security headers."""
    theme = call.request.cookies.get(THEME_COOKIE, "")
    shared = {
        "theme": theme if theme in _THEMES else "",
        "back": call.request.url.path + (f"?{call.request.url.query}" if call.request.url.query else ""),
        "here": "",
        "now": datetime.now(UTC),
    }
    return Response(render.page(template, **{**shared, **facts}), status, HEADERS, HTML)


async def search(call: Call) -> Response:
    """Redirect to the page of the search result."""
    try:
        return RedirectResponse(await page_data.found(_look(call, identify(call.gateway.keyring, call.request))), 303)
    except ProblemResponse as problem:
        if problem.code == "unauthenticated":
            return RedirectResponse("/login", 303)
        return html(call, "problem.html", problem.kind.status, title=problem.kind.title, problem=problem)


async def themed(call: Call) -> Response:
    """Store the chosen theme in a cookie and redirect back to the page."""
    form = await _form(call)
    back, theme = form.get("back", "/"), form.get("theme", "")
    response = RedirectResponse(back if re.match(r"/(?![/\\])", back) else "/", 303)
    if theme in _THEMES:
        response.set_cookie(THEME_COOKIE, theme, samesite="strict", max_age=_THEME_S)
    else:
        response.delete_cookie(THEME_COOKIE)
    return response


async def _form(call: Call) -> dict[str, str]:
    own_pages(call.request.headers)
    check_media_type(call.request, FORM)
    body = await read_body(call.request, _FORM_BYTES, BODY_S)
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}


async def login(call: Call) -> Response:
    return html(call, "login.html", title="Sign in", wrong=False)


async def signed_in(call: Call) -> Response:
    """Accept a token and store it in the cookie."""
    token = (await _form(call)).get("token", "")
    try:
        call.gateway.keyring.identify(f"Bearer {token}")
    except ProblemResponse:
        return html(call, "login.html", 401, title="Sign in", wrong=True)
    response = RedirectResponse("/", 303)
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=call.request.url.scheme == "https")
    return response


async def logout(call: Call) -> Response:
    own_pages(call.request.headers)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


async def asset(call: Call) -> Response:
    """A style sheet, script or image of the dashboard."""
    name = call.segment("file")
    if name not in ASSETS:
        raise ProblemResponse("not_found", "there is no such file")
    body, kind = ASSETS[name]
    return Response(body, 200, {"cache-control": "no-cache"}, kind)


async def problem_types(call: Call) -> Response:
    """The page that ``type`` of a problem document names, or one of all types; public, since a 401 names one too."""
    code = call.segment("problem") if call.request.path_params else None
    if code is not None and code not in PROBLEM_TYPES:
        raise ProblemResponse("not_found", f"there is no problem type {code[:80]!r}; {PROBLEMS} lists them")
    types = PROBLEM_TYPES if code is None else {code: PROBLEM_TYPES[code]}
    return html(call, "problem_types.html", title=code or "Problem types", types=types)


def _assets() -> dict[str, tuple[bytes, str]]:
    """Assets by file name: the files of ``static``, the glyphs, and an icon for each of three states."""
    bodies = {file.name: file.read_bytes() for file in _STATIC.iterdir()}
    bodies["iris.css"] += glyphs.css().encode()
    icon = bodies["iris.svg"]
    for state in ("running", "succeeded", "failed"):
        colour = DISPLAY_COLOURS[TaskState[state.upper()]]
        bodies[f"iris-{state}.svg"] = icon.replace(b"#8250df", colour.encode())
    return {name: (body, _KINDS[name.rpartition(".")[2]]) for name, body in (bodies | glyphs.files()).items()}


ASSETS = _assets()

_PAGES = (
    ("/", "Overview", "overview.html", page_data.overview),
    ("/jobs", "Jobs", "jobs.html", page_data.jobs),
    ("/jobs/{job}", "Job", "job.html", page_data.job),
    ("/tasks/{task}", "Task", "task.html", page_data.task),
    ("/queue", "Queue", "queue.html", page_data.queue),
    ("/workers", "Workers", "workers.html", page_data.workers),
    ("/workers/{worker}", "Worker", "worker.html", page_data.worker),
    ("/deployments", "Deployments", "deployments.html", page_data.deployments),
    ("/deployments/{deployment}", "Deployment", "deployment.html", page_data.deployment),
    ("/sessions", "Sessions", "sessions.html", page_data.sessions),
    ("/users", "Users", "users.html", page_data.users),
    ("/events", "Events", "events.html", page_data.events),
)


def _endpoint(method: str, path: str, handler: EndpointHandler, title: str) -> Endpoint:
    return Endpoint(method, path, handler, title, {200: Answers("A page.", media_types=(HTML,))}, public=True)


PAGES: tuple[Endpoint, ...] = (
    *(_endpoint("GET", path, page(path, title, template, collect), title) for path, title, template, collect in _PAGES),
    _endpoint("GET", "/search", search, "Search"),
    _endpoint("POST", "/theme", themed, "Theme"),
    _endpoint("GET", "/login", login, "Sign in"),
    _endpoint("POST", "/login", signed_in, "Sign in"),
    _endpoint("POST", "/logout", logout, "Sign out"),
    _endpoint("GET", "/static/{file}", asset, "Styles and scripts"),
    _endpoint("GET", PROBLEMS, problem_types, "Problem types"),
    _endpoint("GET", f"{PROBLEMS}/{{problem}}", problem_types, "Problem type"),
)
