"""Dashboard pages: complete without JavaScript, all text escaped, exact badges, not cached by
others.
"""

import asyncio
import html
import json
import re
import threading
import time
from collections import UserDict
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from typing import Any, get_args

import msgspec
import pytest

from iris_core.codec import to_json
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import Answer
from iris_core.spec.serving import LATENCY_MS
from iris_core.states import (
    DISPLAY_COLOURS,
    DeploymentLifecycle,
    KernelStatus,
    RouteStatus,
    SessionStatus,
    SliceStatus,
    TaskState,
    WorkerState,
    css_class,
    display_name,
)
from iris_core.tables import deployment as deployment_table
from iris_core.tables import route as route_table
from iris_core.tables import session as session_table
from iris_core.views.jobs import ActorView, ArtifactView, GateView, InterruptionView, JobLink
from iris_core.views.notify import DeliveryStatus, TargetState
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.dashboard import fleet_words
from iris_gateway.dashboard.decisions import DECISIONS
from iris_gateway.dashboard.drawings import glyphs
from iris_gateway.dashboard.drawings.terminal import RUNS
from iris_gateway.dashboard.page_data import LOG_LINES
from iris_gateway.dashboard.pages import PAGES
from iris_gateway.dashboard.render import compiled, environment
from iris_gateway.streams.readers import Turns
from iris_state.records.apply.jobs import AMEND
from iris_state.records.deployments.records import AUTOSCALE
from tests.house.repository import ROOT
from tests.support.fake_state import attempt_of, refusal
from tests.support.gateway import House, house
from tests.support.pages import USAGE, fill, listing, pages_of


@pytest.fixture
async def iris(iris: House) -> House:
    await fill(iris)
    return iris


async def page(iris: House, path: str) -> str:
    response = await iris.http.get(path)
    assert (response.status_code, response.headers["content-type"]) == (
        200,
        "text/html; charset=utf-8",
    ), response.text
    return response.text


ROWS = 500
"""Of a long list."""


async def rows_of_users(iris: House) -> str:
    """The path of a page of as many users as one page of their usage has."""
    [row] = iris.state.pages["usage"]["items"]
    iris.state.pages["usage"] = listing(*[row] * ROWS)
    return "/users"


async def tiles_of_hosts(iris: House) -> str:
    [row] = iris.state.pages["workers"]["items"]
    iris.state.pages["workers"] = listing(*[row] * ROWS)
    return "/workers"


async def coloured_output(iris: House) -> str:
    """The path of a page whose lines change their colour as often as a page shows."""
    line = "".join(f"\x1b[3{number % 7}mred " for number in range(RUNS))
    await iris.state.print(1, 0, f"{line}\n" * LOG_LINES, attempt=1, offset=0)
    return "/tasks/%2Fa%2F0"


@pytest.mark.parametrize(
    ("filled", "least"), [(rows_of_users, ROWS), (tiles_of_hosts, 2 * ROWS), (coloured_output, 100)]
)
async def test_other_requests_have_their_turn_while_a_long_page_is_made(
    iris: House, filled, least: int
):
    path = await filled(iris)
    iris.gateway.turns = Turns(turn_s=0)
    await page(iris, path)  # the first time it is made in a thread
    answer, answered = asyncio.create_task(page(iris, path)), 0
    while not answer.done():
        assert (await iris.http.get("/healthz")).status_code == 200
        answered += 1
        await asyncio.sleep(0)  # a request in this process is answered in one turn
    assert answered > least


async def test_the_first_page_does_not_hold_up_other_requests(iris: House):
    """Jinja compiles it by then: in a thread."""
    threads = []
    environment.cache_clear()
    compiled.cache_clear()
    environment().globals["may_act"] = lambda *_: threads.append(threading.get_ident())
    try:
        for _ in range(2):
            await page(iris, "/jobs")
    finally:
        environment.cache_clear()
        compiled.cache_clear()
    assert threads[0] != threading.get_ident()
    assert threads[-1] == threading.get_ident()


@pytest.mark.parametrize("path", ["/jobs/%2Fa", "/tasks/%2Fa%2F0"])
async def test_what_waits_says_whose_tasks_come_first(iris: House, path: str):
    note = "behind 4 tasks: 4 of bob, submitted before"
    side = "far side: /a would borrow, so work within a guarantee goes first"
    iris.state.pages["why"] |= {"ahead_note": note, "side_note": side}
    iris.state.jobs["/a"].task_counts = {"pending": 2}
    text = await page(iris, path)
    assert f">{note}</p>" in text
    assert f">{side}</p>" in text


PATHS = [
    "/",
    "/jobs",
    "/jobs/%2Fa",
    "/tasks/%2Fa%2F0",
    "/queue",
    "/workers",
    "/workers/w%200",
    "/sessions",
    "/users",
    "/projects",
    "/notifications",
]
PATHS += [
    "/deployments",
    "/deployments/chat",
    "/problems",
    "/problems/over_quota",
    "/system",
    "/audit",
]
PATHS += ["/fleet", "/fleet/pools/cpu", "/fleet/slices/cpu-0"]


@pytest.mark.parametrize("path", [*PATHS, "/events"])
async def test_every_page_is_whole_and_asks_nobody_else_for_anything(iris: House, path: str):
    text = await page(iris, path)
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert not re.search(r"""(src|href|action)=["'](https?:)?//""", text)
    assert not re.search(
        r"<script(?! type=\"module\" src=\"/static/iris.js\")|\son\w+=|\sstyle=|<style", text
    )


