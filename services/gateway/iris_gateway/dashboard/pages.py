"""The dashboard's paths: pages, themes, signing in, and static files.

With authentication on, a token is entered once and kept in a cookie that permits reads and the
forms of `actions`.
Source: docs/design/page.md#pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from starlette.responses import RedirectResponse, Response

from iris_core.limits import LOGIN_LINK_MINUTES
from iris_core.messages.gateway_state import Caller
from iris_core.spec.serving import SECURE_TOKEN_COOKIE
from iris_gateway.auth.bearer import opened_by_person, own_pages
from iris_gateway.dashboard import (
    actions,
    deployment_actions,
    fleet_actions,
    fleet_data,
    job_changes,
    notify_actions,
    notify_data,
    page_data,
    project_actions,
)
from iris_gateway.dashboard.assets import ASSETS, VERSION
from iris_gateway.dashboard.page_reads import Facts, PageData
from iris_gateway.dashboard.responses import (
    HEADERS,
    HTML,
    THEME_COOKIE,
    THEMES,
    fields_of,
    first,
    html,
    text_of,
)
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, EndpointHandler
from iris_gateway.dispatch.identity import identify, identify_person, token_cookie
from iris_gateway.dispatch.sse import GREETING, frame, stream
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.http.problem_types import PROBLEM_TYPES, PROBLEMS
from iris_gateway.streams.event import Filter
from iris_gateway.streams.feed import Lagging, NewEvents
from iris_gateway.streams.live import PAUSE_S, Rendered, changed, rendered

_THEME_S = 365 * 86_400


def page(
    path: str, title: str, template: str, collect: Callable[[PageData], Awaitable[Facts]]
) -> EndpointHandler:
    """The endpoint that renders one template; the collected data may override the title.

    A page that is open asks with the version that it shows: the answer is what has changed, or 304.
    """

    async def render(call: Call, caller: Caller, again: bool) -> Rendered:
        look = _look(call, caller, again)
        at = call.gateway.feed.newest
        shared = {"title": title, "here": path, "caller": caller}
        facts = await collect(look)
        text = await text_of(call, template, **{**shared, **facts})
        return await rendered(text, at, call.gateway.turns)

    async def show(call: Call) -> Response:
        caller = identify(call.gateway, call.request)
        live = call.gateway.live
        shown = call.request.headers.get("if-none-match", "").strip('"')
        if "if-none-match" not in call.request.headers:
            page = await render(call, caller, again=False)
            live.remember(page)
            return Response(page.html, 200, HEADERS, HTML)
        known = live.parts_of(shown)
        page = await live.again(
            (str(call.request.url), caller), partial(render, call, caller, again=True)
        )
        live.remember(page)
        if page.version == shown:
            return Response(status_code=304)
        return Response(await changed(page, known, call.gateway.turns), 200, HEADERS, HTML)

    return show


def _look(call: Call, caller: Caller, again: bool = False) -> PageData:
    segments = {name: call.segment(name) for name in call.request.path_params}
    return PageData(
        call.gateway,
        caller,
        segments,
        dict(call.request.query_params),
        now=datetime.now(UTC),
        again=again,
    )


async def changes(call: Call) -> Response:
    """Server-sent events: one, at most once a second, when events of the page have happened since
    it was made.
    """
    call = replace(call, caller=identify(call.gateway, call.request))
    query = call.request.query_params
    feed = call.gateway.feed
    await feed.wake()
    wanted = Filter(within=query.get("within", ""), deployment=query.get("deployment", ""))
    made_at = query.get("after", "")
    known = (
        made_at.isdecimal() and len(made_at) <= 18 and feed.oldest <= int(made_at) <= feed.newest
    )
    events = feed.watch(wanted, int(made_at) if known else feed.newest)
    return stream(call, _changes(call, events, missed=bool(made_at) and not known))


async def _changes(
    call: Call, events: AsyncIterator[NewEvents], *, missed: bool
) -> AsyncIterator[bytes]:
    """What lags behind the feed ends: the page connects again. ``missed``: events since the page
    are not known.
    """
    clock = call.gateway.clock
    keep_alive_s = call.gateway.settings.keep_alive_s
    spoken_s = clock()
    yield GREETING + (frame("change", 1) if missed else b"")
    with contextlib.suppress(Lagging, ProblemResponse):
        async for _, found in events:
            if not found and clock() - spoken_s < keep_alive_s:
                continue
            yield frame("change", 1) if found else b":\n\n"
            spoken_s = clock()
            await asyncio.sleep(PAUSE_S)


async def search(call: Call) -> Response:
    """Redirect to the page of the search result."""
    caller = identify(call.gateway, call.request)
    return RedirectResponse(await page_data.found(_look(call, caller)), 303)


async def themed(call: Call) -> Response:
    """Store the chosen theme in a cookie and redirect back to the page."""
    form = await fields_of(call.request)
    back = first(form, "back", "/")
    theme = first(form, "theme")
    response = RedirectResponse(back if re.match(r"/(?![/\\])", back) else "/", 303)
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, samesite="strict", max_age=_THEME_S)
    else:
        response.delete_cookie(THEME_COOKIE)
    return response


async def login(call: Call) -> Response:
    """The form for a token; the code of a link signs in at once, or after a question when another
    site led to it.
    """
    code = call.request.query_params.get("code", "")
    if not code or call.request.method != "GET":
        return await _form(call)
    token = call.gateway.login_links.look(code, call.gateway.clock())
    if token and not opened_by_person(call.request.headers):
        user = identify_person(call.gateway, token).user
        return await _form(call, code=code, user=user)
    return await _enter_by_code(call, code)


async def signed_in(call: Call) -> Response:
    """Accept a token, or the code of a link, and store the token in the cookie."""
    fields = await fields_of(call.request)
    if code := first(fields, "code"):
        return await _enter_by_code(call, code)
    token = first(fields, "token").strip()
    try:
        if not call.gateway.open:
            identify_person(call.gateway, token)
    except ProblemResponse:
        return await _form(call, "Unknown token.")
    return _enter(call, token)


async def _form(call: Call, wrong: str = "", *, code: str = "", user: str = "") -> Response:
    """The form for a token, 401 with what was wrong; or the question whether a link's code may sign
    in as ``user``.
    """
    facts = {"wrong": wrong, "code": code, "user": user}
    return await html(call, "login.html", 401 if wrong else 200, title="Sign in", **facts)


async def _enter_by_code(call: Call, code: str) -> Response:
    token = call.gateway.login_links.use(code, call.gateway.clock())
    if not token:
        wrong = f"This link was used already, or is older than {LOGIN_LINK_MINUTES} minutes; `iris open` makes another."
        return await _form(call, wrong)
    return _enter(call, token)


def _enter(call: Call, token: str) -> Response:
    """Store a token in the cookie, and lead to the first page."""
    response = RedirectResponse("/", 303)
    name = token_cookie(call.request)
    response.set_cookie(
        name, token, httponly=True, samesite="strict", secure=name == SECURE_TOKEN_COOKIE
    )
    return response


async def logout(call: Call) -> Response:
    own_pages(call.request.headers)
    response = RedirectResponse("/login", 303)
    name = token_cookie(call.request)
    response.delete_cookie(name, secure=name == SECURE_TOKEN_COOKIE)
    return response


async def asset(call: Call) -> Response:
    """A style sheet, script or image of the dashboard; under an address with its version it is kept
    for good.
    """
    name = call.segment("file")
    if name not in ASSETS:
        raise ProblemResponse("not_found", "there is no such file")
    body, kind = ASSETS[name]
    kept = "max-age=31536000, immutable" if call.request.url.query == VERSION else "no-cache"
    headers = {"cache-control": kept, "etag": f'"{VERSION}"'}
    if call.request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, kind)


async def problem_types(call: Call) -> Response:
    """The page that ``type`` of a problem document names, or one of all types; public, since a 401
    names one too.
    """
    code = call.segment("problem") if call.request.path_params else None
    if code is not None and code not in PROBLEM_TYPES:
        raise ProblemResponse(
            "not_found", f"there is no problem type {code[:80]!r}; {PROBLEMS} lists them"
        )
    types = PROBLEM_TYPES if code is None else {code: PROBLEM_TYPES[code]}
    return await html(call, "problem_types.html", title=code or "Problem types", types=types)


_PAGES = (
    ("/", "Overview", "overview.html", page_data.overview),
    ("/jobs", "Jobs", "jobs.html", page_data.jobs),
    ("/jobs/{job}", "Job", "job.html", page_data.job),
    ("/tasks/{task}", "Task", "task.html", page_data.task),
    ("/tasks/{job}/{index}", "Task", "task.html", page_data.task),
    ("/queue", "Queue", "queue.html", page_data.queue),
    ("/workers", "Workers", "workers.html", page_data.workers),
    ("/workers/{worker}", "Worker", "worker.html", page_data.worker),
    ("/fleet", "Fleet", "fleet.html", fleet_data.fleet),
    ("/fleet/pools/{pool}", "Pool", "pool.html", fleet_data.pool),
    ("/fleet/slices/{slice}", "Slice", "slice.html", fleet_data.slice_),
    ("/deployments", "Deployments", "deployments.html", page_data.deployments),
    ("/deployments/{deployment}", "Deployment", "deployment.html", page_data.deployment),
    ("/sessions", "Sessions", "sessions.html", page_data.sessions),
    ("/users", "Users", "users.html", page_data.users),
    ("/projects", "Projects", "projects.html", page_data.projects),
    ("/notifications", "Notifications", "notifications.html", notify_data.notifications),
    ("/audit", "Audit", "audit.html", page_data.audit),
    ("/events", "Events", "events.html", page_data.events),
    ("/system", "System", "system.html", page_data.system),
)


def _endpoint(method: str, path: str, handler: EndpointHandler, title: str) -> Endpoint:
    answers = {200: Answers("A page.", media_types=(HTML,))}
    return Endpoint(method, path, handler, title, answers=answers, public=True, page=True)


PAGES: tuple[Endpoint, ...] = (
    *(
        _endpoint("GET", path, page(path, title, template, collect), title)
        for path, title, template, collect in _PAGES
    ),
    _endpoint("GET", "/changes", changes, "Whether something of a page has changed"),
    _endpoint("GET", "/search", search, "Search"),
    _endpoint("GET", "/cancel", actions.confirm_cancel, "Cancel jobs"),
    _endpoint("POST", "/cancel", actions.cancel, "Cancel jobs"),
    _endpoint("POST", "/jobs/{job}/rerun", actions.rerun, "Rerun a job"),
    _endpoint("POST", "/jobs/{job}/change", job_changes.change, "Change a job"),
    _endpoint("POST", "/queue/release", job_changes.release_queue, "End a hold on the queue"),
    _endpoint("POST", "/fleet/pools/{pool}/change", fleet_actions.change_pool, "Change a pool"),
    _endpoint(
        "POST", "/fleet/slices/{slice}/drain", fleet_actions.drain_slice, "Give a slice back"
    ),
    _endpoint(
        "POST", "/deployments/{deployment}/change", deployment_actions.change, "Change a deployment"
    ),
    _endpoint(
        "GET", "/deployments/{deployment}/update", deployment_actions.edit, "Update a deployment"
    ),
    _endpoint(
        "POST", "/deployments/{deployment}/update", deployment_actions.update, "Update a deployment"
    ),
    _endpoint(
        "GET",
        "/deployments/{deployment}/delete",
        deployment_actions.confirm_delete,
        "Delete a deployment",
    ),
    _endpoint(
        "POST", "/deployments/{deployment}/delete", deployment_actions.delete, "Delete a deployment"
    ),
    _endpoint("GET", "/projects/{project}/update", project_actions.edit, "Change a project"),
    _endpoint("POST", "/projects/{project}/update", project_actions.update, "Change a project"),
    _endpoint(
        "GET", "/projects/{project}/remove", project_actions.confirm_remove, "Remove a project"
    ),
    _endpoint("POST", "/projects/{project}/remove", project_actions.remove, "Remove a project"),
    _endpoint(
        "POST",
        "/notifications/targets/{name}/change",
        notify_actions.change_target,
        "Change a target of messages",
    ),
    _endpoint(
        "GET",
        "/notifications/targets/{name}/remove",
        notify_actions.confirm_remove,
        "Remove a target of messages",
    ),
    _endpoint(
        "POST",
        "/notifications/targets/{name}/remove",
        notify_actions.remove_target,
        "Remove a target of messages",
    ),
    _endpoint(
        "POST",
        "/notifications/subscriptions/{id}/remove",
        notify_actions.unsubscribe,
        "End a subscription",
    ),
    _endpoint("POST", "/theme", themed, "Theme"),
    _endpoint("GET", "/login", login, "Sign in"),
    _endpoint("POST", "/login", signed_in, "Sign in"),
    _endpoint("POST", "/logout", logout, "Sign out"),
    _endpoint("GET", "/static/{file}", asset, "Styles and scripts"),
    _endpoint("GET", PROBLEMS, problem_types, "Problem types"),
    _endpoint("GET", f"{PROBLEMS}/{{problem}}", problem_types, "Problem type"),
)
