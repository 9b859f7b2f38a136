"""A part of the queue is held, present and future jobs alike, and released by who may.

docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

import json

import pytest

from iris_core import codec
from iris_core.spec.jobs import JobSpec
from iris_state.machine.timers import GATES_AT_ONCE
from tests.support.script import Script
from tests.support.world import World


def test_a_user_holds_the_own_jobs_also_those_that_come(script: Script) -> None:
    script.play("""
        worker w0 cpu=1
        submit /a for_user=mia replicas=2
        submit /b for_user=ann
        schedule                              -> placed 1
        hold-queue user=mia by=mia reason=data -> accepted
        queue                                 -> /b/0
        why /a                                -> held
        submit /c for_user=mia
        queue                                 -> /b/0
        /a/0                                  -> ASSIGNED
        /a/0 run
        /a/0 exit 0
        schedule                              -> placed 1
        /b/0                                  -> ASSIGNED
        release-queue h1 by=mia               -> accepted
        queue                                 -> /a/1 /c/0
    """)


def test_why_names_who_holds_which_part_of_the_queue(script: Script) -> None:
    script.play("""
        submit /a for_user=mia band=batch
        hold-queue band=batch reason=maintenance
    """)
    reason = script.world.query("why", job="/a")["pending_reason"]
    assert (reason["code"], reason["message"]) == (
        "held",
        "held by root with the queue of band batch (h1): maintenance",
    )
    (gate,) = script.world.query("job", job="/a")["gates"]
    assert (gate["kind"], gate["by"]["name"], gate["hold"]) == ("held", "root", "h1")
    (hold,) = script.world.query("queue_holds", limit=10)["items"]
    assert {name: hold[name] for name in ("id", "user", "band", "reason", "jobs", "tasks")} == {
        "id": "h1",
        "user": None,
        "band": "batch",
        "reason": "maintenance",
        "jobs": 1,
        "tasks": 1,
    }
    (entry, *_) = script.world.query("audit", limit=1)["items"]
    assert (entry["action"], entry["kind"], entry["id"], entry["name"]) == (
        "hold",
        "queue",
        "h1",
        "band batch",
    )


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("hold-queue band=batch by=mia", "forbidden"),
        ("hold-queue user=ann by=mia", "forbidden"),
        ("hold-queue user=mia band=batch by=mia", "accepted"),
        ("hold-queue user=ann", "conflict"),
        ("hold-queue by=mia", "invalid"),
        ("hold-queue band=best", "invalid"),
        ("hold-queue label=team", "invalid"),
        ("release-queue h1 by=ann", "forbidden"),
        ("release-queue h1", "accepted"),
        ("release-queue h9", "not_found"),
    ],
)
def test_rights_follow_the_record_of_a_hold(script: Script, line: str, outcome: str) -> None:
    script.play(f"""
        hold-queue user=ann      -> accepted
        {line}                   -> {outcome}
    """)


def test_a_user_may_not_release_what_an_admin_holds(script: Script) -> None:
    script.play("""
        submit /a for_user=mia
        hold-queue user=mia
        release /a user=mia               -> accepted
        queue                             -> nothing
        release-queue h1 by=mia           -> forbidden
        hold-queue user=mia band=batch by=mia
        release-queue h2 by=mia           -> accepted
        queue                             -> nothing
    """)


def test_a_hold_of_the_job_and_of_the_queue_are_released_each_alone(script: Script) -> None:
    script.play("""
        submit /a for_user=mia
        hold /a user=mia
        hold-queue user=mia
        release-queue h1
        queue                             -> nothing
        hold-queue user=mia
        release /a user=mia
        queue                             -> nothing
        release-queue h2
        queue                             -> /a/0
    """)


def test_a_job_that_is_changed_is_held_by_what_it_is_now(script: Script) -> None:
    script.play("""
        submit /a band=batch
        hold-queue band=batch
        hold-queue label=team=x
        update /a band=production
        queue                             -> /a/0
        update /a labels={"team":"x"}
        why /a                            -> held
        update /a labels={"team":null}
        queue                             -> /a/0
    """)


def test_a_hold_outlives_its_leader_and_what_returns_waits(script: Script) -> None:
    script.play("""
        worker w0
        submit /a retries=1
        place /a/0 w0
        /a/0 run
        hold-queue band=interactive
        takeover 1
        heartbeat w0
        /a/0 exit 1                       -> PENDING
        queue                             -> nothing
        submit /b
        queue                             -> nothing
        release-queue h1
        queue                             -> /a/0 /b/0
    """)


def test_a_dry_run_says_that_its_part_of_the_queue_is_held(script: Script) -> None:
    script.play("hold-queue user=mia")
    spec = JobSpec(name="/a", command=("true",), user="mia")
    reason = script.world.query("closed_gate", spec=codec.to_json(spec).decode())["reason"]
    assert "queue of user mia (h1)" in reason["message"]


def test_held_jobs_are_no_demand_and_are_counted_as_held(script: Script) -> None:
    script.play("""
        submit /a replicas=3
        hold-queue band=interactive
    """)
    demand = script.world.query("demand")
    assert (demand["hosts"], demand["unsatisfiable"]) == ([], [])


def test_the_end_of_a_hold_opens_gates_in_rounds_of_a_bounded_size() -> None:
    world = World()
    world.check = lambda: None  # type: ignore[method-assign]  # it makes a round of its own
    jobs = GATES_AT_ONCE + 3
    for number in range(jobs):
        world.submit(JobSpec(name=f"/j{number}", command=("true",), user="mia"))
    assert json.loads(world.hold_queue(user="mia").body)["jobs"] == jobs
    assert len(world.ledger.queue) == 0
    world.hold_queue(hold="h1")
    assert len(world.ledger.queue) == GATES_AT_ONCE
    world.step()
    assert len(world.ledger.queue) == jobs