async def test_what_people_wrote_is_shown_and_never_run(iris: House):
    text = await page(iris, "/jobs/%2Fa")
    assert "&lt;i&gt;hello&lt;/i&gt;" in text
    assert "&lt;b&gt;lost&lt;/b&gt;" in text
    assert "<i>hello" not in text


async def test_attempts_have_badges_of_their_own_and_worker_failures_are_noted(iris: House):
    text = await page(iris, "/jobs/%2Fa")
    assert (
        '<span class="badge status-worker_failed">worker_failed</span> <span class="note">(worker failure)</span>'
        in text
    )
    assert text.count("(worker failure)") == 1


async def test_why_a_task_waits_stands_under_its_badge(iris: House):
    text = await page(iris, "/jobs/%2Fa")
    badge, reason = (
        '<span class="badge status-pending">pending</span>',
        "asks for 8 cores, the best host has 4 free",
    )
    assert re.search(
        re.escape(badge) + r"\s*<p class=\"reason\"><code>not_enough_cpu</code> " + reason, text
    )


async def test_a_job_that_was_preempted_says_so_on_its_page_and_in_the_list(iris: House):
    job = iris.state.jobs["/a"]
    job.state, job.interrupted = (
        "running",
        InterruptionView(
            task="/a/1",
            cause="preempted",
            message="preempted for /boss",
            worker="w0",
            at=job.submitted_at,
        ),
    )
    for path in ("/jobs/%2Fa", "/jobs"):
        assert "0 of 2 now, preempted for /boss <time" in await page(iris, path)


async def test_a_failed_job_says_which_last_lines_its_tasks_share(iris: House):
    state = iris.state
    for index, line in enumerate(("loss is nan at step 17", "loss is nan at step 20")):
        task = state.tasks[f"/a/{index}"]
        task.state, task.attempts = "failed", [attempt_of(0, "failed")]
        task.attempts[0].stderr_tail = f"warning\nValueError: {line}\n"
    state.jobs["/a"].task_counts = {"failed": 2}
    text = await page(iris, "/jobs/%2Fa")
    assert re.search(r"<b>2</b> <code>ValueError: loss is nan at step 17</code>", text)
    assert "<title>2 of 2 failed: /a · Iris</title>" in text


async def test_a_job_that_was_killed_at_once_shows_why_and_no_time_axis(iris: House):
    job, state = iris.state.jobs["/a"], iris.state
    job.state, job.task_counts, job.finished_at = "killed", {"killed": 2}, job.submitted_at
    for task in (state.tasks["/a/0"], state.tasks["/a/1"]):
        task.state, task.attempts, task.pending_reason = "killed", [], None
        task.cause, task.by = "cancelled", ActorView(name="mia", user="mia", role="admin")
    text = await page(iris, "/jobs/%2Fa")
    assert (
        re.findall(r'class="c-end" title="">\s*cancelled <span class="faint">by (\w+)</span>', text)
        == ["mia"] * 2
    )
    assert re.findall(r"<text .*</text>", text) == []


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("/a", "/jobs/%2Fa"),
        ("/a/0", "/tasks/%2Fa%2F0"),
        ("w 0", "/workers/w%200"),
        ("tr", "/jobs?name_prefix=%2Ftr"),
        ("", "/jobs"),
    ],
)
async def test_a_search_leads_to_what_it_names(iris: House, words: str, path: str):
    if words == "tr":
        iris.state.scripted |= {
            what: refusal("not_found", "there is none")
            for what in ("worker", "deployment", "pool", "fleet_slice")
        }
    response = await iris.http.get("/search", params={"q": words})
    assert (response.status_code, response.headers["location"]) == (303, path)


async def test_a_theme_is_kept_and_leads_back_to_a_page_of_ours_only(iris: House):
    chosen = await iris.http.post("/theme", data={"theme": "dark", "back": "/jobs?state=failed"})
    away = await iris.http.post("/theme", data={"theme": "light", "back": "//elsewhere.example/"})
    assert [r.headers["location"] for r in (chosen, away)] == ["/jobs?state=failed", "/"]
    assert '<html lang="en" data-theme="light">' in await page(iris, "/jobs")


async def test_the_page_of_a_deployment_shows_its_routes_and_its_update(iris: House):
    text = await page(iris, "/deployments/chat")
    assert "update to revision 2: 1 new route, 0 of them available, 2 old" in text
    assert '<span class="badge kind-bad">unhealthy</span>' in text
    assert "&lt;b&gt;503&lt;/b&gt; from /healthz" in text
    assert "one new route serves; it waits to be resumed" in text
    assert re.search(r"0 to 5 routes.*<dd>24</dd>.*2 -&gt; 3: load of 24", text, re.DOTALL)


async def test_a_deployment_tells_its_history_in_words_oldest_first(iris: House):
    text = await page(iris, "/deployments/chat")
    history = text[text.index('id="history"') :]
    newest, oldest = (
        'href="#r1-1">r1-1</a> passes its probe',
        "chat has the wanted number of routes",
    )
    assert history.index(oldest) < history.index(newest)
    assert "What was decided, oldest first" in history
    assert "&lt;b&gt;503&lt;/b&gt;" in history
    assert not [name for name in DECISIONS if name in text]


