"""Retry budgets: what a failure costs, and when retries end.
docs/design/semantics.md#tasks-and-attempts.
"""


def test_a_task_goes_straight_through(script):
    script.play("""
        worker w0 cpu=2
        submit /a              -> created
        events /a/0            -> pending
        schedule               -> placed 1
        /a/0                   -> ASSIGNED worker=w0
        /a/0 building          -> BUILDING
        /a/0 running           -> RUNNING
        wait 3
        /a/0 exit 0            -> SUCCEEDED failures=0 preemptions=0
        job /a                 -> SUCCEEDED cause=- error=-
        events /a/0            -> assigned building running succeeded
        attempt /a/0#0         -> state=succeeded cause=exited charged_to=- exit_code=0 open=no initiator=worker
    """)


def test_the_default_has_no_retry_after_a_failure(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        /a/0 exit 3     -> FAILED failures=1
        job /a          -> FAILED cause=failed error=~exit_code_3
        attempt /a/0#0  -> state=failed charged_to=failure exit_code=3 failure_count=0>1 open=no
    """)


def test_a_failure_within_budget_returns_to_pending(script):
    script.play("""
        worker w0
        submit /a retries=1
        schedule
        /a/0 running
        /a/0 exit 1     -> PENDING failures=1
        job /a          -> RUNNING
        queue           -> /a/0
        schedule
        /a/0 running    -> RUNNING attempts=2
        /a/0 exit 1     -> FAILED failures=2
        attempt /a/0#1  -> failure_count=1>2
        job /a          -> FAILED
        events /a/0     -> pending assigned running pending assigned running failed
    """)


def test_a_failure_may_come_before_anything_else_was_heard(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 exit 1     -> FAILED failures=1
    """)


def test_a_success_may_come_before_anything_else_was_heard(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 exit 0     -> SUCCEEDED
        capacity w0     -> cpu=1 building=0
    """)


def test_death_by_a_signal_is_a_failure_of_the_task(script):
    from iris_core.messages.state_worker import Ended, Stage
    from iris_core.states import Cause, KernelStatus

    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
    """)
    (ref,) = script.world.hosts["w0"].believes
    ended = Ended(Cause.EXITED, signal=11)
    script.world.say("w0", Stage(ref, KernelStatus.TERMINATED, script.world.now_ms, ended))
    script.play("""
        /a/0            -> FAILED failures=1
        attempt /a/0#0  -> signal=11 exit_code=-
        job /a          -> FAILED error=~signal_11
    """)


def test_an_infrastructure_error_is_charged_to_preemptions(script):
    script.play("""
        worker w0
        submit /a preemptions=1
        schedule
        /a/0 building
        /a/0 infra      -> PENDING failures=0 preemptions=1
        attempt /a/0#0  -> state=worker_failed cause=infrastructure charged_to=preemption open=no
        wait 6
        schedule
        /a/0 building
        /a/0 infra      -> WORKER_FAILED preemptions=2
        job /a          -> WORKER_FAILED cause=infrastructure
    """)


def test_an_attempt_missing_on_its_worker_is_charged_to_preemptions(script):
    script.play("""
        worker w0
        submit /a preemptions=0
        schedule
        /a/0 running
        /a/0 missing    -> WORKER_FAILED preemptions=1
        attempt /a/0#0  -> cause=missing charged_to=preemption
    """)


def test_what_never_started_is_lost_for_free(script):
    script.play("""
        worker w0
        submit /a preemptions=0
        schedule
        /a/0 infra      -> PENDING preemptions=0
        attempt /a/0#0  -> charged_to=reschedule
        wait 6
        schedule
        lose w0         -> lost
        /a/0            -> PENDING preemptions=0 attempts=2
    """)


def test_a_lost_worker_takes_a_preemption_of_what_ran_on_it(script):
    script.play("""
        worker w0 cpu=3
        submit /a replicas=3 preemptions=0
        schedule
        /a/0 running
        /a/1 building
        lose w0
        /a/0            -> WORKER_FAILED preemptions=1
        /a/1            -> WORKER_FAILED preemptions=1
        /a/2            -> PENDING preemptions=0
        attempt /a/0#0  -> cause=worker_lost charged_to=preemption open=no initiator=system
    """)


def test_the_two_budgets_are_independent(script):
    script.play("""
        worker w0
        submit /a retries=1 preemptions=1
        schedule
        /a/0 running
        /a/0 exit 1     -> PENDING failures=1 preemptions=0
        schedule
        /a/0 running
        /a/0 missing    -> PENDING failures=1 preemptions=1
        schedule
        /a/0 running
        /a/0 exit 1     -> FAILED failures=2 preemptions=1
    """)


