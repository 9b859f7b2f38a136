"""A bundle exists for those who have stored it.
docs/adr/0049-bundles-are-visible-to-their-uploaders.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from iris_core.access import task_tokens
from iris_core.codec import to_json, unpack
from iris_core.messages.gateway_state import Answer, Caller, DeployCommand
from iris_core.messages.message import AttemptRef
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.spec.serving import DeploymentSpec, RouteTemplate
from iris_core.subjects import BUNDLES_BUCKET, CMD_DEPLOY
from iris_gateway.auth.bearer import parse_tokens
from iris_state.views.reads import answer
from tests.support import first_fit
from tests.support.gateway import House, house
from tests.support.world import Host, World
from tests.unit.gateway.test_task_tokens import HOUR_MS, KEY, write_keys

ROLES = {"ann": "user", "bob": "user", "root": "admin"}
TOKENS = "\n".join(
    f"{user} {role} {sha256(user.encode()).hexdigest()}" for user, role in ROLES.items()
)
ANN, BOB, ROOT = ({"Authorization": f"Bearer {user}"} for user in ROLES)
CODE, NONE = b"ann's code", b"nobody's code"
STORED, ABSENT = (sha256(data).hexdigest() for data in (CODE, NONE))
OTHER = "a" * 64


@pytest.fixture
async def iris() -> AsyncIterator[House]:
    async with house(parse_tokens(TOKENS)) as made:
        await write_keys(made, KEY)
        assert (await put(made, CODE, ANN)).status_code == 201
        yield made


async def put(iris: House, data: bytes, who: dict[str, str], digest: str = "") -> httpx.Response:
    return await iris.http.put(
        f"/v1/bundles/{digest or sha256(data).hexdigest()}", content=data, headers=who
    )


async def head(iris: House, digest: str, who: dict[str, str]) -> int:
    return (await iris.http.head(f"/v1/bundles/{digest}", headers=who)).status_code


async def submit(
    iris: House, digest: str, who: dict[str, str], name: str = "/b", **fields: Any
) -> httpx.Response:
    body = {"name": name, "command": ["true"], "bundle": digest, **fields}
    return await iris.http.post("/v1/jobs", json=body, headers=who)


async def owners(iris: House) -> dict[str, tuple[str, ...]]:
    return {
        blob.name: blob.owners
        for blob in await iris.memory.connect().blobs(BUNDLES_BUCKET).listed()
    }


async def answers(iris: House, digest: str) -> list[tuple[int, str]]:
    """What bob is answered about a bundle, wherever one can be named, without its digest."""
    job = {"name": "/b", "command": ["true"], "bundle": digest}
    deployment = {"name": "chat", "template": {"command": ["true"], "bundle": digest}}
    same = {**BOB, "X-Request-Id": "same"}
    responses = [
        await iris.http.head(f"/v1/bundles/{digest}", headers=same),
        await iris.http.post("/v1/jobs", json=job, headers=same),
        await iris.http.post("/v1/jobs:plan", json=job, headers=same),
        await iris.http.post("/v1/deployments", json=deployment, headers=same),
        await iris.http.patch(
            "/v1/deployments/bobs", json={"template": {"bundle": digest}}, headers=same
        ),
        await iris.http.patch(
            "/v1/deployments/anns", json={"template": {"bundle": digest}}, headers=same
        ),
        await put(iris, b"other bytes", same, digest),
    ]
    return [
        (response.status_code, response.text.replace(digest, "DIGEST")) for response in responses
    ]


async def test_somebody_elses_bundle_is_answered_as_one_that_does_not_exist(iris: House):
    world = World()
    look(iris, world)
    for user in ("ann", "bob"):
        spec = DeploymentSpec(
            name=f"{user}s", template=RouteTemplate(command=("true",), bundle=OTHER)
        )
        command = DeployCommand("create", spec.name, Caller(user), user, world.now_ms, spec)
        assert world.command(CMD_DEPLOY, command).status == "created"
    found = await answers(iris, STORED)
    assert found == await answers(iris, ABSENT)
    assert [status for status, _ in found] == [404, 422, 422, 422, 422, 403, 422]


async def test_the_same_bytes_are_stored_once_and_belong_to_each_who_sends_them(iris: House):
    assert (await put(iris, CODE, BOB)).status_code == 201
    assert (await put(iris, CODE, BOB)).status_code == 200
    assert [await head(iris, STORED, who) for who in (ANN, BOB, ROOT)] == [200, 200, 200]
    assert (await submit(iris, STORED, BOB)).status_code == 201
    assert await owners(iris) == {STORED: ("ann", "bob")}


async def test_an_admin_names_any_bundle_and_it_is_the_job_owners_from_then_on(iris: House):
    assert (
        await iris.http.post("/v1/jobs:plan", json=spec_of("/b"), headers=ROOT)
    ).status_code == 200
    assert await head(iris, STORED, BOB) == 404
    assert (await submit(iris, STORED, ROOT, user="bob")).status_code == 201
    assert await head(iris, STORED, BOB) == 200
    assert (await submit(iris, ABSENT, ROOT, user="bob")).status_code == 422


async def test_where_there_is_no_room_nobody_learns_that_somebody_has_it():
    async with house(parse_tokens(TOKENS), bundles_bytes=len(CODE) - 1) as iris:
        await iris.memory.connect().blobs(BUNDLES_BUCKET).put(STORED, CODE, owners=["ann"])
        assert [(await put(iris, data, BOB)).status_code for data in (CODE, NONE)] == [503, 503]
        assert (await put(iris, CODE, ANN)).status_code == 200


def spec_of(name: str) -> dict[str, Any]:
    return {"name": name, "command": ["true"], "bundle": STORED}


def look(iris: House, world: World) -> None:
    """Let the state service answer reads from these records."""
    iris.state.look = lambda query: unpack(answer(world.ledger, query, 1), Answer)  # type: ignore[method-assign]


async def stored_before(iris: House) -> World:
    """A running job of bob whose bundle an earlier release has stored, which noted nobody."""
    blobs = iris.memory.connect().blobs(BUNDLES_BUCKET)
    await blobs.delete(STORED)
    await blobs.put(STORED, CODE)
    world = World()
    world.submit(JobSpec(name="/old", command=("true",), bundle=STORED), Caller("bob"))
    world.register(Host("w0", Amount(1000, 0, 0, 0), {}))
    world.plan(first_fit.plan(world.snapshot()))
    look(iris, world)
    iris.state.scripted["RerunJob"] = Answer("created", to_json({"id": "j2"}))
    return world


async def test_a_task_gives_its_children_its_own_code_whoever_stored_it(iris: House):
    await stored_before(iris)
    grant = task_tokens.grant(KEY, 1, "bob", "w0", iris.gateway.now_ms() + HOUR_MS)
    task = {"Authorization": f"Bearer {task_tokens.token(grant, AttemptRef(1, 0, 0))}"}
    assert await head(iris, STORED, BOB) == 404
    assert (await submit(iris, ABSENT, task, "/old/child")).status_code == 422
    assert (await submit(iris, STORED, task, "/old/child")).status_code == 201
    assert await owners(iris) == {STORED: ("bob",)}


async def test_a_job_is_run_again_with_its_code_whoever_stored_it(iris: House):
    await stored_before(iris)
    statuses = [
        (await iris.http.post("/v1/jobs/j1/rerun", headers=who, json={})).status_code
        for who in (BOB, ROOT)
    ]
    assert statuses == [201, 201]
    assert await owners(iris) == {STORED: ("bob",)}


async def test_whether_code_is_kept_is_told_to_those_who_may_run_the_job_again(iris: House):
    await stored_before(iris)
    for _ in range(2):
        asked = len(iris.state.commands)
        await iris.http.post("/v1/jobs/j1/rerun", headers=ANN, json={})
        assert len(iris.state.commands) == asked + 1  # the state service refuses it
        await iris.memory.connect().blobs(BUNDLES_BUCKET).delete(STORED)
    assert (await iris.http.post("/v1/jobs/j1/rerun", headers=BOB, json={})).status_code == 410
