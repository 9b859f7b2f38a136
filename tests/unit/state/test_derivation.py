"""A job's state is derived from its tasks by the first rule that matches.
docs/design/semantics.md#jobs.
"""


def test_1_all_succeeded(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2
        schedule
        /a/0 exit 0
        job /a          -> RUNNING
        /a/1 exit 0
        job /a          -> SUCCEEDED tasks=succeeded:2
        events /a       -> pending running succeeded
    """)


def test_2_more_failed_than_tolerated(script):
    script.play("""
        worker w0 cpu=4
        submit /a replicas=4 tolerate=1
        schedule
        /a/0 exit 1     -> FAILED
        job /a          -> RUNNING
        /a/1 exit 0
        /a/2 exit 1     -> FAILED
        job /a          -> FAILED tasks=failed:2,killed:1,succeeded:1
    """)


def test_2_failed_comes_before_running(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2
        schedule
        /a/0 exit 0
        /a/1 running
        /a/1 exit 1
        job /a          -> FAILED
    """)


def test_2_attempts_that_will_be_retried_are_not_failed_tasks(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 retries=1
        schedule
        /a/0 exit 1
        /a/1 exit 1
        job /a          -> RUNNING tasks=pending:2
    """)


def test_2_comes_before_3_and_4(script):
    """One task failed, the others wait: over tolerance it is FAILED at once, never UNSCHEDULABLE or
    KILLED.
    """
    script.play("""
        worker w0
        submit /a replicas=2 scheduling_timeout=10
        schedule
        /a/0 exit 1
        job /a          -> FAILED tasks=failed:1,killed:1
        silence 11
        job /a          -> FAILED
    """)


def test_3_any_unschedulable(script):
    script.play("""
        worker w0
        submit /a replicas=2 scheduling_timeout=10
        schedule            -> placed 1
        /a/0 running
        wait 11
        /a/1                -> UNSCHEDULABLE
        /a/0                -> KILLED
        job /a              -> UNSCHEDULABLE cause=scheduling_timeout error=~not_placed_within_10_s
    """)


def test_3_comes_before_4(script):
    script.play("""
        submit /a replicas=2 scheduling_timeout=10
        wait 11
        job /a              -> UNSCHEDULABLE tasks=unschedulable:2
        cancel /a           -> accepted
        job /a              -> UNSCHEDULABLE
    """)


def test_4_any_killed(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 timeout=5
        schedule
        /a/0 running
        wait 6
        /a/0                -> KILLED
        job /a              -> KILLED cause=timeout tasks=killed:2
    """)


def test_4_a_killed_call_of_a_map_lets_the_others_go_on(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 timeout=5 map=yes
        schedule
        /a/0 running
        wait 6
        /a/0                -> KILLED
        job /a              -> RUNNING tasks=assigned:1,killed:1
        /a/1 exit 0
        job /a              -> KILLED cause=timeout tasks=killed:1,succeeded:1
        submit /b replicas=2 map=yes
        cancel /b           -> accepted
        job /b              -> KILLED tasks=killed:2
    """)


def test_5_all_ended_and_some_lost(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 preemptions=0
        schedule
        /a/0 running
        /a/0 missing        -> WORKER_FAILED
        job /a              -> RUNNING
        /a/1 exit 0
        job /a              -> WORKER_FAILED tasks=succeeded:1,worker_failed:1
    """)


def test_5_preempted_counts_as_lost(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 preemptions=0 band=batch
        schedule
        /a/0 running
        submit /b band=production
        /a/0 preempt for /b/0   -> PREEMPTED
        job /a                  -> RUNNING
        /a/1 exit 0
        job /a                  -> WORKER_FAILED tasks=preempted:1,succeeded:1
    """)


def test_5_lost_tasks_do_not_count_against_the_tolerance(script):
    script.play("""
        worker w0 cpu=3
        submit /a replicas=3 preemptions=0 tolerate=0
        schedule
        /a/0 running
        /a/0 missing
        /a/1 running
        /a/1 missing
        job /a              -> RUNNING
        /a/2                -> ASSIGNED
    """)


def test_5_comes_before_6(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 preemptions=0 tolerate=1
        schedule
        /a/0 exit 1
        /a/1 running
        /a/1 missing
        job /a              -> WORKER_FAILED tasks=failed:1,worker_failed:1
    """)


def test_6_all_ended_and_some_failed_within_tolerance(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 tolerate=1
        schedule
        /a/0 exit 1
        /a/1 exit 0
        job /a              -> FAILED tasks=failed:1,succeeded:1
    """)


def test_6_all_failed_within_tolerance(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 tolerate=2
        schedule
        /a/0 exit 1
        /a/1 exit 1
        job /a              -> FAILED tasks=failed:2
    """)


def test_7_any_assigned_building_or_running(script):
    script.play("""
        worker w0
        submit /a replicas=2
        job /a              -> PENDING
        place /a/0 w0
        job /a              -> RUNNING
        /a/0 building
        job /a              -> RUNNING
        events /a           -> pending running
    """)


def test_7_what_has_started_stays_running(script):
    script.play("""
        worker w0
        submit /a
        place /a/0 w0
        /a/0 infra          -> PENDING
        job /a              -> RUNNING tasks=pending:1
    """)


def test_8_pending(script):
    script.play("""
        submit /a replicas=3
        job /a              -> PENDING tasks=pending:3
    """)


def test_a_job_that_has_ended_never_changes(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2
        schedule
        /a/0 exit 1
        job /a              -> FAILED
        /a/1 exit 0         -> KILLED
        lose w0
        cancel /a
        job /a              -> FAILED
        events /a           -> pending running failed
    """)
