"""Guarantees and fair share together: a guarantee goes before every share, and among work that
borrows the shares decide. Source: docs/design/team.md#guarantee-and-share and #fair-share.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from iris_core.spec.resources import ResourceLimits
from iris_core.states import Cause
from tests.support.sharing import SharedCluster

TASK_S = 600


@pytest.fixture
def team() -> SharedCluster:
    """Eight chips, of which /nlp is guaranteed two and /prod one. Only ada in /nlp has had
    anything: she holds all chips, for as long as a task runs. She wants three more, the others what
    they can get: of them bob in /prod came before cyd in /vis.
    """
    cluster = SharedCluster(8)
    for path, chips in (("/nlp", 2), ("/prod", 1), ("/vis", 0)):
        cluster.change_project(path, weight=1.0, guarantee=ResourceLimits(chips=chips))
    cluster.want("/first", "ada", 8, "/nlp")
    cluster.run(1)
    cluster.want("/bob", "bob", 8, "/prod")
    cluster.want("/cyd", "cyd", 20, "/vis")
    cluster.want("/ada", "ada", 3, "/nlp")
    return cluster


def running(cluster: SharedCluster) -> dict[str, int]:
    """How many tasks of each job run."""
    return dict(
        Counter(cluster.ledger.jobs[job].name for job, *_ in cluster.ledger.presence["w"].open)
    )


def shares_of(cluster: SharedCluster) -> dict[str, float]:
    """By project."""
    rows = cluster.query("shares")["items"]
    return {row["project"]: row["share"] for row in rows if row["user"] is None}


def waiting(cluster: SharedCluster) -> list[tuple[str, str, int]]:
    """The queue: each job, its side, and the step of its project."""
    rows = cluster.query("queue")["items"]
    return [(row["job"], row["side"], row["step"][0]) for row in rows]


def why(cluster: SharedCluster, job: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.query("why", job=job)
    return found


def test_near_work_goes_before_whatever_its_share(team: SharedCluster):
    share = shares_of(team)
    assert share["/nlp"] > 1 > share["/prod"] == share["/vis"] == 0
    team.run(TASK_S)
    assert running(team) == {"/ada": 2, "/bob": 6}  # the third of ada would borrow
    assert min(team.started["/ada"]) == min(team.started["/bob"])


def test_among_work_that_borrows_the_share_decides(team: SharedCluster):
    team.run(TASK_S)
    assert [row[:2] for row in waiting(team)] == [("/cyd", "far"), ("/bob", "far"), ("/ada", "far")]
    cyd, bob, ada = (step for *_, step in waiting(team))
    assert cyd < bob < ada
    share = shares_of(team)
    assert share["/vis"] == 0
    said = why(team, "/bob")
    assert said["ahead_note"] == (
        f"behind 20 tasks: 20 of cyd, as /vis has had 0 of its share, /prod {share['/prod']:.2g}"
    )
    assert said["side_note"] == (
        "far side: /prod would borrow, so work within a guarantee goes first"
    )
    team.run(TASK_S)
    # What was guaranteed to both went first again, and cyd took the rest although bob came before.
    assert running(team) == {"/ada": 1, "/bob": 1, "/cyd": 6}


def test_a_guarantee_is_reclaimed_from_who_borrows_whatever_the_shares(team: SharedCluster):
    team.run(2 * TASK_S)
    share = shares_of(team)
    assert share["/nlp"] > share["/vis"]
    assert share["/prod"] > share["/vis"]
    team.want("/near", "ada", 1, "/nlp")  # with it /nlp holds what it is guaranteed
    assert [row[:2] for row in waiting(team)] == [
        ("/cyd", "far"),
        ("/bob", "far"),
        ("/near", "near"),
    ]
    said = why(team, "/near")
    assert said["ahead_note"].startswith("behind 15 tasks: 14 of cyd, as /vis has had ")
    assert said["side_note"] == (
        "near side: within what is guaranteed to /nlp, so it goes before what borrows"
    )
    team.cycle()
    assert why(team, "/near")["pending_reason"]["code"] == "waiting_for_victim"
    (victim,) = team.give_way()
    job = team.ledger.jobs[victim.job]
    attempt = job.task(victim.index).attempts[victim.attempt]
    assert (job.name, attempt.cause) == ("/cyd", Cause.RECLAIMED)
    assert attempt.error == "reclaimed by /nlp for /near"
    team.cycle()
    assert running(team) == {"/ada": 1, "/bob": 1, "/cyd": 5, "/near": 1}
    team.want("/more", "ada", 1, "/nlp")
    assert why(team, "/more")["side_note"].startswith("far side: /nlp would borrow")
    team.cycle()
    assert team.give_way() == []


def test_each_task_says_whether_it_is_the_one_that_others_give_way_to(team: SharedCluster):
    team.run(2 * TASK_S)
    team.want("/near", "ada", 2, "/nlp")  # the first is within the guarantee, and the second not
    team.cycle()
    of_tasks = [team.query("why", task=f"/near/{index}")["pending_reason"] for index in (0, 1)]
    assert [reason["code"] for reason in of_tasks] == ["waiting_for_victim", "not_enough_chips"]
    assert of_tasks[0]["facts"] == {"workers": ["w"]}
    assert len(team.give_way()) == 1
    now = team.query("why", task="/near/0")["pending_reason"]["code"]
    assert now == "not_enough_chips", "nothing is stopping any more"
