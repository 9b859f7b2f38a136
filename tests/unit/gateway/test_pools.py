"""Pools and slices over HTTP: set, change, remove, pause, plan, drain, and every refusal."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from iris_core.codec import from_json, to_json
from iris_core.messages.gateway_state import Answer, FleetCommand
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import HostResources
from iris_gateway.auth.bearer import parse_tokens
from tests.support.fake_state import refusal
from tests.support.gateway import House, house

SPEC: dict[str, Any] = {
    "name": "cpu",
    "provider": "process",
    "max": 4,
    "resources": {"cpu_millis": 2000},
}
TPU: dict[str, Any] = {
    "name": "v5e",
    "provider": "exec",
    "options": {"program": "cloud", "zone": "eu-1"},
    "max": 4,
    "hosts": 4,
    "resources": {"cpu_millis": 8000, "chips": 4},
    "attributes": {"device-type": "tpu", "device-variant": "v5litepod-16"},
}


@pytest.fixture
def fleet(iris: House) -> House:
    iris.state.scripted["FleetCommand"] = Answer("ok", to_json({"name": "cpu", "version": 4}))
    iris.state.scripted["pool"] = Answer("ok", to_json({"name": "cpu", "version": 3}))
    return iris


def command_of(iris: House) -> FleetCommand:
    [command] = iris.state.commands
    assert isinstance(command, FleetCommand)
    return command


async def test_a_pool_is_set_by_one_command_and_comes_back(fleet: House):
    fleet.state.scripted["FleetCommand"] = Answer("created", to_json({"version": 1}))
    answer = await fleet.http.put("/v1/pools/cpu", json=SPEC, headers={"X-Iris-User": "root"})
    assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
    command = command_of(fleet)
    assert (command.action, command.target, command.version) == ("set", "cpu", 0)
    assert command.spec == PoolSpec(
        name="cpu", provider="process", max=4, resources=HostResources(cpu_millis=2000)
    )


async def test_a_change_names_the_version_that_it_is_based_on(fleet: House):
    shown = await fleet.http.get("/v1/pools/cpu")
    assert shown.headers["etag"] == '"3"'
    tag = {"If-Match": shown.headers["etag"]}
    changed = await fleet.http.put("/v1/pools/cpu", json=SPEC, headers=tag)
    assert (changed.status_code, changed.headers["etag"]) == (200, '"4"')
    assert command_of(fleet).version == 3
    for method, path, body in (
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("DELETE", "", None),
    ):
        fleet.state.commands.clear()
        await fleet.http.request(method, f"/v1/pools/cpu{path}", json=body, headers=tag)
        assert command_of(fleet).version == 3
    fleet.state.scripted["FleetCommand"] = refusal("precondition_failed", "it is at version 5")
    late = await fleet.http.put("/v1/pools/cpu", json=SPEC, headers=tag)
    assert (late.status_code, late.json()["code"]) == (412, "precondition_failed")
    odd = await fleet.http.put("/v1/pools/cpu", json=SPEC, headers={"If-Match": "3"})
    assert (odd.status_code, odd.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    ("spec", "mistakes"),
    [
        ({**SPEC, "maxx": 4}, {("/maxx", "unknown_field")}),
        (
            {**SPEC, "resources": {"cpu_millis": 1, "gpus": 1}},
            {("/resources/gpus", "unknown_field")},
        ),
        ({**SPEC, "min": 5}, {("/min", "out_of_range")}),
        ({**SPEC, "buffer": 5}, {("/buffer", "out_of_range")}),
        ({**SPEC, "min": -1, "price": -0.5}, {("/min", "out_of_range"), ("/price", "out_of_range")}),
        ({**SPEC, "max": 10_001}, {("/max", "out_of_range")}),
        ({**SPEC, "idle_s": -1}, {("/idle_s", "out_of_range")}),
        ({**SPEC, "create_rate": 0}, {("/create_rate", "out_of_range")}),
        ({**SPEC, "price": None}, {("/price", "wrong_type")}),
        ({**SPEC, "max": 1.5}, {("/max", "wrong_type")}),
        ({**SPEC, "provider": "gce"}, {("/provider", "unknown_provider")}),
        ({**SPEC, "options": {"speed": 1}}, {("/options/speed", "unknown_field")}),
        ({**SPEC, "options": {"seed": 2**63}}, {("/options/seed", "out_of_range")}),
        ({**SPEC, "options": {"boot_s": {}}}, {("/options/boot_s", "wrong_type")}),
        ({**SPEC, "capacity": "free"}, {("/capacity", "wrong_value")}),
        (
            {**TPU, "hosts": 3, "resources": {"cpu_millis": 8000, "chips": 8}},
            {("/hosts", "not_of_variant"), ("/resources/chips", "not_of_variant")},
        ),
        ({**TPU, "options": {"zone": "a"}}, {("/options/program", "missing")}),
        (
            {**TPU, "attributes": {}},
            {("/attributes/device-variant", "missing"), ("/attributes/device-type", "missing")},
        ),
        (
            {**TPU, "attributes": {**TPU["attributes"], "tpu-name": "x"}},
            {("/attributes/tpu-name", "not_settable")},
        ),
        (
            {**SPEC, "reservation": {"name": "tpus", "chips": 0}},
            {("/reservation/chips", "out_of_range")},
        ),
        (
            {},
            {(f"/{name}", "missing") for name in ("name", "provider", "max", "resources")},
        ),
        ({"name": "cpu", "min": "2", "maxx": 1, "provider": "process", "resources": {}}, {
            ("/max", "missing"),
            ("/maxx", "unknown_field"),
            ("/min", "wrong_type"),
            ("/resources/cpu_millis", "missing"),
        }),
        ([], {("", "wrong_type")}),
    ],
)  # fmt: skip
async def test_a_refused_pool_names_every_mistake_and_nothing_is_sent(
    fleet: House, spec: Any, mistakes: set[tuple[str, str]]
):
    for method, path in (("PUT", "/v1/pools/cpu"), ("POST", "/v1/pools:plan")):
        answer = await fleet.http.request(method, path, json=spec)
        assert answer.status_code == 422
        found = {(one["pointer"], one["code"]) for one in answer.json()["errors"]}
        assert found == mistakes
    assert (fleet.state.commands, fleet.state.queries) == ([], [])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b'{"price": NaN}', 400),
        (b'{"max": 1e999}', 400),
        (b"\xff", 400),
        (b"", 400),
    ],
)
async def test_what_is_no_json_is_refused(fleet: House, body: bytes, status: int):
    headers = {"Content-Type": "application/json"}
    answer = await fleet.http.put("/v1/pools/cpu", content=body, headers=headers)
    assert (answer.status_code, fleet.state.commands) == (status, [])
    other = await fleet.http.put("/v1/pools/cpu", content=b"name: cpu")
    assert other.status_code == 415


async def test_the_name_in_the_body_is_that_of_the_path(fleet: House):
    answer = await fleet.http.put("/v1/pools/other", json=SPEC)
    assert answer.status_code == 422
    assert [one["pointer"] for one in answer.json()["errors"]] == ["/name"]


async def test_a_pool_with_slices_is_removed_only_with_drain(fleet: House):
    fleet.state.scripted["FleetCommand"] = refusal("conflict", "cpu has 2 slices")
    answer = await fleet.http.delete("/v1/pools/cpu")
    assert (answer.status_code, answer.json()["detail"]) == (409, "cpu has 2 slices")
    assert not command_of(fleet).drain
    fleet.state.commands.clear()
    fleet.state.scripted["FleetCommand"] = Answer("accepted", to_json({"removing": True}))
    answer = await fleet.http.delete("/v1/pools/cpu?drain=true")
    assert (answer.status_code, answer.json()) == (202, {"removing": True})
    assert command_of(fleet).drain
    gone = {"name": "cpu", "state": "removed"}
    fleet.state.scripted["FleetCommand"] = Answer("accepted", to_json(gone))
    answer = await fleet.http.delete("/v1/pools/cpu?drain=true")
    assert (answer.status_code, answer.json()) == (200, gone)
    odd = await fleet.http.delete("/v1/pools/cpu?drain=perhaps")
    assert (odd.status_code, odd.json()["errors"][0]["pointer"]) == (422, "?drain")


async def test_a_pool_is_paused_and_resumed_with_a_reason(fleet: House):
    for action in ("pause", "resume"):
        fleet.state.commands.clear()
        answer = await fleet.http.post(f"/v1/pools/cpu/{action}", json={"reason": "repairs"})
        assert answer.status_code == 200
        assert (command_of(fleet).action, command_of(fleet).reason) == (action, "repairs")
        odd = await fleet.http.post(f"/v1/pools/cpu/{action}", json={"why": "x"})
        assert (odd.status_code, odd.json()["errors"][0]["pointer"]) == (422, "/why")


async def test_a_plan_asks_and_changes_nothing(fleet: House):
    fleet.state.scripted["pool_plan"] = Answer("ok", to_json({"create": 2}))
    answer = await fleet.http.post("/v1/pools:plan", json=SPEC)
    assert (answer.status_code, answer.json(), fleet.state.commands) == (200, {"create": 2}, [])
    [query] = fleet.state.queries
    assert PoolSpec(
        name="cpu", provider="process", max=4, resources=HostResources(cpu_millis=2000)
    ) == from_json(query.arguments["spec"].encode(), PoolSpec)


async def test_a_slice_is_drained_by_a_deadline(fleet: House):
    answer = await fleet.http.post(
        "/v1/fleet/slices/cpu-0/drain", json={"deadline_s": 60, "reason": "old"}
    )
    assert answer.status_code == 202
    command = command_of(fleet)
    assert (command.action, command.target) == ("drain", "cpu-0")
    assert (command.deadline_s, command.reason) == (60.0, "old")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"deadline_s": -1}, "/deadline_s"),
        ({"deadline_s": "soon"}, "/deadline_s"),
        ({"deadline": 1}, "/deadline"),
        ({"reason": "x" * 100_000}, "/reason"),
    ],
)
async def test_a_drain_is_checked(fleet: House, body: Any, pointer: str):
    answer = await fleet.http.post("/v1/fleet/slices/cpu-0/drain", json=body)
    assert answer.status_code == 422
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]
    assert fleet.state.commands == []


async def test_slices_are_listed_by_pool_and_status(fleet: House):
    await fleet.http.get("/v1/fleet/slices?pool=cpu&status=ready")
    [query] = fleet.state.queries
    assert (query.what, query.arguments["pool"]) == ("fleet_slices", "cpu")
    odd = await fleet.http.get("/v1/fleet/slices?status=asleep")
    assert (odd.status_code, odd.json()["errors"][0]["pointer"]) == (422, "?status")


async def test_everybody_looks_and_only_admins_change():
    tokens = "".join(
        f"{user} {role} {sha256(user.encode()).hexdigest()}\n"
        for user, role in (("ada", "user"), ("root", "admin"))
    )
    changes = [
        ("PUT", "/v1/pools/cpu", SPEC),
        ("DELETE", "/v1/pools/cpu", None),
        ("POST", "/v1/pools/cpu/pause", {}),
        ("POST", "/v1/pools/cpu/resume", {}),
        ("POST", "/v1/fleet/slices/cpu-0/drain", {}),
    ]
    looks = [
        ("GET", "/v1/pools", None),
        ("GET", "/v1/pools/cpu", None),
        ("GET", "/v1/pools/cpu/history", None),
        ("POST", "/v1/pools:plan", SPEC),
        ("GET", "/v1/fleet", None),
        ("GET", "/v1/fleet/slices", None),
        ("GET", "/v1/fleet/slices/s1", None),
    ]
    async with house(parse_tokens(tokens)) as iris:
        iris.state.scripted["FleetCommand"] = Answer("ok", to_json({"version": 1}))
        iris.state.scripted["pool"] = Answer("ok", to_json({"version": 1}))
        for user, wanted in (("ada", {403}), ("root", {200, 202})):
            headers = {"Authorization": f"Bearer {user}"}
            for rows, statuses in ((changes, wanted), (looks, {200})):
                for method, path, body in rows:
                    answer = await iris.http.request(method, path, json=body, headers=headers)
                    assert answer.status_code in statuses, (user, method, path)
        assert len(iris.state.commands) == len(changes)


async def test_the_same_idempotency_key_is_the_same_request(fleet: House):
    for method, path, body in (
        ("PUT", "/v1/pools/cpu", SPEC),
        ("DELETE", "/v1/pools/cpu", None),
        ("POST", "/v1/pools/cpu/pause", {}),
        ("POST", "/v1/fleet/slices/cpu-0/drain", {}),
    ):
        fleet.state.commands.clear()
        for key in ("one", "one", "two"):
            await fleet.http.request(method, path, json=body, headers={"Idempotency-Key": key})
        one, again, two = (command.request_id for command in fleet.state.commands)
        assert one == again != two
