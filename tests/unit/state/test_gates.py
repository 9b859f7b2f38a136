"""What keeps tasks out of the queue, and when they enter it: dependencies, times, singletons,
holds.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from iris_core import codec
from iris_core.spec.jobs import Dependency, JobSpec
from iris_core.states import Cause, JobState
from iris_state.check.records import check
from iris_state.machine.timers import GATES_AT_ONCE
from tests.support.script import Script
from tests.support.world import World

HOST = """
    worker w0 cpu=4
"""


def test_a_job_waits_until_the_other_one_has_succeeded(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep                              -> created
        submit /eval after=/prep                  -> created
        queue                                     -> /prep/0
        why /eval                                 -> dependency
        schedule                                  -> placed 1
        /prep/0 running
        queue                                     -> nothing
        /prep/0 exit 0                            -> SUCCEEDED
        queue                                     -> /eval/0
        why /eval                                 -> not_yet_looked_at
    """)


def test_a_job_that_waits_in_vain_is_killed_and_so_is_what_waits_for_it(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /eval after=/prep
        submit /report after=/eval
        submit /clean after=/eval:any
        submit /alarm after=/prep:notok
        schedule
        /prep/0 exit 1                            -> FAILED
        job /eval                                 -> KILLED cause=dependency_failed error=~/prep_(j1)_is_failed
        job /report                               -> KILLED cause=dependency_failed error=~/eval_(j2)_is_killed
        queue                                     -> /clean/0 /alarm/0
    """)


def test_the_root_cause_of_a_chain_of_dependencies_is_named(script: Script) -> None:
    """Who looked at the last stage was led back by one stage at a time."""
    script.play(f"""{HOST}
        submit /shard replicas=3 tolerate=3
        submit /score replicas=3 after=/shard each=yes tolerate=3
        submit /rank replicas=3 after=/score each=yes tolerate=3
        submit /report after=/rank
        schedule
        /shard/1 exit 1
        /score/1                                  -> FAILED error=~is_failed,_and_this_job_waited_for_its_success
        /rank/1                                   -> FAILED error=~/score/1_(j2/1)_is_failed
        /rank/1                                   -> FAILED error=~;_root_cause:_/shard/1_(j1/1)_is_failed
        cancel /rank
        job /report                               -> KILLED error=~/rank_(j3)_is_killed,_and_this_job_waited
        submit /prep
        submit /eval after=/prep
        submit /print after=/eval
        submit /send after=/print
        cancel /prep
        job /send                                 -> KILLED error=~/print_(j7)_is_killed
        job /send                                 -> KILLED error=~;_root_cause:_/prep_(j5)_is_killed
    """)


def test_a_failure_that_is_retried_decides_nothing(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep retries=1
        submit /eval after=/prep
        submit /alarm after=/prep:notok
        schedule
        /prep/0 exit 1                            -> PENDING
        queue                                     -> /prep/0
        schedule
        /prep/0 exit 0                            -> SUCCEEDED
        queue                                     -> /eval/0
        job /alarm                                -> KILLED cause=dependency_failed
    """)


def test_start_means_the_first_running_task_and_never_follows_an_end(script: Script) -> None:
    script.play(f"""{HOST}
        submit /server replicas=2
        submit /client after=/server:start
        submit /other
        submit /late after=/other:start
        place /server/0 w0
        queue                                     -> /server/1 /other/0
        /server/0 building
        why /client                               -> dependency
        /server/0 running
        queue                                     -> /server/1 /client/0 /other/0
        cancel /other
        job /late                                 -> KILLED cause=dependency_failed
    """)


def test_each_task_waits_for_the_one_in_its_place(script: Script) -> None:
    script.play(f"""{HOST}
        submit /shard replicas=3 tolerate=1
        submit /score replicas=3 after=/shard each=yes tolerate=1
        queue                                     -> /shard/0 /shard/1 /shard/2
        schedule                                  -> placed 3
        /shard/1 exit 0
        queue                                     -> /score/1
        /shard/2 exit 1                           -> FAILED
        /score/2                                  -> FAILED attempts=0 error=~/shard/2_(j1/2)_is_failed
        /shard/0 exit 0
        schedule                                  -> placed 2
        /score/0 exit 0
        /score/1 exit 0
        job /score                                -> FAILED
    """)


