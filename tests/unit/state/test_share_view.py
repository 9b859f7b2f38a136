"""What `GET /v1/share` answers: every number is the one by which the queue is ordered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_core import subjects
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.placement.priority import packed_steps
from iris_state.policy import Policy
from iris_state.records.shares import step_of
from tests.support.sharing import SharedCluster
from tests.support.world import World

HOUR_S = 3600


@pytest.fixture(scope="module")
def team() -> SharedCluster:
    """Two hours of ada and bob in /nlp, of weight 3, beside dan in /prod, of weight 1."""
    cluster = SharedCluster(8, is_checked=False)
    cluster.change_project("/nlp", weight=3.0)
    cluster.change_project("/prod", weight=1.0)
    cluster.change_project("/nlp/small", members=("cyd",))
    for user, project in (("ada", "/nlp"), ("bob", "/nlp"), ("dan", "/prod")):
        cluster.want(f"/{user}", user, 500, project)
    cluster.want("/cyd", "cyd", 1, "/nlp/small")
    cluster.run(2 * HOUR_S)
    return cluster


def answer(world: World, caller: Caller | None = None, **asked: Any) -> Answer:
    return world.ask(subjects.STATE_QUERY, Query("shares", asked, caller or world.reader), Answer)


def rows(world: World, caller: Caller | None = None, **asked: Any) -> list[dict[str, Any]]:
    found = json.loads(answer(world, caller, **asked).body)
    assert found["enabled"] is True
    return found["items"]


def whose(found: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(row["project"], row["user"]) for row in found]


def test_below_a_project_are_its_users_and_then_its_projects(team: SharedCluster):
    assert whose(rows(team)) == [
        ("/", None),
        ("/nlp", None),
        ("/nlp", "ada"),
        ("/nlp", "bob"),
        ("/nlp/small", None),
        ("/nlp/small", "cyd"),
        ("/prod", None),
        ("/prod", "dan"),
    ]


def test_a_share_is_the_part_of_the_use_over_the_part_of_the_weights(team: SharedCluster):
    found = {(row["project"], row["user"]): row for row in rows(team)}
    nlp, prod = found["/nlp", None], found["/prod", None]
    assert [(row["weight"], row["weight_part"]) for row in (nlp, prod)] == [(3, 0.75), (1, 0.25)]
    assert nlp["usage_part"] + prod["usage_part"] == pytest.approx(1.0, abs=1e-5)
    for row in found.values():
        quotient = row["usage_part"] / row["weight_part"]
        assert row["share"] == pytest.approx(quotient, rel=1e-4), row
    assert found["/nlp", "ada"]["weight_part"] == 0.5  # the user of /nlp/small has no work now
    assert found["/", None]["share"] == 1.0
    assert found["/prod", "dan"]["share"] == 1.0  # alone in it


def test_what_is_used_and_held_is_that_of_the_whole_cluster(team: SharedCluster):
    found = {(row["project"], row["user"]): row for row in rows(team)}
    top = found["/", None]
    assert top["running"] == 1.0
    assert top["usage"] == pytest.approx(2 * HOUR_S, rel=0.02)
    for field in ("usage", "running", "pending_tasks"):
        users = sum(row[field] for (_, user), row in found.items() if user is not None)
        assert users == pytest.approx(top[field], abs=1e-4), field


def test_the_steps_are_those_of_the_queue(team: SharedCluster):
    found = {(row["project"], row["user"]): row for row in rows(team)}
    for row in team.query("queue")["items"]:
        steps = [found[row["project"], None]["step"], found[row["project"], row["user"]]["step"]]
        assert row["step"] == steps
        number = team.ledger.queue.key(row["sequence"]).steps
        assert number == packed_steps(steps)
        share = found[row["project"], None]["share"]
        assert abs(step_of(share) - steps[0]) <= 1  # a border is left late


def test_a_page_goes_on_wherever_it_was_cut(team: SharedCluster):
    whole = rows(team)
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = team.query("shares", limit=1, cursor=cursor)
        found += page["items"]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
        assert page["enabled"] is True
    assert found == whole
    for wrong in ("zz", b'{"a":1}'.hex()):
        refused = answer(team, cursor=wrong)
        assert (refused.status, b"not a cursor" in refused.body) == ("invalid", True)


def test_one_project_is_shown_with_what_is_below_it(team: SharedCluster):
    assert whose(rows(team, project="/nlp")) == whose(rows(team))[1:6]
    assert whose(rows(team, project="prod")) == whose(rows(team))[6:]
    refused = answer(team, project="/nl")
    assert (refused.status, b"there is no project /nl; the nearest" in refused.body) == (
        "not_found",
        True,
    )


def test_users_are_shown_to_admins_and_to_themselves(team: SharedCluster):
    projects = [one for one in whose(rows(team)) if one[1] is None]
    assert whose(rows(team, Caller("eve", "user"))) == projects
    mine = whose(rows(team, Caller("ada", "user")))
    assert [one for one in mine if one[1] is not None] == [("/nlp", "ada")]
    assert [one for one in mine if one[1] is None] == projects


def test_who_had_work_once_is_compared_as_if_it_had_some_now(team: SharedCluster):
    [project, cyd] = rows(team, project="/nlp/small")
    assert (project["pending_tasks"], project["running"]) == (0, 0.0)
    assert (project["weight_part"], cyd["share"]) == (pytest.approx(1 / 3, abs=1e-5), 1.0)


def test_while_it_is_off_it_says_so():
    world = World()
    assert world.query("shares") == {"enabled": False, "items": [], "next_cursor": None}
    world = World(Policy(fair_share=True))
    assert whose(rows(world)) == [("/", None)]
