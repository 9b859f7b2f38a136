"""Timeouts set by a job's owner. docs/design/semantics.md#jobs,
docs/design/semantics.md#tasks-and-attempts.
"""


def test_a_task_that_runs_longer_than_its_timeout_is_killed(script):
    script.play("""
        worker w0
        submit /a timeout=10 retries=5 preemptions=5
        schedule
        wait 60
        /a/0 running
        wait 9.9
        /a/0            -> RUNNING
        wait 0.1
        /a/0            -> KILLED failures=0 preemptions=0
        attempt /a/0#0  -> cause=timeout error=~ran_longer_than_10_s initiator=system
        told w0         -> ~stop:/a/0#0
        job /a          -> KILLED cause=timeout
    """)


def test_a_timeout_counts_from_the_start_of_each_attempt(script):
    script.play("""
        worker w0
        submit /a timeout=10 retries=1
        schedule
        /a/0 running
        wait 9
        /a/0 exit 1     -> PENDING
        wait 20
        /a/0            -> PENDING
        schedule
        /a/0 running
        wait 9
        /a/0            -> RUNNING
        wait 2
        /a/0            -> KILLED
    """)


def test_unset_means_never(script):
    script.play("""
        worker w0
        submit /a
        submit /b
        schedule        -> placed 1
        /a/0 running
        wait 2000
        /a/0            -> RUNNING
        /b/0            -> PENDING
    """)


def test_a_task_never_placed_is_unschedulable_after_its_timeout(script):
    script.play("""
        submit /a scheduling_timeout=10
        wait 9.9
        /a/0            -> PENDING
        wait 0.1
        /a/0            -> UNSCHEDULABLE attempts=0 error=~not_placed_within_10_s
        job /a          -> UNSCHEDULABLE
        queue           -> nothing
        history /a      -> ~ScheduleNewSessions pending>cancelled EXPIRED
    """)


def test_a_late_retry_is_not_unschedulable(script):
    script.play("""
        worker w0
        submit /a scheduling_timeout=10 retries=1
        schedule
        /a/0 running
        wait 5
        /a/0 exit 1     -> PENDING
        wait 60
        /a/0            -> PENDING
        job /a          -> RUNNING
    """)


def test_a_placed_task_is_not_unschedulable(script):
    script.play("""
        worker w0
        submit /a scheduling_timeout=10
        schedule
        wait 11
        /a/0            -> ASSIGNED
    """)


def test_a_gang_never_placed_is_unschedulable_whole(script):
    script.play("""
        worker w0 rack=r1
        submit /g replicas=2 gang=rack scheduling_timeout=10
        schedule        -> placed 0
        wait 11
        session /g      -> CANCELLED
        job /g          -> UNSCHEDULABLE tasks=unschedulable:2
        history /g      -> ScheduleNewSessions pending>cancelled EXPIRED (not placed within 10 s of submission)
    """)
