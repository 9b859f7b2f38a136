"""Arrays: values by position, and a limit of open attempts that the state service keeps whatever a
plan says.

docs/design/semantics.md#jobs, docs/design/semantics.md#order.
"""

from iris_state.effects.orders import template
from tests.unit.state.test_demand import hosts


def test_a_plan_for_more_tasks_than_may_run_is_refused_in_part(script):
    script.play("""
        worker w0 cpu=8
        submit /a replicas=4 parallel=2
        place /a w0 w0 w0
        /a/1                        -> ASSIGNED
        /a/2                        -> PENDING
        place /a/2 w0               -> array_limit
        /a/0 exit 0                 -> SUCCEEDED
        place /a/2 w0               -> placed
    """)


def test_a_stopping_attempt_counts_until_its_end_is_known(script):
    script.play("""
        worker w0 cpu=8
        worker w1 cpu=1
        submit /a replicas=2 parallel=1 band=batch
        submit /p band=production cpu=8
        place /a/0 w0
        /a/0 run                    -> RUNNING
        /a/0 preempt for /p/0       -> PENDING
        place /a/1 w1               -> array_limit
        /a/0#0 stopped              -> PENDING
        place /a/1 w1               -> placed
    """)


def test_a_retry_takes_a_place_again(script):
    script.play("""
        worker w0 cpu=8
        submit /a replicas=3 parallel=1 retries=1 tolerate=3
        place /a/0 w0
        /a/0 exit 1                 -> PENDING
        queue                       -> /a/0 /a/1 /a/2
        place /a/0 w0               -> placed
        place /a/1 w0               -> array_limit
        /a/0 exit 1                 -> FAILED
        place /a/1 w0               -> placed
    """)


def test_a_refusal_by_the_limit_is_no_failed_try_of_the_session(script):
    script.play("""
        worker w0 cpu=8
        submit /a replicas=2 parallel=1
        place /a/0 w0
        place /a/1 w0               -> array_limit
        session /a/1                -> PENDING tries=-
    """)


def test_a_rerun_of_a_part_keeps_positions_values_and_the_limit(script):
    script.play("""
        worker w0 cpu=8
        submit /a replicas=5 array=0-15:4,20 parallel=2 tolerate=5
        place /a/0 w0
        /a/0 exit 0
        place /a/1 w0
        /a/1 exit 1
        place /a/2 w0
        /a/2 exit 0
        place /a/3 w0
        /a/3 exit 1
        place /a/4 w0
        /a/4 exit 1
        rerun /a --failed           -> created j2
        queue                       -> /a/1 /a/3 /a/4
        place /a/1 w0               -> placed
        place /a/3 w0               -> placed
        place /a/4 w0               -> array_limit
    """)
    job = script.world.ledger.jobs[2]
    assert [job.spec.array_index(index) for index in job.indexes] == [4, 12, 20]
    assert template(job).array == "0-15:4,20"


def test_the_limit_survives_a_snapshot(script):
    script.play("""
        worker w0 cpu=8
        submit /a replicas=3 parallel=1
        place /a/0 w0
        takeover 1
        heartbeat w0
        place /a/1 w0               -> array_limit
    """)


def test_no_host_is_missing_for_tasks_over_the_limit(script):
    script.play("""
        worker w0 cpu=2
        submit /x cpu=2
        schedule
        submit /a replicas=100 parallel=4 cpu=1
    """)
    assert hosts(script) == [(2, 2)]
