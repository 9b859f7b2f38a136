"""How a task is stopped: by its job's signal, and KILL after its job's grace period, for every
cause alike.

docs/design/semantics.md#tasks-and-attempts.
"""

import msgspec
import pytest

from iris_core import codec
from iris_core.messages.gateway_state import Answer
from iris_core.spec.jobs import JobSpec, StopPolicy
from iris_state.effects.orders import template
from iris_state.policy import Policy
from tests.support.serving import Serving, spec


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


# ── nobody has to wait ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("again", ["", "takeover 1\n        heartbeat w0"], ids=["", "new leader"])
def test_who_cancels_at_once_ends_a_grace_period_that_has_begun(script, again):
    script.play(f"""
        worker w0
        submit /a grace=3600 for_user=ann
        schedule
        /a/0 run
        cancel /a
        cancel /a now user=bob      -> forbidden
        cancel /a now user=ann      -> accepted
        /a/0                        -> KILLED
        {again}
    """)
    found = graces(script)
    assert (found[0], found[-1]) == (3_600_000, 0)


def test_what_is_cancelled_at_once_has_no_grace_period(script):
    script.play("""
        worker w0 cpu=2
        submit /a grace=3600
        submit /a/b grace=3600
        schedule
        /a/0 run
        /a/b/0 run
        cancel /a now
        /a/b/0                  -> KILLED
    """)
    assert graces(script) == [0, 0]
    assert script.world.query("audit", limit=1)["items"][0]["detail"] == "at once"


def test_a_call_is_cancelled_at_once_and_the_others_go_on(script):
    script.play("""
        worker w0 cpu=2
        submit /m map=yes replicas=2 tolerate=2 grace=3600
        schedule
        /m/0 run
        /m/1 run
        cancel /m/1
        cancel /m/1 now
        /m/0                    -> RUNNING
    """)
    assert graces(script) == [3_600_000, 0]


def test_what_a_preempted_attempt_holds_is_free_once_it_is_killed_at_once(script):
    script.play("""
        worker w0
        submit /a grace=3600 band=batch
        submit /p band=production
        place /a/0 w0
        /a/0 run
        /a/0 preempt for /p/0   -> PENDING
        cancel /a now
        /a/0                    -> KILLED
        /a/0#0 stopped
        place /p/0 w0           -> placed
    """)
    assert graces(script)[-1] == 0


def test_the_cluster_bounds_the_grace_period_of_a_job(script):
    script.play("""
        policy max_grace_s=90
        worker w0
    """)
    warnings = submitted(script, "submit /a grace=3600 band=production")
    script.play("""
        schedule
        /a/0 run
        cancel /a
    """)
    assert graces(script) == [90_000]
    assert warnings == [
        "/a asks for a grace period of 1h, and has 90s: the cluster gives no more ([state] max_grace_s)"
    ]


def test_work_of_a_higher_band_waits_for_less(script):
    script.play("""
        policy max_preempted_grace_s=30
        worker w0
        submit /p band=production
    """)
    assert submitted(script, "submit /a grace=60 band=batch") == [
        "where /a makes room for work of a higher band it has 30s of its grace period of 1m "
        "([state] max_preempted_grace_s)"
    ]
    assert submitted(script, "submit /b grace=30 band=batch") == []
    script.play("""
        place /a/0 w0
        /a/0 run
        /a/0 preempt for /p/0   -> PENDING
    """)
    assert graces(script) == [30_000]


def submitted(script, line: str) -> list[str]:
    """The warnings of an accepted submission."""
    script.play(line)
    answer = codec.unpack(list(script.world._replies.values())[-1], Answer)
    return list(msgspec.json.decode(answer.body)["warnings"])


def test_a_job_shows_the_grace_period_that_it_has(script):
    script.play("""
        policy max_grace_s=90 stop_grace_s=7
        worker w0
        submit /long grace=3600
        submit /short grace=30
        submit /says_nothing
    """)
    found = [
        script.world.query("job", job=f"/{name}") for name in ("long", "short", "says_nothing")
    ]
    assert [job["grace_s"] for job in found] == [90, 30, 7]


def test_the_cluster_bounds_the_grace_period_of_a_deployment():
    made = Serving(policy=Policy(max_grace_s=90))
    created = msgspec.json.decode(made.deploy("create", spec=spec(1, grace_s=3600)).body)
    words = "chat asks for a grace period of 1h, and has 90s: the cluster gives no more ([state] max_grace_s)"
    assert created["warnings"] == [words]
    changed = made.deploy("update", patch=codec.to_json({"grace_s": 60}))
    assert msgspec.json.decode(changed.body)["warnings"] == []
    made.wait(5)
    route = made.query("job", job="/chat/r1-1")
    assert route["grace_s"] == 60