async def test_a_deployment_says_that_it_had_further_decisions(iris: House):
    row = iris.state.pages["deployment_history"]["items"][0]
    rows = [{**row, "reason": f"number {number}."} for number in range(130)]
    iris.state.pages["deployment_history"] = {"items": rows, "next_cursor": None}
    history = (await page(iris, "/deployments/chat")).partition('id="history"')[2]
    assert "The newest 100 of 130 decisions." in history
    assert 'href="/v1/deployments/chat/history?limit=500"' in history
    assert ("number 29." in history, "number 30." in history, "number 129." in history) == (
        False,
        True,
        True,
    )


async def test_a_job_says_that_it_had_further_decisions(iris: House):
    rows = [{**iris.state.pages["deployment_history"]["items"][0], "entity": "j1-0"}] * 100
    for total, is_least, said in (
        (100, False, ""),
        (130, False, "130"),
        (1300, True, "at least 1,300"),
    ):
        iris.state.pages["latest_history"] = {"items": rows, "total": total, "is_least": is_least}
        history = (await page(iris, "/jobs/j1")).partition('id="history"')[2]
        assert (f"The newest 100 of {said} decisions." in history) == bool(said)
        assert ('href="/v1/jobs/j1/history?limit=500"' in history) == bool(said)


@pytest.mark.parametrize("status", ["ready", "scaling"])
@pytest.mark.parametrize("path", ["/", "/deployments", "/deployments/chat"])
async def test_pages_say_how_many_routes_of_a_deployment_serve(iris: House, path: str, status: str):
    idle = {**iris.state.pages["deployment"], "status": status, "ready": 0}
    iris.state.pages |= {"deployment": idle, "deployments": listing(idle)}
    text = await page(iris, path)
    assert "0 of 3 serve" in text
    assert not re.search("of 3 (routes )?(ready|serving)", text)


def test_every_handler_of_a_session_a_deployment_and_its_routes_has_words():
    rules = [
        one
        for table in (session_table, deployment_table, route_table)
        for one in vars(table).values()
    ]
    names = {rule.name for rule in rules if hasattr(rule, "sources") and not callable(rule)}
    assert names | {AUTOSCALE, AMEND} == DECISIONS.keys()


async def test_requests_errors_and_latency_of_the_last_hour_are_drawn(iris: House):
    assert "no requests in the last hour" in await page(iris, "/deployments/chat")
    latency = [0] * (len(LATENCY_MS) + 1)
    latency[3], latency[6] = 90, 10
    row = {
        "number": int(time.time()) // 60 - 5,
        "arrived": 100,
        "answered": 100,
        "failed": 2,
        "latency": latency,
    }
    iris.state.pages["deployment_requests"] = {"minutes": [row]}
    text = await page(iris, "/deployments/chat")
    assert "100 answers, 2 errors (2.00%)" in text
    assert "half of the answers began within 8 ms, 95 % within 75 ms" in text


CHANGE, AS_FORM = "/deployments/chat/change", {"Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({"action": "scale", "replicas": "5"}, ("scale", {"replicas": 5})),
        ({"action": "pause"}, ("pause", {})),
        ({"action": "resume"}, ("resume", {})),
        ({"action": "rollback", "revision": "1"}, ("rollback", {"revision": 1})),
    ],
)
async def test_buttons_change_a_deployment_once(
    iris: House, fields: dict[str, str], command: tuple[str, dict[str, int]]
):
    sent = [
        await iris.http.post(CHANGE, data={**fields, "key": "k1"}, headers=AS_FORM)
        for _ in range(2)
    ]
    assert [(one.status_code, one.headers["location"]) for one in sent] == [
        (303, "/deployments/chat")
    ] * 2
    first, second = iris.state.commands[-2:]
    assert (first.action, {name: getattr(first, name) for name in command[1]}) == command
    assert first.request_id == second.request_id


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "k"},
        {"action": "explode"},
        {"action": "scale"},
        {"action": "scale", "replicas": "-1"},
    ],
)
async def test_a_button_without_its_value_changes_nothing(iris: House, fields: dict[str, str]):
    before = len(iris.state.commands)
    assert (await iris.http.post(CHANGE, data=fields, headers=AS_FORM)).status_code == 400
    assert (
        await iris.http.post(CHANGE, data={"action": "pause"})
    ).status_code == 403  # no form of ours
    assert len(iris.state.commands) == before


async def test_a_deployment_is_updated_by_its_specification(iris: House):
    form = await page(iris, "/deployments/chat/update")
    assert "&#34;command&#34;: [" in form
    assert 'name="version" value="7"' in form
    wrong = {"specification": '{"replicas": 2, "template": {"comand": ["x"]}}', "version": "7"}
    refused = await iris.http.post("/deployments/chat/update", data=wrong, headers=AS_FORM)
    assert (refused.status_code, "<code>/template/comand</code>" in refused.text) == (422, True)
    assert "comand" in refused.text[refused.text.index("<textarea") :]
    right = {
        "specification": '{"template": {"command": ["serve", "v2"]}}',
        "version": "7",
        "key": "k",
    }
    done = await iris.http.post("/deployments/chat/update", data=right, headers=AS_FORM)
    command = iris.state.commands[-1]
    assert (done.status_code, done.headers["location"]) == (303, "/deployments/chat")
    assert (command.action, command.version) == ("update", 7)
    assert command.patch == b'{"template":{"command":["serve","v2"]}}'


async def test_a_refused_specification_is_shown_again_as_what_it_says(iris: House):
    """Characters that change the direction of text were shown as `\\x200f`, which JSON does not
    have.
    """
    wrong = {"replicas": 2, "template": {"comand": ["x"], "env": {"NAME": "\u200f\u05d0"}}}
    sent = {"specification": json.dumps(wrong, ensure_ascii=False), "version": "7"}
    refused = await iris.http.post("/deployments/chat/update", data=sent, headers=AS_FORM)
    form = refused.text.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
    assert json.loads(html.unescape(form)) == wrong


