"""Jobs over HTTP: submit, list, show, cancel."""

import json

import pytest

from iris_core.access.request_ids import key_of
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.messages.gateway_state import (
    AdminCommand,
    AmendJob,
    Answer,
    CancelJob,
    HoldQueue,
    RequeueTasks,
    RerunJob,
    SubmitJob,
)
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.quota import QUOTA_LIMITS
from iris_core.spec.jobs import Dependency, JobSpec
from tests.support.fake_state import refusal
from tests.support.gateway import House

SPEC = {"name": "/train", "command": ["true"]}


async def test_a_submission_becomes_one_command_and_the_job_comes_back(iris: House):
    response = await iris.http.post("/v1/jobs", json=SPEC, headers={"X-Iris-User": "ada"})
    assert (response.status_code, response.headers["location"]) == (201, "/v1/jobs/j1")
    assert response.json()["name"] == "/train"
    [command] = iris.state.commands
    assert isinstance(command, SubmitJob)
    assert command.spec == JobSpec(name="/train", command=("true",), user="ada")
    assert (command.caller.user, command.caller.role) == ("ada", "admin")


async def test_a_name_without_its_slash_is_that_of_a_root_job(iris: House):
    response = await iris.http.post("/v1/jobs", json={**SPEC, "name": "train"})
    assert (response.status_code, response.json()["name"]) == (201, "/train")


async def test_the_same_idempotency_key_twice_is_one_job(iris: House):
    first = await iris.http.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": "k"})
    second = await iris.http.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": "k"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["idempotent-replayed"] == "true"
    assert second.json() == first.json()


async def test_an_idempotency_key_with_a_line_break_or_too_long_is_refused(iris: House):
    response = await iris.http.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": "k" * 256})
    assert (response.status_code, iris.state.commands) == (400, [])


async def test_a_second_live_job_of_a_name_is_a_conflict_with_its_state(iris: House):
    await iris.submit("/train")
    response = await iris.submit("/train")
    assert (response.status_code, response.json()["code"]) == (409, "conflict")
    assert response.json()["detail"] == "/train is pending"


async def test_keep_returns_the_live_job(iris: House):
    await iris.submit("/train")
    response = await iris.http.post("/v1/jobs?if_exists=keep", json=SPEC)
    assert (response.status_code, response.json()["id"]) == (200, "j1")


async def test_the_state_service_checks_the_parent_of_a_job(iris: House):
    await iris.http.post("/v1/jobs?parent=a", json={**SPEC, "name": "/a/b"})
    await iris.http.post("/v1/jobs", json={**SPEC, "name": "/a/c"})
    assert [command.parent for command in iris.state.commands] == ["/a", ""]
    iris.state.scripted["SubmitJob"] = refusal("not_found", "there is no job /nope")
    response = await iris.http.post("/v1/jobs?parent=/nope", json={**SPEC, "name": "/nope/b"})
    assert (response.status_code, response.json()["detail"]) == (404, "there is no job /nope")


async def test_a_trace_context_is_passed_on_and_rubbish_is_not(iris: House):
    good = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    await iris.http.post("/v1/jobs", json=SPEC, headers={"traceparent": good})
    await iris.http.post(
        "/v1/jobs", json={**SPEC, "name": "/b"}, headers={"traceparent": "rubbish"}
    )
    assert [command.traceparent for command in iris.state.commands] == [good, ""]


async def test_a_job_is_shown_by_name_and_by_id(iris: House):
    made = (await iris.submit("/train")).json()
    assert (await iris.http.get("/v1/jobs/%2Ftrain")).json() == made
    assert (await iris.http.get("/v1/jobs/j1")).json() == made


async def test_a_child_with_the_name_of_a_resource_is_not_taken_for_it(iris: House):
    await iris.submit("/train/tasks")
    assert (await iris.http.get("/v1/jobs/%2Ftrain%2Ftasks")).json()["name"] == "/train/tasks"


