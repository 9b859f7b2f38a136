"""Deployments over HTTP: create, show, patch and delete."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest

from iris_core.access.request_ids import key_of
from iris_core.codec import to_json
from iris_core.messages.gateway_state import Answer, DeployCommand
from iris_core.spec.serving import DeploymentSpec, RouteTemplate
from iris_core.subjects import event
from iris_core.views.deployments import DeploymentView
from iris_core.views.events import DeploymentEvent, RouteEvent
from iris_gateway.auth.bearer import parse_tokens
from tests.support.fake_state import refusal
from tests.support.gateway import House, house

SPEC: dict[str, Any] = {"name": "chat", "template": {"command": ["serve"]}, "replicas": 3}
AT = datetime(2026, 1, 1, tzinfo=UTC)


def shown(version: int = 1, **fields: Any) -> bytes:
    """The deployment as the state service shows it."""
    fields.setdefault("template", RouteTemplate(command=("serve",)))
    spec = DeploymentSpec(name="chat", replicas=3, **fields)
    numbers = {
        "revision": 1,
        "replicas": 3,
        "ready": 0,
        "available": 0,
        "live": 0,
        "version": version,
    }
    whole = DeploymentView(
        id="d1",
        name="chat",
        status="ready",
        user="ada",
        stable_revision=None,
        spec=spec,
        revisions=[1],
        created_at=AT,
        since=AT,
        update=None,
        conditions=[],
        **numbers,  # type: ignore[arg-type]
    )
    return to_json(whole)


@pytest.fixture
def chat(iris: House) -> House:
    iris.state.scripted["DeployCommand"] = Answer("accepted", shown(8))
    iris.state.scripted["deployment"] = Answer("ok", shown(7))
    return iris


async def patched(iris: House, body: Any, **headers: str) -> tuple[int, DeployCommand | None]:
    answer = await iris.http.patch("/v1/deployments/chat", json=body, headers=headers)
    [command] = iris.state.commands or [None]
    return answer.status_code, command


async def test_a_deployment_is_created_by_one_command_and_comes_back(chat: House):
    chat.state.scripted["DeployCommand"] = Answer("created", shown(1))
    answer = await chat.http.post("/v1/deployments", json=SPEC, headers={"X-Iris-User": "ada"})
    assert (answer.status_code, answer.headers["location"]) == (201, "/v1/deployments/chat")
    assert (answer.headers["etag"], answer.json()["name"]) == ('"1"', "chat")
    [command] = chat.state.commands
    assert (command.action, command.name, command.caller.user) == ("create", "chat", "ada")
    assert command.spec == DeploymentSpec(
        name="chat", template=RouteTemplate(command=("serve",)), replicas=3, user="ada"
    )


async def test_the_same_idempotency_key_is_the_same_request(chat: House):
    for method, path, body in (
        ("POST", "", SPEC),
        ("PATCH", "/chat", {"replicas": 1}),
        ("DELETE", "/chat", None),
    ):
        chat.state.commands.clear()
        for key in ("one", "one", "two"):
            await chat.http.request(
                method, f"/v1/deployments{path}", json=body, headers={"Idempotency-Key": key}
            )
        one, again, two = (command.request_id for command in chat.state.commands)
        assert one == again != two


async def test_a_key_with_another_content_is_another_request_with_the_same_key(chat: House):
    for replicas in (1, 2):
        body = {**SPEC, "replicas": replicas}
        await chat.http.post("/v1/deployments", json=body, headers={"Idempotency-Key": "one"})
    one, other = (command.request_id for command in chat.state.commands)
    assert (one != other, key_of(one) == key_of(other) != "") == (True, True)


async def test_masked_values_are_kept_by_a_patch_and_refused_in_one(chat: House):
    template = RouteTemplate(command=("serve",), env={"API_TOKEN": "***", "MODE": "x"})
    chat.state.scripted["deployment"] = Answer("ok", shown(7, template=template))
    read = (await chat.http.get("/v1/deployments/chat")).json()["spec"]["template"]
    answer = await chat.http.patch(
        "/v1/deployments/chat", json={"template": {**read, "command": ["v2"]}}
    )
    [mistake] = answer.json()["errors"]
    assert (answer.status_code, mistake["pointer"], mistake["code"]) == (
        422,
        "/template/env/API_TOKEN",
        "masked",
    )
    assert (await patched(chat, {"template": {"command": ["v2"], "env": {"MODE": "y"}}}))[0] == 200


async def test_every_mistake_of_a_deployment_is_listed_at_once(iris: House):
    body = {
        "name": "no/name",
        "replicas": -1,
        "zz": 1,
        "port": "web",
        "template": {
            "command": ["a", 7],
            "env": {"A": 1, "": "x"},
            "probe": {"interval_s": 0, "kind": "ping"},
        },
        "update": {"max_surge": "2x"},
    }
    answer = await iris.http.post("/v1/deployments", json=body)
    assert sorted(mistake["pointer"] for mistake in answer.json()["errors"]) == [
        "/name",
        "/port",
        "/replicas",
        "/template/command/1",
        "/template/env/",
        "/template/env/A",
        "/template/probe/interval_s",
        "/template/probe/kind",
        "/update/max_surge",
        "/zz",
    ]
    assert (answer.status_code, iris.state.commands) == (422, [])


async def test_code_that_nobody_has_sent_is_refused(chat: House):
    template = {"command": ["serve"], "bundle": "0" * 64}
    for ask in (
        chat.http.post("/v1/deployments", json={**SPEC, "template": template}),
        chat.http.patch("/v1/deployments/chat", json={"template": template}),
    ):
        [mistake] = (await ask).json()["errors"]
        assert (mistake["pointer"], mistake["code"]) == ("/template/bundle", "no_such_bundle")
    assert chat.state.commands == []


@pytest.mark.parametrize(
    ("body", "action", "field", "value"),
    [
        ({"replicas": 5}, "scale", "replicas", 5),
        ({"paused": True}, "pause", "spec", None),
        ({"paused": False}, "resume", "spec", None),
        ({"revision": 2}, "rollback", "revision", 2),
        ({"template": {"command": ["v2"]}}, "update", "patch", b'{"template":{"command":["v2"]}}'),
        ({"replicas": 5, "port": "http"}, "update", "patch", b'{"replicas":5,"port":"http"}'),
    ],
)
async def test_a_patch_becomes_the_command_for_what_it_changes(
    chat: House, body: dict[str, Any], action: str, field: str, value: object
):
    status, command = await patched(chat, body)
    assert (status, command.action, getattr(command, field)) == (200, action, value)


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, [""]),
        ({"paused": True, "replicas": 3}, [""]),
        ([], [""]),
        ({"replicas": "3"}, ["/replicas"]),
        (
            {"replicas": 5000, "template": {"command": [], "x": 1}},
            ["/replicas", "/template/command", "/template/x"],
        ),
        ({"template": {"command": None}}, ["/template/command"]),
        ({"name": "other"}, ["/name"]),
        ({"paused": 1, "port": "web"}, ["/paused", "/port"]),
    ],
)
async def test_every_mistake_of_a_patch_is_listed_at_once(
    chat: House, body: object, pointers: list[str]
):
    answer = await chat.http.patch("/v1/deployments/chat", json=body)
    assert sorted(mistake["pointer"] for mistake in answer.json()["errors"]) == pointers
    assert (answer.status_code, chat.state.commands) == (422, [])


async def test_a_change_is_of_the_version_that_was_shown(chat: House):
    tag = (await chat.http.get("/v1/deployments/chat")).headers["etag"]
    status, command = await patched(chat, {"replicas": 5}, **{"If-Match": tag})
    assert (tag, status, command.version) == ('"7"', 200, 7)
    chat.state.scripted["DeployCommand"] = refusal(
        "precondition_failed", "chat has been changed since"
    )
    for method in ("PATCH", "DELETE"):
        body = {"replicas": 5} if method == "PATCH" else None
        answer = await chat.http.request(
            method, "/v1/deployments/chat", json=body, headers={"If-Match": tag}
        )
        assert (answer.status_code, answer.json()["detail"]) == (412, "chat has been changed since")


@pytest.mark.parametrize("tag", ["7", 'W/"7"', '"x"', ""])
async def test_an_if_match_that_no_answer_has_held_is_refused(chat: House, tag: str):
    assert await patched(chat, {"replicas": 5}, **{"If-Match": tag}) == (400, None)


async def test_a_deletion_is_accepted(chat: House):
    answer = await chat.http.delete("/v1/deployments/chat")
    assert (answer.status_code, chat.state.commands[0].action) == (202, "delete")


async def test_reads_are_those_of_the_state_service(iris: House):
    listed = (await iris.http.get("/v1/deployments?status=ready&user=ada&limit=7")).json()
    assert listed == {"what": "deployments", "status": "ready", "user": "ada", "limit": 7}
    for part in ("routes", "history"):
        found = (await iris.http.get(f"/v1/deployments/chat/{part}?limit=5")).json()
        assert (found["what"], found["deployment"], found["limit"]) == (
            f"deployment_{part}",
            "chat",
            5,
        )
    assert (await iris.http.get("/v1/deployments/chat/why")).json()["what"] == "deployment_why"
    assert (await iris.http.get("/v1/deployments?status=READY")).status_code == 422


async def test_nobody_deploys_for_another_and_a_worker_changes_none():
    users = (("ada", "user"), ("w0", "worker"))
    tokens = "\n".join(f"{user} {role} {sha256(user.encode()).hexdigest()}" for user, role in users)
    async with house(parse_tokens(tokens)) as iris:
        for who, ask in (
            ("ada", ("POST", "/v1/deployments", {**SPEC, "user": "bob"})),
            ("w0", ("POST", "/v1/deployments", SPEC)),
            ("w0", ("PATCH", "/v1/deployments/chat", {"paused": True})),
            ("w0", ("DELETE", "/v1/deployments/chat", None)),
        ):
            method, path, body = ask
            answer = await iris.http.request(
                method, path, json=body, headers={"Authorization": f"Bearer {who}"}
            )
            assert (answer.status_code, iris.state.commands) == (403, [])


async def test_events_of_one_deployment_are_its_own_and_its_routes(iris: House):
    for name in ("chat", "other"):
        its = DeploymentEvent(
            deployment=name, state="ready", previous="scaling", revision=1, at_ms=1, seq=1
        )
        await iris.state.streams.publish(event("deployment", "ready"), to_json(its))
        route = RouteEvent(
            route="r1-1",
            deployment=name,
            job=f"/{name}/r1-1",
            state="healthy",
            previous="degraded",
            revision=1,
            worker="w0",
            reason=None,
            at_ms=2,
            seq=2,
        )
        await iris.state.streams.publish(event("route", "healthy"), to_json(route))
    found = (await iris.http.get("/v1/events?deployment=chat&order=asc")).json()["items"]
    assert [(one["type"], one["deployment"]) for one in found] == [
        ("deployment.state.ready", "chat"),
        ("route.state.healthy", "chat"),
    ]
    only = (await iris.http.get("/v1/events?deployment=chat&type=route")).json()["items"]
    assert [one["type"] for one in only] == ["route.state.healthy"]
    assert (await iris.http.get("/v1/events?deployment=")).status_code == 422