def test_a_hundred_preemptions_are_forgiven_by_default(script):
    script.play("""
        worker w0
        submit /a
    """)
    for n in range(1, 101):
        script.play(f"""
            schedule        -> placed 1
            /a/0 running
            /a/0 missing    -> PENDING preemptions={n}
        """)
    script.play("""
        schedule
        /a/0 running
        /a/0 missing    -> WORKER_FAILED preemptions=101
    """)


def test_a_preemption_before_the_start_is_free(script):
    script.play("""
        worker w0 cpu=1
        submit /batch preemptions=0 band=batch -> created
        schedule                               -> placed 1
        submit /prod band=production
        /batch/0 preempt for /prod/0           -> PENDING preemptions=0
        attempt /batch/0#0                     -> state=preempted cause=preempted charged_to=reschedule open=yes
        /batch/0#0 stopped                     -> PENDING
        schedule                               -> placed 1
        /prod/0 running                        -> RUNNING
        /prod/0 exit 0                         -> SUCCEEDED
        schedule                               -> placed 1
        /batch/0 running                       -> RUNNING
        submit /again band=production
        /batch/0 preempt for /again/0          -> PREEMPTED preemptions=1
        job /batch                             -> WORKER_FAILED cause=preempted error=~preempted_for_/again
    """)


def test_a_preemption_within_budget_leaves_only_the_attempt_preempted(script):
    script.play("""
        worker w0 cpu=1
        submit /batch preemptions=1 band=batch
        schedule
        /batch/0 building
        submit /prod band=production
        /batch/0 preempt for /prod/0    -> PENDING preemptions=1
        attempt /batch/0#0              -> state=preempted charged_to=preemption initiator=scheduler
        attempt /batch/0#0              -> preemption_count=0>1 failure_count=0>0
        events /batch/0                 -> pending assigned building pending
    """)


def test_free_returns_end_somewhere_too(script):
    script.play("""
        policy max_reschedules=2
        worker w0
        submit /a
    """)
    for _ in range(2):
        script.play("""
            schedule     -> placed 1
            /a/0 infra   -> PENDING
            wait 60
        """)
    script.play("""
        schedule
        /a/0 infra      -> UNSCHEDULABLE preemptions=0
        job /a          -> UNSCHEDULABLE cause=reschedules_spent
        attempt /a/0#2  -> state=worker_failed charged_to=reschedule
    """)


def test_a_task_that_failed_to_start_avoids_that_worker_for_longer(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 infra      -> PENDING
        avoided         -> w0:0:5
        schedule        -> placed 0
        wait 6
        schedule        -> placed 1
        /a/0 infra
        avoided         -> w0:0:10
        wait 11
        schedule
        /a/0 infra
        avoided         -> w0:0:20
    """)


def test_a_failure_of_the_task_itself_keeps_it_off_nothing(script):
    script.play("""
        worker w0
        submit /a retries=1
        schedule
        /a/0 running
        /a/0 exit 1
        avoided         -> nothing
    """)


def test_requeued_task_maintains_priority(script):
    script.play("""
        worker w0 cpu=1
        submit /first retries=1
        wait 1
        submit /second
        schedule
        /first/0 running
        /first/0 exit 1     -> PENDING
        queue               -> /first/0 /second/0
    """)


def test_killed_is_never_retried(script):
    script.play("""
        worker w0
        submit /a retries=5 preemptions=5
        schedule
        /a/0 running
        cancel /a           -> accepted
        /a/0                -> KILLED failures=0 preemptions=0
        attempt /a/0#0      -> state=killed cause=cancelled initiator=user charged_to=- stage=terminating
        /a/0 stopped        -> KILLED
        attempt /a/0#0      -> stage=terminated open=no
    """)


def test_the_while_grows_with_failures_on_that_worker_alone(script):
    script.play("""
        worker w0
        worker w1
        submit /a retries=5
        place /a/0 w1
        /a/0 infra
        avoided         -> w1:0:5
        wait 6
        place /a/0 w0
        /a/0 running
        /a/0 exit 1
        place /a/0 w0
        /a/0 infra
        avoided         -> w0:0:5
    """)


def test_the_while_has_an_end(script):
    script.play("""
        policy avoid_s=5 avoid_longest_s=12
        worker w0
        submit /a
    """)
    for seconds in (5, 10, 12, 12):
        script.play(f"""
            schedule        -> placed 1
            /a/0 infra
            avoided         -> w0:0:{seconds}
            wait 13
        """)


def test_what_a_task_avoids_is_forgotten_when_it_ends(script):
    """Two tasks of two jobs: one ends with its job, one by itself."""
    script.play("""
        worker w0
        worker w1
        submit /a
        submit /b replicas=2
        place /a/0 w0
        /a/0 infra
        place /b/1 w0
        /b/1 infra
        avoided         -> w0:0:5 w0:1:5
        cancel /a
        avoided         -> w0:1:5
        place /b/1 w1
        /b/1 running
        /b/1 exit 0     -> SUCCEEDED
        avoided         -> nothing
        job /b          -> RUNNING
    """)