async def test_a_deployment_is_deleted_after_a_question(iris: House):
    asked = await page(iris, "/deployments/chat/delete")
    assert "3 routes stop" in asked
    gone = await iris.http.post("/deployments/chat/delete", data={"key": "k"}, headers=AS_FORM)
    assert (gone.status_code, iris.state.commands[-1].action) == (303, "delete")


async def test_who_may_not_change_a_deployment_is_offered_nothing():
    lines = [f"{user} user {sha256(user.encode()).hexdigest()}" for user in ("ada", "bob")]
    async with house(parse_tokens("\n".join(lines))) as iris:
        await fill(iris, token="ada")
        offered = []
        for user in ("ada", "bob"):
            iris.http.cookies.set("iris_token", user)
            offered.append(CHANGE in (await iris.http.get("/deployments/chat")).text)
        iris.http.cookies.set("iris_token", "bob")
        assert "It belongs to ada" in (await iris.http.get("/deployments/chat/delete")).text
    assert offered == [True, False]


async def test_what_has_recovered_needs_no_attention(iris: House):
    job = iris.state.jobs["/a"]
    job.state, job.finished_at = "failed", job.submitted_at
    served = {**iris.state.pages["deployment"], "status": "ready", "ready": 3, "conditions": []}
    rolled_back = [{"code": "rolled_back", "message": "the update to revision 2 has failed"}]
    seen = []
    ill = ({"ready": 1}, {"conditions": rolled_back})
    for next_run, changes in ((None, {}), ("j2", {}), *(("j2", one) for one in ill)):
        job.next_run = next_run
        iris.state.pages |= {"deployments": listing({**served, **changes}), "workers": listing()}
        text = await page(iris, "/")
        part = text[text.index('id="attention"') : text.index('id="hour"')]
        seen.append(("/jobs/j1" in part, "/deployments/chat" in part))
    assert seen == [(True, False), (False, False), (False, True), (False, True)]


async def test_pages_of_deployments_tell_the_rate_of_requests_and_fetch_it_anew(iris: House):
    listed, one = await page(iris, "/deployments"), await page(iris, "/deployments/chat")
    assert "1,234/s</td>" in listed
    assert "<dt>requests</dt><dd>1,234/s, over the last 10 s</dd>" in one
    assert "0.5/s</td>" in one
    assert ['data-every="10"' in text for text in (listed, one, await page(iris, "/jobs"))] == [
        True,
        True,
        False,
    ]


async def test_badges_have_the_classes_and_colours_of_the_table_of_states(iris: House):
    sheet = (await iris.http.get("/static/iris.css")).text
    for state, colour in DISPLAY_COLOURS.items():
        assert f".{css_class(state)} {{ --state: {colour}; }}" in sheet


def test_every_status_has_the_shape_of_a_kind_or_of_a_task_state():
    entities: tuple[type[Enum], ...] = (
        SessionStatus,
        KernelStatus,
        DeploymentLifecycle,
        RouteStatus,
        WorkerState,
        SliceStatus,
    )
    statuses = {display_name(status) for entity in entities for status in entity}
    statuses |= {*get_args(TargetState), *get_args(DeliveryStatus)}
    others = {"requeued", "missing", "mismatch", *fleet_words.STANDS}  # attempts, hosts, pools
    others -= statuses
    assert statuses - set(map(display_name, TaskState)) == glyphs.KIND_OF.keys() - others
    assert others <= glyphs.KIND_OF.keys()


def test_the_design_of_the_pages_lists_every_path():
    text = (ROOT / "docs/design/page.md").read_text()
    assert [one.path for one in PAGES if f"`{one.path}" not in text] == []


async def test_pages_run_only_our_own_script_and_are_framed_by_nobody(iris: House):
    response = await iris.http.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


async def test_a_page_that_cannot_be_shown_says_so_as_a_page(iris: House, impatient: House):
    missing = await iris.http.get("/jobs/%2Fnope")
    await impatient.state.stop()
    away = await impatient.http.get("/jobs")
    assert [(r.status_code, "<h1>" in r.text) for r in (missing, away)] == [
        (404, True),
        (503, True),
    ]


@pytest.mark.parametrize(
    "name", ["nope.css", "..%2Fpages.py", "%2e%2e%2f%2e%2e%2fauth.py", "page.html"]
)
async def test_only_our_own_files_are_given_out(iris: House, name: str):
    assert (await iris.http.get(f"/static/{name}")).status_code == 404


