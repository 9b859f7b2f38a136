"""Commands on deployments: their effects, and how invalid ones are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_core.access.request_ids import keyed_request
from iris_core.messages.gateway_state import Caller
from iris_core.quota import Quota
from iris_core.spec.jobs import JobSpec, Probe
from iris_core.spec.serving import DeploymentSpec, UpdatePolicy
from iris_core.states import PriorityBand
from iris_state.policy import Policy
from iris_state.service.bundles import Uses
from tests.support.serving import ADMIN, ANN, Serving, answered, spec, template


@pytest.fixture
def world() -> Serving:
    return Serving()


def job(name: str) -> JobSpec:
    return JobSpec(name=name, command=("true",))


def test_a_job_of_a_deployments_name_is_refused(world: Serving):
    world.create(1)
    for name in ("/chat", "/chat/x", "/chat/r9-9"):
        answer = world.submit(job(name), ANN)
        assert answer.status == "conflict"
        assert "chat is a deployment" in answered(answer)


def test_a_route_may_submit_jobs_below_its_own(world: Serving):
    world.create(1)
    assert world.submit(job("/chat/r1-1/child"), ANN).status == "created"


def test_a_deployment_of_a_live_jobs_name_is_refused(world: Serving):
    world.submit(job("/chat/x"), ANN)
    answer = world.deploy("create", spec=spec(1))
    assert (answer.status, "/chat/x is a job" in answered(answer)) == ("conflict", True)
    world.cancel("/chat/x")
    assert world.deploy("create", spec=spec(1)).status == "created"


def test_a_deployment_keeps_the_names_below_it_from_its_owner_only(world: Serving):
    """Its own name, which is an address, is everybody's."""
    bob = Caller("bob")
    world.submit(job("/chat/r1-1"), bob)
    world.create(1)
    world.go(5)
    assert world.routes() == {"r1-1": "healthy"}
    assert world.submit(job("/chat/x"), bob).status == "created"
    assert world.submit(job("/chat/x"), ANN).status == "conflict"
    assert world.deploy("create", bob, spec=spec(1)).status == "conflict"


def test_the_name_of_a_deployment_that_is_destroyed_is_free(world: Serving):
    world.create(1)
    world.go(5)
    world.deploy("delete")
    world.go(5)
    assert world.submit(job("/chat"), ANN).status == "created"


def test_the_same_name_twice_is_refused(world: Serving):
    world.create(1)
    answer = world.deploy("create", spec=spec(1))
    assert (answer.status, answered(answer)) == ("conflict", "chat exists and is ready")


def test_the_same_request_twice_makes_one_deployment(world: Serving):
    assert world.create(1) == world.create_again()
    assert len(world.ledger.deployments) == 1


@pytest.mark.parametrize("action", ["update", "scale", "rollback", "pause", "resume", "delete"])
def test_only_its_owner_and_admins_change_a_deployment(world: Serving, action: str):
    world.create(2)
    world.update("2", 2)
    given: dict[str, Any] = {"spec": spec(2, "3")} if action == "update" else {"replicas": 3}
    assert world.deploy(action, Caller("bob"), **given).status == "forbidden"
    assert world.deploy(action, ADMIN, **given).status == "accepted"


@pytest.mark.parametrize("action", ["update", "scale", "rollback", "pause", "resume", "delete"])
def test_what_is_not_there_is_not_found(world: Serving, action: str):
    assert world.deploy(action, name="nobody").status == "not_found"


def test_nobody_creates_for_another(world: Serving):
    assert world.deploy("create", Caller("bob"), spec=spec(1, user="ann")).status == "forbidden"


def test_a_change_of_what_somebody_else_has_changed_is_refused(world: Serving):
    version = world.create(2)["version"]
    assert world.deploy("scale", replicas=3, version=version).status == "accepted"
    answer = world.deploy("scale", replicas=4, version=version)
    assert (answer.status, "has been changed since" in answered(answer)) == (
        "precondition_failed",
        True,
    )
    assert world.record.spec.replicas == 3


def test_a_patch_changes_what_it_names_and_nothing_else(world: Serving):
    world.create(2, template=template("1", env={"A": "1", "B": "2", "API_TOKEN": "secret"}))
    patch = b'{"template": {"env": {"A": null, "C": "3"}}, "settle_s": 5}'
    assert world.deploy("update", name=world.record.id, patch=patch).status == "accepted"
    assert world.record.spec.template.env == {"B": "2", "API_TOKEN": "secret", "C": "3"}
    assert (world.record.spec.settle_s, world.record.spec.replicas, world.record.revision) == (
        5,
        2,
        2,
    )


