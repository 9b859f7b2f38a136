"""How a task is stopped: by its job's signal, and KILL after its job's grace period, for every
cause alike.

docs/design/semantics.md#tasks-and-attempts.
"""

import pytest

from iris_core.spec.jobs import JobSpec, StopPolicy
from iris_state.effects.orders import template


def graces(script, worker: str = "w0") -> list[int]:
    """The grace period of each stop that a host was ordered."""
    return [stop.grace_ms for order in script.world.hosts[worker].orders for stop in order.stop]


@pytest.mark.parametrize("end", ["cancel /a", "wait 31"], ids=["cancelled", "timeout"])
def test_a_task_has_the_grace_period_of_its_job(script, end):
    script.play(f"""
        worker w0
        submit /a grace=60 timeout=30
        schedule
        /a/0 run
        {end}
        /a/0                    -> KILLED
    """)
    assert set(graces(script)) == {60_000}


def test_a_preempted_task_has_the_grace_period_of_its_job(script):
    script.play("""
        worker w0
        submit /a grace=60 band=batch
        submit /p band=production
        place /a/0 w0
        /a/0 run
        /a/0 preempt for /p/0   -> PENDING
        capacity w0             -> cpu=0
        place /p/0 w0           -> no_room
        /a/0#0 stopped
        place /p/0 w0           -> placed
    """)
    assert set(graces(script)) == {60_000}


def test_a_job_that_says_nothing_has_the_clusters(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 run
        cancel /a
    """)
    assert set(graces(script)) == {5_000}


def test_a_scheduler_expects_the_end_as_much_later(script):
    script.play("""
        worker w0 cpu=2
        submit /a grace=60
        submit /b
        schedule
        /a/0 run
        /b/0 run
        cancel /a
        cancel /b
    """)
    late = {
        hold.ref.job: hold.stopping_ms - script.world.now_ms
        for hold in script.world.snapshot().holds
    }
    assert late == {1: 60_000, 2: 0}


def test_the_signal_is_told_with_the_task(script):
    script.play("""
        worker w0
        submit /a
    """)
    job = script.world.ledger.jobs[1]
    assert template(job).stop_signal == 0
    spec = JobSpec(name="/a", command=("x",), stop=StopPolicy(signal="SIGINT"))
    assert (spec.stop_signal, spec.grace_ms(5000)) == (2, 5000)


def test_an_end_that_is_overdue_is_not_said_to_come(script):
    """Of a host that had died it said for half a minute that its task would be killed at a time in
    the past.
    """
    script.play("""
        worker w0
        submit /a grace=5 timeout=30 notice=USR1@3
        schedule
        /a/0 run
        wait 31
    """)
    words = script.world.query("task", task="/a/0")["note"]
    assert "it is killed at 1970-01-01 00:" in words
    script.play("wait 10")
    overdue = script.world.query("task", task="/a/0")["note"]
    assert overdue.startswith(
        "told to stop: ran longer than 30 s; its end was due at 1970-01-01 00:"
    )
    assert overdue.endswith("its worker has not reported it")