async def test_the_style_sheet_is_loaded_once_a_release(iris: House):
    link = re.search(
        r'<link rel="stylesheet" href="(/static/iris.css\?\w+)">', await page(iris, "/")
    )
    assert link is not None
    kept, unnamed = await iris.http.get(link[1]), await iris.http.get("/static/iris.css")
    assert kept.headers["cache-control"] == "max-age=31536000, immutable"
    assert (unnamed.headers["cache-control"], unnamed.content) == ("no-cache", kept.content)
    again = await iris.http.get("/static/iris.js", headers={"If-None-Match": kept.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    glyphs_of = set(re.findall(r"url\((/static/[a-z_-]+\.svg\?\w+)\)", kept.text))
    assert {(await iris.http.get(path)).headers["cache-control"] for path in glyphs_of} == {
        kept.headers["cache-control"]
    }


async def test_with_authentication_a_token_is_asked_for_once_and_only_reads():
    token = f"ada user {sha256(b's-ada').hexdigest()}"
    async with house(parse_tokens(token)) as iris:
        iris.state.pages = pages_of(iris.state)
        away = await iris.http.get("/queue")
        wrong = await iris.http.post("/login", data={"token": "guess"})
        right = await iris.http.post("/login", data={"token": " s-ada\r\n"})
        cookie = right.headers["set-cookie"]
        shown = await iris.http.get("/queue")
        changed = await iris.http.post("/v1/jobs", json={"name": "/a", "command": ["true"]})
        crossed = await iris.http.post(
            "/login", data={"token": "s-ada"}, headers={"Sec-Fetch-Site": "cross-site"}
        )
    assert [r.status_code for r in (away, wrong, right, shown, changed, crossed)] == [
        303,
        401,
        303,
        200,
        401,
        403,
    ]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


OWN = {"Sec-Fetch-Site": "same-origin"}


async def test_a_job_is_cancelled_by_a_form_after_a_page_that_says_what_stops(iris: House):
    assert 'href="/cancel?job=j1"' in await page(iris, "/jobs/%2Fa")
    asked = await page(iris, "/cancel?job=j1")
    assert f'name="reason" maxlength="{SENTENCE}"' in asked
    assert "Cancel /a?" in asked
    assert "2 of 2 tasks have not succeeded" in asked
    done = await iris.http.post("/cancel", data={"job": "j1", "reason": "wrong data"}, headers=OWN)
    assert (done.status_code, done.headers["location"]) == (303, "/jobs/j1")
    command = iris.state.commands[-1]
    assert (command.job, command.reason, command.caller.role) == ("j1", "wrong data", "admin")
    assert not command.now
    await iris.http.post("/cancel", data={"job": "j1", "now": "1"}, headers=OWN)
    assert iris.state.commands[-1].now
    assert "has ended (killed)" in await page(iris, "/cancel?job=j1")


async def test_chosen_jobs_are_cancelled_at_once_and_each_says_what_became_of_it(iris: House):
    await iris.submit("/b")
    assert re.search(
        r'<input type="checkbox" name="job" value="j2" form="chosen"', await page(iris, "/jobs")
    )
    asked = await page(iris, "/cancel?job=j1&job=j2&job=j1")
    assert "Cancel 2 jobs?" in asked
    done = await iris.http.post("/cancel", data={"job": ["j1", "j2", "/gone"]}, headers=OWN)
    assert "2 of 3 jobs cancelled" in done.text
    assert "there is no job /gone" in done.text


async def test_too_many_jobs_are_not_cancelled_by_one_form(iris: House):
    many = await iris.http.get("/cancel", params={"job": [f"j{n}" for n in range(101)]})
    assert (many.status_code, "101 jobs are chosen" in many.text) == (400, True)


async def test_a_finished_job_is_run_again_once_however_often_a_form_is_sent(iris: House):
    iris.state.jobs["/a"].state, iris.state.jobs["/a"].task_counts = (
        "failed",
        {"failed": 1, "succeeded": 1},
    )
    text = await page(iris, "/jobs/%2Fa")
    assert "Rerun 1 that did not succeed" in text
    assert "/cancel" not in text
    key = re.search(r'name="key" value="(\w+)"', text)
    assert key is not None
    form = {"key": key[1], "failed": "1"}
    sent = [await iris.http.post("/jobs/j1/rerun", data=form, headers=OWN) for _ in range(2)]
    assert [(r.status_code, r.headers["location"]) for r in sent] == [(303, "/jobs/j1")] * 2
    first, second = iris.state.commands[-2:]
    assert (first.failed_only, first.request_id) == (True, second.request_id)


async def test_a_rerun_that_drops_something_is_a_page_that_says_so(iris: House):
    warnings = ["it does not wait for /b, as the first run did", "<b> starts at once"]
    rerun = {"id": "j8", "name": "/a", "warnings": warnings}
    iris.state.scripted["RerunJob"] = Answer("created", to_json(rerun))
    made = await iris.http.post("/jobs/j1/rerun", data={"key": "k"}, headers=OWN)
    assert (made.status_code, all(html.escape(text) in made.text for text in warnings)) == (
        200,
        True,
    )
    assert made.text.count('href="/jobs/j8"') == 2


async def test_an_attempt_that_was_requeued_is_no_failure(iris: House):
    task = iris.state.tasks["/a/1"]
    task.attempts = [
        msgspec.structs.replace(attempt_of(0, "failed"), requeued=True, exit_code=75),
        attempt_of(1),
    ]
    of_task, of_job = await page(iris, "/tasks/%2Fa%2F1"), await page(iris, "/jobs/j1")
    assert '<span class="badge kind-idle">requeued</span>' in of_task
    assert '<g class="kind-idle past"><title>attempt 0: requeued on' in of_job


async def test_a_rerun_links_to_the_job_and_the_task_that_it_repeats(iris: House):
    job, task = iris.state.jobs["/a"], iris.state.tasks["/a/1"]
    job.rerun_of, task.rerun_of = "j3", "j3/1"
    job.spec = msgspec.structs.replace(job.spec, replicas=4, indexes="0,1")
    assert 'rerun of <a href="/jobs/j3">j3</a>, tasks 0, 1 of 4' in await page(iris, "/jobs/j1")
    assert 'rerun of <a href="/tasks/j3%2F1">j3/1</a>' in await page(iris, "/tasks/%2Fa%2F1")


async def test_a_refused_action_is_a_page_with_the_reason(iris: House):
    iris.state.scripted["RerunJob"] = refusal("conflict", "/a exists and is running")
    refused = await iris.http.post("/jobs/j1/rerun", data={"key": "k"}, headers=OWN)
    assert (
        refused.status_code,
        "/a exists and is running" in refused.text,
        "<h1>" in refused.text,
    ) == (
        409,
        True,
        True,
    )
    assert refused.headers["x-request-id"] in refused.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
    ],
)
async def test_only_a_page_of_this_gateway_may_send_a_form_that_changes_jobs(
    iris: House, headers: dict[str, str]
):
    before = len(iris.state.commands)
    for path, form in (("/cancel", {"job": "j1"}), ("/jobs/j1/rerun", {"key": "k"})):
        assert (await iris.http.post(path, data=form, headers=headers)).status_code == 403
    assert len(iris.state.commands) == before