def test_a_failed_counterpart_counts_against_tolerated_failures(script: Script) -> None:
    script.play(f"""{HOST}
        submit /shard replicas=2 tolerate=2
        submit /score replicas=2 after=/shard each=yes
        schedule
        /shard/0 exit 1
        job /score                                -> FAILED cause=dependency_failed
    """)


def test_on_an_ended_job_the_gate_is_judged_at_once(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep replicas=2
        schedule
        /prep/0 exit 0
        /prep/1 exit 0
        submit /eval after=/prep
        submit /pairs after=/prep each=yes replicas=2
        submit /alarm after=/prep:notok           -> created
        queue                                     -> /eval/0 /pairs/0 /pairs/1
        job /alarm                                -> KILLED cause=dependency_failed
    """)


def test_a_name_is_resolved_to_the_job_it_has_at_the_submission(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /eval after=/prep
        schedule
        submit /prep if_exists=replace
        /prep/0                                   -> PENDING
        job /eval                                 -> KILLED cause=dependency_failed
    """)


def test_an_unknown_job_or_another_size_is_refused_and_stores_nothing(script: Script) -> None:
    script.play(f"""{HOST}
        submit /eval after=/prep                  -> invalid
        submit /prep replicas=2
        submit /eval replicas=3 after=/prep each=yes  -> invalid
        job /eval                                 -> unknown
        submit /eval after=j1
        why /eval                                 -> dependency
    """)


def test_a_task_that_is_named_for_its_job_is_refused_as_a_task(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep replicas=2
        submit /eval after=/prep/1                -> invalid ~/prep/1 is a task
        submit /eval after=j1/1                   -> invalid ~j1/1 is a task
        submit /eval after=/nothing/1             -> invalid ~there is no job /nothing/1
    """)


def test_the_queue_key_is_that_of_the_submission(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /first after=/prep
        wait 5
        submit /second
        schedule                                  -> placed 2
        /prep/0 exit 0
        cancel /second
        wait 1
        submit /third
        queue                                     -> /first/0 /third/0
    """)


def test_a_scheduling_timeout_runs_from_eligibility(script: Script) -> None:
    script.play("""
        submit /prep
        submit /eval after=/prep:any scheduling_timeout=10
        wait 30
        /eval/0                                   -> PENDING
        cancel /prep
        wait 9
        /eval/0                                   -> PENDING
        wait 2
        job /eval                                 -> UNSCHEDULABLE
    """)


def test_each_task_has_its_scheduling_timeout_from_when_it_became_eligible(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /shard replicas=2
        submit /score replicas=2 after=/shard each=yes scheduling_timeout=10 cpu=2
        schedule
        wait 30
        /shard/0 exit 0
        wait 9
        job /score                                -> PENDING
        wait 2
        job /score                                -> UNSCHEDULABLE
    """)


def test_a_gang_enters_the_queue_whole(script: Script) -> None:
    script.play("""
        worker a cpu=1 rack=r
        worker b cpu=1 rack=r
        submit /prep
        submit /gang replicas=2 gang=rack after=/prep
        schedule                                  -> placed 1
        /prep/0 running
        /prep/0 exit 0
        queue                                     -> /gang/0 /gang/1
        schedule                                  -> placed 2
    """)


def test_nothing_is_placed_before_its_time(script: Script) -> None:
    script.play(f"""{HOST}
        submit /night not_before=60s
        submit /past not_before=1970-01-01T00:00:01Z
        queue                                     -> /past/0
        why /night                                -> not_before
        wait 59
        queue                                     -> /past/0
        wait 2
        queue                                     -> /night/0 /past/0
    """)


def test_jobs_of_a_singleton_key_run_one_at_a_time_in_order(script: Script) -> None:
    script.play(f"""{HOST}
        submit /a singleton=nightly for_user=mia
        submit /b singleton=nightly for_user=mia
        submit /c singleton=nightly for_user=mia
        submit /d singleton=nightly for_user=ann
        queue                                     -> /a/0 /d/0
        why /b                                    -> singleton
        place /a/0 w0
        /a/0 running
        cancel /a
        queue                                     -> /d/0
        cancel /b
        /a/0 stopped
        queue                                     -> /c/0 /d/0
    """)


def test_a_job_may_be_submitted_held(script: Script) -> None:
    script.play(f"""{HOST}
        submit /a hold=yes
        queue                                     -> nothing
        why /a                                    -> held
        schedule                                  -> placed 0
    """)


def test_a_task_behind_a_gate_is_not_placed_by_a_plan(script: Script) -> None:
    script.play(f"""{HOST}
        submit /a hold=yes
        place /a/0 w0                             -> not_pending
    """)


def test_a_job_that_somebody_waits_for_is_not_deleted(script: Script) -> None:
    script.play(f"""{HOST}
        policy keep_jobs=1
        submit /slow
        submit /prep replicas=2
        submit /eval replicas=2 after=/prep,/slow:any each=no
        submit /pairs replicas=2 after=/prep:any each=yes
        place /prep/0 w0
        place /prep/1 w0
        /prep/0 exit 0
        /prep/1 exit 0
        submit /x
        cancel /x
        submit /y
        cancel /y
        job /x                                    -> unknown
        why /eval                                 -> dependency
        cancel /slow
        queue                                     -> /eval/0 /eval/1 /pairs/0 /pairs/1
    """)


def test_gates_outlive_a_change_of_the_leader(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep replicas=2
        submit /eval after=/prep
        submit /pairs replicas=2 after=/prep each=yes
        submit /night not_before=90s
        submit /mine hold=yes
        schedule
        /prep/0 running
        /prep/0 exit 0
        takeover 10
        heartbeat w0
        queue                                     -> /pairs/0
        /prep/1 exit 0
        queue                                     -> /eval/0 /pairs/0 /pairs/1
        wait 80
        queue                                     -> /eval/0 /pairs/0 /pairs/1 /night/0
    """)


