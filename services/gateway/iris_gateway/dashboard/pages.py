"""The dashboard's paths: authorization, and an HTML page for every request, refusals included.

With authentication on, a token is entered once and kept in a cookie that permits reads only. Source:
docs/design/interfaces.md#dashboard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from iris_core.messages import Caller
from iris_gateway.auth import own_pages
from iris_gateway.bodies import BODY_S, check_media_type, read_body
from iris_gateway.dashboard import page_data, render
from iris_gateway.dashboard.page_data import Facts, PageData
from iris_gateway.endpoint import Answers, Call, Endpoint, EndpointHandler
from iris_gateway.identity import COOKIE, identify
from iris_gateway.problem import ProblemResponse

HTML = "text/html"
FORM = "application/x-www-form-urlencoded"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
_FORM_BYTES = 4096
_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STATIC = resources.files("iris_gateway.dashboard") / "static"


def page(title: str, template: str, collect: Callable[[PageData], Awaitable[Facts]]) -> EndpointHandler:
    """The endpoint that shows one template."""

    async def show(call: Call) -> Response:
        try:
            caller = identify(call.gateway.keyring, call.request)
            facts = await collect(_look(call, caller))
        except ProblemResponse as problem:
            if problem.code == "unauthenticated":
                return RedirectResponse("/login", 303)
            return html("problem.html", problem.kind.status, title=problem.kind.title, problem=problem)
        return html(template, title=title, caller=caller, **facts)

    return show


def _look(call: Call, caller: Caller) -> PageData:
    segments = {name: call.segment(name) for name in call.request.path_params}
    return PageData(call.gateway, caller, segments, dict(call.request.query_params))


def html(template: str, status: int = 200, **facts: object) -> Response:
    """A page and its security headers."""
    return Response(render.page(template, **facts), status, HEADERS, HTML)


async def login(call: Call) -> Response:
    return html("login.html", title="Sign in", wrong=False)


async def signed_in(call: Call) -> Response:
    """Accept a token and store it in the cookie."""
    own_pages(call.request.headers)
    check_media_type(call.request, FORM)
    body = await read_body(call.request, _FORM_BYTES, BODY_S)
    token = parse_qs(body.decode("latin-1")).get("token", [""])[0]
    try:
        call.gateway.keyring.identify(f"Bearer {token}")
    except ProblemResponse:
        return html("login.html", 401, title="Sign in", wrong=True)
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


def _assets() -> dict[str, tuple[bytes, str]]:
    found = {}
    for file in _STATIC.iterdir():
        body = file.read_bytes()
        if file.name == "iris.css":
            body += render.colours().encode()
        found[file.name] = (body, _KINDS[file.name.rpartition(".")[2]])
    return found


ASSETS = _assets()

_PAGES = (
    ("/", "Overview", "overview.html", page_data.overview),
    ("/jobs", "Jobs", "jobs.html", page_data.jobs),
    ("/jobs/{job}", "Job", "job.html", page_data.job),
    ("/tasks/{task}", "Task", "task.html", page_data.task),
    ("/queue", "Queue", "queue.html", page_data.queue),
    ("/workers", "Workers", "workers.html", page_data.workers),
    ("/workers/{worker}", "Worker", "worker.html", page_data.worker),
    ("/sessions", "Sessions", "sessions.html", page_data.sessions),
    ("/users", "Users", "users.html", page_data.users),
    ("/events", "Events", "events.html", page_data.events),
)


def _endpoint(method: str, path: str, handler: EndpointHandler, title: str) -> Endpoint:
    return Endpoint(method, path, handler, title, {200: Answers("A page.", media_types=(HTML,))}, public=True)


PAGES: tuple[Endpoint, ...] = (
    *(_endpoint("GET", path, page(title, template, collect), title) for path, title, template, collect in _PAGES),
    _endpoint("GET", "/login", login, "Sign in"),
    _endpoint("POST", "/login", signed_in, "Sign in"),
    _endpoint("POST", "/logout", logout, "Sign out"),
    _endpoint("GET", "/static/{file}", asset, "Styles and scripts"),
)