async def test_a_browser_without_fetch_metadata_proves_its_page_by_the_origin(iris: House):
    sent = await iris.http.post(
        "/cancel", data={"job": "j1"}, headers={"Origin": "http://127.0.0.1"}
    )
    assert sent.status_code == 303
    assert (await iris.http.get("/jobs")).headers["referrer-policy"] == "same-origin"


async def test_a_form_acts_as_the_user_of_the_cookie_and_a_worker_does_nothing():
    lines = [
        f"{user} {role} {sha256(user.encode()).hexdigest()}"
        for user, role in (("ada", "user"), ("w", "worker"))
    ]
    async with house(parse_tokens("\n".join(lines))) as iris:
        await fill(iris, token="ada")
        away = await iris.http.post("/cancel", data={"job": "j1"}, headers=OWN)
        iris.http.cookies.set("iris_token", "w")
        worker = await iris.http.post("/cancel", data={"job": "j1"}, headers=OWN)
        assert "/cancel" not in (await iris.http.get("/jobs/j1")).text
        iris.http.cookies.set("iris_token", "ada")
        done = await iris.http.post("/cancel", data={"job": "j1"}, headers=OWN)
        other = await iris.http.post("/v1/jobs/j1/cancel", json={}, headers=OWN)
        assert "Sign out" in (await iris.http.get("/jobs/j1")).text
    assert [r.headers.get("location") for r in (away, done)] == ["/login", "/jobs/j1"]
    assert "worker tokens may not cancel jobs" in worker.text
    assert (other.status_code, iris.state.commands[-1].caller.user) == (401, "ada")


async def test_people_with_a_browser_get_pages_and_programs_problem_documents(iris: House):
    for path in ("/nope", "/v1/jobs/%2Fnope"):
        page = await iris.http.get(path, headers={"Accept": "text/html,*/*;q=0.8"})
        problem = await iris.http.get(path)
        assert (page.status_code, problem.status_code) == (404, 404)
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["x-request-id"] in page.text
        assert '<a class="button" href="">Try again</a>' in page.text
        assert "percent-encoded" not in page.text
        assert problem.headers["content-type"] == "application/problem+json"


async def test_the_page_of_events_says_what_is_held_and_which_task_was_told_what(iris: House):
    for subject, body in {
        "queue.state.held": {
            "hold": "h1",
            "user": "mia",
            "band": "",
            "label": "a=b",
            "state": "held",
            "reason": "data",
        },
        "task.notice.drain": {
            "task": "/a/0",
            "state": "running",
            "reason": "drain",
            "deadline_ms": None,
        },
        "task.notice.timeout": {
            "task": "/b/0",
            "state": "running",
            "reason": "timeout",
            "deadline_ms": 1000,
        },
    }.items():
        await iris.state.streams.publish(subject, msgspec.json.encode(body))
    words = " ".join(re.sub("<[^>]*>", " ", await page(iris, "/events")).split())
    assert "queue h1 user mia label a=b" in words
    assert "notice: drain" in words
    assert "notice: timeout, until " in words
    assert "h1" in await page(iris, "/events?kind=queue&state=held")


async def test_the_last_lines_of_output_stand_on_the_page_with_stderr_marked(iris: House):
    await iris.state.print(
        1, 1, "\x1b[1;31mValueError\x1b[0m: bad\n", stream="stderr", at_ms=3_661_000
    )
    await iris.state.print(1, 1, "10%\r50%\r100%\r\n", offset=0)
    text = await page(iris, "/jobs/%2Fa")
    err = '<div class="err"><span class="at">01:01:01</span><span class="who">1</span><i>err</i><span>'
    assert f'{err}<span class="sgr-1 sgr-bold">ValueError</span>: bad' in text
    assert "<i></i><span>100%</span>" in text
    assert 'href="/v1/jobs/j1/logs?attempt=all" download="-a.log"' in text


async def test_output_of_one_task_and_attempt_is_chosen_in_the_address(iris: House):
    await iris.state.print(1, 1, "other\n")
    await iris.state.print(1, 0, "first try\n")
    whole = await page(iris, "/jobs/%2Fa")
    one = await page(iris, "/jobs/%2Fa?task=0&attempt=1")
    assert ["other" in whole, "hello" in whole, "other" in one, "hello" in one] == [
        True,
        True,
        False,
        True,
    ]
    assert 'data-source="/v1/tasks/j1%2F0/logs?attempt=1"' in one
    latest, first = (
        await page(iris, "/tasks/%2Fa%2F0"),
        await page(iris, "/tasks/%2Fa%2F0?attempt=0"),
    )
    assert ["first try" in latest, "first try" in first] == [False, True]
    assert (await iris.http.get("/jobs/%2Fa?task=x")).status_code == 400