def test_a_rerun_waits_for_nothing(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /eval after=/prep
        cancel /prep
        job /eval                                 -> KILLED
        rerun /eval
        queue                                     -> /eval/0
    """)


def test_a_rerun_says_what_it_does_not_wait_for(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /clean
        submit /eval after=/prep,/clean:any
        submit /late hold=yes
        cancel /prep
        cancel /late
    """)
    for name, number, dropped in (("/eval", 3, "/prep and /clean"), ("/late", 4, "its release")):
        said = f"{name} does not wait for {dropped}, as j{number} did: a rerun drops what the job waited for"
        assert msgspec.json.decode(script.world.rerun(name).body)["warnings"] == [said]
    assert msgspec.json.decode(script.world.rerun("/prep").body)["warnings"] == []


def test_a_job_may_wait_for_tasks_of_one_job_and_the_start_of_another(script: Script) -> None:
    script.play(f"""{HOST}
        submit /shard replicas=2
        submit /server replicas=3
        submit /score replicas=2 after=/shard each=yes
        submit /both replicas=2 after=/shard:any,/server:start each=no
        schedule                                  -> placed 4
        /server/1 running
        /shard/0 exit 0
        /shard/1 exit 0
        queue                                     -> /server/2 /score/0 /score/1 /both/0 /both/1
    """)


def test_one_end_opens_many_gates_in_rounds_of_a_bounded_size() -> None:
    world = World()
    world.check = lambda: None  # type: ignore[method-assign]  # it makes a round of its own
    world.submit(JobSpec(name="/prep", command=("true",)))
    for number in range(GATES_AT_ONCE + 3):
        world.submit(
            JobSpec(name=f"/w{number}", command=("true",), after=(Dependency("/prep", "any"),))
        )
    world.cancel("/prep")
    assert len(world.ledger.queue) == GATES_AT_ONCE
    assert world.machine.next_due() == world.now_ms
    world.step()
    assert len(world.ledger.queue) == GATES_AT_ONCE + 3
    assert world.machine.next_due() is None


