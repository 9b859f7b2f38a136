"""Names belong to people: jobs of one name of several users, and what a plain name leads to.
docs/design/semantics.md#jobs, docs/adr/0137-names-belong-to-people.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_core import codec
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.spec.jobs import Dependency, JobSpec
from iris_state.views.reads import answer
from tests.support.world import World

ANN, BOB, EVE = Caller("ann"), Caller("bob"), Caller("eve")
ROOT = Caller("root", "admin")


@pytest.fixture
def world() -> World:
    """Ann has /ten (j1), bob has /ten (j2), and ann alone has /own (j3)."""
    made = World()
    for caller, name in ((ANN, "/ten"), (BOB, "/ten"), (ANN, "/own")):
        assert made.submit(job(name), caller).status == "created"
    return made


def job(name: str, **fields: Any) -> JobSpec:
    return JobSpec(name=name, command=("true",), **fields)


def asked(world: World, caller: Caller, what: str = "job", **arguments: str) -> Answer:
    return codec.unpack(answer(world.ledger, Query(what, arguments, caller), 0), Answer)


def id_of(given: Answer) -> str:
    return str(json.loads(given.body)["id"])


def refusal(given: Answer) -> tuple[str, str]:
    return given.status, json.loads(given.body)["detail"]


OF_BOTH = (
    "/ten is a job of ann, bob, and none of yours: say {0}@ann or {0}@bob, or use the id of the job"
)


def test_a_name_is_ones_own_first_and_with_its_owner_anybodys(world: World):
    assert [id_of(asked(world, caller, job="/ten")) for caller in (ANN, BOB)] == ["j1", "j2"]
    assert [id_of(asked(world, EVE, job=f"/ten@{user}")) for user in ("ann", "bob")] == ["j1", "j2"]
    assert [id_of(asked(world, ANN, "task", task=task)) for task in ("/ten/0", "/ten/0@bob")] == [
        "j1/0",
        "j2/0",
    ]
    assert id_of(asked(world, EVE, job="j2@bob")) == "j2"
    assert refusal(asked(world, EVE, job="j2@ann")) == ("not_found", "there is no job j2@ann")


def test_a_name_of_several_others_is_refused_with_its_owners(world: World):
    assert refusal(asked(world, EVE, job="/ten")) == ("conflict", OF_BOTH.format("/ten"))
    assert refusal(asked(world, EVE, "task", task="/ten/0")) == (
        "conflict",
        OF_BOTH.format("/ten/0"),
    )
    assert refusal(world.cancel("/ten", ROOT)) == ("conflict", OF_BOTH.format("/ten"))
    assert refusal(world.rerun("/ten", ROOT)) == ("conflict", OF_BOTH.format("/ten"))


def test_the_name_of_one_other_user_leads_there_and_that_is_said(world: World):
    found = asked(world, BOB, job="/own")
    assert (id_of(found), found.note) == (
        "j3",
        "/own (j3) is a job of ann: bob has none of that name",
    )
    assert asked(world, BOB, "task", task="/own/0").note == found.note
    assert (
        world.cancel("/own", ROOT).note == "/own (j3) is a job of ann: root has none of that name"
    )
    for caller, name in (
        (ANN, "/own"),
        (BOB, "j3"),
        (BOB, "/own@ann"),
        (ANN, "/ten"),
        (BOB, "/no"),
    ):
        assert asked(world, caller, job=name).note == ""
    claimed = Caller("anonymous", "admin", claimed=True)
    assert asked(world, claimed, job="/own").note == ""  # nobody is known to be somebody else


def test_commands_by_name_reach_ones_own(world: World):
    assert id_of(world.cancel("/ten", BOB)) == "j2"
    assert [world.ledger.jobs[number].is_terminal for number in (1, 2)] == [False, True]
    again = world.rerun("/ten", BOB)
    assert (id_of(again), world.ledger.jobs[4].user) == ("j4", "bob")
    assert json.loads(asked(world, BOB, job="j2").body)["next_run"] == "j4"
    assert json.loads(asked(world, BOB, job="j1").body)["next_run"] is None
    assert world.requeue("/ten@ann", BOB).status == "forbidden"


def test_a_dependency_is_ones_own_job_first(world: World):
    def waits_for(caller: Caller, name: str) -> Any:
        given = world.submit(job("/next", after=(Dependency(name),)), caller, if_exists="replace")
        body = json.loads(given.body)
        return body["errors"][0] if "errors" in body else body["gates"][0]["job"]["id"]

    assert [waits_for(ANN, "/ten"), waits_for(BOB, "/ten")] == ["j1", "j2"]
    assert [waits_for(EVE, "/ten@bob"), waits_for(EVE, "/own")] == ["j2", "j3"]
    assert waits_for(EVE, "/ten") == {
        "pointer": "/after/0/job",
        "code": "ambiguous_job",
        "message": "/ten is a job of ann, bob, and none of eve's",
        "hint": "/ten@ann or /ten@bob",
    }


def test_listings_have_both_and_a_forgotten_one_leaves_the_other(world: World):
    listed = json.loads(asked(world, EVE, "jobs", name_prefix="/ten").body)["items"]
    assert [(row["id"], row["user"]) for row in listed] == [("j2", "bob"), ("j1", "ann")]
    world.cancel("/ten", BOB)
    world.ledger.forget_job(world.ledger.jobs[2])
    assert id_of(asked(world, EVE, job="/ten")) == "j1"


def test_a_run_waits_for_the_runs_of_its_owner_only(script):
    script.play("""
        worker w0 cpu=4
        submit /a user=ann
        submit /a user=bob
        schedule
        j1/0 running
        j2/0 running
        cancel j2 user=bob
        submit /a user=bob          -> created j3
        schedule
        job j3                      -> PENDING
        j1/0                        -> RUNNING
        w0 says j2/0 exit 0
        schedule
        job j3                      -> RUNNING
    """)