async def test_an_unknown_job_is_not_found(iris: House):
    response = await iris.http.get("/v1/jobs/%2Fnope")
    assert (response.status_code, response.headers["content-type"]) == (
        404,
        "application/problem+json",
    )


async def test_filters_and_paging_reach_the_state_service_as_they_were_given(iris: House):
    filters = (
        "state=running&user=ada&band=batch&name_prefix=/a&label=team=vision&parent=/p&order=-tasks"
    )
    filters += "&without_routes=true"
    await iris.http.get(f"/v1/jobs?{filters}&limit=7&cursor=12")
    assert iris.state.queries[-1].arguments == {
        "state": "running",
        "user": "ada",
        "band": "batch",
        "name_prefix": "/a",
        "label": "team=vision",
        "parent": "/p",
        "order": "-tasks",
        "without_routes": True,
        "limit": 7,
        "cursor": "12",
    }


async def test_cancel_is_accepted_and_carries_its_reason(iris: House):
    await iris.submit("/train")
    response = await iris.http.post("/v1/jobs/%2Ftrain/cancel", json={"reason": "enough"})
    assert (response.status_code, response.json()["state"]) == (202, "killed")
    command = iris.state.commands[-1]
    assert isinstance(command, CancelJob)
    assert (command.job, command.reason) == ("/train", "enough")


async def test_a_job_or_a_task_is_cancelled_at_once(iris: House):
    await iris.submit("/train")
    for path in ("/v1/jobs/j1/cancel", "/v1/tasks/j1%2F0/cancel"):
        assert (await iris.http.post(path, json={"now": True})).status_code == 202
        assert (await iris.http.post(path, json={})).status_code == 202
    found = [command.now for command in iris.state.commands if isinstance(command, CancelJob)]
    assert found == [True, False, True, False]


async def test_a_long_reason_of_a_cancellation_is_refused_and_never_cut(iris: House):
    await iris.submit("/train")
    for path in ("/v1/jobs/j1/cancel", "/v1/tasks/j1%2F0/cancel"):
        refused = await iris.http.post(path, json={"reason": "x" * 1001})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/reason")
        assert (await iris.http.post(path, json={"reason": "x" * 1000})).status_code == 202
    assert [len(c.reason) for c in iris.state.commands if isinstance(c, CancelJob)] == [1000, 1000]


async def test_cancel_needs_no_body(iris: House):
    await iris.submit("/train")
    assert (await iris.http.post("/v1/jobs/j1/cancel", json={})).status_code == 202


async def test_one_task_is_cancelled_by_its_name_or_id(iris: House):
    await iris.submit("/train")
    for task in ("%2Ftrain%2F0", "j1%2F0"):
        answer = await iris.http.post(f"/v1/tasks/{task}/cancel", json={"reason": "enough"})
        assert (answer.status_code, answer.json()["id"]) == (202, "j1")
    assert [(c.job, c.reason) for c in iris.state.commands[-2:]] == [
        ("/train/0", "enough"),
        ("j1/0", "enough"),
    ]


async def test_rerun_makes_a_job_and_says_where(iris: House):
    await iris.submit("/train")
    body = {"failed_only": True, "env": {"LR": "0.01"}, "after": [{"job": "/prep", "when": "any"}]}
    body |= {"tasks": "3-7", "resources": {"memory_bytes": 8 << 30}}
    response = await iris.http.post("/v1/jobs/j1/rerun", json=body)
    assert (response.status_code, response.headers["location"]) == (201, "/v1/jobs/j1")
    command = iris.state.commands[-1]
    assert isinstance(command, RerunJob)
    assert (command.failed_only, command.env, command.after) == (
        True,
        {"LR": "0.01"},
        (Dependency("/prep", "any"),),
    )
    assert (command.tasks, command.resources) == ("3-7", {"memory_bytes": 8 << 30})


async def test_a_repeated_rerun_with_one_key_is_one_request(iris: House):
    await iris.submit("/train")
    for _ in range(2):
        await iris.http.post("/v1/jobs/j1/rerun", headers={"Idempotency-Key": "again"})
    first, second = iris.state.commands[-2:]
    assert first.request_id == second.request_id


