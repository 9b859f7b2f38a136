"""Which paths take the token of a task. docs/adr/0040-tokens-of-attempts.md."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
from msgspec.structs import replace

from iris_core import codec
from iris_core.access import task_tokens
from iris_core.access.task_tokens import KEYS, SigningKey
from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.spec.serving import TOKEN_COOKIE
from iris_core.subjects import KEYS_BUCKET
from iris_gateway.api import ENDPOINTS
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.dashboard.pages import PAGES
from iris_gateway.dispatch.endpoint import Endpoint
from tests.support.fake_state import attempt_of, refusal
from tests.support.gateway import House, house
from tests.unit.gateway.test_growth import DATA, DIGEST
from tests.unit.gateway.test_results import MAP

HOUR_MS = 3_600_000
KEY, NEXT = SigningKey("k1", b"1" * 32, 0), SigningKey("k2", b"2" * 32, 0)
REF = AttemptRef(7, 0, 0)
TASK = Caller("ada", "task", REF, "w0")

SUBTREE, ANYBODY, REFUSED = "its own subtree", "anybody", "refused"
"""The decision about a path: the state service judges which job it is, it needs no token, or a
task's is refused.
"""
DECISIONS = {
    ("POST", "/v1/jobs"): SUBTREE,
    ("GET", "/v1/jobs"): REFUSED,
    ("GET", "/v1/jobs/{job}"): SUBTREE,
    ("GET", "/v1/jobs/{job}/tree"): SUBTREE,
    ("GET", "/v1/jobs/{job}/history"): SUBTREE,
    ("GET", "/v1/jobs/{job}/sessions"): SUBTREE,
    ("POST", "/v1/jobs/{job}/cancel"): SUBTREE,
    ("POST", "/v1/jobs/{job}/rerun"): SUBTREE,
    ("POST", "/v1/jobs/{job}/calls"): SUBTREE,
    ("POST", "/v1/jobs/{job}/requeue"): SUBTREE,
    ("POST", "/v1/tasks/{task}/requeue"): SUBTREE,
    ("POST", "/v1/tasks/{task}/cancel"): SUBTREE,
    ("GET", "/v1/jobs/{job}/tasks"): SUBTREE,
    ("GET", "/v1/jobs/{job}/why"): SUBTREE,
    ("GET", "/v1/jobs/{job}/usage"): SUBTREE,
    ("GET", "/v1/jobs/{job}/logs"): SUBTREE,
    ("GET", "/v1/jobs/{job}/results"): SUBTREE,
    ("GET", "/v1/jobs/{job}/events"): SUBTREE,
    ("GET", "/v1/tasks/{task}"): SUBTREE,
    ("GET", "/v1/tasks/{task}/attempts"): SUBTREE,
    ("GET", "/v1/tasks/{task}/why"): SUBTREE,
    ("GET", "/v1/tasks/{task}/logs"): SUBTREE,
    ("GET", "/v1/tasks/{task}/artifact"): SUBTREE,
    ("HEAD", "/v1/bundles/{sha256}"): SUBTREE,
    ("PUT", "/v1/bundles/{sha256}"): SUBTREE,
    ("POST", "/v1/jobs:plan"): REFUSED,
    ("PATCH", "/v1/jobs/{job}"): REFUSED,
    ("POST", "/v1/login-links"): REFUSED,
    ("GET", "/v1/whoami"): REFUSED,
    ("GET", "/v1/events"): REFUSED,
    ("GET", "/v1/workers"): REFUSED,
    ("GET", "/v1/workers/{worker}"): REFUSED,
    ("POST", "/v1/workers/{worker}/drain"): REFUSED,
    ("POST", "/v1/workers/{worker}/undrain"): REFUSED,
    ("POST", "/v1/workers/{worker}/mark-lost"): REFUSED,
    ("POST", "/v1/workers/{worker}/forget"): REFUSED,
    ("GET", "/v1/slices"): REFUSED,
    ("GET", "/v1/projects"): REFUSED,
    ("GET", "/v1/projects/{project}"): REFUSED,
    ("PUT", "/v1/projects/{project}"): REFUSED,
    ("DELETE", "/v1/projects/{project}"): REFUSED,
    ("GET", "/v1/notify/targets"): REFUSED,
    ("POST", "/v1/notify/targets"): REFUSED,
    ("GET", "/v1/notify/targets/{name}"): REFUSED,
    ("DELETE", "/v1/notify/targets/{name}"): REFUSED,
    ("POST", "/v1/notify/targets/{name}/test"): REFUSED,
    ("POST", "/v1/notify/targets/{name}/pause"): REFUSED,
    ("POST", "/v1/notify/targets/{name}/resume"): REFUSED,
    ("GET", "/v1/notify/subscriptions"): REFUSED,
    ("POST", "/v1/notify/subscriptions"): REFUSED,
    ("DELETE", "/v1/notify/subscriptions/{id}"): REFUSED,
    ("GET", "/v1/notify/deliveries"): REFUSED,
    ("GET", "/v1/pools"): REFUSED,
    ("POST", "/v1/pools:plan"): REFUSED,
    ("GET", "/v1/pools/{pool}"): REFUSED,
    ("PUT", "/v1/pools/{pool}"): REFUSED,
    ("DELETE", "/v1/pools/{pool}"): REFUSED,
    ("POST", "/v1/pools/{pool}/pause"): REFUSED,
    ("POST", "/v1/pools/{pool}/resume"): REFUSED,
    ("GET", "/v1/pools/{pool}/history"): REFUSED,
    ("GET", "/v1/fleet"): REFUSED,
    ("GET", "/v1/fleet/slices"): REFUSED,
    ("GET", "/v1/fleet/slices/{slice}"): REFUSED,
    ("POST", "/v1/fleet/slices/{slice}/drain"): REFUSED,
    ("GET", "/v1/queue"): REFUSED,
    ("GET", "/v1/queue/gated"): REFUSED,
    ("GET", "/v1/queue/holds"): REFUSED,
    ("POST", "/v1/queue/holds"): REFUSED,
    ("DELETE", "/v1/queue/holds/{hold}"): REFUSED,
    ("GET", "/v1/sessions"): REFUSED,
    ("GET", "/v1/sessions/{session}"): REFUSED,
    ("GET", "/v1/demand"): REFUSED,
    ("GET", "/v1/dead-letters"): REFUSED,
    ("GET", "/v1/processes"): REFUSED,
    ("GET", "/v1/overview"): REFUSED,
    ("POST", "/v1/tasks/{task}/executions"): SUBTREE,
    ("POST", "/v1/tasks/{task}/terminal"): REFUSED,
    ("POST", "/v1/tasks/{task}/tunnels"): REFUSED,
    ("POST", "/v1/executions/{execution}"): SUBTREE,
    ("GET", "/v1/quotas"): REFUSED,
    ("GET", "/v1/quotas/{user}"): REFUSED,
    ("PUT", "/v1/quotas/{user}"): REFUSED,
    ("GET", "/v1/audit"): REFUSED,
    ("GET", "/v1/share"): REFUSED,
    ("GET", "/v1/usage"): REFUSED,
    ("GET", "/v1/usage/stored"): REFUSED,
    ("POST", "/v1/deployments"): REFUSED,
    ("GET", "/v1/deployments"): REFUSED,
    ("GET", "/v1/deployments/{deployment}"): REFUSED,
    ("PATCH", "/v1/deployments/{deployment}"): REFUSED,
    ("DELETE", "/v1/deployments/{deployment}"): REFUSED,
    ("GET", "/v1/deployments/{deployment}/requests"): REFUSED,
    ("GET", "/v1/deployments/{deployment}/routes"): REFUSED,
    ("GET", "/v1/deployments/{deployment}/history"): REFUSED,
    ("GET", "/v1/deployments/{deployment}/why"): REFUSED,
    ("GET", "/v1/deployments/{deployment}/discovery"): REFUSED,
    ("GET", "/v1/discovery/prometheus"): REFUSED,
    ("GET", "/v1/meta"): ANYBODY,
    ("GET", "/v1/openapi.json"): ANYBODY,
    ("GET", "/healthz"): ANYBODY,
    ("GET", "/readyz"): ANYBODY,
    ("GET", "/metrics"): ANYBODY,
    ("GET", "/"): REFUSED,
    ("GET", "/jobs"): REFUSED,
    ("GET", "/jobs/{job}"): REFUSED,
    ("GET", "/tasks/{task}"): REFUSED,
    ("GET", "/tasks/{job}/{index}"): REFUSED,
    ("GET", "/queue"): REFUSED,
    ("GET", "/workers"): REFUSED,
    ("GET", "/workers/{worker}"): REFUSED,
    ("GET", "/deployments"): REFUSED,
    ("GET", "/deployments/{deployment}"): REFUSED,
    ("POST", "/deployments/{deployment}/change"): REFUSED,
    ("GET", "/deployments/{deployment}/update"): REFUSED,
    ("POST", "/deployments/{deployment}/update"): REFUSED,
    ("GET", "/deployments/{deployment}/delete"): REFUSED,
    ("POST", "/deployments/{deployment}/delete"): REFUSED,
    ("GET", "/sessions"): REFUSED,
    ("GET", "/users"): REFUSED,
    ("GET", "/projects"): REFUSED,
    ("GET", "/projects/{project}/update"): REFUSED,
    ("POST", "/projects/{project}/update"): REFUSED,
    ("GET", "/projects/{project}/remove"): REFUSED,
    ("POST", "/projects/{project}/remove"): REFUSED,
    ("GET", "/notifications"): REFUSED,
    ("POST", "/notifications/targets/{name}/change"): REFUSED,
    ("GET", "/notifications/targets/{name}/remove"): REFUSED,
    ("POST", "/notifications/targets/{name}/remove"): REFUSED,
    ("POST", "/notifications/subscriptions/{id}/remove"): REFUSED,
    ("GET", "/audit"): REFUSED,
    ("GET", "/fleet"): REFUSED,
    ("GET", "/fleet/pools/{pool}"): REFUSED,
    ("GET", "/fleet/slices/{slice}"): REFUSED,
    ("POST", "/fleet/pools/{pool}/change"): REFUSED,
    ("POST", "/fleet/slices/{slice}/drain"): REFUSED,
    ("GET", "/events"): REFUSED,
    ("GET", "/system"): REFUSED,
    ("GET", "/changes"): REFUSED,
    ("GET", "/search"): REFUSED,
    ("GET", "/cancel"): REFUSED,
    ("POST", "/cancel"): REFUSED,
    ("POST", "/jobs/{job}/rerun"): REFUSED,
    ("POST", "/jobs/{job}/change"): REFUSED,
    ("POST", "/queue/release"): REFUSED,
    ("POST", "/theme"): ANYBODY,
    ("GET", "/login"): ANYBODY,
    ("POST", "/login"): ANYBODY,
    ("POST", "/logout"): ANYBODY,
    ("GET", "/static/{file}"): ANYBODY,
    ("GET", "/problems"): ANYBODY,
    ("GET", "/problems/{problem}"): ANYBODY,
}


def made(
    key: SigningKey = KEY, ref: AttemptRef = REF, life_ms: int = HOUR_MS, now_ms: int = 0
) -> str:
    return task_tokens.token(task_tokens.grant(key, ref.job, "ada", "w0", now_ms + life_ms), ref)


async def write_keys(iris: House, *keys: SigningKey) -> None:
    """Replace the keys in the bucket, and wait until the gateway has read them."""
    bucket = iris.memory.connect("state").key_value(KEYS_BUCKET)
    entry = (await bucket.all()).get(KEYS)
    await bucket.put(KEYS, codec.pack(keys), expected=entry.revision if entry is not None else 0)
    async with asyncio.timeout(60):
        while set(iris.gateway.task_tokens.known) != {key.id for key in keys}:
            await asyncio.sleep(0)


@pytest.fixture
async def iris() -> AsyncIterator[House]:
    async with house(parse_tokens(f"root admin {sha256(b's-root').hexdigest()}")) as made_:
        await write_keys(made_, KEY)
        yield made_


def bearer(iris: House, **said: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {made(now_ms=iris.gateway.now_ms(), **said)}"}  # type: ignore[arg-type]


def test_every_path_has_a_decision_about_tokens_of_tasks():
    assert DECISIONS.keys() == {(one.method, one.path) for one in (*ENDPOINTS, *PAGES)}
    assert {key for key, decision in DECISIONS.items() if decision is SUBTREE} == {
        (one.method, one.path) for one in (*ENDPOINTS, *PAGES) if one.task
    }


@pytest.mark.parametrize(
    "endpoint", [*ENDPOINTS, *PAGES], ids=lambda one: f"{one.method} {one.path}"
)
async def test_a_tasks_token_is_refused_wherever_that_is_decided(iris: House, endpoint: Endpoint):
    decision = DECISIONS[endpoint.method, endpoint.path]
    path = endpoint.path
    for name in (
        "job",
        "task",
        "worker",
        "session",
        "user",
        "deployment",
        "sha256",
        "file",
        "problem",
    ):
        path = path.replace(f"{{{name}}}", "j7%2F0" if name == "task" else "j7")
    headers = bearer(iris)
    if endpoint.page and endpoint.method == "POST":
        headers |= {
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/x-www-form-urlencoded",
        }
    response = await iris.http.request(endpoint.method, path, headers=headers)
    if decision is REFUSED:
        assert response.status_code == 403
        assert "token of a task" in response.text
        assert (iris.state.commands, iris.state.queries) == ([], [])
    else:
        assert response.status_code not in (401, 403) or endpoint.path == "/login"
    assert {command.caller for command in iris.state.commands} <= {
        replace(TASK, address="127.0.0.1")
    }
    assert {query.caller for query in iris.state.queries} <= {TASK}


async def test_a_submission_with_a_tasks_token_tells_which_attempt_it_is_of(iris: House):
    response = await iris.http.post(
        "/v1/jobs", json={"name": "/a/b", "command": ["true"]}, headers=bearer(iris)
    )
    assert response.status_code == 201
    assert [command.caller for command in iris.state.commands] == [
        replace(TASK, address="127.0.0.1")
    ]
    assert iris.state.commands[0].spec.user == "ada"


async def test_a_task_submits_for_nobody_else(iris: House):
    body = {"name": "/a/b", "command": ["true"], "user": "root"}
    assert (await iris.http.post("/v1/jobs", json=body, headers=bearer(iris))).status_code == 403


@pytest.mark.parametrize(("other", "status"), [(0, 503), (1, 403)])
async def test_a_task_runs_commands_beside_tasks_of_its_own_job_only(
    iris: House, other: int, status: int
):
    root = {"Authorization": "Bearer s-root"}
    body = {"name": "/a", "command": ["true"], "user": "ada"}
    made_job = await iris.http.post("/v1/jobs", json=body, headers=root)
    task = iris.state.tasks["/a/0"]
    task.state, task.worker, task.attempts = "running", "w0", [attempt_of(0)]
    number = int(made_job.json()["id"][1:]) + other
    response = await iris.http.post(
        "/v1/tasks/%2Fa%2F0/executions",
        json={"command": ["true"]},
        headers=bearer(iris, ref=AttemptRef(number, 0, 0)),
    )
    words = {503: "w0 is not connected", 403: "in its own job only, not in /a"}
    assert (response.status_code, words[status] in response.json()["detail"]) == (status, True)


async def test_results_of_a_map_submitted_just_now_are_read_for_a_task(iris: House):
    root = {"Authorization": "Bearer s-root"}
    await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA, headers=root)
    made_map = await iris.http.post("/v1/jobs", json={**MAP, "user": "ada"}, headers=root)
    iris.state.scripted["job"] = refusal("forbidden", "it is not in its own subtree")
    async with asyncio.timeout(20):  # a stream of results has no end
        response = await iris.http.get(
            f"{made_map.headers['location']}/results", headers=bearer(iris)
        )
    assert response.status_code == 403
    jobs = [query.caller for query in iris.state.queries if query.what == "job"]
    assert jobs == [TASK]


async def test_a_tasks_token_is_no_cookie_and_nothing_to_sign_in_with(iris: House):
    token = made(now_ms=iris.gateway.now_ms())
    response = await iris.http.get("/v1/jobs/j7", headers={"Cookie": f"{TOKEN_COOKIE}={token}"})
    assert response.status_code == 401
    form = {"Sec-Fetch-Site": "same-origin"}
    assert (await iris.http.post("/login", data={"token": token}, headers=form)).status_code == 401


async def test_expired_and_foreign_tokens_are_refused_in_words(iris: House):
    for said, words in (
        ({"life_ms": -HOUR_MS}, "has expired"),
        ({"key": NEXT}, "a key that is not known any more"),
        ({"key": SigningKey("k1", b"x" * 32, 0)}, "invalid task token"),
    ):
        response = await iris.http.get("/v1/jobs/j7", headers=bearer(iris, **said))
        assert (response.status_code, response.headers["www-authenticate"]) == (
            401,
            'Bearer realm="iris"',
        )
        assert words in response.json()["detail"]
    assert iris.state.queries == []


async def test_keys_that_rotate_are_followed(iris: House):
    await write_keys(iris, KEY, NEXT)
    for key in (KEY, NEXT):
        assert (
            await iris.http.get("/v1/jobs/j7", headers=bearer(iris, key=key))
        ).status_code == 404
    await write_keys(iris, NEXT)
    statuses = [
        (await iris.http.get("/v1/jobs/j7", headers=bearer(iris, key=key))).status_code
        for key in (KEY, NEXT)
    ]
    assert statuses == [401, 404]


async def test_before_the_keys_are_known_a_task_is_asked_to_try_again():
    async with house(parse_tokens(f"root admin {sha256(b's-root').hexdigest()}")) as iris:
        response = await iris.http.get("/v1/jobs/j7", headers=bearer(iris))
        assert (response.status_code, response.json()["retryable"]) == (503, True)


async def test_without_authentication_a_tasks_token_makes_no_difference():
    async with house() as iris:
        assert (await iris.http.get("/v1/workers", headers=bearer(iris))).status_code == 200
