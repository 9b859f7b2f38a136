"""Pages: complete without a script, every text escaped, badges to the letter, kept to themselves."""

import re
from hashlib import sha256
from typing import Any

import pytest

from iris_core.codec import to_json
from iris_core.messages import Answer
from iris_core.reasons import Reason, ReasonCode
from iris_core.states import DISPLAY_COLOURS, css_class
from iris_core.views import InterruptionView
from iris_gateway.auth import parse_tokens
from tests.support.fake_state import FakeState, attempt_of
from tests.support.gateway import House, house

WORKER = {
    "id": "w 0",
    "state": "degraded",
    "attributes": {"zone": "eu-1"},
    "total": {"cpu_millis": 8000, "memory_bytes": 1 << 30, "disk_bytes": 0, "chips": 4},
    "committed": {"cpu_millis": 500, "memory_bytes": 0, "disk_bytes": 0, "chips": 4},
    "tasks": ["/a/0"],
    "building": 1,
    "last_heartbeat_at": "2026-01-31T08:00:00Z",
    "detail": "disk is full",
}
QUEUED = {
    "position": 0,
    "task": "/a/0",
    "job": "/a",
    "user": "ada",
    "band": "batch",
    "depth": 1,
    "root_submitted_at": None,
    "submitted_at": None,
    "sequence": 1,
    "tasks": 3,
    "pending_reason": {"code": "no_workers", "message": "no worker has registered"},
}
SESSION = {"id": "j1-0", "job": "/a", "status": "running", "since": None, "tries": {"start": 2}, "kernels": []}
QUOTA = {"user": "ada", "running_cpu": 500, "running_memory": 0, "running_accelerators": 0, "pending_tasks": 1}
QUOTA |= {"max_running_cpu": 2000, "max_running_memory": 0, "max_running_accelerators": 0, "max_pending_tasks": 0}
QUOTA |= {"max_band": "batch"}


def listing(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": "7"}


@pytest.fixture
async def iris(iris: House) -> House:
    """With one job whose first task has failed once on a lost worker, and one of everything."""
    await iris.submit("/a", replicas=2, user="ada", env={"X": "<script>"})
    state = iris.state
    first, second = state.tasks["/a/0"], state.tasks["/a/1"]
    first.state, first.attempts = "running", [attempt_of(0, "worker_failed"), attempt_of(1)]
    first.attempts[0].error = "<b>lost</b>"
    second.pending_reason = Reason(ReasonCode.NOT_ENOUGH_CPU, "asks for 8 cores, the best host has 4 free")
    await state.print(1, 0, "<i>hello</i>\n", attempt=1)
    await state.tell_task("/a/0", "running")
    state.pages = pages_of(state)
    state.scripted["tree"] = Answer("ok", to_json({"job": state.jobs["/a"], "children": []}))
    return iris


def pages_of(state: FakeState) -> dict[str, dict[str, Any]]:
    return {
        "tasks": listing(*state.tasks.values()),
        "history": listing(),
        "queue": listing(QUEUED),
        "workers": listing(WORKER),
        "worker": WORKER,
        "slices": {"items": []},
        "sessions": listing(SESSION),
        "users": listing(QUOTA),
        "why": {"ahead": 4},
        "overview": {
            "tasks": {"running": 1, "pending": 1},
            "jobs": {"pending": 1},
            "workers": {"degraded": 1},
            "pending": 1,
            "capacity": WORKER["total"],
            "committed": WORKER["committed"],
            "users": ["ada"],
        },
    }


async def page(iris: House, path: str) -> str:
    response = await iris.http.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8"), response.text
    return response.text


PATHS = ["/", "/jobs", "/jobs/%2Fa", "/tasks/%2Fa%2F0", "/queue", "/workers", "/workers/w%200", "/sessions", "/users"]


@pytest.mark.parametrize("path", [*PATHS, "/events"])
async def test_every_page_is_whole_and_asks_nobody_else_for_anything(iris: House, path: str):
    text = await page(iris, path)
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert not re.search(r"""(src|href|action)=["'](https?:)?//""", text)
    assert not re.search(r"<script(?! type=\"module\" src=\"/static/iris.js\")|\son\w+=|\sstyle=|<style", text)


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
    badge, reason = '<span class="badge status-pending">pending</span>', "asks for 8 cores, the best host has 4 free"
    assert re.search(re.escape(badge) + r"\s*<p class=\"reason\"><code>not_enough_cpu</code> " + reason, text)


async def test_a_job_that_was_preempted_says_so_on_its_page_and_in_the_list(iris: House):
    job = iris.state.jobs["/a"]
    job.state, job.interrupted = (
        "running",
        InterruptionView(
            task="/a/1", cause="preempted", message="preempted for /boss", worker="w0", at=job.submitted_at
        ),
    )
    for path in ("/jobs/%2Fa", "/jobs"):
        assert "0 of 2 now, preempted for /boss <time" in await page(iris, path)


async def test_badges_have_the_classes_and_colours_of_the_table_of_states(iris: House):
    sheet = (await iris.http.get("/static/iris.css")).text
    for state, colour in DISPLAY_COLOURS.items():
        assert f".{css_class(state)} {{ --state: {colour}; }}" in sheet


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
    assert [(r.status_code, "<h1>" in r.text) for r in (missing, away)] == [(404, True), (503, True)]


@pytest.mark.parametrize("name", ["nope.css", "..%2Fpages.py", "%2e%2e%2f%2e%2e%2fauth.py", "page.html"])
async def test_only_our_own_files_are_given_out(iris: House, name: str):
    assert (await iris.http.get(f"/static/{name}")).status_code == 404


async def test_with_authentication_a_token_is_asked_for_once_and_only_reads():
    token = f"ada user {sha256(b's-ada').hexdigest()}"
    async with house(parse_tokens(token)) as iris:
        iris.state.pages = pages_of(iris.state)
        away = await iris.http.get("/queue")
        wrong = await iris.http.post("/login", data={"token": "guess"})
        right = await iris.http.post("/login", data={"token": "s-ada"})
        cookie = right.headers["set-cookie"]
        shown = await iris.http.get("/queue")
        changed = await iris.http.post("/v1/jobs", json={"name": "/a", "command": ["true"]})
        crossed = await iris.http.post("/login", data={"token": "s-ada"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert [r.status_code for r in (away, wrong, right, shown, changed, crossed)] == [303, 401, 303, 200, 401, 403]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
