"""What an exit code means is said by the job: retry, requeue with a counter of its own, or no retry
at all.

docs/design/semantics.md#tasks-and-attempts.
"""

from iris_core.spec.jobs import JobSpec


def test_a_requeue_is_no_failure_and_has_a_bound_of_its_own(script):
    script.play("""
        worker w0
        submit /a on_exit=75,64-78=requeue requeues=2 retries=1
        schedule
        /a/0 exit 75        -> PENDING failures=0 requeues=1
        attempt /a/0#0      -> state=failed charged_to=requeue requeued=yes
        schedule
        /a/0 exit 66        -> PENDING failures=0 requeues=2
        schedule
        /a/0 exit 1         -> PENDING failures=1 requeues=2
        schedule
        /a/0 exit 75        -> FAILED failures=1 requeues=3 no_retry=yes
        attempt /a/0#2      -> charged_to=failure requeued=no
        attempt /a/0#3      -> charged_to=requeue requeued=no
        job /a              -> error=~exit_code_75,_more_than_2_times_(max_requeues):_raise_--max-requeues
        job /a              -> FAILED
    """)


def test_a_requeued_task_says_so_until_it_runs_again_and_after_a_cancel(script):
    script.play("""
        worker w0
        submit /a on_exit=75=requeue
        schedule
        /a/0 exit 75        -> PENDING
    """)
    message = "it asked to be requeued on w0 with exit code 75"
    assert script.world.query("why", task="/a/0")["interrupted"]["message"] == message
    script.play("""
        cancel /a
        /a/0                -> KILLED
        attempt /a/0#0      -> requeued=yes
    """)


def test_a_code_that_is_not_to_be_retried_ends_the_task_at_once(script):
    script.play("""
        worker w0
        submit /a on_exit=2=fail retries=5
        schedule
        /a/0 exit 1         -> PENDING failures=1
        schedule
        /a/0 exit 2         -> FAILED failures=2 no_retry=yes
        attempt /a/0#1      -> charged_to=failure
    """)


def test_the_first_rule_that_matches_counts(script):
    script.play("""
        worker w0
        submit /a on_exit=3=retry;1-255=fail retries=1
        schedule
        /a/0 exit 3         -> PENDING failures=1
        schedule
        /a/0 exit 4         -> FAILED failures=2
    """)


def test_a_signal_matches_its_rule_and_no_code(script):
    script.play("""
        worker w0
        submit /a on_exit=SIGBUS=requeue
        schedule
        /a/0 sigbus         -> PENDING requeues=1
        schedule
        /a/0 exit 7         -> FAILED failures=1
    """)


def test_a_requeued_task_keeps_its_place(script):
    script.play("""
        worker w0
        submit /a on_exit=75=requeue
        submit /b
        place /a/0 w0
        /a/0 exit 75        -> PENDING
        queue               -> /a/0 /b/0
    """)


def test_preemption_and_loss_of_hosts_are_charged_as_ever(script):
    script.play("""
        worker w0
        submit /a on_exit=1-255=fail band=batch
        submit /p band=production
        place /a/0 w0
        /a/0 run
        /a/0 preempt for /p/0   -> PENDING preemptions=1 requeues=0
    """)


def test_only_the_code_of_the_member_that_failed_first_counts(script):
    script.play("""
        worker w0 rack=r1
        worker w1 rack=r1
        submit /g replicas=2 gang=rack on_exit=75=requeue;143=fail requeues=1
        place /g w0 w1
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        /g/1 exit 75            -> PENDING requeues=1
        /g/0#0 exit 143         -> PENDING requeues=0 failures=0
        session /g              -> PENDING
        place /g w0 w1
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        /g/0 exit 75            -> PENDING requeues=1
        /g/1#1 stopped          -> PENDING requeues=1
        place /g w0 w1
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        /g/0 exit 75            -> FAILED requeues=2
        /g/1                    -> WORKER_FAILED requeues=1
        job /g                  -> FAILED
    """)


def test_a_pause_doubles_with_each_retry_that_a_task_asks_for(script):
    script.play("""
        worker w0
        submit /a retries=9 on_exit=75=requeue backoff=10 tolerate=1
        schedule
        /a/0 exit 1         -> PENDING failures=1
        queue               -> nothing
        why /a              -> retry_backoff
        wait 9
        queue               -> nothing
        wait 2
        queue               -> /a/0
        schedule            -> placed 1
        /a/0 exit 75        -> PENDING requeues=1
        wait 19
        queue               -> nothing
        wait 2
        schedule            -> placed 1
        /a/0 exit 1         -> PENDING failures=2
        wait 39
        queue               -> nothing
        wait 2
        queue               -> /a/0
    """)


def test_a_pause_is_never_longer_than_five_minutes():
    spec = JobSpec(name="/a", command=("x",), backoff_s=10.0)
    assert [spec.backoff_ms(times) // 1000 for times in (0, 1, 4, 5, 10_000)] == [
        10,
        20,
        160,
        300,
        300,
    ]


def test_a_task_that_lost_its_host_does_not_pause(script):
    script.play("""
        worker w0
        submit /a backoff=10 band=batch
        submit /p band=production
        place /a/0 w0
        /a/0 run
        /a/0 preempt for /p/0   -> PENDING
        /a/0#0 stopped
        queue                   -> /p/0 /a/0
    """)


def test_a_gang_pauses_as_long_as_its_member(script):
    script.play("""
        worker w0 rack=r1
        worker w1 rack=r1
        submit /g replicas=2 gang=rack retries=2 backoff=10
        place /g w0 w1
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        /g/1 exit 1             -> PENDING failures=1
        /g/0#0 stopped
        queue                   -> nothing
        wait 9
        queue                   -> nothing
        wait 2
        queue                   -> /g/0 /g/1
        place /g w0 w1          -> placed
    """)