@pytest.mark.parametrize(
    ("method", "path", "body", "other"),
    [
        ("POST", "/v1/jobs/j1/cancel", {"reason": "late"}, {"reason": "wrong"}),
        ("POST", "/v1/jobs/j1/rerun", {"failed_only": True}, {"failed_only": False}),
        ("PUT", "/v1/quotas/ada", {"max_running_cpu": 1000}, {"max_running_cpu": 2000}),
    ],
)
async def test_a_key_used_for_another_body_makes_another_request_id(
    iris: House, method: str, path: str, body: dict[str, object], other: dict[str, object]
):
    """The state service refuses the second id, because it knows its key:
    tests/unit/state/deployments.
    """
    await iris.submit("/train")
    for sent in (body, body, other):
        await iris.http.request(method, path, json=sent, headers={"Idempotency-Key": "k"})
    first, again, changed = (command.request_id for command in iris.state.commands[-3:])
    assert first == again != changed
    assert key_of(first) == key_of(changed) != ""


async def test_refusals_of_the_state_service_keep_their_text_and_get_a_status(impatient: House):
    """It repeats a command that is refused as unavailable until its time is over."""
    wanted = {
        "parent_ended": 409,
        "over_quota": 429,
        "forbidden": 403,
        "unavailable": 503,
        "invalid": 422,
    }
    got = {}
    for code in wanted:
        impatient.state.scripted["SubmitJob"] = refusal(code, f"because of {code}")
        response = await impatient.submit("/train")
        assert response.json()["detail"] == f"because of {code}"
        assert ("retry-after" in response.headers) == response.json()["retryable"]
        got[code] = response.status_code
    assert got == wanted


async def test_an_answer_that_makes_no_sense_is_an_error_without_a_traceback(iris: House):
    iris.state.scripted["job"] = Answer("gibberish", b"{{{")
    response = await iris.http.get("/v1/jobs/j1")
    assert (response.status_code, response.json()["code"]) == (500, "internal")


async def test_a_plan_asks_the_scheduler_and_creates_nothing(iris: House):
    iris.state.preview = PlanPreview(
        "not_now", (), ("/b/0",), Reason(ReasonCode.BEHIND, "behind 2 tasks"), 2
    )
    response = await iris.http.post("/v1/jobs:plan", json=SPEC)
    assert response.json() == {
        "verdict": "not_now",
        "placements": [],
        "victims": ["/b/0"],
        "reason": {"code": "behind", "message": "behind 2 tasks"},
        "ahead": 2,
        "variants": {},
        "levels": {},
    }
    assert [type(command) for command in iris.state.commands] == [PlanRequest]


async def test_a_plan_of_a_job_that_would_wait_says_for_what(iris: House):
    iris.state.preview = PlanPreview("now", ((0, "w0"),))
    iris.state.scripted["closed_gate"] = Answer(
        "ok", b'{"reason": {"code": "held", "message": "held"}}'
    )
    response = await iris.http.post("/v1/jobs:plan", json={**SPEC, "hold": True})
    assert (response.json()["verdict"], response.json()["reason"]["code"]) == ("not_now", "held")


async def test_mistakes_in_what_a_job_waits_for_are_all_told(iris: House):
    gates = {"after": [{"job": "", "when": "ok"}], "not_before": "soon", "singleton": "a b"}
    response = await iris.http.post("/v1/jobs", json={**SPEC, **gates})
    assert response.status_code == 422
    assert [one["pointer"] for one in response.json()["errors"]] == [
        "/after/0/job",
        "/not_before",
        "/singleton",
    ]
    assert iris.state.commands == []


async def test_draining_a_worker_is_an_operators_command(iris: House):
    response = await iris.http.post("/v1/workers/w0/mark-lost", json={})
    assert response.status_code == 202
    [command] = iris.state.commands
    assert isinstance(command, AdminCommand)
    assert (command.action, command.target) == ("mark_lost", "w0")