async def test_output_is_for_its_owner_and_admins():
    lines = [f"{user} user {sha256(user.encode()).hexdigest()}" for user in ("ada", "bob")]
    async with house(parse_tokens("\n".join(lines))) as iris:
        await fill(iris, token="ada")
        iris.http.cookies.set("iris_token", "bob")
        text = (await iris.http.get("/jobs/j1")).text
    assert "Only the owner of the job and admins may read its output." in text
    assert "hello" not in text
    assert 'id="log"' not in text


async def test_the_overview_draws_what_ended_and_waited_in_the_last_hour(iris: House):
    now = int(time.time()) // 60
    minute = {"succeeded": 4, "others": 1, "placed": 5, "waited_ms": 10_000, "longest_ms": 9_000}
    old = {"number": now - 60, **minute}
    iris.state.pages["last_hour"] = {"minutes": [old, {"number": now - 30, **minute}], "held": []}
    text = await page(iris, "/")
    assert "5 tasks, 4 of them succeeded" in text
    assert "2 s on average, 9 s at most" in text
    assert text.count('class="status-failed" x="') == 1
    assert 'height="80.00%"' in text


async def test_the_system_page_shows_leader_storage_and_configuration(iris: House):
    text = await page(iris, "/system")
    assert "host-a (7) leads the state service, epoch 3." in text
    assert re.search(r"IRIS_JOURNAL</td><td class=\"num\">5MiB", text)
    assert "&lt;b&gt;KeyError&lt;/b&gt;" in text
    assert "read_share = 0.5  # default" in text


async def test_only_admins_read_the_configuration():
    async with house(parse_tokens(f"ada user {sha256(b'ada').hexdigest()}")) as iris:
        await fill(iris, token="ada")
        iris.http.cookies.set("iris_token", "ada")
        text = (await iris.http.get("/system")).text
    assert "host-a (7) leads" in text
    assert "read_share" not in text


async def test_the_page_of_a_task_links_to_its_artifacts_or_says_why_not(iris: House):
    kept, lost = attempt_of(0, "failed"), attempt_of(1, "failed")
    kept.artifact = ArtifactView(bytes=5, files=2, note="left out: <b>", upload="x")
    lost.artifact = ArtifactView(bytes=0, files=0, note="out is no longer a directory", upload=None)
    iris.state.tasks["/a/0"].attempts = [kept, lost]
    shown = await page(iris, "/tasks/%2Fa%2F0")
    assert '<a href="/v1/tasks/j1%2F0/artifact?attempt=0" download>artifact</a>' in shown
    assert "left out: &lt;b&gt;" in shown
    assert 'no artifact</span> <span class="faint">out is no longer a directory' in shown


async def test_a_job_shows_what_it_waits_for_and_what_waits_for_it(iris: House):
    job = iris.state.jobs["/a"]
    prep, late = (
        JobLink(id=f"j{n}", name=name, state="pending")
        for n, name in ((7, "/prep"), (9, "/<late>"))
    )
    job.gates = [GateView(kind="dependency", opened_at=None, job=prep, when="any", each=True)]
    job.gates += [GateView(kind="held", opened_at=None, by=ActorView(name="mia"))]
    job.waiters = [late]
    text = await page(iris, "/jobs/%2Fa")
    [gates] = re.findall(r'<section class="panel" id="gates">(.*?)</section>', text, re.DOTALL)
    assert (
        '<a class="name" href="/jobs/j7">/prep</a> <span class="faint">its end, task by task</span>'
        in gates
    )
    assert "held by mia" in gates
    assert '<a class="name" href="/jobs/j9">/&lt;late&gt;</a>' in gates


