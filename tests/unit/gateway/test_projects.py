"""Projects over HTTP: set, change, remove, and every refusal."""

from __future__ import annotations

from typing import Any

import pytest

from iris_core.codec import to_json
from iris_core.messages.gateway_state import Answer, ProjectCommand
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.resources import ResourceLimits
from tests.support.fake_state import refusal
from tests.support.gateway import House

SPEC: dict[str, Any] = {
    "guarantee": {"chips": 64},
    "limit": {"chips": 128, "cpu_millis": 500_000},
    "max_pending_tasks": 10,
    "members": ["ada", "@nlp"],
    "admins": ["lin"],
    "default_for": ["ada"],
}
PATH = "/v1/projects/%2Fresearch%2Fnlp"


@pytest.fixture
def team(iris: House) -> House:
    view = {"path": "/research/nlp", "version": 4}
    iris.state.scripted["ProjectCommand"] = Answer("ok", to_json(view))
    iris.state.scripted["project"] = Answer("ok", to_json({**view, "version": 3}))
    return iris


def command_of(iris: House) -> ProjectCommand:
    [command] = iris.state.commands
    assert isinstance(command, ProjectCommand)
    return command


async def test_a_project_is_set_by_one_command_and_comes_back(team: House):
    team.state.scripted["ProjectCommand"] = Answer("created", to_json({"version": 1}))
    answer = await team.http.put(PATH, json=SPEC)
    assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
    command = command_of(team)
    assert (command.action, command.path, command.version) == ("set", "/research/nlp", 0)
    assert command.spec == ProjectSpec(
        guarantee=ResourceLimits(chips=64),
        limit=ResourceLimits(chips=128, cpu_millis=500_000),
        max_pending_tasks=10,
        members=("ada", "@nlp"),
        admins=("lin",),
        default_for=("ada",),
    )


async def test_a_change_names_the_version_that_it_is_based_on(team: House):
    shown = await team.http.get(PATH)
    tag = {"If-Match": shown.headers["etag"]}
    assert tag == {"If-Match": '"3"'}
    changed = await team.http.put(PATH, json=SPEC, headers=tag)
    assert (changed.status_code, changed.headers["etag"]) == (200, '"4"')
    assert command_of(team).version == 3
    team.state.commands.clear()
    await team.http.delete(PATH, headers=tag)
    assert (command_of(team).action, command_of(team).version) == ("remove", 3)
    team.state.scripted["ProjectCommand"] = refusal("precondition_failed", "it is at version 5")
    late = await team.http.put(PATH, json=SPEC, headers=tag)
    assert (late.status_code, late.json()["code"]) == (412, "precondition_failed")


@pytest.mark.parametrize(
    ("path", "spec", "mistakes"),
    [
        (PATH, {**SPEC, "limits": {}}, {("/limits", "unknown_field")}),
        (PATH, {**SPEC, "limit": {"gpus": 1}}, {("/limit/gpus", "unknown_field")}),
        (PATH, {**SPEC, "limit": {"chips": -1}}, {("/limit/chips", "out_of_range")}),
        (PATH, {**SPEC, "guarantee": {"chips": -1}}, {("/guarantee/chips", "out_of_range")}),
        ("/v1/projects/%2F", {"guarantee": {"chips": 1}}, {("/guarantee", "unexpected")}),
        (PATH, {**SPEC, "max_pending_tasks": "4"}, {("/max_pending_tasks", "wrong_type")}),
        (PATH, {**SPEC, "members": ["ada", "ada"]}, {("/members/1", "duplicate")}),
        (PATH, {**SPEC, "default_for": ["@nlp"]}, {("/default_for/0", "bad_user")}),
        (PATH, {"weight": 0}, {("/weight", "out_of_range")}),
        (PATH, {"color": 0}, {("/color", "unknown_field")}),
        ("/v1/projects/%2F", {"members": ["ada"]}, {("/members", "unexpected")}),
        ("/v1/projects/%2Fa%2F%2Fb", {}, {("", "bad_project")}),
    ],
)
async def test_every_mistake_is_named_and_nothing_is_sent(
    team: House, path: str, spec: dict[str, Any], mistakes: set[tuple[str, str]]
):
    answer = await team.http.put(path, json=spec)
    assert answer.status_code == 422, answer.text
    assert {(one["pointer"], one["code"]) for one in answer.json()["errors"]} == mistakes
    assert team.state.commands == []


async def test_a_refusal_of_the_state_service_is_passed_on(team: House):
    for code, status in (("conflict", 409), ("forbidden", 403), ("over_quota", 429)):
        team.state.scripted["ProjectCommand"] = refusal(code, "no")
        assert (await team.http.put(PATH, json={})).status_code == status
        assert (await team.http.delete(PATH)).status_code == status


async def test_a_job_names_its_project(iris: House):
    body = {"name": "/a", "command": ["true"], "project": "research/nlp"}
    await iris.http.post("/v1/jobs", json=body)
    assert iris.state.commands[0].spec.project == "research/nlp"
    wrong = await iris.http.post("/v1/jobs", json={**body, "project": "/a b"})
    assert [one["pointer"] for one in wrong.json()["errors"]] == ["/project"]


async def test_jobs_and_usage_are_read_by_project(iris: House):
    await iris.http.get("/v1/jobs?project=%2Fresearch")
    await iris.http.get("/v1/usage?by=project&project=%2Fresearch")
    asked = [query.arguments for query in iris.state.queries]
    assert asked == [{"project": "/research"}, {"by": "project", "project": "/research"}]