@pytest.mark.parametrize(
    "patch", [b"[]", b"{", b'{"replicas": "x"}', b'{"template": {"command": null}}']
)
def test_a_patch_that_makes_no_specification_is_refused(world: Serving, patch: bytes):
    world.create(2)
    assert world.deploy("update", patch=patch).status == "invalid"
    assert world.record.revision == 1


def test_a_route_that_comes_and_goes_changes_no_version(world: Serving):
    version = world.create(2)["version"]
    world.go(10)
    world.kill("r1-1")
    world.go(10)
    assert world.record.version == version


def test_a_change_to_what_a_deployment_has_changes_no_version(world: Serving):
    version = world.create(2)["version"]
    for change in ({"replicas": 2}, {"patch": b'{"grace_s": null}'}):
        assert (
            world.deploy("update" if "patch" in change else "scale", **change).status == "accepted"
        )
    assert world.record.version == version
    assert not [
        row for row in world.query("deployment_history", deployment="chat")["items"] if row["by"]
    ]


def test_a_deployment_that_is_being_deleted_is_changed_no_more(world: Serving):
    world.create(1)
    world.go(5)
    world.stuck.add("r1-1")
    world.deploy("delete")
    assert world.deploy("scale", replicas=2).status == "conflict"
    assert world.deploy("delete").status == "accepted"


def test_there_is_nothing_to_roll_back_to_at_first(world: Serving):
    world.create(1)
    assert world.deploy("rollback").status == "not_found"
    assert world.deploy("rollback", revision=1).status == "conflict"


def test_no_more_deployments_than_are_possible():
    world = Serving(policy=Policy(max_deployments=1))
    world.create(1)
    other = spec(1)
    answer = world.deploy(
        "create", name="other", spec=type(other)(name="other", template=template())
    )
    assert answer.status == "over_quota"


def test_one_user_does_not_have_all_the_deployments_that_are_possible():
    world = Serving(policy=Policy(max_deployments_of_user=1))
    world.create(1)
    other = type(spec(1))(name="other", template=template())
    refused = world.deploy("create", name="other", spec=other)
    assert (refused.status, "ann has 1 deployments" in answered(refused)) == ("over_quota", True)
    assert world.deploy("create", Caller("bob"), name="other", spec=other).status == "created"
    world.deploy("delete")
    world.go(5)
    third = type(spec(1))(name="third", template=template())
    assert world.deploy("create", name="third", spec=third).status == "created"


@pytest.mark.parametrize("how", ["update", "patch", "rollback"])
def test_a_band_that_the_owner_may_not_ask_for_is_refused_when_it_is_set(world: Serving, how: str):
    """It was accepted, and each of its routes failed to start."""
    world.admin("set_quota", "ann", max_band=PriorityBand.PRODUCTION)
    world.create(1, template=template("1", band="production"))
    world.go(5)
    world.update("2", 1)
    world.go(30)
    world.admin("set_quota", "ann", max_band=PriorityBand.INTERACTIVE)
    given: dict[str, Any] = {
        "update": {"spec": spec(1, template=template("3", band="production"))},
        "patch": {"patch": b'{"template": {"band": "production"}}'},
        "rollback": {"revision": 1},
    }[how]
    refused = world.deploy("rollback" if how == "rollback" else "update", **given)
    assert (refused.status, answered(refused)) == (
        "forbidden",
        "ann may ask for band interactive at best, not production; "
        "an admin allows it with iris quota set",
    )
    assert world.deploy("scale", replicas=2).status == "accepted"


def test_an_update_to_a_band_that_its_user_may_not_ask_for_is_refused(world: Serving):
    world.create(1)
    better = b'{"template": {"band": "production"}}'
    answer = world.deploy("update", patch=better, caller=ANN)
    assert answer.status == "forbidden"
    assert "ann may ask for band interactive at best (the default), not production" in answered(
        answer
    )
    world.admin("set_quota", "ann", max_band=3)
    assert world.deploy("update", patch=better, caller=ADMIN).status == "forbidden"
    world.admin("set_quota", "ann", max_band=1)
    assert world.deploy("update", patch=better, caller=ANN).status == "accepted"