async def test_a_quota_is_set_with_the_bands_wire_value(iris: House):
    response = await iris.http.put(
        "/v1/quotas/ada", json={"max_running_cpu": 8000, "max_band": "batch"}
    )
    assert response.status_code == 200
    unlimited = {limit.name: 0 for limit in QUOTA_LIMITS}
    assert iris.state.commands[-1].arguments == unlimited | {"max_running_cpu": 8000, "max_band": 3}


async def test_a_quota_below_nothing_is_refused_with_its_field(iris: House):
    response = await iris.http.put("/v1/quotas/ada", json={"max_running_cpu": -1, "x": 1})
    assert [mistake["pointer"] for mistake in response.json()["errors"]] == [
        "/max_running_cpu",
        "/x",
    ]


async def test_a_quota_beyond_what_can_be_stored_is_refused_in_units_of_people(iris: House):
    too_much = {"max_running_cpu": 2**60, "max_running_memory": 2**60, "max_pending_tasks": True}
    response = await iris.http.put("/v1/quotas/ada", json=too_much)
    assert [mistake["message"] for mistake in response.json()["errors"]] == [
        "1.15292150460685e+15 is not between 0 and 9007199254740.99 cores",
        "1024PiB is not between 0B and 8PiB",
        "must be a whole number, not true or false",
    ]


async def test_every_view_is_asked_for_by_its_name(iris: House):
    asked = {
        "/v1/jobs/j1/tree": ("tree", {"job": "j1"}),
        "/v1/jobs/j1/tasks?state=failed": ("tasks", {"job": "j1", "state": "failed"}),
        "/v1/jobs/j1/why": ("why", {"job": "j1"}),
        "/v1/jobs/j1/history": ("history", {"job": "j1"}),
        "/v1/jobs/j1/history?task=9000": ("history", {"task": "j1/9000"}),
        "/v1/tasks/j1%2F0/attempts": ("attempts", {"task": "j1/0"}),
        "/v1/tasks/%2Ftrain%2F0/why": ("why", {"task": "/train/0"}),
        "/v1/workers": ("workers", {}),
        "/v1/workers/w%201": ("worker", {"id": "w 1"}),
        "/v1/sessions?status=running": ("sessions", {"status": "running"}),
        "/v1/sessions/j1-0": ("session", {"id": "j1-0"}),
        "/v1/queue?limit=2": ("queue", {"limit": 2}),
        "/v1/queue/gated?limit=2": ("gated_jobs", {"limit": 2}),
        "/v1/slices": ("slices", {}),
        "/v1/share?project=%2Fnlp": ("shares", {"project": "/nlp"}),
        "/v1/quotas": ("quotas", {}),
        "/v1/quotas/ada": ("quota", {"user": "ada"}),
        "/v1/overview": ("overview", {}),
    }
    got = {}
    for path in asked:
        assert (await iris.http.get(path)).status_code == 200
        got[path] = (iris.state.queries[-1].what, iris.state.queries[-1].arguments)
    assert got == asked


async def test_a_job_is_held_and_released_by_a_patch(iris: House):
    await iris.submit("/train")
    held = await iris.http.patch(
        "/v1/jobs/j1", json={"hold": True, "reason": "data"}, headers={"If-Match": '"1"'}
    )
    assert (held.status_code, held.headers["etag"]) == (200, '"1"')
    await iris.http.patch("/v1/jobs/j1", json={"hold": False, "after": []})
    hold, release = (command for command in iris.state.commands if isinstance(command, AmendJob))
    assert (hold.job, hold.hold, hold.reason, hold.version) == ("j1", True, "data", 1)
    assert (release.hold, release.drop_after, release.version) == (False, True, 0)


