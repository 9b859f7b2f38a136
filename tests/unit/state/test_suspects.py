"""Tasks that shared a host with one that kills its hosts: suspects start alone, bystanders get
their attempts back.

docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from tests.support.script import Script

CROWD = """
    worker w0 cpu=4
    worker w1 cpu=4
    worker w2 cpu=4
    worker w3 cpu=4
    worker w4 cpu=4
    worker w5 cpu=4
    submit /bad preemptions=9
    submit /good replicas=3 preemptions=0
    schedule
"""
INNOCENT = [f"/good/{index}" for index in range(3)]


def die(script: Script, worker: str) -> None:
    script.world.hosts[worker].silent = True
    script.play("wait 35")
    script.play(f"worker? {worker} -> lost")


def run(script: Script, *tasks: str) -> None:
    for task in tasks:
        script.play(f"{task} running")


def host_of(script: Script, task: str) -> str:
    return str(script.world.query("task", task=task)["worker"])


def test_bystanders_outlive_a_task_that_kills_its_hosts(script):
    script.play(CROWD)
    run(script, "/bad/0", *INNOCENT)
    assert {host_of(script, task) for task in ("/bad/0", *INNOCENT)} == {"w0"}
    die(script, "w0")
    script.play("schedule")
    hosts = [host_of(script, task) for task in ("/bad/0", *INNOCENT)]
    assert len(set(hosts)) == 4
    run(script, "/bad/0", *INNOCENT)
    for _ in range(2):
        die(script, host_of(script, "/bad/0"))
        script.play("schedule")
        if script.world.query("task", task="/bad/0")["state"] != "worker_failed":
            run(script, "/bad/0")
    script.play("""
        /bad/0                  -> WORKER_FAILED preemptions=2 error=~3_workers_died
        /good/0                 -> RUNNING preemptions=0 attempts=2
        /good/1                 -> RUNNING preemptions=0 attempts=2
        /good/2                 -> RUNNING preemptions=0 attempts=2
        attempt /good/0#0       -> cause=worker_lost charged_to=reschedule error=~not_charged
        /good/0 exit 0          -> SUCCEEDED
    """)


def test_what_has_run_for_long_is_not_charged_for_what_is_new(script):
    script.play(CROWD)
    run(script, "/bad/0", *INNOCENT)
    script.play("""
        wait 121
        /good/2 exit 0
        submit /newer preemptions=1
        place /newer/0 w0
        /newer/0 running
    """)
    die(script, "w0")
    script.play("""
        /good/0                 -> PENDING preemptions=0
        /bad/0                  -> PENDING preemptions=0
        /newer/0                -> PENDING preemptions=1
    """)


def test_without_a_suspect_everybody_is_charged(script):
    script.play(CROWD)
    run(script, "/bad/0", *INNOCENT)
    script.play("wait 121")
    die(script, "w0")
    script.play("""
        /good/0                 -> WORKER_FAILED preemptions=1
        /bad/0                  -> PENDING preemptions=1
    """)


def test_nothing_is_placed_beside_a_suspect_until_it_has_survived(script):
    script.play("""
        worker w0 cpu=4
        worker w1 cpu=4
        submit /a
        place /a/0 w0
        /a/0 running
    """)
    die(script, "w0")
    script.play("""
        submit /other
        place /other/0 w1
        place /a/0 w1           -> not_alone
        /other/0 exit 0
        place /a/0 w1           -> placed
        submit /next
        place /next/0 w1        -> kept_for_one
        schedule                -> placed 0
        /a/0 running
        note /a/0               -> ~alone
        wait 110
        place /next/0 w1        -> kept_for_one
        wait 15
        note /a/0               -> None
        schedule                -> placed 1
        /next/0                 -> ASSIGNED worker=w1
    """)


def test_what_is_known_of_suspects_survives_the_leader(script):
    script.play("""
        worker w0 cpu=4
        worker w1 cpu=4
        submit /a
        place /a/0 w0
        /a/0 running
    """)
    die(script, "w0")
    script.play("""
        place /a/0 w1
        /a/0 running
        takeover 10
        heartbeat w1
        submit /next
        place /next/0 w1        -> kept_for_one
        wait 125
        place /next/0 w1        -> placed
    """)


def test_a_suspect_is_placed_beside_others_when_no_worker_gets_empty(script):
    script.play("""
        worker w0 cpu=4
        worker w1 cpu=4
        submit /a
        submit /long
        place /long/0 w1
        /long/0 running
        place /a/0 w0
        /a/0 running
    """)
    die(script, "w0")
    script.play("""
        schedule                -> placed 0
        wait 301
        schedule                -> placed 1
        /a/0                    -> ASSIGNED worker=w1
    """)


def test_nothing_is_evicted_for_a_suspect(script):
    """A plan that was made before it became one is refused."""
    script.play("""
        worker w0 cpu=4
        worker w1 cpu=4
        submit /a
        submit /low band=batch
        place /low/0 w1
        /low/0 running
        place /a/0 w0
        /a/0 running
    """)
    die(script, "w0")
    script.play("""
        /low/0 preempt for /a/0
        /low/0                  -> RUNNING worker=w1
        wait 301
        /low/0 preempt for /a/0
        /low/0                  -> PENDING
    """)


def test_processes_that_ended_with_their_worker_are_judged_together(script):
    script.play(CROWD)
    run(script, "/bad/0", *INNOCENT)
    script.play("""
        restart w0 without /bad/0 /good/0 /good/1 /good/2
        /good/0                 -> PENDING preemptions=0
        /bad/0                  -> PENDING preemptions=0
    """)
