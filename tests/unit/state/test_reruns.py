"""A rerun of a part keeps the indexes of its tasks: names, listings, orders, snapshots, and a rerun
of a rerun.

docs/design/semantics.md#jobs.
"""

import json

from iris_core.messages.gateway_state import Answer, Query
from iris_core.subjects import STATE_QUERY
from iris_state.effects.orders import template
from iris_state.records.ledger import Ledger
from iris_state.snapshots.snapshot import cut, read, restore
from tests.support.world import ADMIN

ODD = """
    worker w0 cpu=6
    submit /a replicas=6 tolerate=6
    schedule
    /a/0 exit 0
    /a/1 exit 1
    /a/2 exit 0
    /a/3 exit 1
    /a/4 exit 0
    /a/5 exit 1
"""


def test_rerun_of_what_failed_keeps_the_indexes(script):
    script.play(ODD)
    script.play("""
        rerun /a --failed           -> created j2
        job /a                      -> PENDING tasks=pending:3
        /a/1                        -> PENDING
        schedule
        /a/1 run                    -> RUNNING
        /a/3 exit 0                 -> SUCCEEDED
        /a/5 exit 1                 -> FAILED
        /a/1 exit 1                 -> FAILED
        job /a                      -> FAILED tasks=failed:2,succeeded:1
        rerun /a --failed           -> created j3
        schedule
        /a/1 exit 0                 -> SUCCEEDED
        /a/5 exit 0                 -> SUCCEEDED
        job /a                      -> SUCCEEDED
    """)
    shown = [script.world.query("job", job=f"j{number}") for number in (2, 3)]
    assert [(job["rerun_of"], job["spec"]["indexes"], job["replicas"]) for job in shown] == [
        ("j1", "1,3,5", 3),
        ("j2", "1,5", 2),
    ]


def test_listings_of_a_rerun_of_a_part_have_its_indexes(script):
    script.play(ODD)
    script.play("""
        rerun /a --failed           -> created j2
        schedule
        /a/3 exit 0
        /a/5 run
    """)
    ask = script.world.query
    tasks = [task["task"] for task in ask("tasks", job="j2", limit=2)["items"]]
    rest = ask("tasks", job="j2", cursor=ask("tasks", job="j2", limit=2)["next_cursor"])["items"]
    assert tasks + [task["task"] for task in rest] == ["/a/1", "/a/3", "/a/5"]
    assert [one["id"] for one in ask("sessions", job="j2")["items"]] == ["j2-1", "j2-3", "j2-5"]
    assert {row["entity"] for row in ask("history", job="j2")["items"]} == {"j2-1", "j2-3", "j2-5"}
    assert {row["entity"] for row in ask("history", task="j2/3")["items"]} == {"j2-3"}
    assert ask("why", task="j2/5")["state"] == "running"
    assert [ask("task", task=f"j2/{index}") for index in (0, 2, 4, 6)] == [None] * 4


def test_a_worker_is_told_the_indexes_and_the_size_of_the_whole(script):
    script.play(ODD)
    script.play("rerun /a --failed -> created j2")
    script.play("schedule")
    ledger = script.world.ledger
    assert [key[:2] for key in ledger.presence["w0"].open] == [(2, 1), (2, 3), (2, 5)]
    assert template(ledger.jobs[2]).replicas == 6


def test_a_rerun_of_a_part_survives_the_snapshot(script):
    script.play(ODD)
    script.play("""
        rerun /a --failed           -> created j2
        schedule
        /a/3 exit 0                 -> SUCCEEDED
    """)
    world, kept = script.world, Ledger()
    restore(kept, read(cut(world.ledger, world.machine.sequence, world.now_ms)))
    states = [(index, task.state.name) for index, task in kept.jobs[2].numbered()]
    assert states == [(1, "ASSIGNED"), (3, "SUCCEEDED"), (5, "ASSIGNED")]
    assert (kept.jobs[2].rerun_of, kept.jobs[2].task(5)) == (1, world.ledger.jobs[2].task(5))


def test_a_rerun_of_named_tasks_has_another_memory(script):
    """Of ten members that failed for lack of memory, those were run again whose values were
    large.
    """
    script.play(ODD)
    script.play("""
        rerun /a tasks=1-4 memory=5000      -> created j2
        cancel /a
        rerun j1 tasks=0-3 --failed         -> created j3
        cancel /a
        rerun j1 tasks=0,2 --failed         -> conflict every task of /a that 0,2 names has succeeded
        rerun j1 tasks=4-6                  -> not_found /a has no task 6: its tasks are 0-5
        rerun j3 tasks=2                    -> not_found /a has no task 2: its tasks are 1,3
        rerun j1 tasks=7-3                  -> invalid ~'7-3' is an empty range
        rerun j1 tasks=0-5                  -> created j4
    """)
    shown = [script.world.query("job", job=f"j{number}") for number in (2, 3, 4)]
    assert [
        (job["spec"]["indexes"], job["spec"]["resources"]["memory_bytes"]) for job in shown
    ] == [
        ("1-4", 5000),
        ("1,3", 0),
        ("", 0),
    ]


def test_a_gang_is_rerun_whole(script):
    script.play("""
        worker w0 cpu=1 rack=a
        worker w1 cpu=1 rack=a
        submit /g replicas=2 gang=rack
        schedule
        /g/0 run
        /g/1 run
        /g/1 exit 1
        rerun /g tasks=1            -> invalid ~it is run again whole
        rerun /g --failed           -> created j2
        job /g                      -> PENDING tasks=pending:2
    """)


def test_a_task_that_a_job_does_not_have_is_refused_with_those_it_has(script):
    script.play("""
        worker w0 cpu=3
        submit /a replicas=3 tolerate=2
        cancel /a/77                -> not_found /a has no task 77: its tasks are 0-2
        requeue j1/3                -> not_found /a has no task 3: its tasks are 0-2
        cancel /b/0                 -> not_found there is no job /b
        submit /one
        requeue /one/1              -> not_found /one has no task 1: its only task is 0
        schedule
        /a/0 exit 1
        /a/1 exit 0
        /a/2 exit 1
        rerun /a --failed
        cancel /a/1                 -> not_found /a has no task 1: its tasks are 0,2
    """)
    for view in ("task", "why", "history", "attempts"):
        answer = script.world.ask(STATE_QUERY, Query(view, {"task": "/a/1"}, ADMIN), Answer)
        assert json.loads(answer.body)["detail"] == "/a has no task 1: its tasks are 0,2"


def test_a_rerun_has_other_variables_and_waits_for_what_it_is_told_to(script):
    """The stages behind one that had failed were run again by hand, each when the one before had
    ended.
    """
    script.play("""
        worker w0 cpu=6
        submit /shard replicas=2 tolerate=2
        submit /reduce after=/shard
        schedule
        /shard/0 exit 0
        /shard/1 exit 1
        job /reduce                          -> KILLED
        rerun /shard --failed env=LR=0.01    -> created j3
        rerun /reduce after=/shard           -> created j4
        rerun /reduce after=/nothing         -> invalid ~there is no job /nothing
        schedule                             -> placed 1
        /shard/1 exit 0
        schedule                             -> placed 1
        job /reduce                          -> RUNNING
    """)
    assert script.world.query("job", job="j3")["spec"]["env"] == {"LR": "0.01"}
    assert script.world.query("job", job="j4")["warnings"] == []