async def test_a_patch_adds_no_dependency_and_knows_its_fields(iris: House):
    added = await iris.http.patch("/v1/jobs/j1", json={"after": [{"job": "/a"}]})
    other = await iris.http.patch("/v1/jobs/j1", json={"command": ["true"]})
    assert (added.status_code, other.status_code) == (422, 422)
    assert iris.state.commands == []


async def test_a_job_and_a_task_are_requeued(iris: House):
    await iris.submit("/train")
    job = await iris.http.post("/v1/jobs/j1/requeue", json={"reason": "a new disk"})
    task = await iris.http.post("/v1/tasks/j1%2F0/requeue", json={})
    asked = [
        (one.target, one.reason) for one in iris.state.commands if isinstance(one, RequeueTasks)
    ]
    assert asked == [("j1", "a new disk"), ("j1/0", "")]
    assert (job.status_code, task.status_code, task.json()["name"]) == (202, 202, "/train")


async def test_fields_of_a_job_are_changed_by_a_patch(iris: House):
    await iris.submit("/train")
    patch = {
        "band": "batch",
        "timeout_s": None,
        "max_parallel": 2,
        "labels": {"team": "vision", "old": None},
    }
    changed = await iris.http.patch("/v1/jobs/j1", json=patch, headers={"If-Match": '"3"'})
    command = next(command for command in iris.state.commands if isinstance(command, AmendJob))
    assert (changed.status_code, command.version, command.hold) == (200, 3, None)
    assert json.loads(command.patch) == patch


async def test_a_patch_that_holds_may_stop_what_runs(iris: House):
    await iris.submit("/train")
    held = await iris.http.patch("/v1/jobs/j1", json={"hold": True, "stop": True})
    alone = await iris.http.patch("/v1/jobs/j1", json={"stop": True})
    command = next(command for command in iris.state.commands if isinstance(command, AmendJob))
    assert (held.status_code, alone.status_code, command.stop, command.patch) == (
        200,
        422,
        True,
        b"",
    )


@pytest.mark.parametrize(
    "field", ["command", "resources", "replicas", "coscheduling", "env", "bundle"]
)
async def test_a_field_that_stays_is_refused_with_the_way_to_another(iris: House, field: str):
    refused = await iris.http.patch("/v1/jobs/j1", json={field: 1, "band": "best"})
    mistakes = {one["pointer"]: one for one in refused.json()["errors"]}
    assert (refused.status_code, set(mistakes)) == (422, {f"/{field}", "/band"})
    assert "rerun" in mistakes[f"/{field}"]["hint"]
    assert mistakes["/band"]["hint"] == "one of: production, interactive, batch"
    assert iris.state.commands == []


async def test_a_part_of_the_queue_is_held_and_released(iris: House):
    held = await iris.http.post("/v1/queue/holds", json={"band": "batch", "reason": "repairs"})
    released = await iris.http.delete("/v1/queue/holds/h1")
    wrong = await iris.http.post("/v1/queue/holds", json={"band": "best"})
    asked = [
        (one.band, one.reason, one.hold)
        for one in iris.state.commands
        if isinstance(one, HoldQueue)
    ]
    assert asked == [("batch", "repairs", ""), ("", "", "h1")]
    assert (held.status_code, released.status_code, wrong.status_code) == (201, 200, 422)


async def test_a_wrong_word_is_refused_with_those_that_are_known(iris: House):
    body = {
        "name": "/a",
        "command": ["true"],
        "spread": "q",
        "constraints": [{"key": "a", "op": "like", "value": "1"}],
        "on_exit": [{"codes": [75], "do": "again"}],
    }
    refused = await iris.http.post("/v1/jobs", json=body)
    assert {one["pointer"]: (one["message"], one["hint"]) for one in refused.json()["errors"]} == {
        "/spread": ("cannot be 'q'", "one of: hosts, none"),
        "/constraints/0/op": (
            "cannot be 'like'",
            "one of: eq, ne, exists, not_exists, gt, ge, lt, le, in",
        ),
        "/on_exit/0/do": ("cannot be 'again'", "one of: retry, requeue, fail"),
    }