def test_a_chain_of_a_thousand_jobs_ends_with_its_first_one() -> None:
    world = World()
    world.check = lambda: None  # type: ignore[method-assign]  # all invariants, of a thousand jobs a thousand times
    world.submit(JobSpec(name="/c0", command=("true",)))
    for number in range(1, 1000):
        world.submit(
            JobSpec(name=f"/c{number}", command=("true",), after=(Dependency(f"/c{number - 1}"),))
        )
    world.cancel("/c0")
    while world.machine.next_due() is not None:
        world.step()
    assert {job.state for job in world.ledger.jobs.values()} == {JobState.KILLED}
    assert world.ledger.jobs[1000].cause is Cause.DEPENDENCY_FAILED
    errors = [world.ledger.jobs[number].error.partition(": ")[2] for number in (2, 3, 33, 34)]
    assert errors == [
        "/c0 (j1) is killed, and this job waited for its success",
        "/c1 (j2) is killed, and this job waited for its success; root cause: /c0 (j1) is killed",
        "/c31 (j32) is killed, and this job waited for its success; root cause: /c0 (j1) is killed",
        "/c32 (j33) is killed, and this job waited for its success",
    ]
    check(world.ledger)


def test_a_view_shows_both_sides_of_a_dependency(script: Script) -> None:
    script.play("submit /prep\n submit /eval after=/prep:any hold=yes user=mia")
    prep, evaluation = (script.world.query("job", job=name) for name in ("/prep", "/eval"))
    assert prep["waiters"] == [{"id": "j2", "name": "/eval", "state": "pending"}]
    wait, hold = evaluation["gates"]
    assert (wait["kind"], wait["job"]["name"], wait["when"], wait["opened_at"]) == (
        "dependency",
        "/prep",
        "any",
        None,
    )
    assert (hold["kind"], hold["by"]["name"]) == ("held", "mia")


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ({"after": (Dependency("/prep"),)}, "dependency"),
        ({"not_before": "1h"}, "not_before"),
        ({"singleton": "k"}, "singleton"),
        ({"hold": True}, "held"),
        ({"after": (Dependency("/prep", "any"),), "singleton": "other"}, "dependency"),
        ({"singleton": "other"}, None),
    ],
)
def test_a_dry_run_says_what_a_job_would_wait_for(gates: dict[str, Any], code: str | None) -> None:
    world = World()
    world.submit(JobSpec(name="/prep", command=("true",), singleton="k", user="mia"))
    spec = JobSpec(name="/a", command=("true",), user="mia", **gates)
    reason = world.query("closed_gate", spec=codec.to_json(spec).decode())["reason"]
    assert (reason["code"] if reason else None) == code


def test_a_held_job_keeps_its_place_and_what_runs_goes_on(script: Script) -> None:
    script.play("""
        worker w0 cpu=1
        submit /a replicas=2 for_user=mia
        schedule                                  -> placed 1
        submit /b
        hold /a user=mia reason=data              -> accepted
        queue                                     -> /b/0
        why /a                                    -> held
        /a/0 running                              -> RUNNING
        hold /a user=mia                          -> accepted
        release /a user=mia                       -> accepted
        queue                                     -> /a/1 /b/0
        hold /a user=ann                          -> forbidden
        hold /a version=1                         -> precondition_failed
        hold /a version=3                         -> accepted
        /a/0 exit 0
        release /a
        schedule                                  -> placed 1
        /a/1                                      -> ASSIGNED
        cancel /a
        hold /a                                   -> conflict
    """)
    assert [entry["action"] for entry in script.world.query("audit", limit=10)["items"]][:4] == [
        "cancel",
        "release",
        "hold",
        "release",
    ]


def test_a_job_submitted_held_is_released_and_may_drop_dependencies(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /a after=/prep hold=yes
        release /a
        why /a                                    -> dependency
        submit /shard replicas=2
        submit /score replicas=2 after=/shard each=yes
        release /a --drop-after
        release /score --drop-after
        queue                                     -> /prep/0 /a/0 /shard/0 /shard/1 /score/0 /score/1
    """)


def test_a_held_task_that_comes_back_waits_and_its_timeout_restarts(script: Script) -> None:
    script.play(f"""{HOST}
        submit /a retries=1
        submit /b scheduling_timeout=10 cpu=9
        place /a/0 w0
        hold /a
        hold /b
        /a/0 exit 1                               -> PENDING
        queue                                     -> nothing
        wait 30
        release /b
        release /a
        queue                                     -> /a/0 /b/0
        wait 9
        job /b                                    -> PENDING
        takeover 1
        heartbeat w0
        wait 1
        job /b                                    -> UNSCHEDULABLE
    """)


def test_a_held_gang_is_released_whole(script: Script) -> None:
    script.play("""
        worker a cpu=1 rack=r
        worker b cpu=1 rack=r
        submit /gang replicas=2 gang=rack
        hold /gang
        queue                                     -> nothing
        release /gang
        schedule                                  -> placed 2
    """)


def test_a_hold_is_told_before_what_the_job_waits_for_besides(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /a after=/prep
        hold /a
        why /a                                    -> held
    """)
    reason = script.world.query("why", job="/a")["pending_reason"]
    held, waits = reason["message"].split("; ")
    assert (held.startswith("held by "), waits) == (True, "waits for /prep (j1) to succeed")