def test_a_user_over_quota_has_routes_that_fail_to_start(world: Serving):
    world.create(1)
    world.go(5)
    world.admin("set_quota", "ann", max_pending_tasks=1)
    assert isinstance(world.ledger.quota_of("ann"), Quota)
    for host in world.hosts:
        world.admin("drain", host)
    world.deploy("scale", replicas=3)
    assert world.codes() == ["back_off", "waiting_for_capacity"]
    assert (
        "may have 1 pending tasks"
        in world.query("deployment_why", deployment="chat")["conditions"][0]["message"]
    )


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"replicas": -1}, "/replicas"),
        ({"replicas": 1001}, "/replicas"),
        ({"port": "grpc"}, "/port"),
        ({"template": template(probe=Probe(port="x"))}, "/template/probe/port"),
        ({"template": template(probe=Probe(kind="command"))}, "/template/probe/command"),
        ({"template": template(env={"1": "x"})}, "/template/env/1"),
        ({"update": UpdatePolicy(max_surge=0)}, "/update/max_surge"),
        ({"update": UpdatePolicy(max_surge="x%")}, "/update/max_surge"),
        (
            {"template": template(probe=Probe()), "update": UpdatePolicy(progress_deadline_s=600)},
            "/update/progress_deadline_s",
        ),
        ({"settle_s": -1.0}, "/settle_s"),
    ],
)
def test_a_mistake_is_named_by_its_place(world: Serving, fields: dict[str, Any], pointer: str):
    given = {"replicas": 1, **fields}
    answer = world.deploy("create", spec=spec(**given))
    assert answer.status == "invalid"
    assert pointer in [one["pointer"] for one in json.loads(answer.body)["errors"]]


def test_a_name_that_would_not_fit_into_a_job_or_an_address_is_refused(world: Serving):
    for name in ("", "7", "a.b", "a/b", "é", "x" * 64):
        answer = world.deploy(
            "create", name=name, spec=type(spec(1))(name=name, template=template())
        )
        assert answer.status == "invalid", name


def test_the_environment_of_a_deployment_is_its_owners(world: Serving):
    world.create(1, template=template(env={"MODE": "x", "API_TOKEN": "t"}))
    for reader, shown in ((ANN, "x"), (Caller("bob"), "***")):
        world.reader = reader
        view = world.query("deployment", deployment="chat")
        assert view["spec"]["template"]["env"] == {"MODE": shown, "API_TOKEN": "***"}


def test_a_mask_in_place_of_a_secret_is_refused_and_names_the_variable(world: Serving):
    answer = world.deploy("create", spec=spec(1, template=template(env={"API_TOKEN": "***"})))
    [mistake] = json.loads(answer.body)["errors"]
    assert (mistake["pointer"], "API_TOKEN" in mistake["message"]) == (
        "/template/env/API_TOKEN",
        True,
    )
    world.create(1, template=template(env={"API_TOKEN": "t"}))
    back = {"template": world.query("deployment", deployment="chat")["spec"]["template"]}
    assert world.deploy("update", patch=json.dumps(back).encode()).status == "invalid"
    del back["template"]["env"]
    back["template"]["command"] = ["serve", "2"]
    assert world.deploy("update", patch=json.dumps(back).encode()).status == "accepted"
    assert world.record.spec.template.env == {"API_TOKEN": "t"}


def test_a_key_that_made_something_else_is_refused_also_by_the_next_leader(world: Serving):
    first = keyed_request("key", b"one")
    assert world.deploy("create", request=first, spec=spec(1)).status == "created"
    for _ in range(2):
        answer = world.deploy("create", request=keyed_request("key", b"other"), spec=spec(2))
        assert answer.status == "idempotency_mismatch"
        assert world.deploy("create", request=first, spec=spec(1)).status == "created"
        world.take_over()
    assert world.record.spec.replicas == 1


def test_a_deployment_may_be_called_as_the_id_of_another(world: Serving):
    """The answer to a request shows the deployment that it has made."""
    world.create(1)
    named = DeploymentSpec(name="d1", template=template())
    answer = world.deploy("create", name="d1", spec=named)
    assert json.loads(answer.body)["name"] == "d1"
    assert world.submit(job("/d2/x"), ANN).status == "created"
    assert world.create_again()["name"] == "chat"


def test_the_bundles_of_every_revision_are_kept(world: Serving):
    world.create(1, template=template("1", bundle="a" * 64))
    world.deploy("update", spec=spec(1, template=template("2", bundle="b" * 64)))
    uses = Uses(set(), {})
    uses.keep(world.ledger.deployments.values())
    assert uses.live == {"a" * 64, "b" * 64}
    world.deploy("delete")
    world.go(3)
    uses = Uses(set(), {})
    uses.keep(world.ledger.deployments.values())
    assert uses.live == set()


def test_destroyed_deployments_are_forgotten_beyond_so_many():
    world = Serving(policy=Policy(keep_deployments=1))
    for _ in range(3):
        world.create(1)
        world.go(5)
        world.deploy("delete")
        world.go(5)
    assert list(world.ledger.deployments) == [3]
    assert world.query("deployments", status="destroyed")["items"][0]["id"] == "d3"