async def test_a_job_that_waits_or_runs_is_changed_on_its_page(iris: House):
    shown = await page(iris, "/jobs/j1")
    assert 'action="/jobs/j1/change"' in shown
    first = shown.partition('action="/jobs/j1/change"')[2].partition('name="action"')[2]
    assert first.startswith(' value="update"'), "Enter in a field would send another button"
    sent = {
        "action": "update",
        "version": "3",
        "band": "batch",
        "timeout_s": "90.5",
        "max_parallel": "",
    }
    for form in (
        {"action": "hold"},
        {"action": "stop"},
        {"action": "release"},
        sent,
        {"action": "requeue"},
    ):
        answer = await iris.http.post("/jobs/j1/change", data={"key": "k", **form}, headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/j1")
    hold, stop, release, update, requeue = iris.state.commands[-5:]
    assert [(one.hold, one.stop) for one in (hold, stop, release)] == [
        (True, False),
        (True, True),
        (False, False),
    ]
    assert (update.version, msgspec.json.decode(update.patch)) == (
        3,
        {"band": "batch", "timeout_s": 90.5, "max_parallel": None},
    )
    assert requeue.target == "j1"


@pytest.mark.parametrize(
    "form",
    [
        {"action": "explode"},
        {"action": "update", "timeout_s": "2h"},
        {"action": "update", "max_parallel": "-1"},
        {"action": "update", "band": "highest"},
    ],
)
async def test_a_form_that_says_no_change_of_a_job_is_refused(iris: House, form: dict[str, str]):
    before = len(iris.state.commands)
    assert (await iris.http.post("/jobs/j1/change", data=form, headers=OWN)).status_code == 400
    assert len(iris.state.commands) == before


async def test_a_running_task_is_requeued_on_its_page(iris: House):
    form = {"key": "k", "action": "requeue", "task": "j1/1"}
    answer = await iris.http.post("/jobs/j1/change", data=form, headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/tasks/j1%2F1")
    assert iris.state.commands[-1].target == "j1/1"


async def test_what_happens_while_a_page_reads_is_not_in_the_future(iris: House):
    class Beating(UserDict[str, Any]):
        """A worker whose last heartbeat has arrived when it is read."""

        def __getitem__(self, key: str) -> Any:
            return (
                datetime.now(UTC).isoformat()
                if key == "last_heartbeat_at"
                else super().__getitem__(key)
            )

    iris.state.pages["worker"] = Beating(iris.state.pages["worker"])
    shown = await page(iris, "/workers/w%200")
    assert re.findall(r"last heartbeat <time[^>]*>(.*?)</time>", shown) == ["0 s ago"]


async def test_a_task_without_attempts_says_so(iris: House):
    iris.state.tasks["/a/1"].attempts = []
    assert "No attempt has been made." in await page(iris, "/tasks/%2Fa%2F1")


async def test_users_of_pools_are_shown_with_their_costs_and_what_idled(iris: House):
    assert 'id="pools"' not in await page(iris, "/users")
    used = [
        {**USAGE, "pool": "v5e", "pools_cost": 12.5},
        {**USAGE, "pool": "v5e", "user": None, "lost": {}, "pools_cost": 0.004},
        {**USAGE, "pool": None},
    ]
    iris.state.pages["usage"] = {"items": used, "next_cursor": "more"}
    text = await page(iris, "/users")
    shown = text[text.index('id="pools"') : text.index('id="stored"')]
    cells = [
        [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in re.findall("<td.*?</td>", row)]
        for row in re.findall(r"<tr><td.*?</tr>", shown, re.DOTALL)
    ]
    assert [(row[0], row[1], row[5]) for row in cells] == [
        ("v5e", "user ada", "cost 12.50"),
        ("v5e", "user (idle)", "cost 0.004"),
        ("(no pool)", "user ada", "cost no price"),
    ]
    assert "These are the first 3 rows" in shown


async def test_holds_on_the_queue_are_listed_and_released_on_its_page(iris: House):
    assert "Held parts" not in await page(iris, "/queue")
    hold = {
        "id": "h3",
        "user": "mia",
        "band": None,
        "label": "team=a",
        "reason": "quota talks",
        "jobs": 2,
        "tasks": 30,
    }
    made = {"since": "2026-01-02T03:04:05Z", "by": {"name": "ada", "role": "admin"}}
    iris.state.pages["queue_holds"] = {"items": [{**hold, **made}], "next_cursor": None}
    shown = await page(iris, "/queue")
    assert "user <b>mia</b> label <b>team=a</b>" in shown
    assert "2 jobs, 30 tasks; quota talks" in shown
    sent = await iris.http.post("/queue/release", data={"key": "k", "hold": "h3"}, headers=OWN)
    assert (sent.status_code, sent.headers["location"]) == (303, "/queue")
    assert iris.state.commands[-1].hold == "h3"


@pytest.mark.parametrize(("hold", "button"), [(None, "release"), ("h3", "hold")])
async def test_a_page_releases_the_hold_of_its_job_only(iris: House, hold: str | None, button: str):
    iris.state.jobs["/a"].gates = [GateView(kind="held", opened_at=None, hold=hold)]
    shown = (
        (await page(iris, "/jobs/j1"))
        .partition('action="/jobs/j1/change"')[2]
        .partition("</form>")[0]
    )
    assert f'value="{button}"' in shown
    assert f'value="{"hold" if hold is None else "release"}"' not in shown


async def test_jobs_that_wait_outside_the_queue_stand_on_its_page(iris: House):
    assert "Not in the queue yet" not in await page(iris, "/queue")
    row = {
        "job": "/b",
        "job_id": "j2",
        "user": "mia",
        "band": "batch",
        "submitted_at": None,
        "tasks": 3,
    }
    reason = {"code": "dependency", "message": "waits for <a> (j1)", "facts": {}}
    iris.state.pages["gated_jobs"] = {
        "items": [{**row, "pending_reason": reason}],
        "next_cursor": "2",
    }
    shown = await page(iris, "/queue")
    assert (
        '<a class="name" href="/jobs/j2">/b</a> <span class="faint">3 tasks of mia</span>' in shown
    )
    assert "waits for &lt;a&gt; (j1)" in shown
    assert "iris queue --gated --all" in shown


async def test_characters_that_turn_text_around_are_shown_as_escapes(iris: House):
    """A reason of another user could make its line, and those after it, look like something
    else.
    """
    reason = {"code": "held", "message": "held: \u202eecirp\u2069 \u200f\u061c", "facts": {}}
    row = {
        "job": "/b",
        "job_id": "j2",
        "user": "mia",
        "band": "batch",
        "submitted_at": None,
        "tasks": 3,
    }
    iris.state.pages["gated_jobs"] = {
        "items": [{**row, "pending_reason": reason}],
        "next_cursor": None,
    }
    assert "held: \\u202eecirp\\u2069 \\u200f\\u061c" in await page(iris, "/queue")


async def test_a_page_is_compiled_once_it_was_rendered(
    iris: House, monkeypatch: pytest.MonkeyPatch
):
    """Where jinja keeps what it has compiled is its own affair: another release may keep it
    elsewhere.
    """
    monkeypatch.setattr(environment(), "cache", None)
    compiled.cache_clear()
    await page(iris, "/queue")
    assert compiled() == {"queue.html"}