def test_one_of_two_gates_for_the_same_job_opens_alone(script: Script) -> None:
    script.play(f"""{HOST}
        submit /prep
        submit /a after=/prep:start,/prep:ok
        place /prep/0 w0
        /prep/0 running
        queue                                     -> nothing
        why /a                                    -> dependency
        /prep/0 exit 0
        queue                                     -> /a/0
    """)


def test_jobs_outside_the_queue_are_listed_with_what_they_wait_for(script: Script) -> None:
    """`iris queue` showed none of them: whoever looked for a job that waits found neither it nor
    why.
    """
    script.play("""
        worker w0
        submit /a
        submit /b after=/a replicas=3
        submit /c hold=yes
        submit /d
        submit /e after=/a each=yes
    """)
    rows = script.world.query("gated_jobs")["items"]
    assert [
        (row["job"], row["job_id"], row["tasks"], row["pending_reason"]["code"]) for row in rows
    ] == [
        ("/b", "j2", 3, "dependency"),
        ("/c", "j3", 1, "held"),
        ("/e", "j5", 1, "dependency"),
    ]
    page = script.world.query("gated_jobs", limit=2)
    rest = script.world.query("gated_jobs", limit=2, cursor=page["next_cursor"])
    assert ([row["job"] for row in page["items"]], [row["job"] for row in rest["items"]]) == (
        ["/b", "/c"],
        ["/e"],
    )
    script.play("release /c")
    assert [row["job"] for row in script.world.query("gated_jobs")["items"]] == ["/b", "/e"]


def test_jobs_that_run_take_no_place_in_pages_of_those_outside_the_queue(
    script: Script, monkeypatch
) -> None:
    monkeypatch.setattr("iris_state.views.pages.SCANNED", 2)
    script.play(
        "worker w0 cpu=8\n"
        + "".join(f"submit /a{number} cpu=1\n" for number in range(4))
        + "schedule\nsubmit /b hold=yes"
    )
    assert [row["job"] for row in script.world.query("gated_jobs")["items"]] == ["/b"]


def test_what_waits_for_the_end_of_an_attempt_or_run_is_listed_too(script: Script) -> None:
    """Such a task was in no listing, since neither a gate nor a time keeps it out of the queue."""
    script.play("""
        worker w0
        submit /a band=batch
        schedule
        /a/0 running
        submit /b band=production
        /a/0 preempt for /b/0   -> PENDING
    """)
    (row,) = script.world.query("gated_jobs")["items"]
    assert (row["job"], row["tasks"]) == ("/a", 1)
    assert (
        row["pending_reason"]["message"]
        == "waits until its last attempt is known to have stopped on w0"
    )
    script.play("cancel /a")
    script.play("submit /a")
    (row,) = script.world.query("gated_jobs")["items"]
    assert (row["job_id"], row["tasks"]) == ("j3", 1)
    assert row["pending_reason"]["message"] == "waits for the earlier run of its name to end on w0"


def test_tasks_that_pause_before_a_retry_are_listed_outside_the_queue(script: Script) -> None:
    script.play("""
        worker w0
        submit /a retries=9 backoff=10
        schedule
        /a/0 exit 1         -> PENDING failures=1
        queue               -> nothing
    """)
    (row,) = script.world.query("gated_jobs")["items"]
    assert (row["job"], row["tasks"], row["pending_reason"]["code"]) == ("/a", 1, "retry_backoff")
    script.play("wait 11")
    assert script.world.query("gated_jobs")["items"] == []
    script.play("schedule")
    script.play("/a/0 exit 1 -> PENDING failures=2")
    script.play("cancel /a")
    assert script.world.query("gated_jobs")["items"] == []
